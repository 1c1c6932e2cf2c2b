package terraform_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve/terraform"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func newLock(t *testing.T, st store.Store, key string) *leasehold.Lock {
	t.Helper()
	lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Holder: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// TestOptions: what cannot be used is refused, and says which.
func TestOptions(t *testing.T) {
	for says, o := range map[string]terraform.Options{
		"Versions":       {Versions: 501},
		"Requests":       {Requests: -1},
		"Locks":          {Locks: -1},
		"MaxState":       {MaxState: 1},
		"Path":           {Path: "/terraform"},
		"TTL":            {TTL: time.Millisecond},
		"Prefix":         {Prefix: "a//b"},
		"more than 300":  {Prefix: strings.Repeat("a", 301)},
		"an unproven st": {Proof: unproven{}},
	} {
		if _, err := terraform.New(memstore.New(), &o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, err := terraform.New(nil, nil); err == nil {
		t.Error("no store")
	}
}

type unproven struct{}

func (unproven) Proves(string, string) error { return errors.New("an unproven store") }

// TestNames: a name is a path of plain segments, and none lies in the place of another's objects.
func TestNames(t *testing.T) {
	s := start(t, memstore.New(), &terraform.Options{Path: "/tf/"})
	for _, name := range []string{"a", "prod", "Prod.eu-1_x", "a/b/c", "a/lock", "9", strings.Repeat("a", 100), strings.Repeat("a/", 99) + "a"} {
		s.want(http.StatusOK, "POST", "/tf/"+name, stateOf(1, name))
		s.want(http.StatusOK, "GET", "/tf/"+name, "")
	}
	for _, path := range []string{
		"/", "/tf", "/tf/", "/tf//a", "/tf/a/", "/tf/_lock", "/tf/a/_state", "/tf/.a", "/tf/a/..", "/tf/../a", "/tf/a%00b", "/tf/a%5Cb", "/tf/a%20b",
		"/tf/%C3%A4", "/x/a", "/tf/" + strings.Repeat("a", 101), "/tf/" + strings.Repeat("a/", 100) + "a",
	} {
		detail(t, s.want(http.StatusNotFound, "GET", path, ""))
		s.want(http.StatusNotFound, "POST", path, stateOf(1, "x"))
	}
}

// TestBadRequests: what is refused before anything is asked of the store.
func TestBadRequests(t *testing.T) {
	s := start(t, memstore.New(), &terraform.Options{MaxState: 4 << 10})
	request := func(method, target, body string, header ...string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	unknown := request("POST", "/s", stateOf(1, strings.Repeat("x", 4<<10)))
	unknown.ContentLength = -1
	for what, c := range map[string]struct {
		status int
		r      *http.Request
		want   string
	}{
		"a body over the bound":        {http.StatusRequestEntityTooLarge, request("POST", "/s?ID=x", stateOf(1, strings.Repeat("x", 4<<10))), `the body has 4258 bytes, more than 4096`},
		"one that does not say so":     {http.StatusRequestEntityTooLarge, unknown, `the body has more than 4096 bytes`},
		"another MD5":                  {http.StatusBadRequest, request("POST", "/s?ID=x", stateOf(1, "x"), "Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="), `the body is not what was sent: its MD5 is YCK756I4amkFKnvqlOIQiQ==, and Content-MD5 says "1B2M2Y8AsgTpgAmY7PhCfg=="`},
		"no MD5":                       {http.StatusBadRequest, request("POST", "/s?ID=x", stateOf(1, "x"), "Content-MD5", "x"), `the body is not what was sent: its MD5 is YCK756I4amkFKnvqlOIQiQ==, and Content-MD5 says "x"`},
		"another MD5 of a lock":        {http.StatusBadRequest, request("LOCK", "/s", lockBody("x"), "Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="), `the body is not what was sent: its MD5 is RNxLYfbIeVYgAyGLxtbm1A==, and Content-MD5 says "1B2M2Y8AsgTpgAmY7PhCfg=="`},
		"no JSON":                      {http.StatusBadRequest, request("POST", "/s?ID=x", "<html>"), `the body is not the JSON of a state: invalid character '<' looking for beginning of value`},
		"nothing":                      {http.StatusBadRequest, request("POST", "/s?ID=x", ""), `the body is not the JSON of a state: unexpected end of JSON input`},
		"null":                         {http.StatusBadRequest, request("POST", "/s?ID=x", " null"), `the body is not the JSON of a state: it is no object`},
		"a state that is a list":       {http.StatusBadRequest, request("POST", "/s?ID=x", "[]"), `the body is not the JSON of a state: it is no object, but: array`},
		"a serial that is none":        {http.StatusBadRequest, request("POST", "/s?ID=x", `{"serial":"7"}`), `the body is not the JSON of a state: "serial" cannot be: string`},
		"two states":                   {http.StatusBadRequest, request("POST", "/s?ID=x", stateOf(1, "x")+stateOf(1, "x")), `the body is not the JSON of a state: invalid character '{' after top-level value`},
		"a lock that is no JSON":       {http.StatusBadRequest, request("LOCK", "/s", "x"), `the body is not the JSON of a lock: invalid character 'x' looking for beginning of value`},
		"a lock that is a list":        {http.StatusBadRequest, request("LOCK", "/s", "[]"), `the body is not the JSON of a lock: it is no object, but: array`},
		"a lock with a number":         {http.StatusBadRequest, request("LOCK", "/s", `{"ID":7}`), `the body is not the JSON of a lock: "ID" cannot be: number`},
		"a lock that is too large":     {http.StatusRequestEntityTooLarge, request("LOCK", "/s", lockBody(strings.Repeat("x", 64<<10))), `the body has 131210 bytes, more than 65536`},
		"a lock without an ID":         {http.StatusBadRequest, request("LOCK", "/s", ""), `the body names no ID for the lock`},
		"a lock with a long ID":        {http.StatusBadRequest, request("LOCK", "/s", lockBody(strings.Repeat("x", 129))), `the ID of the lock has more than 128 bytes`},
		"a lock to break with such an": {http.StatusBadRequest, request("UNLOCK", "/s", lockBody(strings.Repeat("x", 129))), `the ID of the lock has more than 128 bytes`},
		"a version that is none":       {http.StatusBadRequest, request("GET", "/s?version=a", ""), `"a" is no number of a state: ?versions lists them`},
		"a version that is too large":  {http.StatusBadRequest, request("GET", "/s?version=9223372036854775808", ""), `"9223372036854775808" is no number of a state: ?versions lists them`},
		"a version that is long":       {http.StatusBadRequest, request("GET", "/s?version="+strings.Repeat("x", 41), ""), `"` + strings.Repeat("x", 40) + `" is no number of a state: ?versions lists them`},
		"another method":               {http.StatusMethodNotAllowed, request("PATCH", "/s", ""), `PATCH is not among the methods of a state: DELETE, GET, HEAD, LOCK, POST, PUT, UNLOCK`},
		"a page":                       {http.StatusForbidden, request("POST", "/s", stateOf(1, "x"), "Origin", "https://example.org"), `the request comes from a page at "https://example.org", and no page has anything to do here`},
		"a page that reads":            {http.StatusForbidden, request("GET", "/s", "", "Origin", "null"), `the request comes from a page at "null", and no page has anything to do here`},
	} {
		if a := s.send(c.r); a.status != c.status || detail(t, a) != c.want {
			t.Errorf("%s: %d, want %d %s: %s", what, a.status, c.status, c.want, a.body)
		}
	}
	if n := s.st.Counts(); n != (faultstore.Counts{}) {
		t.Errorf("the store was asked: %+v", n)
	}
	if a := s.do("PATCH", "/s", ""); a.header.Get("Allow") != "DELETE, GET, HEAD, LOCK, POST, PUT, UNLOCK" {
		t.Errorf("Allow: %s", a.header.Get("Allow"))
	}
}

// TestLongTexts: what a lock says of itself is cut, and is Terraform's own again when it is told.
func TestLongTexts(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		long := strings.Repeat("ä", 2000)
		s.want(http.StatusOK, "LOCK", "/s", fmt.Sprintf(`{"ID":"x","Operation":%q,"Info":%q,"Who":%q,"Version":%q,"Created":"2026-11-20T10:30:45Z","Path":%[1]q}`, long, long, long, long))
		got := holder(t, s.want(http.StatusLocked, "LOCK", "/s", lockBody("y")))
		if got.ID != "x" || got.Who != strings.Repeat("ä", 128) || got.Info != strings.Repeat("ä", 256) {
			t.Errorf("held by %+v", got)
		}
		s.unlock("s", "x")
	})
}

// TestTooManyRequests: those over the bound are told so at once.
func TestTooManyRequests(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, &terraform.Options{Requests: 2})
		s.st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", Delay: 5 * time.Second})
		first := waits(t, func() answer { return s.do("GET", "/a", "") })
		second := waits(t, func() answer { return s.do("GET", "/b", "") })
		if a := s.want(http.StatusServiceUnavailable, "GET", "/c", ""); a.header.Get("Retry-After") != "1" || !strings.Contains(detail(t, a), "too many") {
			t.Errorf("%+v", a)
		}
		if a, b := first(), second(); a.status != http.StatusNotFound || b.status != http.StatusNotFound {
			t.Errorf("%+v, %+v", a, b)
		}
		s.want(http.StatusNotFound, "GET", "/c", "")
	})
}

// TestOneAtATime: of requests for one name one is at work, and others are not in its way.
func TestOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.lock("s", "x")
		s.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "states/s/_state", Nth: 1, Delay: 5 * time.Second})
		first := waits(t, func() answer { return s.do("POST", "/s?ID=x", stateOf(1, "x")) })
		second := waits(t, func() answer { return s.do("POST", "/s?ID=x", stateOf(2, "x")) })
		s.want(http.StatusOK, "POST", "/other", stateOf(1, "o"))
		s.want(http.StatusNotFound, "GET", "/s", "") // nor does a look wait
		if a, b := first(), second(); a.status != http.StatusOK || b.status != http.StatusOK {
			t.Errorf("%+v, %+v", a, b)
		}
		if got := s.want(http.StatusOK, "GET", "/s", ""); got.body != stateOf(2, "x") {
			t.Errorf("the state is %s", got.body)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "states/s/_state", Nth: 1, Delay: 5 * time.Second})
		first = waits(t, func() answer { return s.do("POST", "/s?ID=x", stateOf(3, "x")) })
		r := httptest.NewRequestWithContext(ctx, "UNLOCK", "/s", strings.NewReader(lockBody("x")))
		if a := s.send(r); a.status != http.StatusServiceUnavailable {
			t.Errorf("a client that has gone: %+v", a)
		}
		if a := first(); a.status != http.StatusOK {
			t.Errorf("%+v", a)
		}
		s.unlock("s", "x")
	})
}

// TestClose: the locks stay for their TTL, their runs can store their states elsewhere, and nobody else is served.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		a, b := start(t, st, nil), start(t, st, nil)
		a.lock("s", "x")
		a.lock("r", "z")
		a.close()
		a.want(http.StatusServiceUnavailable, "POST", "/s?ID=x", stateOf(1, "x"))
		b.want(http.StatusLocked, "LOCK", "/s", lockBody("y"))
		b.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
		b.unlock("r", "z")
		b.lock("r", "y")
		if took := b.until("y", 3*time.Minute); took < time.Minute || took > 2*time.Minute {
			t.Errorf("it could be locked after %v", took)
		}
		b.want(http.StatusConflict, "POST", "/s?ID=x", stateOf(2, "x"))
		b.unlock("s", "y")
		b.unlock("r", "y")
	})
}

// TestCosts: the requests that docs/terraform.md says each step takes.
func TestCosts(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, &terraform.Options{Versions: 2})
		cost := func(what string, want faultstore.Counts, f func()) {
			t.Helper()
			s.st.Reset()
			f()
			if got := s.st.Counts(); got != want {
				t.Errorf("%s costs %+v, want %+v", what, got, want)
			}
		}
		post := func(id string, serial int) func() {
			return func() { s.want(http.StatusOK, "POST", "/s?ID="+id, stateOf(serial, id)) }
		}
		get := func() { s.do("GET", "/s", "") }
		type n = faultstore.Counts
		cost("the first LOCK", n{Get: 2, Put: 2}, func() { s.lock("s", "x") })
		cost("GET of none", n{Get: 1}, get)
		cost("the first POST", n{Get: 2, Put: 2, List: 1}, post("x", 1))
		cost("a further POST", n{Get: 2, Put: 2}, post("x", 2))
		cost("a further POST, with as many states as are kept", n{Get: 2, Put: 2, Delete: 1}, post("x", 3))
		cost("the same again", n{Get: 2}, post("x", 3))
		cost("GET", n{Get: 2}, get)
		cost("a minute of a lock", n{Put: 3}, func() { time.Sleep(time.Minute + time.Second) })
		cost("LOCK of what is held", n{Get: 1}, func() { s.want(http.StatusLocked, "LOCK", "/s", lockBody("y")) })
		cost("UNLOCK", n{Put: 1}, func() { s.unlock("s", "x") })
		cost("LOCK", n{Get: 1, Put: 2}, func() { s.lock("s", "y") })
		cost("UNLOCK", n{Put: 1}, func() { s.unlock("s", "y") })
		cost("POST without a lock", n{Get: 1, Put: 5, Delete: 1, List: 1}, func() { s.want(http.StatusOK, "POST", "/s", stateOf(4, "z")) })
		o := start(t, st, nil)
		o.lock("s", "x")
		cost("LOCK of what another process holds, and was free when it was last seen", n{Get: 1, Put: 1}, func() { s.want(http.StatusLocked, "LOCK", "/s", lockBody("y")) })
		cost("LOCK of what another process holds", n{Get: 1}, func() { s.want(http.StatusLocked, "LOCK", "/s", lockBody("y")) })
		cost("force-unlock of that", n{Get: 2, Put: 1}, func() { s.want(http.StatusOK, "UNLOCK", "/s", `{"ID":"x"}`) })
		time.Sleep(time.Minute)
		if r := leasetest.RecordIn(t, st, "locks/s/_lock"); r.Held || r.Ended != "broken" {
			t.Errorf("it was not broken: %+v", r)
		}
	})
}
