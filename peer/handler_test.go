package peer_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store/memstore"
)

// A reply is what an HTTP server answered.
type reply struct {
	status int
	header http.Header
	body   string
}

// put asks a handler, without a network.
func put(t *testing.T, h http.Handler, method, query string, header ...string) reply {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, peer.DefaultPath+"?"+query, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return reply{w.Code, w.Header(), w.Body.String()}
}

// answer is the answer in r, which must have a status, and its fields by name.
func answer(t *testing.T, r reply, status int) (a peer.Answer, fields map[string]any) {
	t.Helper()
	if r.status != status || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %+v, not %d", r, status)
	}
	for _, into := range []any{&a, &fields} {
		if err := json.Unmarshal([]byte(r.body), into); err != nil {
			t.Fatalf("%v: %s", err, r.body)
		}
	}
	return a, fields
}

// TestAnswers: what a candidate says before, while and after it leads.
func TestAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		never, err := leasehold.NewElection(memstore.New(), key, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := answer(t, put(t, peer.NewHandler(nil, never), "GET", ""), 404)
		if want := (peer.Answer{Lock: key, State: peer.StateNone, Version: a.Version}); a.Version == "" || !equal(a, want) {
			t.Errorf("before it leads it says %+v", a)
		}

		began := time.Now().UTC()
		e, lease, net := lead(t, &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "web-<1>", Address: "10.0.1.42:8443", Meta: map[string]string{"k": "v"}}})
		h := peer.NewHandler(nil, e)
		time.Sleep(6 * time.Second) // a renewal was sent after 5
		r := put(t, h, "GET", "lock="+url.QueryEscape(key))
		if header := slices.Sorted(maps.Keys(r.header)); !slices.Equal(header, []string{"Cache-Control", "Content-Length", "Content-Type"}) || r.header.Get("Cache-Control") != "no-store" {
			t.Errorf("the headers are %v", r.header)
		}
		if !strings.Contains(r.body, `"holder":"web-<1>"`) { // which people can read
			t.Errorf("the answer is %s", r.body)
		}
		a, fields := answer(t, r, 200)
		left := time.Until(lease.Deadline()).Truncate(time.Millisecond)
		want := peer.Answer{
			Lock: key, Token: lease.Token(), State: peer.StateHeld, Holder: "web-<1>", Address: "10.0.1.42:8443",
			TTL: 15000, Valid: left.Milliseconds(), Meta: map[string]string{"k": "v"},
			Incarnation: a.Incarnation, Version: a.Version,
			AcquiredAt: began.Format("2006-01-02T15:04:05.000Z"),
			RenewedAt:  began.Add(5 * time.Second).Format("2006-01-02T15:04:05.000Z"),
		}
		if !equal(a, want) || len(a.Incarnation) != 32 || a.Version == "" {
			t.Errorf("the leader says\n%+v, not\n%+v", a, want)
		}
		names := []string{"acquired_at", "address", "holder", "incarnation", "lock", "meta", "renewed_at", "state", "token", "ttl_ms", "valid_ms", "version"}
		if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, names) {
			t.Errorf("the fields are %q", got)
		}
		time.Sleep(time.Second)
		later, _ := answer(t, put(t, h, "GET", ""), 200)
		if want.Valid -= 1000; !equal(later, want) {
			t.Errorf("a second later the leader says\n%+v, not\n%+v", later, want)
		}

		net.Partition(true)
		time.Sleep(5 * time.Second)
		unsure, _ := answer(t, put(t, h, "GET", ""), 404)
		if want.State, want.Valid, want.Version = peer.StateUnsure, 0, unsure.Version; !equal(unsure, want) || unsure.Version == a.Version {
			t.Errorf("without a store the leader says\n%+v, not\n%+v", unsure, want)
		}
		net.Partition(false)
		time.Sleep(5 * time.Second)
		answer(t, put(t, h, "GET", ""), 200)

		if err = e.ResignTo(t.Context(), "web-2"); err != nil {
			t.Fatal(err)
		}
		free, _ := answer(t, put(t, h, "GET", ""), 404)
		inStore, err := net.Get(t.Context(), key, "")
		if err != nil {
			t.Fatal(err)
		}
		want.State, want.Successor, want.Version, want.RenewedAt = peer.StateFree, "web-2", free.Version, free.RenewedAt
		want.Record, want.Object = string(inStore.Body), inStore.Version
		if !equal(free, want) || free.Version == unsure.Version {
			t.Errorf("after its release it says\n%+v, not\n%+v", free, want)
		}
	})
}

func equal(a, b peer.Answer) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestHead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e, _, _ := lead(t, nil)
		h := peer.NewHandler(nil, e)
		get, head := put(t, h, "GET", ""), put(t, h, "HEAD", "")
		if head.status != 200 || head.body != "" || head.header.Get("Content-Length") != get.header.Get("Content-Length") {
			t.Errorf("HEAD gives %+v, GET %+v", head, get)
		}
		version := url.Values{"version": {version(t, h)}}.Encode()
		began := time.Now()
		if head := put(t, h, "HEAD", "wait=20s&"+version); head.status != 200 || head.body != "" || time.Since(began) != 20*time.Second {
			t.Errorf("after %v, HEAD gives %+v", time.Since(began), head)
		}
		if err := e.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if head := put(t, h, "HEAD", ""); head.status != 404 || head.body != "" {
			t.Errorf("HEAD gives %+v", head)
		}
	})
}

// version is that of the present answer.
func version(t *testing.T, h http.Handler) string {
	t.Helper()
	var a peer.Answer
	if err := json.Unmarshal([]byte(put(t, h, "GET", "lock="+url.QueryEscape(key)).body), &a); err != nil || a.Version == "" {
		t.Fatalf("no version: %v", err)
	}
	return a.Version
}

// TestRefusals: rubbish is told what is wrong with it, and nothing else.
func TestRefusals(t *testing.T) {
	t.Parallel()
	one, _, _ := lead(t, nil)
	other, err := leasehold.NewElection(memstore.New(), "leaders/other", nil)
	if err != nil {
		t.Fatal(err)
	}
	alone, both := peer.NewHandler(nil, one), peer.NewHandler(nil, one, other)
	locked := peer.NewHandler(&peer.HandlerOptions{Token: "open-sesame"}, one)
	for _, tc := range []struct {
		name    string
		h       http.Handler
		method  string
		query   string
		token   string
		status  int
		text    string
		headers []string // "name: value"
	}{
		{name: "unknown lock", h: alone, query: "lock=x", status: 404, text: `no election "x"`},
		{name: "which lock", h: both, query: "", status: 400, text: "say which"},
		{name: "one of two", h: both, query: "lock=leaders/scheduler", status: 200},
		{name: "other of two", h: both, query: "lock=leaders/other", status: 404, text: `"state":"none"`},
		{name: "two locks", h: both, query: "lock=leaders/scheduler&lock=leaders/other", status: 400, text: "lock comes 2 times"},
		{name: "long lock", h: alone, query: "lock=" + strings.Repeat("x", 769), status: 400, text: "769 bytes, more than 768"},
		{name: "escapes", h: alone, query: "lock=%zz", status: 400, text: "query is broken"},
		{name: "semicolons", h: alone, query: "lock=a;b=c", status: 400, text: "query is broken"},
		{name: "long query", h: alone, query: strings.Repeat("x", 8193), status: 400, text: "8193 bytes, more than 8192"},
		{name: "wait", h: alone, query: "wait=soon", status: 400, text: `wait="soon" is not a duration`},
		{name: "wait without unit", h: alone, query: "wait=7", status: 400, text: `wait="7" is not`},
		{name: "negative wait", h: alone, query: "wait=-1s", status: 400, text: `wait="-1s" is not`},
		{name: "huge wait", h: alone, query: "wait=9999999h", status: 400, text: `wait="9999999h" is not`},
		{name: "waited", h: alone, query: "waited=ages&holder=a", status: 400, text: `waited="ages" is not`},
		{name: "negative waited", h: alone, query: "waited=-1s&holder=a", status: 400, text: `waited="-1s" is not`},
		{name: "nameless", h: alone, query: "waited=1s", status: 400, text: "holder=NAME"},
		{name: "holder", h: alone, query: "holder=%ff", status: 400, text: "holder is not UTF-8"},
		{name: "long holder", h: alone, query: "holder=" + strings.Repeat("x", 1025), status: 400, text: "holder has 1025 bytes"},
		{name: "long version", h: alone, query: "version=" + strings.Repeat("x", 257), status: 400, text: "version has 257 bytes"},
		{name: "longest lock", h: alone, query: "lock=" + strings.Repeat("x", 768), status: 404, text: "no election"},
		{name: "longest holder", h: alone, query: "holder=" + strings.Repeat("x", 1024), status: 200},
		{name: "longest version", h: alone, query: "version=" + strings.Repeat("x", 256), status: 200},
		{name: "longest query", h: alone, query: strings.Repeat("x", 8192), status: 200},
		{name: "no wait", h: alone, query: "wait=0s&waited=0s&version=x", status: 200},
		{name: "unknown parameter", h: alone, query: "colour=red", status: 200},
		{name: "empty parameters", h: alone, query: "lock=&wait=&version=&holder=&waited=", status: 200},
		{name: "post", h: alone, method: "POST", status: 405, text: "GET or HEAD", headers: []string{"Allow: GET, HEAD"}},
		{name: "options", h: alone, method: "OPTIONS", status: 405, headers: []string{"Allow: GET, HEAD"}},
		{name: "no token", h: locked, status: 401, text: "needed", headers: []string{"WWW-Authenticate: Bearer"}},
		{name: "basic", h: locked, token: "Basic open-sesame", status: 401, text: "needed", headers: []string{"WWW-Authenticate: Bearer"}},
		{name: "wrong token", h: locked, token: "Bearer open", status: 401, text: "wrong", headers: []string{`WWW-Authenticate: Bearer error="invalid_token"`}},
		{name: "empty token", h: locked, token: "Bearer ", status: 401, text: "wrong"},
		{name: "token before method", h: locked, method: "POST", status: 401},
		{name: "right token", h: locked, token: "bearer open-sesame", status: 200},
		{name: "no token needed", h: alone, token: "Bearer whatever", status: 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.method == "" {
				tc.method = "GET"
			}
			r := put(t, tc.h, tc.method, tc.query, "Authorization", tc.token)
			if r.status != tc.status || !strings.Contains(r.body, tc.text) {
				t.Errorf("got %+v", r)
			}
			if refused := strings.HasPrefix(r.header.Get("Content-Type"), "text/plain"); refused == strings.HasPrefix(r.body, "{") || r.header.Get("Cache-Control") != "no-store" {
				t.Errorf("got %+v", r)
			}
			for _, header := range tc.headers {
				if name, value, _ := strings.Cut(header, ": "); r.header.Get(name) != value {
					t.Errorf("the headers are %v, without %s", r.header, header)
				}
			}
		})
	}
}

func TestQuestionWithABody(t *testing.T) {
	t.Parallel()
	e, _, _ := lead(t, nil)
	r := httptest.NewRequestWithContext(t.Context(), "GET", peer.DefaultPath, strings.NewReader("{}"))
	w := httptest.NewRecorder()
	peer.NewHandler(nil, e).ServeHTTP(w, r)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "no body") || w.Header().Get("Connection") != "close" {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestWaiting: a question that waits is answered when something changes, when its wait
// is over, when the handler stops, and when who asked has gone.
func TestWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e, _, _ := lead(t, nil)
		h := peer.NewHandler(&peer.HandlerOptions{MaxWait: 30 * time.Second, MaxWaiting: 2}, e)
		known := url.Values{"version": {version(t, h)}}.Encode()
		for query, want := range map[string]time.Duration{
			known:                                 0,
			"wait=20s":                            0, // it does not say what it knows
			"wait=20s&version=old":                0,
			"wait=20s&" + known:                   20 * time.Second,
			"wait=1h&" + known:                    30 * time.Second,
			"wait=5s&waited=1s&holder=a&" + known: 5 * time.Second,
		} {
			began := time.Now()
			if answer(t, put(t, h, "GET", query), 200); time.Since(began) != want {
				t.Errorf("%q was answered after %v, not %v", query, time.Since(began), want)
			}
		}

		results := make(chan reply, 2)
		for _, name := range []string{"b", "c"} {
			waited := map[string]string{"b": "1m", "c": "2m"}[name]
			go func() { results <- put(t, h, "GET", "wait=20s&holder="+name+"&waited="+waited+"&"+known) }()
		}
		synctest.Wait()
		if h.Waiting() != 2 {
			t.Errorf("%d wait", h.Waiting())
		}
		if r := put(t, h, "GET", "wait=20s&"+known); r.status != 503 || r.header.Get("Retry-After") == "" || !strings.Contains(r.body, "too many") {
			t.Errorf("one more than may wait got %+v", r)
		}
		answer(t, put(t, h, "GET", known), 200) // which does not wait
		began := time.Now()
		if err := e.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, want := range []time.Duration{0, 20 * time.Millisecond} { // the successor, and the other
			if a, _ := answer(t, <-results, 404); a.State != peer.StateFree || a.Successor != "c" || time.Since(began) != want {
				t.Errorf("%v after the release, not %v, a follower is told %+v", time.Since(began), want, a)
			}
		}
		synctest.Wait()
		if h.Waiting() != 0 {
			t.Errorf("%d wait for ever", h.Waiting())
		}

		known = url.Values{"version": {version(t, h)}}.Encode()
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/?wait=20s&"+known, nil))
		}()
		synctest.Wait()
		began = time.Now()
		leave()
		<-gone
		go func() { results <- put(t, h, "GET", "wait=20s&"+known) }()
		synctest.Wait()
		h.Stop()
		h.Stop()
		if a, _ := answer(t, <-results, 404); a.State != peer.StateFree || time.Since(began) != 0 || h.Waiting() != 0 {
			t.Errorf("%v after Stop: %+v, %d wait", time.Since(began), a, h.Waiting())
		}
		if answer(t, put(t, h, "GET", "wait=20s&"+known), 404); time.Since(began) != 0 {
			t.Errorf("after Stop a question waited for %v", time.Since(began))
		}
	})
}

// The answer is looked up when it is written: a question that waits when a lease ends
// unnoticed is not told that it is held.
func TestAnswerIsTrueWhenWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e, _, net := lead(t, &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: 6 * time.Second}})
		h := peer.NewHandler(nil, e)
		known := url.Values{"version": {version(t, h)}}.Encode()
		net.Partition(true)
		for state := peer.StateHeld; state == peer.StateHeld; {
			r := put(t, h, "GET", "wait=100ms&"+known)
			var a peer.Answer
			if err := json.Unmarshal([]byte(r.body), &a); err != nil {
				t.Fatal(err)
			}
			if (r.status == 200) != (a.State == peer.StateHeld) || a.State == peer.StateHeld && (!e.IsLeader() || a.Valid < 1) {
				t.Errorf("%+v, leader: %v", r, e.IsLeader())
			}
			state = a.State
		}
	})
}

func TestRender(t *testing.T) {
	t.Parallel()
	e, _, _ := lead(t, &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "web-1"}})
	h := peer.NewHandler(&peer.HandlerOptions{Render: func(said peer.Leadership) any {
		return struct {
			peer.Answer
			LeaderID string `json:"leaderID"`
		}{peer.AnswerOf(said), said.Holder}
	}}, e)
	a, fields := answer(t, put(t, h, "GET", ""), 200)
	if a.Holder != "web-1" || fields["leaderID"] != "web-1" || fields["state"] != "held" {
		t.Errorf("got %v", fields)
	}
	l := newLogs()
	broken := peer.NewHandler(&peer.HandlerOptions{Render: func(peer.Leadership) any { return make(chan int) }, Logger: slog.New(l)}, e)
	if r := put(t, broken, "GET", ""); r.status != 500 || !strings.Contains(r.body, "cannot be made") {
		t.Errorf("got %+v", r)
	}
	if lines := l.about("unsupported type: chan int"); len(lines) != 1 {
		t.Errorf("logged %q", lines)
	}
}

func TestNewHandlerPanics(t *testing.T) {
	t.Parallel()
	e, _, _ := lead(t, nil)
	for want, call := range map[string]func(){
		"no election":    func() { peer.NewHandler(nil) },
		"two elections":  func() { peer.NewHandler(nil, e, e) },
		"MaxWait -1s":    func() { peer.NewHandler(&peer.HandlerOptions{MaxWait: -time.Second}, e) },
		"MaxWaiting -1":  func() { peer.NewHandler(&peer.HandlerOptions{MaxWaiting: -1}, e) },
		"end of a line":  func() { peer.NewHandler(&peer.HandlerOptions{Token: "secret\n"}, e) },
		"byte 3 that is": func() { peer.NewHandler(&peer.HandlerOptions{Token: "sch\u00f6n"}, e) },
	} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, want) {
					t.Errorf("panicked with %q, not %q", said, want)
				}
			}()
			call()
		}()
	}
}

// TestMounted: in a server with limits of its own for ordinary requests, a question
// may wait for longer than they are, and the next one on the same connection too.
func TestMounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		e, _, _ := lead(t, nil)
		h := peer.NewHandler(nil, e)
		mux := http.NewServeMux()
		mux.Handle(peer.DefaultPath, h)
		server := &http.Server{Handler: mux, ReadTimeout: time.Second, WriteTimeout: time.Second}
		server.RegisterOnShutdown(h.Stop)
		l := w.listen("leader.test:80")
		served := make(chan error, 1)
		go func() { served <- server.Serve(door{l}) }()
		transport := &http.Transport{DialContext: w.Dial}
		known := url.Values{"version": {version(t, h)}}.Encode()
		for range 3 {
			began := time.Now()
			if answer(t, get(t, transport, "wait=20s&"+known), 200); time.Since(began) != 20*time.Second {
				t.Errorf("answered after %v", time.Since(began))
			}
		}
		if made := w.made("leader.test:80"); made != 1 {
			t.Errorf("%d connections were made", made)
		}
		replies := make(chan reply)
		go func() { replies <- get(t, transport, "wait=20s&"+known) }()
		synctest.Wait()
		began := time.Now()
		shut := make(chan error)
		go func() { shut <- server.Shutdown(t.Context()) }()
		if answer(t, <-replies, 200); time.Since(began) > time.Second {
			t.Errorf("the question that waited was answered %v after the shutdown", time.Since(began))
		}
		if err := <-shut; err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// get asks a server without TLS.
func get(t *testing.T, transport http.RoundTripper, query string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://leader.test"+peer.DefaultPath+"?"+query, nil)
	if err != nil {
		t.Error(err)
		return reply{}
	}
	got, err := transport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return reply{}
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Error(err)
	}
	return reply{got.StatusCode, got.Header, string(body)}
}

func marshal(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}
