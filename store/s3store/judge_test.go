package s3store_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A policy is a document for IAM or for a bucket. A single value may stand alone or in
// a list.
type policy struct {
	Version   string
	Statement []rule
}

type rule struct {
	Sid       string
	Effect    string
	Principal string `json:",omitempty"`
	Action    many
	Resource  many
	Condition map[string]map[string]string `json:",omitempty"`
}

type many []string

func (m *many) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(m))
	}
	*m = many{""}
	return json.Unmarshal(b, &(*m)[0])
}

// parse reads a policy, and nothing that it does not know.
func parse(t *testing.T, document string) (p policy) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(document))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatalf("%v in %s", err, document)
	}
	return p
}

func (p policy) String() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// wildcards are those of a pattern, in a regular expression in which it is quoted.
var wildcards = strings.NewReplacer(
	`\$\{\*\}`, `\*`, `\$\{\?\}`, `\?`, `\$\{\$\}`, `\$`, // each stands for itself
	`\*`, `.*`, `\?`, `.`,
)

func like(pattern, s string) bool {
	return regexp.MustCompile(`^(?s:` + wildcards.Replace(regexp.QuoteMeta(pattern)) + `)$`).MatchString(s)
}

// holds reports whether all conditions of the rule do.
func (r rule) holds(keys map[string]string) bool {
	for operator, conditions := range r.Condition {
		for key, want := range conditions {
			value, there := keys[key]
			var ok bool
			switch operator {
			case "Null":
				ok = want == fmt.Sprint(!there)
			case "Bool":
				ok = there && value == want
			case "StringLike":
				ok = there && like(want, value)
			default:
				panic("unknown operator " + operator)
			}
			if !ok {
				return false
			}
		}
	}
	return true
}

// A judge is a proxy before a server that everything is allowed on. It judges requests by
// policies, as S3 says that it does, because no server at hand asks for all
// that S3 does. It is no copy of S3: where S3 does not say, there is a switch.
type judge struct {
	identity policy // of who sends the requests
	bucket   policy // of the bucket
	// keyed: a GET of an object that does not exist has its key as s3:prefix. If not, it
	// has none.
	keyed bool
}

// allows reports whether all actions are allowed by the identity's policy and denied by
// no other.
func (j *judge) allows(arn string, keys map[string]string, actions ...string) bool {
	for _, action := range actions {
		allowed := false
		for _, r := range slices.Concat(j.identity.Statement, j.bucket.Statement) {
			named := slices.Contains(r.Action, action) && slices.ContainsFunc(r.Resource, func(p string) bool { return like(p, arn) })
			switch {
			case !named || !r.holds(keys):
			case r.Effect == "Deny":
				return false
			default:
				allowed = true
			}
		}
		if !allowed {
			return false
		}
	}
	return true
}

// asks says what S3 wants to be allowed for a request.
func asks(r *http.Request) (arn string, keys map[string]string, actions []string) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	keys = map[string]string{}
	if key == "" {
		if query.Has("prefix") {
			keys["s3:prefix"] = query.Get("prefix")
		}
		return "arn:aws:s3:::" + bucket, keys, []string{"s3:ListBucket"}
	}
	for _, header := range []string{"If-Match", "If-None-Match"} {
		if value := r.Header.Get(header); value != "" {
			keys["s3:"+strings.ToLower(header)] = value
		}
	}
	keys["s3:ObjectCreationOperation"] = fmt.Sprint(r.Method == http.MethodPut && !query.Has("partNumber") || r.Method == http.MethodPost && query.Has("uploadId"))
	switch {
	case r.Method == http.MethodGet:
		actions = []string{"s3:GetObject"}
	case r.Method == http.MethodDelete && query.Has("uploadId"):
		actions = []string{"s3:AbortMultipartUpload"}
	case r.Method == http.MethodDelete:
		actions = []string{"s3:DeleteObject"}
	case r.Header.Get("If-Match") != "":
		actions = []string{"s3:PutObject", "s3:GetObject"}
	default:
		actions = []string{"s3:PutObject"}
	}
	return "arn:aws:s3:::" + bucket + "/" + key, keys, actions
}

// start starts the judge before a server and gives its address.
func (j *judge) start(t *testing.T, endpoint string) string {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // which is signed
		},
		ModifyResponse: func(answer *http.Response) error {
			// A client that may not list is not told that the object is missing.
			bucket, key, _ := strings.Cut(strings.TrimPrefix(answer.Request.URL.Path, "/"), "/")
			keys := map[string]string{}
			if j.keyed {
				keys["s3:prefix"] = key
			}
			if answer.StatusCode == http.StatusNotFound && !j.allows("arn:aws:s3:::"+bucket, keys, "s3:ListBucket") {
				answer.StatusCode = http.StatusForbidden
			}
			return nil
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arn, keys, actions := asks(r); !j.allows(arn, keys, actions...) {
			http.Error(w, xmlError("AccessDenied", "Access Denied"), http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
