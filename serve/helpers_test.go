package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
)

// started is a server that is stopped at the end of the test.
func started(t *testing.T, st store.Store, opts *serve.Options) *serve.Server {
	t.Helper()
	s := made(t, st, opts)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func made(t *testing.T, st store.Store, opts *serve.Options) *serve.Server {
	t.Helper()
	s, err := serve.New(st, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stopped stops a server, which must leave nothing.
func stopped(t *testing.T, s *serve.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("the server stopped with %v", err)
	}
	if leases, _, _, _ := s.Sizes(); leases != 0 {
		t.Errorf("%d leases are left", leases)
	}
}

// An answer is what came of a request. The members are of all that may be answered.
type answer struct {
	code   int
	header http.Header
	body   string

	Lease    string    `json:"lease"`
	Key      string    `json:"key"`
	Token    int64     `json:"token"`
	Holder   string    `json:"holder"`
	TTL      int64     `json:"ttl_ms"`
	Left     int64     `json:"left_ms"`
	Deadline time.Time `json:"deadline"`

	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Instance string `json:"instance"`

	Lock      string            `json:"lock"`
	State     string            `json:"state"`
	Kind      string            `json:"kind"`
	Name      string            `json:"name"`
	Address   string            `json:"address"`
	Leading   bool              `json:"leading"`
	Here      int               `json:"here"`
	Waiting   int               `json:"waiting"`
	Session   string            `json:"session"`
	Semaphore *serve.Semaphore  `json:"semaphore"`
	History   []serve.Term      `json:"history"`
	Objects   []serve.Object    `json:"objects"`
	Budget    serve.Budget      `json:"budget"`
	Meta      map[string]string `json:"meta"`
}

// problem is the word of a problem, or "".
func (a answer) problem() string { return strings.TrimPrefix(a.Type, "urn:leasehold:problem:") }

// ask makes a request with a body, or without one where that is empty.
func ask(t *testing.T, h http.Handler, method, path, body string) answer {
	t.Helper()
	return asking(t, t.Context(), h, method, path, body)
}

func asking(t *testing.T, ctx context.Context, h http.Handler, method, path, body string) answer { //nolint:revive // t comes first
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r := httptest.NewRequestWithContext(ctx, method, path, from)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return sent(t, h, r)
}

// sent is what a request is answered with, which must be as the OpenAPI document says.
func sent(t *testing.T, h http.Handler, r *http.Request) answer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return read(t, r.Method, r.URL.EscapedPath(), w.Code, w.Header(), w.Body.Bytes())
}

// read makes out an answer.
func read(t *testing.T, method, path string, code int, header http.Header, body []byte) answer {
	t.Helper()
	a := answer{code: code, header: header, body: string(body)}
	if err := documented(method, path, code, header.Get("Content-Type"), body); err != nil {
		t.Errorf("%s %s, %d: %v\n%s", method, path, code, err, body)
	}
	if strings.Contains(header.Get("Content-Type"), "json") && len(body) > 0 && (path != "/openapi.json" || code != 200) {
		if err := json.Unmarshal(body, &a); err != nil {
			t.Errorf("%s %s, %d: %v\n%s", method, path, code, err, body)
		}
	}
	if goWords.MatchString(a.Detail) {
		t.Errorf("%s %s, %d: what is wrong is said in the words of Go: %s", method, path, code, a.Detail)
	}
	if header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %s, %d: it may be kept in a cache: %v", method, path, code, header)
	}
	if size := header.Get("Content-Length"); len(body) > 0 && size != fmt.Sprint(len(body)) || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s %s, %d: %d bytes with the headers %v", method, path, code, len(body), header)
	}
	if code >= 400 && (a.Status != code || a.Title == "" || a.Detail == "" || !strings.HasPrefix(a.Type, "urn:leasehold:problem:") || !strings.HasPrefix(a.Instance, "urn:leasehold:answer:") ||
		header.Get("Content-Type") != "application/problem+json" || serve.Words()[a.problem()] != code) && method != http.MethodHead {
		t.Errorf("%s %s, %d: it is no problem: %s", method, path, code, body)
	}
	return a
}

// goWords are those of its packages, which nobody knows who asks.
var goWords = regexp.MustCompile(`\bGo\b|struct|json:|[a-z]Body|\bu?int\d*\b|unmarshal|strconv|\bnil\b`)

// acquired is a lease, which must be given.
func acquired(t *testing.T, h http.Handler, key, body string) answer {
	t.Helper()
	a := ask(t, h, "POST", "/v1/locks/"+key+"/acquire", body)
	if a.code != 200 || a.Lease == "" || a.Key != key || a.Token == 0 || a.Left <= 0 {
		t.Fatalf("acquire %s: %d %s", key, a.code, a.body)
	}
	return a
}

// wants checks the status and the problem of an answer.
func wants(t *testing.T, what string, a answer, code int, problem string) {
	t.Helper()
	if a.code != code || a.problem() != problem {
		t.Errorf("%s: %d %s, want %d %s", what, a.code, a.body, code, problem)
	}
}

// document is the OpenAPI document.
var document = sync.OnceValues(func() (doc openAPI, err error) {
	text, err := os.ReadFile("openapi.json")
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	return doc, err
})

type openAPI struct {
	OpenAPI    string                          `json:"openapi"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas   map[string]*schema  `json:"schemas"`
		Responses map[string]response `json:"responses"`
	} `json:"components"`
}

type operation struct {
	OperationID string `json:"operationId"`
	Parameters  []struct {
		Name, In string
		Required bool
	} `json:"parameters"`
	RequestBody *struct {
		Content map[string]struct {
			Schema *schema `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`
	Responses map[string]response `json:"responses"`
}

type response struct {
	Ref         string `json:"$ref"`
	Description string `json:"description"`
	Content     map[string]struct {
		Schema *schema `json:"schema"`
	} `json:"content"`
}

// A schema is as much of one as the document uses.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       string             `json:"type"`
	Format     string             `json:"format"`
	Enum       []string           `json:"enum"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Items      *schema            `json:"items"`
	Additional json.RawMessage    `json:"additionalProperties"`
}

// Of large answers, such as all of a thousand locks, the first few are looked through: it takes longer than all else.
const largeBody, checkedLarge = 8 << 10, 20

var checked atomic.Int64

// documented says how an answer differs from what the document says of it.
func documented(method, path string, code int, kind string, body []byte) error {
	doc, err := document()
	if err != nil {
		return err
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	route := serve.MatchRoute(method, path)
	if route == "" {
		if code != 404 && code != 405 && code != 401 && code != 403 && code != 421 {
			return fmt.Errorf("there is no such route")
		}
		return doc.check(&schema{Ref: "#/components/schemas/Problem"}, body)
	}
	r, is := doc.Paths[route][strings.ToLower(method)].Responses[fmt.Sprint(code)]
	if !is {
		return fmt.Errorf("the document does not say that %s %s answers %d", method, route, code)
	}
	if name, is := strings.CutPrefix(r.Ref, "#/components/responses/"); is {
		r = doc.Components.Responses[name]
	}
	if len(r.Content) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("there is a body")
		}
		return nil
	}
	for name, content := range r.Content {
		if !strings.HasPrefix(kind, name) {
			return fmt.Errorf("the type is %q, not %q", kind, name)
		}
		if strings.HasSuffix(name, "json") && len(body) > 0 && (len(body) < largeBody || checked.Add(1) <= checkedLarge) {
			return doc.check(content.Schema, body)
		}
	}
	return nil
}

// check says how a JSON value differs from a schema.
func (d *openAPI) check(s *schema, text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return err
	}
	return d.differs(s, value, "")
}

func (d *openAPI) differs(s *schema, value any, at string) error {
	if name, is := strings.CutPrefix(s.Ref, "#/components/schemas/"); is {
		if s = d.Components.Schemas[name]; s == nil {
			return fmt.Errorf("%s: there is no schema %s", at, name)
		}
	}
	wrong := func() error { return fmt.Errorf("%s: %v is not of the type %s", at, value, s.Type) }
	switch s.Type {
	case "string":
		text, is := value.(string)
		if !is {
			return wrong()
		}
		if _, err := time.Parse(time.RFC3339Nano, text); s.Format == "date-time" && err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, text) {
			return fmt.Errorf("%s: %q is none of %q", at, text, s.Enum)
		}
	case "integer", "number":
		n, is := value.(json.Number)
		if !is || s.Type == "integer" && strings.ContainsAny(n.String(), ".eE") {
			return wrong()
		}
	case "boolean":
		if _, is := value.(bool); !is {
			return wrong()
		}
	case "array":
		all, is := value.([]any)
		if !is {
			return wrong()
		}
		for i, v := range all {
			if err := d.differs(s.Items, v, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case "object":
		return d.members(s, value, at, wrong)
	default:
		return fmt.Errorf("%s: the schema has the type %q", at, s.Type)
	}
	return nil
}

func (d *openAPI) members(s *schema, value any, at string, wrong func() error) error {
	members, is := value.(map[string]any)
	if !is {
		return wrong()
	}
	for _, name := range s.Required {
		if _, is := members[name]; !is {
			return fmt.Errorf("%s: %s is missing", at, name)
		}
	}
	for name, v := range members {
		p := s.Properties[name]
		if p == nil && len(s.Additional) > 0 && string(s.Additional) != "false" {
			p = new(schema)
			if err := json.Unmarshal(s.Additional, p); err != nil {
				return err
			}
		}
		if p == nil && string(s.Additional) == "false" {
			return fmt.Errorf("%s: %s is not documented", at, name)
		}
		if p != nil {
			if err := d.differs(p, v, at+"."+name); err != nil {
				return err
			}
		}
	}
	return nil
}
