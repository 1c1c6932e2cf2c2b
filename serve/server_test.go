package serve_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/internal/pipenet"
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
			problem, detail    string
		}{
			// The body.
			{"POST", acquire, `[]`, 400, "body", "the body is not a JSON object"},
			{"POST", acquire, `null`, 400, "body", "the body is not a JSON object"},
			{"POST", acquire, `"x"`, 400, "body", "the body is not a JSON object"},
			{"POST", acquire, `{`, 400, "body", "the body is not what is expected: unexpected EOF"},
			{"POST", acquire, `{1:2}`, 400, "body", "the body is not JSON: invalid character '1'"},
			{"POST", acquire, `{"ttl":}`, 400, "body", "the body is not JSON: invalid character '}' looking for beginning of value"},
			{"POST", acquire, `{}{}`, 400, "body", "something follows the JSON object"},
			{"POST", acquire, `{} x`, 400, "body", "something follows the JSON object"},
			{"POST", acquire, ` `, 400, "body", "the body is not a JSON object"},
			{"POST", acquire, `{"ttl":"5s","ttl":"6s"}`, 400, "body", `the member "ttl" is not expected, or stands twice`},
			{"POST", acquire, `{"TTL":"5s"}`, 400, "body", `the member "TTL" is not expected, or stands twice`},
			{"POST", acquire, `{"ttl_ms":5000}`, 400, "body", `the body is not what is expected: unknown field "ttl_ms"`},
			{"POST", acquire, `{"ttl":5}`, 400, "body", `the body is not what is expected: "ttl" must be a string, and is: number`},
			{"POST", acquire, `{"slots":1.5}`, 400, "body", `the body is not what is expected: "slots" must be a whole number, and is: number 1.5`},
			{"POST", acquire, `{"slots":"3"}`, 400, "body", `the body is not what is expected: "slots" must be a whole number, and is: string`},
			{"POST", acquire, `{"slots":1e99}`, 400, "body", `the body is not what is expected: "slots" must be a whole number, and is: number 1e99`},
			{"POST", acquire, `{"fair":"yes"}`, 400, "body", `the body is not what is expected: "fair" must be true or false, and is: string`},
			{"POST", acquire, `{"holder":{}}`, 400, "body", `the body is not what is expected: "holder" must be a string, and is: object`},
			{"POST", acquire, `{"meta":["x"]}`, 400, "body", `the body is not what is expected: "meta" must be an object, and is: array`},
			{"POST", acquire, `{"meta":{"x":1}}`, 400, "body", `the body is not what is expected: "meta" must be a string, and is: number`},
			{"POST", acquire, `{"holder":"` + "\xff" + `","x":1}`, 400, "body", `the body is not what is expected: unknown field "x"`},
			{"POST", acquire, `{"meta":{"x":"` + strings.Repeat("y", serve.MaxBody) + `"}}`, 413, "too-large", "the body has more than 65536 bytes"},
			{"POST", lease + keepalive, `{"ttl":"5s"}`, 400, "body", `the body is not what is expected: unknown field "ttl"`},
			{"POST", lease + keepalive, strings.Repeat(" ", serve.MaxBody+1), 413, "too-large", "the body has more than 65536 bytes"},
			{"DELETE", lease, `{"force":true}`, 400, "body", `the body is not what is expected: unknown field "force"`},
			{"GET", lease, `{}`, 400, "body", "there is a body, and GET has none"},
			{"HEAD", "/healthz", `{}`, 400, "", ""},
			{"POST", "/v1/elections/e/campaign", `[]`, 400, "body", "the body is not a JSON object"},
			// Values.
			{"POST", acquire, `{"ttl":""}`, 422, "value", `ttl "" is not a duration such as "30s"`},
			{"POST", acquire, `{"ttl":"soon"}`, 422, "value", `ttl "soon" is not a duration such as "30s"`},
			{"POST", acquire, `{"ttl":"0s"}`, 422, "value", "ttl 0s is not between 1s and 24h0m0s"},
			{"POST", acquire, `{"ttl":"-5s"}`, 422, "value", "ttl -5s is not between 1s and 24h0m0s"},
			{"POST", acquire, `{"ttl":"999ms"}`, 422, "value", "ttl 999ms is not between 1s and 24h0m0s"},
			{"POST", acquire, `{"ttl":"24h1ms"}`, 422, "value", "ttl 24h0m0.001s is not between 1s and 24h0m0s"},
			{"POST", acquire, `{"wait":"-1s"}`, 422, "value", "wait -1s is not between 0s and 1h0m0s"},
			{"POST", acquire, `{"wait":"61m"}`, 422, "value", "wait 1h1m0s is not between 0s and 1h0m0s"},
			{"POST", acquire, `{"wait":"1h1ms"}`, 422, "value", "wait 1h0m0.001s is not between 0s and 1h0m0s"},
			{"POST", acquire, `{"wait":"forever"}`, 422, "value", `wait "forever" is not a duration such as "30s"`},
			{"POST", acquire, `{"holder":""}`, 422, "value", "holder has 0 bytes, and may have 1 to 256"},
			{"POST", acquire, `{"holder":"` + long + `"}`, 422, "value", "holder has 300 bytes, and may have 1 to 256"},
			{"POST", acquire, `{"holder":"` + long[:257] + `"}`, 422, "value", "holder has 257 bytes, and may have 1 to 256"},
			{"POST", acquire, `{"holder":"a\nb"}`, 422, "value", "holder has a control character"},
			{"POST", acquire, `{"meta":{"":"x"}}`, 422, "value", "a name in meta has 0 bytes, and may have 1 to 256"},
			{"POST", acquire, `{"meta":{"x":"` + strings.Repeat("y", 17<<10) + `"}}`, 422, "value", "meta has more than 16384 bytes"},
			{"POST", acquire, `{"meta":{"x":"` + strings.Repeat("y", 16<<10) + `"}}`, 422, "value", "meta has more than 16384 bytes"},
			{"POST", acquire, `{"meta":{"x":"` + strings.Repeat("y", 8<<10) + `","z":"` + strings.Repeat("y", 8<<10) + `"}}`, 422, "value", "meta has more than 16384 bytes"},
			{"POST", acquire, `{"meta":{"` + long + `":"x"}}`, 422, "value", "a name in meta has 300 bytes, and may have 1 to 256"},
			{"POST", acquire, `{"meta":{"a\tb":"x"}}`, 422, "value", "a name in meta has a control character"},
			{"POST", acquire, `{"slots":0}`, 422, "value", "slots 0 is not between 1 and 1073741824"},
			{"POST", acquire, `{"slots":2000000000}`, 422, "value", "slots 2000000000 is not between 1 and 1073741824"},
			{"POST", acquire, `{"slots":1073741825}`, 422, "value", "slots 1073741825 is not between 1 and 1073741824"},
			{"POST", acquire, `{"slots":3,"weight":4}`, 422, "value", "weight 4 is not between 1 and slots, 3"},
			{"POST", acquire, `{"slots":3,"weight":0}`, 422, "value", "weight 0 is not between 1 and slots, 3"},
			{"POST", acquire, `{"weight":1}`, 422, "value", "weight is for slots, and there are none"},
			{"POST", acquire, `{"shared":true,"weight":1}`, 422, "value", "weight is for slots, and there are none"},
			{"POST", acquire, `{"slots":3,"shared":true}`, 422, "value", "slots, shared and fair exclude each other"},
			{"POST", acquire, `{"fair":true,"shared":true}`, 422, "value", "slots, shared and fair exclude each other"},
			{"POST", acquire, `{"slots":3,"fair":true}`, 422, "value", "slots, shared and fair exclude each other"},
			{"POST", acquire, `{"fair":true,"meta":{"x":"y"}}`, 422, "value", "meta is kept for locks, and not for a semaphore, a fair or a reader/writer lock"},
			{"POST", "/v1/elections/e/campaign", `{"slots":3}`, 422, "value", "one leads: an election has neither slots, nor shared, nor fair"},
			{"POST", "/v1/elections/e/campaign", `{"shared":false}`, 422, "value", "one leads: an election has neither slots, nor shared, nor fair"},
			{"POST", "/v1/elections/e/campaign", `{"fair":true}`, 422, "value", "one leads: an election has neither slots, nor shared, nor fair"},
			{"POST", "/v1/elections/e/campaign", `{"ttl":"soon"}`, 422, "value", `ttl "soon" is not a duration such as "30s"`},
			// Keys.
			{"POST", "/v1/locks/../acquire", ``, 400, "key", `lock "..": invalid argument: the key has a segment "." or ".."`},
			{"POST", "/v1/locks/a/../b/acquire", ``, 400, "key", `lock "a/../b": invalid argument: the key has a segment "." or ".."`},
			{"POST", "/v1/locks/a%2F..%2Fb/acquire", ``, 400, "key", `lock "a/../b": invalid argument: the key has a segment "." or ".."`},
			{"POST", "/v1/locks/%2e%2e/acquire", ``, 400, "key", `lock "..": invalid argument: the key has a segment "." or ".."`},
			{"POST", "/v1/locks/%2Fetc/acquire", ``, 400, "key", `lock "/etc": invalid argument: the key begins or ends with a slash, or has two in a row`},
			{"POST", "/v1/locks/a//b/acquire", ``, 400, "key", `lock "a//b": invalid argument: the key begins or ends with a slash, or has two in a row`},
			{"POST", "/v1/locks/a%00b/acquire", ``, 400, "key", "lock \"a\\x00b\": invalid argument: the key has a control character or a backslash"},
			{"POST", "/v1/locks/a%5Cb/acquire", ``, 400, "key", "lock \"a\\\\b\": invalid argument: the key has a control character or a backslash"},
			{"POST", "/v1/locks/%ff/acquire", ``, 400, "key", "lock \"\\xff\": invalid argument: the key is not valid UTF-8"},
			{"POST", "/v1/locks/" + long + "/acquire", ``, 400, "key", `lock "` + long + `": invalid argument: the key has a segment of 300 bytes, more than 200`},
			{"POST", "/v1/locks/sessions/x/acquire", ``, 400, "key", `sessions lie under "sessions/", and no locks`},
			{"GET", "/v1/locks/a/./b", ``, 400, "key", `lock "a/./b": invalid argument: the key has a segment "." or ".."`},
			{"GET", "/v1/locks/../history", ``, 400, "key", `lock "..": invalid argument: the key has a segment "." or ".."`},
			{"GET", "/v1/elections/..", ``, 400, "key", `lock "..": invalid argument: the key has a segment "." or ".."`},
			{"POST", "/v1/elections/../campaign", ``, 400, "key", `lock "..": invalid argument: the key has a segment "." or ".."`},
			// Queries.
			{"GET", lease + "?wait=soon", ``, 400, "query", `wait "soon" is not a duration such as "30s"`},
			{"GET", lease + "?wait=2h", ``, 400, "query", "wait 2h0m0s is not between 0s and 1h0m0s"},
			{"GET", lease + "?wait=1s&wait=2s", ``, 400, "query", `"wait" is not expected in the query, or not so often`},
			{"GET", lease + "?force=1", ``, 400, "query", `"force" is not expected in the query, or not so often`},
			{"GET", "/v1/locks?prefix=x", ``, 400, "query", `"prefix" is not expected in the query, or not so often`},
			{"POST", acquire + "?ttl=5s", ``, 400, "query", `"ttl" is not expected in the query, or not so often`},
			{"GET", "/healthz?%zz", ``, 400, "query", `the query cannot be read: invalid URL escape "%zz"`},
			// Leases that are others', over, or none.
			{"POST", "/v1/leases/" + strings.Repeat("0", 32) + keepalive, ``, 404, "unknown", "there is no such lease: it never was, or has been over for long"},
			{"DELETE", "/v1/leases/" + held.Lease[:31], ``, 404, "unknown", "there is no such lease: it never was, or has been over for long"},
			{"DELETE", "/v1/leases/" + strings.ToUpper(held.Lease) + "0", ``, 404, "unknown", "there is no such lease: it never was, or has been over for long"},
			{"GET", "/v1/leases/" + held.Lease + "%00", ``, 404, "unknown", "there is no such lease: it never was, or has been over for long"},
			{"DELETE", "/v1/leases/" + over.Lease, ``, 410, "over", "its caller has released it"},
			{"POST", "/v1/leases/" + over.Lease + keepalive, ``, 410, "over", "its caller has released it"},
			// Paths and methods.
			{"GET", "/none", ``, 404, "unknown", "there is nothing here: /openapi.json says what there is"},
			{"GET", "/v1", ``, 404, "unknown", "there is nothing here: /openapi.json says what there is"},
			{"GET", "/v1/leases", ``, 404, "unknown", "there is nothing here: /openapi.json says what there is"},
			{"GET", "/v1/leases/", ``, 404, "unknown", "there is nothing here: /openapi.json says what there is"},
			{"GET", "/v1/leases/a/b", ``, 404, "unknown", "there is nothing here: /openapi.json says what there is"},
			{"GET", "/v1/locks/", ``, 404, "unknown", "there is nothing here: /openapi.json says what there is"},
			{"POST", "/v1/leases/keepalive", ``, 405, "method", "POST is not among the methods of this path: DELETE, GET, HEAD"},
			{"GET", "/v2/locks", ``, 404, "unknown", "there is nothing here: /openapi.json says what there is"},
			{"GET", "/v1/leases/" + held.Lease + "/x", ``, 404, "unknown", "there is nothing here: /openapi.json says what there is"},
			{"POST", "/v1/locks", ``, 405, "method", "POST is not among the methods of this path: GET, HEAD"},
			{"DELETE", "/v1/locks/held", ``, 405, "method", "DELETE is not among the methods of this path: GET, HEAD"},
			{"PUT", acquire, `{}`, 405, "method", "PUT is not among the methods of this path: GET, HEAD, POST"},
			{"PATCH", lease, ``, 405, "method", "PATCH is not among the methods of this path: DELETE, GET, HEAD"},
			{"OPTIONS", acquire, ``, 405, "method", "OPTIONS is not among the methods of this path: GET, HEAD, POST"},
			{"TRACE", "/v1/locks", ``, 405, "method", "TRACE is not among the methods of this path: GET, HEAD"},
			{"POST", "/metrics", ``, 405, "method", "POST is not among the methods of this path: GET, HEAD"},
		} {
			before := st.Counts()
			a := ask(t, s, tc.method, tc.path, tc.body)
			what := fmt.Sprintf("%s %.60s %.60s", tc.method, tc.path, tc.body)
			if wants(t, what, a, tc.code, tc.problem); a.Detail != tc.detail {
				t.Errorf("%s: it is told %s, want %s", what, a.Detail, tc.detail)
			}
			if _, methods, _ := strings.Cut(tc.detail, "methods of this path: "); a.header.Get("Allow") != methods {
				t.Errorf("%s: it is told that there are the methods %q", what, a.header.Get("Allow"))
			}
			if after := st.Counts(); after != before {
				t.Errorf("%s %.60s %.60s was sent to the store: %+v, %+v", tc.method, tc.path, tc.body, before, after)
			}
		}
		for what, tc := range map[string]struct {
			change func(*http.Request)
			detail string
		}{
			"no type": {func(r *http.Request) { r.Header.Del("Content-Type") }, "there is a body, so Content-Type must be application/json"},
			"a form": {
				func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, `Content-Type "application/x-www-form-urlencoded" is not application/json`,
			},
			"text":           {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, `Content-Type "text/plain" is not application/json`},
			"two types":      {func(r *http.Request) { r.Header.Add("Content-Type", "text/plain") }, "there is a body, so Content-Type must be application/json"},
			"what is none":   {func(r *http.Request) { r.Header.Set("Content-Type", ";;") }, `Content-Type ";;" is not application/json`},
			"what is broken": {func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset") }, `Content-Type "application/json; charset" is not application/json`},
			"what is packed": {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, `Content-Encoding "gzip" is not understood`},
			"what is packed twice": {
				func(r *http.Request) { r.Header["Content-Encoding"] = []string{"identity", "gzip"} }, `Content-Encoding "identity" is not understood`,
			},
		} {
			r := httptest.NewRequestWithContext(t.Context(), "POST", acquire, strings.NewReader("{}"))
			r.Header.Set("Content-Type", "application/json; charset=utf-8")
			tc.change(r)
			a := sent(t, s, r)
			if wants(t, what, a, 415, "media-type"); a.Detail != tc.detail {
				t.Errorf("%s: it is told %s, want %s", what, a.Detail, tc.detail)
			}
		}
		for _, tc := range []struct {
			err             error
			code            int
			problem, detail string
		}{
			{io.ErrUnexpectedEOF, 400, "body", "the body cannot be read: unexpected EOF"},
			{fmt.Errorf("read: %w", os.ErrDeadlineExceeded), 408, "slow", "the body has not come in time"},
		} {
			a := sent(t, s, httptest.NewRequestWithContext(t.Context(), "POST", acquire, brokenBody{tc.err}))
			if wants(t, "a body that breaks off", a, tc.code, tc.problem); a.Detail != tc.detail {
				t.Errorf("a body that breaks off: it is told %s, want %s", a.Detail, tc.detail)
			}
		}
		if now := len(leasetest.Objects(t, inner)); now != objects {
			t.Errorf("there were %d objects, and now %d", objects, now)
		}
		if k := ask(t, s, "POST", lease+keepalive, "{}"); k.code != 200 || k.Token != held.Token {
			t.Errorf("the lease that is held: %d %s", k.code, k.body)
		}
		stopped(t, s)
	})
}

// What is just within the bounds is given, and means what it says.
func TestAtTheBounds(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, &serve.Options{Holder: "server"})
		long := strings.Repeat("x", 256)
		const id, id64 = "abcxyzABCXYZ0189-_abcd", "abcxyzABCXYZ0189-_abcdabcxyzABCXYZ0189-_abcdabcxyzABCXYZ0189-_ab"
		for i, tc := range []struct {
			body, holder string
			ttl, left    int64
			slots        string // size and weight of the semaphore
			meta         int    // bytes
		}{
			{``, "server", 15_000, 13_740, "", 0},
			{`{"ttl":"1s"}`, "server", 1000, 1000, "", 0},
			{`{"ttl":"24h"}`, "server", 86_400_000, 13_740, "", 0},
			{`{"wait":"0s"}`, "server", 15_000, 13_740, "", 0},
			{`{"wait":"1h"}`, "server", 15_000, 13_740, "", 0},
			{`{"holder":"x"}`, "x", 15_000, 13_740, "", 0},
			{`{"holder":"` + long + `"}`, long, 15_000, 13_740, "", 0},
			{`{"meta":{"` + long + `":"` + strings.Repeat("y", 16<<10-len(long)) + `"}}`, "server", 15_000, 13_740, "", 16 << 10},
			{`{"meta":{"x":""}}`, "server", 15_000, 13_740, "", 1},
			{`{"meta":{},"slots":2}`, "server", 15_000, 13_740, "2 1", 0},
			{`{"slots":1}`, "server", 15_000, 13_740, "1 1", 0},
			{`{"slots":1073741824,"weight":1073741824,"holder":"me"}`, "me", 15_000, 13_740, "1073741824 1073741824", 0},
			{`{"slots":3,"weight":1,"wait":"1s"}`, "server", 15_000, 13_740, "3 1", 0},
			{`{"fair":true}`, "server", 15_000, 13_740, "1 1", 0},
			{`{"fair":false,"slots":2}`, "server", 15_000, 13_740, "2 1", 0},
			{`{"fair":false,"meta":{"x":"y"}}`, "server", 15_000, 13_740, "", 2},
			{`{"shared":true}`, "server", 15_000, 13_740, "1048576 1", 0},
			{`{"shared":false,"fair":false}`, "server", 15_000, 13_740, "1048576 1048576", 0},
			{`{"id":"` + id + `"}`, "server", 15_000, 13_740, "", 0},
			{`{"id":"` + id64 + `"}`, "server", 15_000, 13_740, "", 0},
			{"\n\t \r{\"ttl\":\"1s\"} \n", "server", 1000, 1000, "", 0},
		} {
			what, key := fmt.Sprintf("%.60s", tc.body), fmt.Sprintf("k%d", i)
			began := time.Now()
			a := acquired(t, s, key, tc.body)
			if a.Holder != tc.holder || a.TTL != tc.ttl || a.Left != tc.left || !a.Deadline.Equal(began.Add(time.Duration(tc.left)*time.Millisecond)) || a.Deadline.Location() != time.UTC {
				t.Errorf("%s: %s", what, a.body)
			}
			if strings.Contains(tc.body, `"id"`) && !strings.Contains(tc.body, a.Lease) {
				t.Errorf("%s: the ID is %s", what, a.Lease)
			}
			o := ask(t, s, "GET", "/v1/locks/"+key, "")
			slots, meta := "", 0
			if o.Semaphore != nil {
				slots = fmt.Sprint(o.Semaphore.Size, o.Semaphore.Holders[0].Weight)
				o.Holder = o.Semaphore.Holders[0].Holder
			}
			for name, value := range o.Meta {
				meta += len(name) + len(value)
			}
			if slots != tc.slots || meta != tc.meta || o.Holder != tc.holder || o.Here != 1 || o.Waiting != 0 {
				t.Errorf("%s: slots %q, want %q; %d bytes of meta, want %d: %.300s", what, slots, tc.slots, meta, tc.meta, o.body)
			}
			if d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""); d.code != 204 || d.body != "" || d.header.Get("Content-Type") != "" {
				t.Errorf("%s: released: %d %s", what, d.code, d.body)
			}
		}
		stopped(t, s)
	})
}

// A key that is too long with the server's prefix is refused for that, and one under sessions/ by the whole key.
func TestKeysWithPrefix(t *testing.T) {
	t.Parallel()
	s := made(t, memstore.New(), &serve.Options{Prefix: strings.Repeat("p", 150)})
	for _, path := range []string{"/v1/locks/" + strings.Repeat("k", 100) + "/acquire", "/v1/elections/" + strings.Repeat("k", 100) + "/campaign"} {
		a := ask(t, s, "POST", path, "")
		if wants(t, "a long key", a, 400, "key"); !strings.HasPrefix(a.Detail, `with the prefix: lock "ppp`) {
			t.Errorf("why: %s", a.Detail)
		}
	}
	sessions := made(t, memstore.New(), &serve.Options{Prefix: "sessions/"})
	wants(t, "a session's place", ask(t, sessions, "POST", "/v1/locks/k/acquire", ""), 400, "key")
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
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^//\t([a-z-]+) +(\d{3})  `).FindAllStringSubmatch(string(text), -1) {
		code, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		described[m[1]] = code
	}
	if !maps.Equal(described, serve.Words()) {
		t.Errorf("the problems are %v, and the documentation has %v", serve.Words(), described)
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
		for range 20 { // the handlers are in no order
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
			if got := w.Body.String(); want != "" && got != want || want == "" && w.Code != 404 {
				t.Errorf("%s: %d %s, want %q", path, w.Code, got, want)
			}
		}
	}
	const reserved, taken = "serve: %q is not a path to mount a handler at", "serve: there is a handler at %q"
	for path, want := range map[string]string{
		"": reserved, "/": reserved, "ui": reserved, "/v1": reserved, "/v1/": reserved, "/v1/x/": reserved, "/healthz": reserved, "/metrics/": reserved,
		"/at/": taken, "/ui/": taken, "/ui": taken, "/v1x": "",
	} {
		func() {
			defer func() {
				if said := recover(); want == "" && said != nil || want != "" && said != fmt.Sprintf(want, path) {
					t.Errorf("a handler at %q: %v, want %s", path, said, want)
				}
			}()
			s.Handle(path, http.NotFoundHandler())
		}()
	}
}

// What has been done is told to Prometheus.
func TestMetrics(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{AllowBreak: true})
		k := acquired(t, s, "k", `{"ttl":"1h"}`)
		broken := acquired(t, s, "broken", `{"ttl":"1h"}`)
		acquired(t, s, "silent", `{"ttl":"1s"}`)
		ask(t, s, "POST", "/v1/locks/k/acquire", "")
		ask(t, s, "POST", "/v1/locks/broken/break", fmt.Sprintf(`{"token":%d}`, broken.Token))
		ask(t, s, "PUT", "/v1/locks/k/acquire", "")
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		v := subscribe(t, s)
		time.Sleep(4 * time.Second)
		var waits sync.WaitGroup
		waits.Go(func() { ask(t, s, "POST", "/v1/locks/k/acquire", `{"wait":"5s"}`) })
		for range 2 {
			waits.Go(func() { ask(t, s, "GET", "/v1/leases/"+k.Lease+"?wait=5s", "") })
		}
		synctest.Wait()
		ask(t, s, "GET", "/healthz", "")
		m := ask(t, s, "GET", "/metrics", "")
		if kind := m.header.Get("Content-Type"); m.code != 200 || kind != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("%d %s", m.code, kind)
		}
		text := m.body[:strings.Index(m.body, "# HELP leasehold_acquire")]
		text = regexp.MustCompile(`(requests_total\{op="get"\}) \d+\n`).ReplaceAllString(text, "$1 N\n") // a look reads some objects twice
		want, err := os.ReadFile("testdata/metrics.txt")
		if err != nil || text != string(want) {
			t.Errorf("%v: the metrics are\n%s", err, text)
		}
		waits.Wait()
		v.leave()
		<-v.done
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
		"Holder":    {Holder: strings.Repeat("x", 257)},

		"the option Leases -1 is less than 1":        {Leases: -1, Subscribers: 1},
		"the option Subscribers -1 is less than 1":   {Subscribers: -1},
		"the option Limit -1 is less than 1":         {Limit: -1},
		"the option Every 999ms is less than 1s":     {Every: 999 * time.Millisecond},
		"the option Holder has 257 bytes, more than": {Holder: strings.Repeat("x", 257)},
		"the option MetricKeys: ":                    {MetricKeys: []string{"[", "x"}},
	} {
		if s, err := serve.New(memstore.New(), &o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v, %v", what, s, err)
		}
	}
	if s, err := serve.New(nil, nil); s != nil || err == nil || err.Error() != "the store of a server is nil" {
		t.Errorf("without a store: %v, %v", s, err)
	}
	least := &serve.Options{Leases: 1, Waiting: 1, Subscribers: 1, Budget: 1, Limit: 1, Every: time.Second, TTL: leasehold.MinTTL, Holder: strings.Repeat("x", 256)}
	if _, err := serve.New(memstore.New(), least); err != nil {
		t.Errorf("the least of all: %v", err)
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

// A network is where a server is that serves over connections in virtual time.
type network struct {
	*pipenet.Listener
	server *serve.Server
	client *http.Client
	stop   func()
}

// served is a server over so many connections at a time. The test must stop it.
func served(t *testing.T, st store.Store, conns int) *network {
	t.Helper()
	return servedWith(t, st, localhttp.Options{Conns: conns}, func(*serve.Server) {})
}

func servedWith(t *testing.T, st store.Store, o localhttp.Options, mount func(*serve.Server)) *network {
	t.Helper()
	s := made(t, st, nil)
	mount(s)
	n := &network{Listener: pipenet.Loopback(4041), server: s}
	n.client = &http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}
	o.Refuse = s.Refuse
	l, err := localhttp.Over(n.Listener, o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Serve(s, slog.New(slog.DiscardHandler)) }()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.stop = func() {
		t.Helper()
		if err := errors.Join(l.Stop(t.Context()), <-done); err != nil {
			t.Error(err)
		}
		stopped(t, s)
	}
	return n
}

// over asks by a connection of its own.
func (n *network) over(t *testing.T, method, path, body string, change func(*http.Request)) (answer, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if change != nil {
		change(r)
	}
	w, err := n.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		return answer{}, err
	}
	return read(t, method, r.URL.EscapedPath(), w.StatusCode, w.Header, text), nil
}

// answered is over, which must be answered.
func (n *network) answered(t *testing.T, method, path, body string, change func(*http.Request)) answer {
	t.Helper()
	a, err := n.over(t, method, path, body, change)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	return a
}

// A keeper keeps a lease, as a good client does, with a connection for each keepalive.
type keeper struct {
	lease  answer
	failed atomic.Int64
	stop   context.CancelFunc
	done   chan struct{}
}

// keeps acquires a lease and keeps it, and the test fails if that is lost.
func keeps(t *testing.T, n *network, key string) *keeper {
	t.Helper()
	k := &keeper{done: make(chan struct{})}
	if k.lease = n.answered(t, "POST", "/v1/locks/"+key+"/acquire", `{"ttl":"5s"}`, nil); k.lease.code != 200 {
		t.Fatalf("acquire: %d %s", k.lease.code, k.lease.body)
	}
	ctx, stop := context.WithCancel(t.Context())
	k.stop = stop
	go func() {
		defer close(k.done)
		until := time.Now().Add(time.Duration(k.lease.Left) * time.Millisecond)
		for ctx.Err() == nil {
			sent := time.Now()
			if sent.After(until) {
				t.Errorf("no keepalive was answered before the end; %d failed", k.failed.Load())
				return
			}
			a, err := n.over(t, "POST", "/v1/leases/"+k.lease.Lease+"/keepalive", "", nil) //nolint:contextcheck // what is under way when it stops is to end well
			switch {
			case err != nil: // its connection may have been closed for others that came at this moment
				k.failed.Add(1)
				time.Sleep(10 * time.Millisecond)
				continue
			case a.code != 200:
				t.Errorf("the lease was lost: %d %s", a.code, a.body)
				return
			default:
				until = sent.Add(time.Duration(a.Left) * time.Millisecond)
			}
			time.Sleep(time.Second)
		}
	}()
	return k
}

// ends stops it, and checks that the lease is what it was.
func (k *keeper) ends(t *testing.T, n *network) {
	t.Helper()
	k.stop()
	<-k.done
	if a := n.answered(t, "GET", "/v1/leases/"+k.lease.Lease, "", nil); a.code != 200 || a.Token != k.lease.Token {
		t.Errorf("the lease that was held all the time: %d %s", a.code, a.body)
	}
	if a := n.answered(t, "DELETE", "/v1/leases/"+k.lease.Lease, "", nil); a.code != 204 {
		t.Errorf("its release: %d %s", a.code, a.body)
	}
}

// raw sends text as it is, and gives the status of the answer; 0: the connection was closed without one.
func (n *network) raw(t *testing.T, what, text string) int {
	t.Helper()
	c, err := n.DialContext(t.Context(), "", "")
	if err != nil {
		t.Error(err)
		return 0
	}
	defer c.Close()
	began := time.Now()
	go func() { _, _ = io.WriteString(c, text) }() // it may be answered, or cut off, before it has said all
	w, err := http.ReadResponse(bufio.NewReader(c), nil)
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("%s had neither an answer nor an end for %v", what, took)
	}
	if err != nil {
		return 0
	}
	_ = w.Body.Close()
	return w.StatusCode
}

// What a hostile client sends is refused or cut off, whatever it is; a lease that somebody holds goes on meanwhile, and
// nothing is acquired.
func TestHostileClients(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		n := served(t, st, 0)
		k := keeps(t, n, "held")
		hostile(t, n)
		own := func(r *http.Request) { r.Header.Set("Origin", "http://"+n.Addr().String()) }
		if a := n.answered(t, "GET", "/v1/locks/held", "", own); a.code != 200 {
			t.Errorf("a page of its own: %d %s", a.code, a.body)
		}
		k.ends(t, n)
		n.stop()
	})
}

// hostile sends what no good client does.
func hostile(t *testing.T, n *network) {
	t.Helper()
	address := n.Addr().String()
	host := "Host: " + address + "\r\n"
	acquire := "POST /v1/locks/evil/acquire HTTP/1.1\r\n"
	var each sync.WaitGroup
	for what, tc := range map[string]struct {
		text  string
		codes []int
	}{
		"another host":            {acquire + "Host: evil.example\r\nContent-Length: 0\r\n\r\n", []int{421}},
		"a host and a port":       {acquire + "Host: evil.example:4041\r\nContent-Length: 0\r\n\r\n", []int{421}},
		"another host in the URL": {"POST http://evil.example/v1/locks/evil/acquire HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\n", []int{421}},
		"two hosts":               {acquire + host + "Host: evil.example\r\nContent-Length: 0\r\n\r\n", []int{400}},
		"no host":                 {acquire + "Content-Length: 0\r\n\r\n", []int{400}},
		"another origin":          {acquire + host + "Origin: http://evil.example\r\nContent-Length: 0\r\n\r\n", []int{403}},
		"another port's origin":   {acquire + host + "Origin: http://127.0.0.1:1\r\nContent-Length: 0\r\n\r\n", []int{403}},
		"a null origin":           {acquire + host + "Origin: null\r\nContent-Length: 0\r\n\r\n", []int{403}},
		"an empty origin":         {acquire + host + "Origin: \r\nContent-Length: 0\r\n\r\n", []int{403}},
		"another scheme":          {acquire + host + "Origin: https://" + address + "\r\nContent-Length: 0\r\n\r\n", []int{403}},
		"two origins":             {acquire + host + "Origin: http://" + address + "\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n\r\n", []int{403}},
		"an origin that reads":    {"GET /v1/locks HTTP/1.1\r\n" + host + "Origin: http://evil.example\r\n\r\n", []int{403}},
		"a preflight":             {"OPTIONS /v1/locks/evil/acquire HTTP/1.1\r\n" + host + "Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n", []int{403}},
		"OPTIONS *":               {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", []int{400, 404}},
		"CONNECT":                 {"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n", []int{421}},
		"a large header":          {acquire + host + "X: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", []int{431, 0}},
		"a large path":            {"GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\n" + host + "\r\n", []int{431, 414, 0}},
		"a large body":            {acquire + host + "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{\"holder\":\"" + strings.Repeat("x", 90_000), []int{413, 0}},
		"a length that is none":   {acquire + host + "Content-Length: -1\r\n\r\n", []int{400}},
		"two lengths":             {acquire + host + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", []int{400}},
		"a length and chunks":     {acquire + host + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /v1/locks/evil/acquire HTTP/1.1\r\n" + host + "\r\n", []int{400, 200}},
		"an unknown coding":       {acquire + host + "Transfer-Encoding: gzip\r\n\r\n", []int{400, 501}},
		"a chunk that is none":    {acquire + host + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", []int{400}},
		"a header that is none":   {acquire + host + "x y: z\r\n\r\n", []int{400}},
		"a bare line feed":        {"POST /v1/locks/evil/acquire\n\n", []int{400}},
		"another protocol":        {"SSH-2.0-OpenSSH_9.6\r\n\r\n", []int{400}},
		"TLS":                     {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 64) + "\r\n\r\n", []int{400, 0}},
		"HTTP/2":                  {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{505, 400, 421, 404, 0}},
		"HTTP/0.9":                {"GET /v1/locks\r\n\r\n", []int{400}},
		"HTTP/3.0":                {"GET /v1/locks HTTP/3.0\r\n" + host + "\r\n", []int{505}},
		"zeros":                   {strings.Repeat("\x00", 100) + "\r\n\r\n", []int{400}},
		"a path that goes up":     {"POST /v1/locks/../../etc/acquire HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\n", []int{400}},
		"a path that is none":     {"POST v1/locks/evil/acquire HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\n", []int{400}},
		"a bad escape":            {"POST /v1/locks/%zz/acquire HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\n", []int{400}},
		"a method of its own":     {"ACQUIRE /v1/locks/evil HTTP/1.1\r\n" + host + "\r\n", []int{405}},
		"a forged ID":             {"DELETE /v1/leases/" + rand.Text() + " HTTP/1.1\r\n" + host + "\r\n", []int{404}},
		"Expect":                  {acquire + host + "Expect: evil\r\nContent-Length: 2\r\n\r\n", []int{417}},
		"nothing":                 {"", []int{0}},
		"half a line":             {"POST /v1/lo", []int{0, 400, 408}},
		"half the headers":        {acquire + host + "X: y\r\n", []int{0, 400, 408}},
		"half a body":             {acquire + host + "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"ttl\":", []int{408, 0}},
	} {
		each.Go(func() {
			if got := n.raw(t, what, tc.text); !slices.Contains(tc.codes, got) {
				t.Errorf("%s was answered with %d, want one of %v", what, got, tc.codes)
			}
		})
	}
	each.Wait()
}

// However many connections are opened that ask nothing, or ask slowly, none of those loses a lease who ask as they
// should.
func TestFlood(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		const flood, atOnce, conns = 1000, 50, 20
		n := served(t, memstore.New(), conns)
		k := keeps(t, n, "held")
		gate := make(chan struct{}, atOnce)
		var all sync.WaitGroup
		for i := range flood {
			gate <- struct{}{}
			all.Go(func() {
				defer func() { <-gate }()
				c, err := n.DialContext(t.Context(), "", "")
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				text := "" // nothing, half a request, and a request whose body does not come
				switch i % 3 {
				case 1:
					text = "POST /v1/locks/evil/acquire HTTP/1.1\r\nHost: localhost\r\n"
				case 2:
					text = "POST /v1/locks/evil/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
				}
				began := time.Now()
				go func() { _, _ = io.WriteString(c, text) }()
				_, _ = io.Copy(io.Discard, c)
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("a connection that asks nothing stays for %v", took)
				}
			})
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		all.Wait()
		k.ends(t, n)
		if a := n.answered(t, "GET", "/v1/locks/evil", "", nil); a.code != 404 {
			t.Errorf("the flood has acquired something: %d %s", a.code, a.body)
		}
		n.stop()
	})
}

// A wait may last for longer than any other request, and one that is left ends.
func TestLongWaits(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		n := served(t, memstore.New(), 0)
		k := keeps(t, n, "held")
		began := time.Now()
		if a := n.answered(t, "POST", "/v1/locks/held/acquire", `{"wait":"10m"}`, nil); a.code != 409 || time.Since(began) < 10*time.Minute {
			t.Errorf("after %v: %d %s", time.Since(began), a.code, a.body)
		}
		began = time.Now()
		if a := n.answered(t, "GET", "/v1/leases/"+k.lease.Lease+"?wait=10m", "", nil); a.code != 200 || time.Since(began) < 10*time.Minute {
			t.Errorf("after %v: %d %s", time.Since(began), a.code, a.body)
		}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.Addr().String()+"/v1/locks/held/acquire", strings.NewReader(`{"wait":"1h"}`))
			if err != nil {
				left <- err
				return
			}
			r.Header.Set("Content-Type", "application/json")
			w, err := n.client.Do(r)
			if err == nil {
				_ = w.Body.Close()
			}
			left <- err
		}()
		waiting := func(want int) {
			t.Helper()
			synctest.Wait()
			if a := n.answered(t, "GET", "/metrics", "", nil); !strings.Contains(a.body, fmt.Sprintf("leasehold_serve_waiting{for=\"lock\"} %d\n", want)) {
				t.Errorf("there are not %d who wait:\n%s", want, a.body)
			}
		}
		waiting(1)
		leave()
		if err := <-left; err == nil {
			t.Error("it was answered")
		}
		waiting(0)
		k.ends(t, n)
		n.stop()
	})
}
