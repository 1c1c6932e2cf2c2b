package s3store_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// uses are what an operation of a policy stands for, all of it. There is an object "k",
// and none "missing".
var uses = map[string]func(ctx context.Context, st *s3store.Store) error{
	"get": func(ctx context.Context, st *s3store.Store) error {
		if _, err := st.Get(ctx, "k", ""); err != nil {
			return err
		}
		_, err := st.Get(ctx, "missing", "")
		return unless(err, store.ErrNotExist)
	},
	"put": func(ctx context.Context, st *s3store.Store) error {
		obj, err := st.Put(ctx, "put", []byte("1"), store.IfAbsent())
		if err != nil {
			return err
		}
		if _, err = st.Put(ctx, "put", []byte("2"), store.IfMatch(obj.Version)); err != nil {
			return err
		}
		_, err = st.Put(ctx, "missing", []byte("3"), store.IfMatch(obj.Version))
		return unless(err, store.ErrNotExist)
	},
	"list": func(ctx context.Context, st *s3store.Store) error {
		if keys, err := drain(ctx, st, "", ""); err != nil || !slices.Contains(keys, "k") {
			return cmp.Or(err, fmt.Errorf("the list is %q", keys))
		}
		_, err := drain(ctx, st, "a/b", "a/b/c")
		return err
	},
	"delete": func(ctx context.Context, st *s3store.Store) error {
		if err := st.Delete(ctx, "k"); err != nil {
			return err
		}
		return st.Delete(ctx, "missing")
	},
	"large": func(ctx context.Context, st *s3store.Store) error {
		if _, err := st.PutLarge(ctx, "large", random(part+1)); err != nil {
			return err
		}
		r, _, err := st.GetLarge(ctx, "large")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		_ = r.Close()
		if err != nil {
			return err
		}
		_, _, err = st.GetLarge(ctx, "missing")
		if err = unless(err, store.ErrNotExist); err != nil {
			return err
		}
		// One that fails leaves no parts behind.
		_, err = st.PutLarge(ctx, "broken", source{size: part, err: errOwnCause}.reader())
		if err != nil && strings.Contains(err.Error(), "its parts stay") {
			return fmt.Errorf("%w to abort: %w", store.ErrDenied, err)
		}
		return unless(err, errOwnCause)
	},
}

// implied are the operations that come with one.
var implied = map[string][]string{
	"get":    {"get", "list"},
	"put":    {"put", "get", "list"},
	"list":   {"list"},
	"delete": {"delete"},
	"large":  {"large", "put", "get", "list"},
}

// unless gives nil for an error that was to be.
func unless(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return cmp.Or(err, fmt.Errorf("no error, want %w", want))
}

// An arena is a server on which there are identities with policies.
type arena struct {
	server *servers.Server
	client func(t *testing.T, p policy) *s3.Client
	// unasked reports that the server does not ask for what a statement allows.
	unasked func(operation, sid, action string) bool
}

// arenas runs test on every server that has identities, and on S3's own rules in both
// of the ways in which it may be about missing objects.
func arenas(t *testing.T, test func(t *testing.T, a arena)) {
	t.Helper()
	for _, name := range servers.IAMNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.StartIAM(t, name)
			test(t, arena{
				server: srv,
				client: func(t *testing.T, p policy) *s3.Client {
					t.Helper()
					return srv.Restricted(t, p.String()).Client()
				},
				unasked: func(operation, _, action string) bool {
					return action == "s3:ListBucket" && operation != "list" || action == "s3:GetObject" && operation == "put"
				},
			})
		})
	}
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprintf("rules of S3/prefix of a missing object %t", keyed), func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, "versitygw")
			test(t, arena{
				server: srv,
				client: func(t *testing.T, p policy) *s3.Client {
					t.Helper()
					return srv.ClientAt((&judge{identity: p, keyed: keyed}).start(t, srv.Endpoint))
				},
				unasked: func(operation, sid, _ string) bool {
					return operation != "list" && (keyed && sid == "TellMissing" || !keyed && sid == "List")
				},
			})
		})
	}
}

// as opens a bucket with a client, and makes what uses need.
func (a arena) as(t *testing.T, client *s3.Client, bucket string) *s3store.Store {
	t.Helper()
	_, err := open(t, a.server.Client(), bucket).Put(t.Context(), "k", []byte("x"), store.IfAbsent())
	if err != nil && !errors.Is(err, store.ErrPrecondition) {
		t.Fatal(err)
	}
	return open(t, client, bucket).Store
}

// policyOf is the policy for the operations of a bucket.
func policyOf(t *testing.T, client *s3.Client, bucket string, operations ...string) policy {
	t.Helper()
	document, err := open(t, client, bucket).Policy(operations...)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, document)
}

// A policy allows what it says, and neither another operation nor another prefix.
func TestPolicyAllows(t *testing.T) {
	arenas(t, func(t *testing.T, a arena) {
		for operation := range uses {
			bucket := a.server.Bucket(t)
			client := a.client(t, policyOf(t, a.server.Client(), bucket, operation))
			for other, use := range uses {
				err := use(t.Context(), a.as(t, client, bucket))
				switch {
				case slices.Contains(implied[operation], other) && err != nil:
					t.Errorf("who may %s cannot %s: %v", operation, other, err)
				case !slices.Contains(implied[operation], other) && !errors.Is(err, store.ErrDenied):
					t.Errorf("who may %s can %s: %v", operation, other, err)
				}
				elsewhere, err := s3store.New(client, bucket, &s3store.Options{Prefix: "some/prefixed"})
				if err != nil {
					t.Fatal(err)
				}
				if err = use(t.Context(), elsewhere); !errors.Is(err, store.ErrDenied) {
					t.Errorf("who may %s can %s below another prefix: %v", operation, other, err)
				}
				a.clear(t, bucket)
			}
			// The doc comment says this of requests that name no prefix.
			_, err := client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
			if denied := isDenied(err); denied == slices.Contains(implied[operation], "get") {
				t.Errorf("who may %s lists without a prefix: %v", operation, err)
			}
		}
	})
}

// clear removes what uses leave.
func (a arena) clear(t *testing.T, bucket string) {
	t.Helper()
	st := open(t, a.server.Client(), bucket)
	for _, key := range []string{"k", "put", "large"} {
		if err := st.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

func isDenied(err error) bool {
	answer, ok := errors.AsType[smithy.APIError](err)
	return ok && answer.ErrorCode() == "AccessDenied"
}

// Nothing can be taken from a policy: it is the smallest.
func TestPolicyIsSmallest(t *testing.T) {
	arenas(t, func(t *testing.T, a arena) {
		taken := 0
		for operation, use := range uses {
			bucket := a.server.Bucket(t)
			whole := policyOf(t, a.server.Client(), bucket, operation)
			for i, r := range whole.Statement {
				for j, action := range r.Action {
					if a.unasked(operation, r.Sid, action) {
						continue
					}
					taken++
					less := parse(t, whole.String())
					less.Statement[i].Action = slices.Delete(less.Statement[i].Action, j, j+1)
					if len(less.Statement[i].Action) == 0 {
						less.Statement = slices.Delete(less.Statement, i, i+1)
					}
					if len(less.Statement) == 0 { // which no server takes
						less.Statement = []rule{{Sid: "Nothing", Effect: "Allow", Action: many{"s3:GetObject"}, Resource: many{"arn:aws:s3:::" + bucket + "/nothing"}}}
					}
					if err := use(t.Context(), a.as(t, a.client(t, less), bucket)); !errors.Is(err, store.ErrDenied) {
						t.Errorf("to %s, %s of the statement %s is not needed: %v", operation, action, r.Sid, err)
					}
					a.clear(t, bucket)
				}
			}
		}
		if taken < 7 {
			t.Errorf("only %d actions were taken away", taken)
		}
	})
}

func TestPolicyDocument(t *testing.T) {
	for _, c := range []struct {
		name, region, bucket, prefix string
		operations                   []string
		want                         []string // each in the policy
	}{
		{
			"no prefix", "", "b", "",
			[]string{"list", "get"},
			[]string{`"Resource": "arn:aws:s3:::b/*"`, `"Resource": "arn:aws:s3:::b"` + "\n    }\n  ]\n}"},
		},
		{
			"wildcards are escaped", "", "b", "a*/${b}?&",
			[]string{"list", "get"},
			[]string{`"arn:aws:s3:::b/a${*}/${$}{b}${?}&/*"`, `"s3:prefix": "a${*}/${$}{b}${?}&/*"`},
		},
		{"other characters are escaped", "", "b", "é/𝛼", []string{"get"}, []string{`"arn:aws:s3:::b/\u00e9/\ud835\udefc/*"`}},
		{"China", "cn-north-1", "b", "p", []string{"get"}, []string{`"arn:aws-cn:s3:::b/p/*"`, `"arn:aws-cn:s3:::b"`}},
		{"GovCloud", "us-gov-west-1", "b", "p", []string{"get"}, []string{`"arn:aws-us-gov:s3:::b/p/*"`}},
		{"Europe", "eu-central-1", "b", "p", []string{"get"}, []string{`"arn:aws:s3:::b/p/*"`}},
		{"ISO", "us-iso-east-1", "b", "p", []string{"get"}, []string{`"arn:aws-iso:s3:::b/p/*"`}},
		{"ISOB", "us-isob-east-1", "b", "p", []string{"get"}, []string{`"arn:aws-iso-b:s3:::b/p/*"`}},
		{"ISOE", "eu-isoe-west-1", "b", "p", []string{"get"}, []string{`"arn:aws-iso-e:s3:::b/p/*"`}},
		{"ISOF", "us-isof-south-1", "b", "p", []string{"get"}, []string{`"arn:aws-iso-f:s3:::b/p/*"`}},
		{"European Sovereign Cloud", "eusc-de-east-1", "b", "p", []string{"get"}, []string{`"arn:aws-eusc:s3:::b/p/*"`}},
		{
			"directory bucket, to read", "us-west-2", "b--usw2-az1--x-s3", "p",
			[]string{"get", "list"},
			[]string{`"s3express:CreateSession"`, `"arn:aws:s3express:*:*:bucket/b--usw2-az1--x-s3"`, `"s3express:SessionMode": "ReadOnly"`},
		},
		{
			"directory bucket, to delete", "us-west-2", "b--usw2-az1--x-s3", "p",
			[]string{"list", "delete"},
			[]string{`"Resource": "arn:aws:s3express:*:*:bucket/b--usw2-az1--x-s3"` + "\n    }\n  ]\n}"},
		},
		{"each once", "", "b", "p", []string{"put", "get", "put"}, []string{"\"Action\": [\n        \"s3:GetObject\",\n        \"s3:PutObject\"\n      ]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, err := s3store.New(s3.New(s3.Options{Region: c.region}), c.bucket, &s3store.Options{Prefix: c.prefix})
			if err != nil {
				t.Fatal(err)
			}
			document, err := st.Policy(c.operations...)
			if err != nil {
				t.Fatal(err)
			}
			if !json.Valid([]byte(document)) {
				t.Error("it is not JSON")
			}
			for _, want := range c.want {
				if strings.Count(document, want) == 0 {
					t.Errorf("it lacks %s", want)
				}
			}
			if t.Failed() {
				t.Log(document)
			}
		})
	}
}

// TestPolicyStatements: which statements each operation takes, all of each.
func TestPolicyStatements(t *testing.T) {
	objects := func(actions, under string) string {
		return `{"Sid":"Objects","Effect":"Allow","Action":["s3:` + strings.ReplaceAll(actions, " ", `","s3:`) + `"],"Resource":"arn:aws:s3:::b/` + under + `*"}`
	}
	const (
		lists  = `{"Sid":"List","Effect":"Allow","Action":["s3:ListBucket"],"Resource":"arn:aws:s3:::b"}`
		listsP = `{"Sid":"List","Effect":"Allow","Action":["s3:ListBucket"],"Resource":"arn:aws:s3:::b","Condition":{"StringLike":{"s3:prefix":"p/*"}}}`
		tells  = `{"Sid":"TellMissing","Effect":"Allow","Action":["s3:ListBucket"],"Resource":"arn:aws:s3:::b","Condition":{"Null":{"s3:prefix":"true"}}}`
	)
	for _, c := range []struct {
		operation, prefix string
		want              []string
	}{
		{"get", "", []string{objects("GetObject", ""), lists}},
		{"get", "p", []string{objects("GetObject", "p/"), listsP, tells}},
		{"put", "p", []string{objects("GetObject PutObject", "p/"), listsP, tells}},
		{"large", "p", []string{objects("GetObject PutObject AbortMultipartUpload", "p/"), listsP, tells}},
		{"list", "", []string{lists}},
		{"list", "p", []string{listsP}},
		{"delete", "", []string{objects("DeleteObject", "")}},
		{"delete", "p", []string{objects("DeleteObject", "p/")}},
	} {
		st, err := s3store.New(s3.New(s3.Options{}), "b", &s3store.Options{Prefix: c.prefix})
		if err != nil {
			t.Fatal(err)
		}
		document, err := st.Policy(c.operation)
		var got bytes.Buffer
		if err == nil {
			err = json.Compact(&got, []byte(document))
		}
		if want := `{"Version":"2012-10-17","Statement":[` + strings.Join(c.want, ",") + "]}"; err != nil || got.String() != want {
			t.Errorf("to %s below %q: %v\n%s, want\n%s", c.operation, c.prefix, err, got.String(), want)
		}
	}
}

// The keys that a policy names are those below its prefix, and no others.
func TestPolicyNamesItsPrefix(t *testing.T) {
	for _, prefix := range []string{"p", "a*", "a?b", "${aws:username}", "$", "é"} {
		st, err := s3store.New(s3.New(s3.Options{}), "b", &s3store.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		document, err := st.Policy("get")
		if err != nil {
			t.Fatal(err)
		}
		j := &judge{identity: parse(t, document)}
		for key, want := range map[string]bool{prefix + "/k": true, prefix + "/": true, prefix + "k": false, "a/b/k": false, "axb/k": false, "ab/k": false, "user/k": false} {
			if j.allows("arn:aws:s3:::b/"+key, nil, "s3:GetObject") != want || j.allows("arn:aws:s3:::b", map[string]string{"s3:prefix": key}, "s3:ListBucket") != want {
				t.Errorf("the policy of %q allows %q: %t", prefix, key, !want)
			}
		}
	}
}

func TestPolicyRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		bucket, says string
		operations   []string
	}{
		"no operation":      {"b", "no operations", nil},
		"unknown operation": {"b", `unknown operation "head"; there are get, put, list, delete, large`, []string{"get", "head"}},
		"access point":      {"arn:aws:s3:us-west-2:123456789012:accesspoint/a", "is an access point", []string{"get"}},
		"alias of one":      {"a-hrzrlukc5m36ft7okagglf3gmwluquse1b-s3alias", "is an access point", []string{"get"}},
		"one of a zone":     {"a--usw2-az1--xa-s3", "is an access point", []string{"get"}},
	} {
		st, err := s3store.New(s3.New(s3.Options{}), c.bucket, nil)
		if err != nil {
			t.Fatal(err)
		}
		document, err := st.Policy(c.operations...)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.says) || document != "" {
			t.Errorf("%s: %q, %v", name, document, err)
		}
	}
}

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
