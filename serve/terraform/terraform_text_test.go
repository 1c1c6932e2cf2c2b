package terraform_test

import (
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/serve/terraform"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestFailures: what is said, and with which status, where the store refuses a request: which step failed, and why. A store that
// is down for a moment is tried again, one that refuses is not.
func TestFailures(t *testing.T) {
	const lock, state, states = "locks/s/_lock", "states/s/_state", "states/s/_states/*"
	for _, tc := range []struct {
		name           string
		before         func(s *server)
		op, key        string
		method, target string
		body           string
		want           string
	}{
		{"lock, no look", nil, "get", lock, "LOCK", "/s", lockBody("x"), "the state could not be locked"},
		{"lock, no write", nil, "put", lock, "LOCK", "/s", lockBody("x"), "the state could not be locked"},
		{"lock, no claim", nil, "get", state, "LOCK", "/s", lockBody("x"), "the state could not be claimed"},
		{"lock, own lock", locked, "get", lock, "LOCK", "/s", lockBody("y"), "the lock could not be read"},
		{"unlock of another", locked, "get", lock, "UNLOCK", "/s", lockBody("y"), "the lock could not be read"},
		{"force-unlock", lockedElsewhere, "put", lock, "UNLOCK", "/s", `{"ID":"x"}`, "the lock could not be broken"},
		{"store, no look at the lock", locked, "get", lock, "POST", "/s?ID=x", stateOf(1, "x"), "the lock could not be read"},
		{"store, no look at the states", locked, "get", state, "POST", "/s?ID=x", stateOf(1, "x"), "the state that is stored"},
		{"store, no body", locked, "put", states, "POST", "/s?ID=x", stateOf(1, "x"), "the state could not be stored"},
		{"store, no list", locked, "put", state, "POST", "/s?ID=x", stateOf(1, "x"), "the state could not be stored"},
		{"store without a lock, no look", nil, "get", lock, "POST", "/s", stateOf(1, "x"), "the state could not be locked"},
		{"store without a lock, no claim", nil, "put", state, "POST", "/s", stateOf(1, "x"), "the state could not be claimed"},
		{"read, no list", stored, "get", state, "GET", "/s", "", "the state"},
		{"read, no body", stored, "get", states, "GET", "/s", "", "the state: s: state 1 is listed, and cannot be read"},
		{"versions", stored, "get", state, "GET", "/s?versions", "", "the states that are kept"},
	} {
		for kind, want := range map[faultstore.Kind]struct {
			status int
			why    string
		}{
			faultstore.Denied:    {http.StatusInternalServerError, "access denied: faultstore: denied"},
			faultstore.Throttled: {http.StatusServiceUnavailable, "throttled by the store: faultstore: throttled"},
		} {
			t.Run(fmt.Sprint(tc.name, ", ", kind), func(t *testing.T) {
				bubble(t, func(t *testing.T, st *memstore.Store) {
					s := start(t, st, nil)
					if tc.before != nil {
						tc.before(s)
					}
					s.st.Inject(faultstore.Fault{Kind: kind, Op: tc.op, Key: tc.key})
					a := s.do(tc.method, tc.target, tc.body)
					d := detail(t, a)
					if a.status != want.status || !strings.HasPrefix(d, tc.want+": ") || !strings.Contains(d, want.why) || (a.header.Get("Retry-After") == "1") != (want.status == http.StatusServiceUnavailable) {
						t.Errorf("%d %s, want %d %s: … %s; %v", a.status, d, want.status, tc.want, want.why, a.header)
					}
					s.st.Clear()
					if tc.method == "POST" { // what could not be stored is not there, and nothing of it
						s.want(http.StatusNotFound, "GET", "/s", "")
						time.Sleep(time.Minute)
						if left := data(t, st); len(left) > 0 {
							t.Errorf("in the store are %q", left)
						}
					}
				})
			})
		}
	}
}

func locked(s *server) { s.lock("s", "x") }

func lockedElsewhere(s *server) { start(s.t, s.st, nil).lock("s", "x") }

func stored(s *server) { s.want(http.StatusOK, "POST", "/s", stateOf(1, "x")) }

// TestUnlockFails: what is said where the store refuses to free a lock, and that the state can be unlocked, and locked again, once the
// store takes it. The process used to keep the lock's end for itself, and refused every later LOCK of that state.
func TestUnlockFails(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.lock("s", "x")
		s.st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put"})
		d := detail(t, s.want(http.StatusInternalServerError, "UNLOCK", "/s", lockBody("x")))
		if !strings.HasPrefix(d, "the lock could not be released: ") || !strings.HasSuffix(d, "access denied: faultstore: denied") {
			t.Errorf("%s", d)
		}
		s.st.Clear()
		s.unlock("s", "x")
		s.lock("s", "y")
		s.unlock("s", "y")
	})
}

// TestAllOfAVersion: every field of what is kept of a state, as a program and as a request gets it.
func TestAllOfAVersion(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.lock("s", "x")
		text := stateOf(7, "x")
		s.want(http.StatusOK, "POST", "/s?ID=x", text)
		s.want(http.StatusOK, "DELETE", "/s?ID=x", "")
		all, err := s.Versions(t.Context(), "s")
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		token := all[1].Token
		if token == 0 || !strings.HasPrefix(all[1].Data, fmt.Sprintf("0000000001-%019d-", int64(token))) || len(all[1].Data) != 10+1+19+1+32 {
			t.Errorf("its token is %d, and it lies at %q", token, all[1].Data)
		}
		sum := md5.Sum([]byte(text))
		want := `[{"number":2,"deleted":true,"size":0,"who":"x@host","operation":"OperationTypeApply","lock_id":"x","token":TOKEN,"stored_at":"2000-01-01T00:00:00Z"},` +
			fmt.Sprintf(`{"number":1,"size":%d,"md5":%q,"sha256":"%x","serial":7,"lineage":"a-b-c","terraform_version":"1.11.4","who":"x@host","operation":"OperationTypeApply","lock_id":"x","token":TOKEN,"stored_at":"2000-01-01T00:00:00Z","data":"DATA"}]`,
				len(text), base64Of(sum[:]), sha256.Sum256([]byte(text))) + "\n"
		want = strings.NewReplacer("TOKEN", fmt.Sprint(int64(token)), "DATA", all[1].Data).Replace(want)
		if got := s.want(http.StatusOK, "GET", "/s?versions", ""); got.body != want || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("the versions are\n%swant\n%s%v", got.body, want, got.header)
		}
		got := s.want(http.StatusOK, "GET", "/s?version=1", "")
		if got.header.Get("Content-MD5") != base64Of(sum[:]) || got.header.Get("Content-Length") != fmt.Sprint(len(text)) || got.header.Get("Leasehold-State-Version") != "1" {
			t.Errorf("state 1 has the headers %v", got.header)
		}
		if d := detail(t, s.want(http.StatusNotFound, "GET", "/s", "")); d != "there is no state s" {
			t.Errorf("GET of none: %s", d)
		}
		for _, number := range []int64{0, 2, 3} {
			body, v, err := s.Open(t.Context(), "s", number)
			if err == nil || err.Error() != "s: there is no such state: object does not exist" || body != nil || v.Number != 0 {
				t.Errorf("state %d: %v, %+v, %v", number, body, v, err)
			}
		}
		if body, v, err := s.Open(t.Context(), "s", 1); err != nil || v.Number != 1 || v.Data != all[1].Data {
			t.Errorf("state 1: %+v, %v", v, err)
		} else if read, err := io.ReadAll(body); err != nil || string(read) != text || body.Close() != nil {
			t.Errorf("state 1: %s, %v", read, err)
		}
		if _, _, err := s.Open(t.Context(), "-", 1); err == nil || err.Error() != `"-" is no name for a state: letters, digits, dots, dashes and underscores, in segments that begin with a letter or a digit` {
			t.Errorf("no name: %v", err)
		}
		for i := range 8 {
			s.want(http.StatusOK, "POST", "/s?ID=x", stateOf(i+8, "x"))
		}
		if got := s.want(http.StatusOK, "GET", "/s", ""); got.header.Get("Leasehold-State-Version") != "10" {
			t.Errorf("state 10 has the headers %v", got.header)
		}
		s.unlock("s", "x")
	})
}

// TestOptionsInWords: what is said of options that cannot be used, and that those at the bounds can be.
func TestOptionsInWords(t *testing.T) {
	for _, tc := range []struct {
		o    terraform.Options
		want string
	}{
		{terraform.Options{Versions: 501}, "the option Versions 501 is not between 1 and 500"},
		{terraform.Options{Versions: -1}, "the option Versions -1 is not between 1 and 500"},
		{terraform.Options{Versions: 1}, ""},
		{terraform.Options{Versions: 500}, ""},
		{terraform.Options{Requests: 10_001}, "the option Requests 10001 is not between 1 and 10000"},
		{terraform.Options{Requests: 10_000}, ""},
		{terraform.Options{Requests: 1}, ""},
		{terraform.Options{Locks: 1_000_001}, "the option Locks 1000001 is not between 1 and 1000000"},
		{terraform.Options{Locks: 1_000_000}, ""},
		{terraform.Options{Locks: 1}, ""},
		{terraform.Options{MaxState: 1<<10 - 1}, "the option MaxState 1023 is not between 1 KiB and 1 GiB"},
		{terraform.Options{MaxState: 1<<30 + 1}, "the option MaxState 1073741825 is not between 1 KiB and 1 GiB"},
		{terraform.Options{MaxState: 1 << 10}, ""},
		{terraform.Options{MaxState: 1 << 30}, ""},
		{terraform.Options{Path: "terraform/"}, `the option Path "terraform/" does not begin and end with a slash`},
		{terraform.Options{Path: "/terraform"}, `the option Path "/terraform" does not begin and end with a slash`},
		{terraform.Options{Prefix: strings.Repeat("a", 301)}, "the option Prefix has 301 bytes, more than 300"},
		{terraform.Options{Prefix: strings.Repeat("a/", 149) + "aa"}, ""},
	} {
		_, err := terraform.New(memstore.New(), &tc.o)
		if got := fmt.Sprint(err); got != tc.want && (err != nil || tc.want != "") {
			t.Errorf("%+v: %s, want %s", tc.o, got, tc.want)
		}
	}
	if _, err := terraform.New(nil, nil); err == nil || err.Error() != "the store of the states is nil" {
		t.Errorf("no store: %v", err)
	}
}
