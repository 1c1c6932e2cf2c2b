package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
)

type route struct {
	method, path string // as in the OpenAPI document
	answer       func(s *Server, c *call) (status int, data any, err error)
	queries      []string
}

// routes has all routes. Paths of the same shape are next to each other.
var routes = []route{
	{"POST", "/v1/locks/{key}/acquire", (*Server).postAcquire, nil},
	{"POST", "/v1/elections/{key}/campaign", (*Server).postCampaign, nil},
	{"POST", "/v1/locks/{key}/break", (*Server).postBreak, nil},
	{"POST", "/v1/leases/{id}/keepalive", (*Server).postKeepalive, nil},
	{"GET", "/v1/leases/{id}", (*Server).getLease, []string{"wait"}},
	{"DELETE", "/v1/leases/{id}", (*Server).deleteLease, nil},
	{"GET", "/v1/locks", (*Server).getLocks, nil},
	{"GET", "/v1/locks/{key}/history", (*Server).getHistory, nil},
	{"GET", "/v1/locks/{key}", (*Server).getLock, nil},
	{"GET", "/v1/elections/{key}", (*Server).getElection, nil},
	{"GET", "/v1/events", (*Server).getEvents, nil},
	{"GET", "/healthz", (*Server).getHealthz, nil},
	{"GET", "/readyz", (*Server).getReadyz, nil},
	{"GET", "/metrics", (*Server).getMetrics, nil},
	{"GET", "/openapi.json", (*Server).getOpenAPI, nil},
}

// A match is a matching route, with the key or ID in the path, still escaped.
type match struct {
	*route
	param string
}

// matchRoute returns the routes for an escaped path: at most one for each method.
func matchRoute(path string) (found []match) {
	for i := range routes {
		r := &routes[i]
		head, tail, is := strings.Cut(r.path, "{key}")
		if !is {
			head, tail, is = strings.Cut(r.path, "{id}")
		}
		if !is {
			if path == r.path {
				found = append(found, match{r, ""})
			}
			continue
		}
		if len(path) <= len(head)+len(tail) || !strings.HasPrefix(path, head) || !strings.HasSuffix(path, tail) {
			continue
		}
		param := path[len(head) : len(path)-len(tail)]
		if strings.Contains(r.path, "{id}") && strings.Contains(param, "/") {
			continue
		}
		if slices.ContainsFunc(found, func(m match) bool { return m.method == r.method }) {
			continue // a route with that method has matched before
		}
		found = append(found, match{r, param})
	}
	return found
}

// A call is one request.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	param string // the key or the ID
	done  bool   // it has been answered
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if h := s.mount(r.URL.Path); h != nil {
		h.ServeHTTP(w, r)
		return
	}
	found := matchRoute(path)
	if len(found) == 0 {
		s.answerRefusal(w, r, refuse(wordUnknown, "there is nothing here: /openapi.json says what there is"))
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	i := slices.IndexFunc(found, func(m match) bool { return m.method == method })
	if i < 0 {
		var allowed []string
		for _, m := range found {
			allowed = append(allowed, m.method)
			if m.method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
		slices.Sort(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		s.answerRefusal(w, r, refuse(wordMethod, "%s is not among the methods of this path: %s", r.Method, strings.Join(allowed, ", ")))
		return
	}
	c := &call{w: w, r: r}
	status, data, err := s.call(c, found[i])
	if f, is := errors.AsType[*refusal](err); r.Context().Err() != nil && err != nil && (!is || f.word == wordStore) {
		err = left() // because of this, the store seemed to fail
	}
	if f, is := errors.AsType[*refusal](err); is {
		s.answerRefusal(w, r, f)
		return
	}
	if err != nil {
		s.answerRefusal(w, r, refuse(wordStore, "%s", oneLine(err)))
		return
	}
	if c.done {
		return
	}
	contentType := ""
	if data != nil {
		contentType = "application/json"
	}
	_ = s.write(w, r, status, contentType, data)
}

func (s *Server) call(c *call, m match) (int, any, error) {
	var err error
	if c.param, err = url.PathUnescape(m.param); err != nil {
		return 0, nil, refuse(wordKey, "the path is not escaped as it should be")
	}
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return 0, nil, refuse(wordQuery, "the query cannot be read: %s", oneLine(err))
	}
	for name, values := range query {
		if !slices.Contains(m.queries, name) || len(values) != 1 {
			return 0, nil, refuse(wordQuery, "%q is not expected in the query, or not so often", name)
		}
	}
	if c.r.Method == http.MethodGet || c.r.Method == http.MethodHead {
		if c.r.ContentLength != 0 && c.r.Body != nil && c.r.Body != http.NoBody {
			return 0, nil, refuse(wordBody, "there is a body, and %s has none", c.r.Method)
		}
	}
	return m.answer(s, c)
}

// patient removes the deadlines of the connection, because the handler limits the time.
// Otherwise the connection would be taken for dead while the request waits. Some writers have
// no deadlines.
func (c *call) patient() {
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
}

func (c *call) wait() (time.Duration, error) {
	text := c.r.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	d, err := durationOf("wait", text, 0, maxWait)
	if f, is := errors.AsType[*refusal](err); is {
		return 0, refuse(wordQuery, "%s", f.detail)
	}
	return d, nil
}

// decode reads the body, which may be empty, into a struct. It refuses unknown members, because
// the caller believes they have an effect.
func (c *call) decode(into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return refuse(wordTooLarge, "the body has more than %d bytes", maxBody)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(wordSlow, "the body has not come in time")
	case err != nil:
		return refuse(wordBody, "the body cannot be read: %s", oneLine(err))
	case len(body) == 0:
		return nil
	}
	kinds := c.r.Header.Values("Content-Type")
	if len(kinds) != 1 {
		return refuse(wordMediaType, "there is a body, so Content-Type must be application/json")
	}
	if kind, _, err := mime.ParseMediaType(kinds[0]); err != nil || kind != "application/json" {
		return refuse(wordMediaType, "Content-Type %q is not application/json", kinds[0])
	}
	if encodings := c.r.Header.Values("Content-Encoding"); len(encodings) > 0 {
		return refuse(wordMediaType, "Content-Encoding %q is not understood", encodings[0])
	}
	return decodeStrictly(body, into)
}

func decodeStrictly(body []byte, into any) error {
	text := bytes.TrimLeft(body, " \t\r\n")
	if len(text) == 0 || text[0] != '{' {
		return refuse(wordBody, "the body is not a JSON object")
	}
	if err := unique(json.NewDecoder(bytes.NewReader(body))); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return refuse(wordBody, "the body is not what is expected: %s", misfit(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return refuse(wordBody, "something follows the JSON object")
	}
	return nil
}

// misfit returns what is wrong with JSON, without Go's names for types.
func misfit(err error) string {
	if e, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		kind := map[reflect.Kind]string{reflect.String: "a string", reflect.Bool: "true or false", reflect.Map: "an object", reflect.Struct: "an object"}[e.Type.Kind()]
		if kind == "" {
			kind = "a whole number" // in 64 bits
		}
		return fmt.Sprintf("%q must be %s, and is: %s", e.Field, kind, e.Value)
	}
	return strings.TrimPrefix(oneLine(err), "json: ")
}

// unique refuses an object with a duplicate name, or with one not in lower case. Go would still
// assign the latter to a member, so two parsers could read different requests.
func unique(dec *json.Decoder) error {
	_, _ = dec.Token()
	seen := map[string]bool{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return refuse(wordBody, "the body is not JSON: %s", oneLine(err))
		}
		text, is := name.(string)
		if !is || seen[text] || text != strings.ToLower(text) {
			return refuse(wordBody, "the member %q is not expected, or stands twice", text)
		}
		seen[text] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return refuse(wordBody, "the body is not JSON: %s", oneLine(err))
		}
	}
	return nil
}
