package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// Each thing that callers may have has a bound, beyond which they are refused; and nobody who has some loses it.
func TestBounds(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{Leases: 5, Waiting: 3, Subscribers: 2})
		first := acquired(t, s, "k", `{"ttl":"1h"}`)
		var waits sync.WaitGroup
		for range 3 {
			waits.Go(func() { wants(t, "a wait", ask(t, s, "POST", "/v1/locks/k/acquire", `{"wait":"1m"}`), 409, "held") })
			waits.Go(func() {
				if a := ask(t, s, "GET", "/v1/leases/"+first.Lease+"?wait=1m", ""); a.code != 200 {
					t.Errorf("a wait: %d %s", a.code, a.body)
				}
			})
		}
		synctest.Wait()
		for _, path := range []string{"/v1/locks/k/acquire", "/v1/locks/other/acquire", "/v1/elections/e/campaign"} {
			refused := ask(t, s, "POST", path, `{"wait":"1m"}`)
			wants(t, path, refused, 429, "too-many")
			if refused.header.Get("Retry-After") == "" {
				t.Errorf("%v", refused.header)
			}
		}
		wants(t, "one more that waits for the end", ask(t, s, "GET", "/v1/leases/"+first.Lease+"?wait=1m", ""), 429, "too-many")
		if k := ask(t, s, "POST", "/v1/leases/"+first.Lease+"/keepalive", ""); k.code != 200 {
			t.Errorf("%d %s", k.code, k.body)
		}
		waits.Wait()
		for i := range 4 {
			acquired(t, s, fmt.Sprintf("k%d", i), `{"ttl":"1h"}`)
		}
		wants(t, "one more lease", ask(t, s, "POST", "/v1/locks/k9/acquire", ""), 429, "too-many")
		if d := ask(t, s, "DELETE", "/v1/leases/"+first.Lease, ""); d.code != 204 {
			t.Errorf("%d %s", d.code, d.body)
		}
		acquired(t, s, "k9", `{"ttl":"1h"}`)
		a, b := subscribe(t, s), subscribe(t, s)
		wants(t, "one more stream", ask(t, s, "GET", "/v1/events", ""), 429, "too-many")
		a.leave()
		<-a.done
		c := subscribe(t, s)
		if names, _ := c.take(); c.code != 200 || len(names) != 1 {
			t.Errorf("when one has left: %d %q", c.code, names)
		}
		b.leave()
		c.leave()
		<-b.done
		<-c.done
		stopped(t, s)
	})
}

// What is remembered is bounded, however many leases come and go.
func TestMemory(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{Leases: 50})
		for i := range 500 {
			a := ask(t, s, "POST", fmt.Sprintf("/v1/elections/k%d/campaign", i), "")
			if a.code != 200 {
				t.Fatalf("%d %s", a.code, a.body)
			}
			if d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""); d.code != 204 {
				t.Fatalf("%d %s", d.code, d.body)
			}
		}
		if leases, endings, usages, _ := s.Sizes(); leases != 0 || endings > 50 || usages > 101 {
			t.Errorf("%d leases, %d endings and %d keys are remembered", leases, endings, usages)
		}
		stopped(t, s)
	})
}

// Semaphores that nobody uses are not kept for ever, nor more of them than callers could use; one that is used is.
func TestSemaphoresKept(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{Leases: 5, Waiting: 5})
		used := acquired(t, s, "used", `{"slots":2,"ttl":"1h"}`)
		for i := range 100 {
			a := acquired(t, s, fmt.Sprintf("k%d", i), `{"slots":2}`)
			if d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""); d.code != 204 {
				t.Fatal(d.body)
			}
		}
		if n := s.Semaphores(); n < 2 || n > 22 {
			t.Errorf("%d semaphores are kept", n)
		}
		keeping(t, s, used, 3*time.Minute)
		if n := s.Semaphores(); n != 1 {
			t.Errorf("%d semaphores are kept when one is used", n)
		}
		wants(t, "of another size", ask(t, s, "POST", "/v1/locks/used/acquire", `{"slots":3}`), 422, "foreign")
		if k := ask(t, s, "POST", "/v1/leases/"+used.Lease+"/keepalive", ""); k.code != 200 {
			t.Errorf("the one that is used: %s", k.body)
		}
		stopped(t, s)
	})
}

// brokenBody fails in the middle.
type brokenBody struct{ err error }

func (b brokenBody) Read([]byte) (int, error) { return 0, b.err }

// A request that cannot be is refused with its own status, costs the store nothing and changes nothing; and the lease
// that somebody holds meanwhile goes on.
func TestRefused(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, nil)
		held := acquired(t, s, "held", `{"ttl":"10m"}`)
		over := acquired(t, s, "over", "")
		if d := ask(t, s, "DELETE", "/v1/leases/"+over.Lease, ""); d.code != 204 {
			t.Fatal(d.body)
		}
		synctest.Wait()
		objects := len(leasetest.Objects(t, inner))
		const acquire, keepalive = "/v1/locks/k/acquire", "/keepalive"
		lease := "/v1/leases/" + held.Lease
		long := strings.Repeat("x", 300)
		for _, tc := range []struct {
			method, path, body string
			code               int
			problem            string
		}{
			// The body.
			{"POST", acquire, `[]`, 400, "body"},
			{"POST", acquire, `null`, 400, "body"},
			{"POST", acquire, `"x"`, 400, "body"},
			{"POST", acquire, `{`, 400, "body"},
			{"POST", acquire, `{}{}`, 400, "body"},
			{"POST", acquire, `{} x`, 400, "body"},
			{"POST", acquire, ` `, 400, "body"},
			{"POST", acquire, `{"ttl":"5s","ttl":"6s"}`, 400, "body"},
			{"POST", acquire, `{"TTL":"5s"}`, 400, "body"},
			{"POST", acquire, `{"ttl_ms":5000}`, 400, "body"},
			{"POST", acquire, `{"ttl":5}`, 400, "body"},
			{"POST", acquire, `{"slots":1.5}`, 400, "body"},
			{"POST", acquire, `{"slots":"3"}`, 400, "body"},
			{"POST", acquire, `{"slots":1e99}`, 400, "body"},
			{"POST", acquire, `{"fair":"yes"}`, 400, "body"},
			{"POST", acquire, `{"holder":{}}`, 400, "body"},
			{"POST", acquire, `{"meta":["x"]}`, 400, "body"},
			{"POST", acquire, `{"meta":{"x":1}}`, 400, "body"},
			{"POST", acquire, `{"holder":"` + "\xff" + `","x":1}`, 400, "body"},
			{"POST", acquire, `{"meta":{"x":"` + strings.Repeat("y", serve.MaxBody) + `"}}`, 413, "too-large"},
			{"POST", lease + keepalive, `{"ttl":"5s"}`, 400, "body"},
			{"POST", lease + keepalive, strings.Repeat(" ", serve.MaxBody+1), 413, "too-large"},
			{"DELETE", lease, `{"force":true}`, 400, "body"},
			{"GET", lease, `{}`, 400, "body"},
			// Values.
			{"POST", acquire, `{"ttl":""}`, 422, "value"},
			{"POST", acquire, `{"ttl":"soon"}`, 422, "value"},
			{"POST", acquire, `{"ttl":"0s"}`, 422, "value"},
			{"POST", acquire, `{"ttl":"-5s"}`, 422, "value"},
			{"POST", acquire, `{"ttl":"999ms"}`, 422, "value"},
			{"POST", acquire, `{"ttl":"24h1ms"}`, 422, "value"},
			{"POST", acquire, `{"wait":"-1s"}`, 422, "value"},
			{"POST", acquire, `{"wait":"61m"}`, 422, "value"},
			{"POST", acquire, `{"wait":"forever"}`, 422, "value"},
			{"POST", acquire, `{"holder":""}`, 422, "value"},
			{"POST", acquire, `{"holder":"` + long + `"}`, 422, "value"},
			{"POST", acquire, `{"holder":"a\nb"}`, 422, "value"},
			{"POST", acquire, `{"meta":{"":"x"}}`, 422, "value"},
			{"POST", acquire, `{"meta":{"x":"` + strings.Repeat("y", 17<<10) + `"}}`, 422, "value"},
			{"POST", acquire, `{"slots":0}`, 422, "value"},
			{"POST", acquire, `{"slots":2000000000}`, 422, "value"},
			{"POST", acquire, `{"slots":3,"weight":4}`, 422, "value"},
			{"POST", acquire, `{"slots":3,"weight":0}`, 422, "value"},
			{"POST", acquire, `{"weight":1}`, 422, "value"},
			{"POST", acquire, `{"slots":3,"shared":true}`, 422, "value"},
			{"POST", acquire, `{"fair":true,"shared":true}`, 422, "value"},
			{"POST", acquire, `{"fair":true,"meta":{"x":"y"}}`, 422, "value"},
			{"POST", "/v1/elections/e/campaign", `{"slots":3}`, 422, "value"},
			// Keys.
			{"POST", "/v1/locks/../acquire", ``, 400, "key"},
			{"POST", "/v1/locks/a/../b/acquire", ``, 400, "key"},
			{"POST", "/v1/locks/a%2F..%2Fb/acquire", ``, 400, "key"},
			{"POST", "/v1/locks/%2e%2e/acquire", ``, 400, "key"},
			{"POST", "/v1/locks/%2Fetc/acquire", ``, 400, "key"},
			{"POST", "/v1/locks/a//b/acquire", ``, 400, "key"},
			{"POST", "/v1/locks/a%00b/acquire", ``, 400, "key"},
			{"POST", "/v1/locks/a%5Cb/acquire", ``, 400, "key"},
			{"POST", "/v1/locks/%ff/acquire", ``, 400, "key"},
			{"POST", "/v1/locks/" + long + "/acquire", ``, 400, "key"},
			{"POST", "/v1/locks/sessions/x/acquire", ``, 400, "key"},
			{"GET", "/v1/locks/a/./b", ``, 400, "key"},
			{"GET", "/v1/locks/../history", ``, 400, "key"},
			{"GET", "/v1/elections/..", ``, 400, "key"},
			// Queries.
			{"GET", lease + "?wait=soon", ``, 400, "query"},
			{"GET", lease + "?wait=2h", ``, 400, "query"},
			{"GET", lease + "?wait=1s&wait=2s", ``, 400, "query"},
			{"GET", lease + "?force=1", ``, 400, "query"},
			{"GET", "/v1/locks?prefix=x", ``, 400, "query"},
			{"POST", acquire + "?ttl=5s", ``, 400, "query"},
			{"GET", "/healthz?%zz", ``, 400, "query"},
			// Leases that are others', over, or none.
			{"POST", "/v1/leases/" + strings.Repeat("0", 32) + keepalive, ``, 404, "unknown"},
			{"DELETE", "/v1/leases/" + held.Lease[:31], ``, 404, "unknown"},
			{"DELETE", "/v1/leases/" + strings.ToUpper(held.Lease) + "0", ``, 404, "unknown"},
			{"GET", "/v1/leases/" + held.Lease + "%00", ``, 404, "unknown"},
			{"DELETE", "/v1/leases/" + over.Lease, ``, 410, "over"},
			{"POST", "/v1/leases/" + over.Lease + keepalive, ``, 410, "over"},
			// Paths and methods.
			{"GET", "/none", ``, 404, "unknown"},
			{"GET", "/v1", ``, 404, "unknown"},
			{"GET", "/v1/leases", ``, 404, "unknown"},
			{"GET", "/v1/leases/", ``, 404, "unknown"},
			{"GET", "/v2/locks", ``, 404, "unknown"},
			{"GET", "/v1/leases/" + held.Lease + "/x", ``, 404, "unknown"},
			{"POST", "/v1/locks", ``, 405, "method"},
			{"DELETE", "/v1/locks/held", ``, 405, "method"},
			{"PUT", acquire, `{}`, 405, "method"},
			{"PATCH", lease, ``, 405, "method"},
			{"OPTIONS", acquire, ``, 405, "method"},
			{"TRACE", "/v1/locks", ``, 405, "method"},
			{"POST", "/metrics", ``, 405, "method"},
		} {
			before := st.Counts()
			a := ask(t, s, tc.method, tc.path, tc.body)
			wants(t, fmt.Sprintf("%s %.60s %.60s", tc.method, tc.path, tc.body), a, tc.code, tc.problem)
			if tc.code == 405 && a.header.Get("Allow") == "" {
				t.Errorf("%s %s: it is not told which methods there are", tc.method, tc.path)
			}
			if after := st.Counts(); after != before {
				t.Errorf("%s %.60s %.60s was sent to the store: %+v, %+v", tc.method, tc.path, tc.body, before, after)
			}
		}
		for what, change := range map[string]func(*http.Request){
			"no type":        func(r *http.Request) { r.Header.Del("Content-Type") },
			"a form":         func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") },
			"text":           func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
			"two types":      func(r *http.Request) { r.Header.Add("Content-Type", "text/plain") },
			"what is none":   func(r *http.Request) { r.Header.Set("Content-Type", ";;") },
			"what is packed": func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
		} {
			r := httptest.NewRequestWithContext(t.Context(), "POST", acquire, strings.NewReader("{}"))
			r.Header.Set("Content-Type", "application/json; charset=utf-8")
			change(r)
			wants(t, what, sent(t, s, r), 415, "media-type")
		}
		wants(t, "a body that breaks off", sent(t, s, httptest.NewRequestWithContext(t.Context(), "POST", acquire, brokenBody{io.ErrUnexpectedEOF})), 400, "body")
		if now := len(leasetest.Objects(t, inner)); now != objects {
			t.Errorf("there were %d objects, and now %d", objects, now)
		}
		if k := ask(t, s, "POST", lease+keepalive, "{}"); k.code != 200 || k.Token != held.Token {
			t.Errorf("the lease that is held: %d %s", k.code, k.body)
		}
		stopped(t, s)
	})
}

// What lies under a key and is no lock is left as it is, and a store that fails is told of, with why.
func TestStoreFails(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		if _, err := inner.Put(t.Context(), "foreign", []byte("hello"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, nil)
		wants(t, "foreign", ask(t, s, "POST", "/v1/locks/foreign/acquire", `{"wait":"1m"}`), 422, "foreign")
		wants(t, "its leader", ask(t, s, "GET", "/v1/elections/foreign", ""), 422, "foreign")
		wants(t, "its history", ask(t, s, "GET", "/v1/locks/foreign/history", ""), 422, "foreign")
		if o := ask(t, s, "GET", "/v1/locks/foreign", ""); o.code != 200 || o.Kind != "foreign" {
			t.Errorf("it looks like %d %s", o.code, o.body)
		}
		for what, f := range map[string]faultstore.Fault{
			"denied":      {Kind: faultstore.Denied, Key: "k"},
			"unavailable": {Kind: faultstore.Unavailable, Key: "k"},
		} {
			st.Inject(f)
			for _, body := range []string{`{}`, `{"wait":"5s"}`} {
				a := ask(t, s, "POST", "/v1/locks/k/acquire", body)
				wants(t, what+body, a, 503, "store")
				if !strings.Contains(a.Detail, what) {
					t.Errorf("%s: it does not say why: %s", what, a.body)
				}
			}
			for _, path := range []string{"/v1/locks/k", "/v1/locks/k/history", "/v1/elections/k"} {
				wants(t, what+" "+path, ask(t, s, "GET", path, ""), 503, "store")
				time.Sleep(2 * time.Second)
			}
			st.Clear()
		}
		acquired(t, s, "k", `{"wait":"1m"}`)
		stopped(t, s)
	})
}

// The document and the server have the same routes, and each of them and each problem is described.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("the version is %q", doc.OpenAPI)
	}
	there, ids := map[[2]string]bool{}, map[string]bool{}
	for _, r := range serve.Routes() {
		there[r] = true
		if doc.Paths[r[1]][strings.ToLower(r[0])].OperationID == "" {
			t.Errorf("the document does not have %s %s", r[0], r[1])
		}
	}
	for path, operations := range doc.Paths {
		for method, o := range operations {
			if !there[[2]string{strings.ToUpper(method), path}] {
				t.Errorf("there is no route %s %s", method, path)
			}
			if ids[o.OperationID] {
				t.Errorf("two operations are called %q", o.OperationID)
			}
			ids[o.OperationID] = true
			for code, r := range o.Responses {
				name, is := strings.CutPrefix(r.Ref, "#/components/responses/")
				if is && doc.Components.Responses[name].Description == "" || !is && r.Description == "" {
					t.Errorf("%s %s, %s: nothing describes it", method, path, code)
				}
			}
			for _, p := range o.Parameters {
				if p.In == "path" && (!p.Required || !strings.Contains(path, "{"+p.Name+"}")) {
					t.Errorf("%s has no %s", path, p.Name)
				}
			}
		}
	}
	for word, code := range serve.Words() {
		r := doc.Components.Responses[fmt.Sprintf("P%d", code)]
		if code != 405 && !strings.Contains(r.Description, word) {
			t.Errorf("the problem %s is not described: %q", word, r.Description)
		}
	}
	a := ask(t, made(t, memstore.New(), nil), "GET", "/openapi.json", "")
	if a.code != 200 || !strings.HasPrefix(a.body, "{\n \"openapi\": \"3.1.0\"") {
		t.Errorf("%d %.100s", a.code, a.body)
	}
}

// Other handlers can be mounted, and not over the API.
func TestHandle(t *testing.T) {
	t.Parallel()
	s := made(t, memstore.New(), nil)
	for _, path := range []string{"/at/", "/at/deeper/", "/exact"} {
		s.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, path+" has "+r.URL.Path) }))
	}
	for path, want := range map[string]string{
		"/at/": "/at/ has /at/", "/at/a": "/at/ has /at/a", "/at/deeper/a": "/at/deeper/ has /at/deeper/a", "/exact": "/exact has /exact",
		"/at": "", "/exact/a": "",
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		if got := w.Body.String(); want != "" && got != want || want == "" && w.Code != 404 {
			t.Errorf("%s: %d %s, want %q", path, w.Code, got, want)
		}
	}
	for _, path := range []string{"", "/", "ui", "/v1", "/v1/", "/v1/x/", "/healthz", "/metrics/", "/at/", "/ui/", "/ui"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a handler was mounted at %q", path)
				}
			}()
			s.Handle(path, http.NotFoundHandler())
		}()
	}
}

// What has been done is told to Prometheus.
func TestMetrics(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), nil)
		acquired(t, s, "k", "")
		ask(t, s, "POST", "/v1/locks/k/acquire", "")
		m := ask(t, s, "GET", "/metrics", "")
		for _, want := range []string{
			"leasehold_serve_ready 1", "leasehold_serve_leases 1", "leasehold_serve_acquisitions_total 1",
			`leasehold_serve_refused_total{reason="held"} 1`, `leasehold_serve_answers_total{status="200"} 1`,
			`leasehold_serve_answers_total{status="409"} 1`, `leasehold_serve_store_requests_total{op="put"} 2`, `leasehold_serve_waiting{for="lock"} 0`,
		} {
			if !strings.Contains(m.body, want+"\n") {
				t.Errorf("no %s in\n%s", want, m.body)
			}
		}
		time.Sleep(20 * time.Second)
		if m := ask(t, s, "GET", "/metrics", ""); !strings.Contains(m.body, "leasehold_serve_silent_total 1\n") {
			t.Errorf("the silent one is not counted:\n%s", m.body)
		}
		stopped(t, s)
	})
}

// Options that cannot be are refused.
func TestOptions(t *testing.T) {
	t.Parallel()
	for what, o := range map[string]serve.Options{
		"Leases":    {Leases: -1},
		"Waiting":   {Waiting: -1},
		"Budget":    {Budget: -1},
		"Every":     {Every: time.Millisecond},
		"TTL":       {TTL: time.Millisecond},
		"the key":   {Prefix: "../"},
		"no prices": {Price: "x"},
		"Holder":    {Holder: strings.Repeat("x", 1000)},
	} {
		if s, err := serve.New(memstore.New(), &o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v, %v", what, s, err)
		}
	}
	if _, err := serve.New(nil, nil); err == nil {
		t.Error("it needs no store")
	}
}

// A caller that waits for a lock counts as a lease: it may get one at any moment.
func TestWaitingCallersCountAsLeases(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{Leases: 3, Waiting: 10})
		acquired(t, s, "k", `{"ttl":"1h"}`)
		var waits sync.WaitGroup
		for range 2 {
			waits.Go(func() { wants(t, "a wait", ask(t, s, "POST", "/v1/locks/k/acquire", `{"wait":"1m"}`), 409, "held") })
		}
		synctest.Wait()
		wants(t, "a lease more", ask(t, s, "POST", "/v1/locks/other/acquire", ""), 429, "too-many")
		waits.Wait()
		acquired(t, s, "other", `{"ttl":"1h"}`)
		acquired(t, s, "third", `{"ttl":"1h"}`)
		wants(t, "a lease more", ask(t, s, "POST", "/v1/locks/fourth/acquire", ""), 429, "too-many")
		stopped(t, s)
	})
}

// Without the token nothing is answered, whatever the path: neither a route, nor the page, nor what is mounted.
func TestEveryPathNeedsTheToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token, err := localhttp.ReadToken(file)
	if err != nil {
		t.Fatal(err)
	}
	leasetest.Bubble(t, func(t *testing.T) {
		n := servedWith(t, memstore.New(), localhttp.Options{Token: token}, func(s *serve.Server) {
			s.Handle("/mounted/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secrets") }))
		})
		paths := [][2]string{{"GET", "/"}, {"GET", "/ui"}, {"GET", "/ui/"}, {"GET", "/ui/page.js"}, {"GET", "/mounted/x"}, {"LOCK", "/mounted/x"}, {"GET", "/none"}}
		for _, r := range serve.Routes() {
			paths = append(paths, [2]string{r[0], strings.NewReplacer("{key}", "k", "{id}", strings.Repeat("0", 32)).Replace(r[1])})
		}
		for _, p := range paths {
			for what, header := range map[string]string{"no token": "", "another": "Bearer other", "no scheme": "secret", "an empty one": "Bearer "} {
				a := n.answered(t, p[0], p[1], "", func(r *http.Request) {
					if header != "" {
						r.Header.Set("Authorization", header)
					}
				})
				if a.code != 401 || a.problem() != "token" || len(a.header.Values("WWW-Authenticate")) == 0 || a.header.Get("Location") != "" {
					t.Errorf("%s %s, %s: %d %v %s", p[0], p[1], what, a.code, a.header, a.body)
				}
			}
		}
		if a := n.answered(t, "GET", "/metrics", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }); a.code != 200 {
			t.Errorf("with the token: %d %s", a.code, a.body)
		}
		n.stop()
	})
}
