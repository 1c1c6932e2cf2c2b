package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/probe"
)

// Signals that come within a second are one: timeout(1) always sends two, and used to abort the clean stop. One that comes
// later ends it at once.
func TestSignalsAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		after []time.Duration // the first signal
		code  int
		took  time.Duration
	}{
		"one":             {nil, 0, 0},
		"two at once":     {[]time.Duration{0}, 0, 0},
		"three at once":   {[]time.Duration{0, 500 * time.Millisecond}, 0, 0},
		"two":             {[]time.Duration{2 * time.Second}, 128 + int(syscall.SIGINT), 2 * time.Second},
		"two and one":     {[]time.Duration{0, 3 * time.Second}, 128 + int(syscall.SIGINT), 3 * time.Second},
		"one at a second": {[]time.Duration{time.Second}, 128 + int(syscall.SIGINT), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				said := &bytes.Buffer{}
				c := &serveCmd{app: &app{console: console{w: said, least: slog.LevelInfo}}, signals: make(chan os.Signal, 8)}
				st := memstore.New()
				c.opts.TTL = 15 * time.Second
				server, err := serve.New(st, &c.opts)
				if err != nil {
					t.Fatal(err)
				}
				if err = server.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.server = server
				r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/locks/k/acquire", strings.NewReader(`{"ttl":"10s"}`))
				r.Header.Set("Content-Type", "application/json")
				server.ServeHTTP(httptest.NewRecorder(), r)
				began := time.Now()
				go func() {
					for _, d := range tt.after {
						time.Sleep(time.Until(began.Add(d)))
						c.signals <- os.Interrupt
					}
				}()
				err = c.stop(t.Context(), os.Interrupt)
				took := time.Since(began)
				code := 0
				if e, is := errors.AsType[*exit](err); is {
					code = e.code
				}
				if code != tt.code || code == 0 && (leasetest.RecordIn(t, st, "k").Held || took < 10*time.Second) || code != 0 && took != tt.took {
					t.Errorf("it ended with %d after %v: %v\n%s", code, took, err, said)
				}
				time.Sleep(time.Minute) // the session ends
			})
		})
	}
}

// TestServeStanding: what the service manager is told of a server, in a line.
func TestServeStanding(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		c := &serveCmd{app: &app{}, target: target{storeURL: "s3://b"}}
		server, err := serve.New(memstore.New(), &c.opts)
		if err != nil {
			t.Fatal(err)
		}
		c.server = server
		stands := func(want string) {
			t.Helper()
			if got := c.standing(); !strings.HasPrefix(got, want) {
				t.Errorf("it stands %q, want %q", got, want)
			}
		}
		stands("beginning a session in s3://b")
		c.ready.Store(true)
		stands("not ready: ")
		if err = server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		stands("serving the locks under s3://b")
		c.target.name = "jobs/"
		stands("serving the locks under jobs/")
		c.stopping.Store(true)
		stands("stopping: callers end their work")
		if err = server.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestAmong: whether all that is under one prefix is under another, too. Else a server of states would list its locks with
// them, or the other way round.
func TestAmong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		inner, outer target
		want         bool
	}{
		{target{storeURL: "s3://b/a"}, target{storeURL: "s3://b"}, true},
		{target{storeURL: "s3://b"}, target{storeURL: "s3://b/a"}, false},
		{target{storeURL: "s3://b/a"}, target{storeURL: "s3://b/a/"}, true},
		{target{storeURL: "s3://b/ab"}, target{storeURL: "s3://b/a"}, false},
		{target{storeURL: "s3://c/a"}, target{storeURL: "s3://b"}, false},
		{target{storeURL: "gs://b/a"}, target{storeURL: "s3://b"}, false},
		{target{storeURL: "s3://b", key: "a/b/"}, target{storeURL: "s3://b/a"}, true},
		{target{storeURL: "s3://b/a/b"}, target{storeURL: "s3://b", key: "a/"}, true},
		{target{storeURL: "s3://b", key: "a/bc"}, target{storeURL: "s3://b", key: "a/b"}, false},
		{target{storeURL: "s3://b", key: "c/"}, target{storeURL: "s3://b", key: "a/"}, false},
		{target{storeURL: "s3://b/%"}, target{storeURL: "s3://b"}, false},
		{target{storeURL: "s3://b/a"}, target{storeURL: "s3://b/%"}, false},
		{target{storeURL: "%"}, target{storeURL: "%"}, false},
	} {
		if got := among(tt.inner, tt.outer); got != tt.want {
			t.Errorf("%s %q is among %s %q: %v", tt.inner.storeURL, tt.inner.key, tt.outer.storeURL, tt.outer.key, got)
		}
	}
}

// TestStatesAmongLocks: states and locks that would be listed with each other are refused, with what to change.
func TestStatesAmongLocks(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	s, err := startDemoServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := func(prefix string) string { return "s3://" + demoBucket + "/" + prefix + "?endpoint=" + s.endpoint }
	for _, tt := range []struct{ states, locks, want string }{
		{"all/tf", "all", "each look at them would read all the states, so give another place"},
		{"tf", "tf/states/x", "lies among the states under " + at("tf") + ": give another place"},
	} {
		var said bytes.Buffer
		code := exec(t.Context(), []string{"serve", "--http", "127.0.0.1:0", "--terraform", at(tt.states), at(tt.locks)}, io.Discard, &said)
		if code != exitUsage || !strings.Contains(said.String(), tt.want) {
			t.Errorf("states under %s and locks under %s: %d, %s", tt.states, tt.locks, code, &said)
		}
	}
}

// TestServeBounds: the bounds of serve's flags are those in its help.
func TestServeBounds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set  func(c *serveCmd)
		says string
	}{
		"by default":           {func(*serveCmd) {}, ""},
		"the shortest TTL":     {func(c *serveCmd) { c.opts.TTL = leasehold.MinTTL }, ""},
		"the longest TTL":      {func(c *serveCmd) { c.opts.TTL = leasehold.MaxTTL }, ""},
		"a shorter TTL":        {func(c *serveCmd) { c.opts.TTL = leasehold.MinTTL - 1 }, "--ttl 999.999999ms is not between 1s and 24h0m0s"},
		"a longer TTL":         {func(c *serveCmd) { c.opts.TTL = leasehold.MaxTTL + 1 }, "--ttl 24h0m0.000000001s is not between 1s and 24h0m0s"},
		"the shortest --every": {func(c *serveCmd) { c.opts.Every = time.Second }, ""},
		"a shorter --every":    {func(c *serveCmd) { c.opts.Every = time.Second - 1 }, "--every 999.999999ms is less than 1s"},
		"one of each": {func(c *serveCmd) {
			c.conns, c.opts.Leases, c.opts.Waiting, c.opts.Subscribers, c.opts.Budget, c.opts.Limit = 3, 1, 1, 1, 1, 1
		}, ""},
		"no leases": {func(c *serveCmd) { c.opts.Leases = 0 }, "--max-leases 0 is less than 1"},
	} {
		c := &serveCmd{app: &app{console: console{w: io.Discard}}, listen: "127.0.0.1:0", conns: 30, given: func(string) bool { return true }}
		c.opts.TTL, c.opts.Every, c.opts.Leases, c.opts.Waiting, c.opts.Subscribers, c.opts.Budget, c.opts.Limit = leasehold.DefaultTTL, 5*time.Second, 10, 10, 10, 10, 10
		tt.set(c)
		if err := c.check(); (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
	}
}

// TestRoomForCallers: where few files may be open there are fewer connections, and of those fewer wait, unless the flags say
// how many: then it is refused, with what to change.
func TestRoomForCallers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most, conns, waiting, subscribers int
		given                             string
		want                              [3]int // conns, waiting, subscribers
		says                              string // or the error
	}{
		"enough":             {5000, 5000, 1000, 64, "", [3]int{5000, 1000, 64}, ""},
		"just enough":        {5000, 101, 40, 21, "connections max-waiting max-subscribers", [3]int{101, 40, 21}, ""},
		"few":                {100, 5000, 1000, 64, "", [3]int{100, 29, 12}, "so there are at most 100 connections, 29 waiting callers and 12 streams of events"},
		"few, and few wait":  {100, 5000, 3, 2, "", [3]int{100, 3, 2}, "at most 100 connections, 3 waiting callers and 2 streams"},
		"very few":           {8, 5000, 1000, 64, "", [3]int{8, 2, 1}, "at most 8 connections, 2 waiting callers and 1 streams"},
		"too few":            {7, 5000, 1000, 64, "", [3]int{}, "this process may open too few files for connections and a store"},
		"too few for a flag": {100, 101, 1, 1, "connections", [3]int{}, "--connections 101: this process may open too few files for more than 100"},
		"more subscribers":   {100, 5000, 1000, 20, "max-subscribers", [3]int{100, 26, 20}, "26 waiting callers and 20 streams"},
		"too many wait":      {100, 5000, 1000, 64, "max-waiting", [3]int{}, "--connections 100 is less than all may take that wait: twice --max-waiting and --max-subscribers are 2012"},
		"one too many":       {5000, 100, 40, 21, "", [3]int{}, "twice --max-waiting and --max-subscribers are 101"},
	} {
		var said bytes.Buffer
		c := &serveCmd{app: &app{console: console{w: &said}}, conns: tt.conns}
		c.given = func(flag string) bool { return slices.Contains(strings.Fields(tt.given), flag) }
		c.opts.Waiting, c.opts.Subscribers = tt.waiting, tt.subscribers
		switch err := c.makeRoom(tt.most); {
		case tt.want == [3]int{}:
			if end, is := errors.AsType[*exit](err); !is || end.code != exitUsage || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v, want %q", name, err, tt.says)
			}
		case err != nil || [3]int{c.conns, c.opts.Waiting, c.opts.Subscribers} != tt.want || c.http.Conns != c.conns:
			t.Errorf("%s: %d connections, %d wait, %d subscribe, %v; want %v", name, c.conns, c.opts.Waiting, c.opts.Subscribers, err, tt.want)
		case (said.Len() > 0) != (tt.says != "") || !strings.Contains(said.String(), tt.says):
			t.Errorf("%s: it says %q, want %q", name, &said, tt.says)
		}
	}
}

// brokenListener is one that nobody connects to, and that breaks when it is told to.
type brokenListener struct {
	net.Listener
	at     net.Addr
	breaks chan struct{}
}

func newBrokenListener(at net.Addr) brokenListener {
	return brokenListener{at: at, breaks: make(chan struct{})}
}

func (l brokenListener) Accept() (net.Conn, error) {
	<-l.breaks
	return nil, errors.New("the network is gone")
}

func (l brokenListener) Addr() net.Addr { return l.at }
func (brokenListener) Close() error     { return nil }

// over is a server on a listener.
func over(t *testing.T, l net.Listener, o localhttp.Options) *localhttp.Server {
	t.Helper()
	s, err := localhttp.Over(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestServeUnanswered: a server whose address is answered no more ends with the reason, at once: it does not wait for its
// callers, who cannot tell it that they have ended their work.
func TestServeUnanswered(t *testing.T) {
	t.Parallel()
	var said leasetest.Log
	l := newBrokenListener(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4041})
	c := &serveCmd{app: &app{console: console{w: &said, least: levelNotice}}, target: target{name: "jobs/"}, signals: make(chan os.Signal, 8)}
	c.address, _ = localhttp.ParseAddress("127.0.0.1:4041")
	c.opts.TTL, c.opts.Logger = time.Hour, silent
	var err error
	if c.server, err = serve.New(memstore.New(), &c.opts); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.serveOn(t.Context(), over(t, l, localhttp.Options{})) }()
	for !c.ready.Load() {
		time.Sleep(time.Millisecond)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/locks/k/acquire", nil)
	w := httptest.NewRecorder()
	if c.server.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	close(l.breaks)
	err = <-ended
	end, is := errors.AsType[*exit](err)
	if want := "exit code 70: --http 127.0.0.1:4041 is not answered any more: the network is gone"; !is || end.Error() != want {
		t.Errorf("it ends with %v, want %s", err, want)
	}
	if want := "leasehold: serving the locks under jobs/ on http://127.0.0.1:4041\n"; said.String() != want {
		t.Errorf("it says %q, want %q", said.String(), want)
	}
}

// TestServeRefused: a server that cannot start exits with the reason and serves nothing.
func TestServeRefused(t *testing.T) {
	t.Parallel()
	var said leasetest.Log
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &serveCmd{app: &app{console: console{w: &said, least: levelNotice}}, target: target{name: "jobs/"}, signals: make(chan os.Signal, 8)}
	c.opts.TTL, c.opts.Logger = time.Hour, silent
	st := faultstore.Wrap(memstore.New(), nil)
	st.Inject(faultstore.Fault{Kind: faultstore.Denied})
	if c.server, err = serve.New(st, &c.opts); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.serveOn(t.Context(), over(t, l, localhttp.Options{})) }()
	for len(ended) == 0 {
		if time.Sleep(time.Millisecond); said.String() != "" {
			t.Fatalf("it says %q", said.String())
		}
	}
	err = <-ended
	if end, is := errors.AsType[*exit](err); !is || end.code != exitDenied {
		t.Errorf("it ends with %v", err)
	}
}

// TestServeUnstarted: a store that was not proven safe is another fault than one that does not answer.
func TestServeUnstarted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		code int
	}{
		{fmt.Errorf("x: %w", probe.ErrUnproven), exitUnsafe},
		{&store.Error{Op: "put", Key: "k", Kind: store.ErrUnavailable}, exitUnavailable},
		{&store.Error{Op: "put", Key: "k", Kind: store.ErrDenied}, exitDenied},
	} {
		if end, is := errors.AsType[*exit]((&serveCmd{}).unstarted(tt.err)); !is || end.code != tt.code || !errors.Is(end, tt.err) {
			t.Errorf("%v: %v, want %d", tt.err, end, tt.code)
		}
	}
}

// TestServeUnreleased: what a server could not release when it stops is told, since others have to wait for it; and that
// it was cut short in letting the runs of Terraform go.
func TestServeUnreleased(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		var said leasetest.Log
		st := faultstore.Wrap(memstore.New(), nil)
		c := &serveCmd{app: &app{console: console{w: &said, least: levelNotice}}, signals: make(chan os.Signal, 8)}
		c.states = states{prefix: "tf/", target: target{store: st, key: "tf/"}}
		c.opts.TTL = 15 * time.Second
		var err error
		if c.server, err = serve.New(st, &c.opts); err != nil {
			t.Fatal(err)
		}
		c.states.target.key = "tf//"
		if err = c.keepStates(); err == nil || !strings.Contains(err.Error(), "--terraform tf/: ") {
			t.Errorf("what cannot be a prefix of states: %v", err)
		}
		c.states.target.key = "tf/"
		c.opts.Proof = &probe.Report{Store: "s3://b"} // which is not where the states are
		if end, is := errors.AsType[*exit](c.keepStates()); !is || end.code != exitUnsafe || !errors.Is(end, probe.ErrUnproven) {
			t.Errorf("what was not proven to be safe: %v", end)
		}
		c.opts.Proof = nil
		if err = c.keepStates(); err != nil {
			t.Fatal(err)
		}
		if err = c.server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		began := time.Now()
		if err = c.stop(t.Context(), os.Interrupt); err != nil {
			t.Errorf("it ends with %v", err)
		}
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("it took %v", took)
		}
		c.leaveStates(ended(t.Context()))
		for _, want := range []string{
			"leasehold: stopping after interrupt: no lease is given or prolonged any more, and each is released when its caller ends its work\n",
			"leasehold: not all was released, so others may have to wait for the TTL: the lock ",
			"leasehold: not all runs of Terraform have ended well: ",
		} {
			if !strings.Contains(said.String(), want) {
				t.Errorf("it says\n%swithout\n%s", said.String(), want)
			}
		}
		time.Sleep(time.Minute) // the session ends
	})
}

// TestServeStates: Terraform finds the state NAME below the path that its users configure, and its lock is where the states
// are, at this server's address, and in its metrics. A state that is locked when the server stops stays locked. A request that
// is under way then is waited for, twice the TTL and 10 s at most.
func TestServeStates(t *testing.T) {
	for _, takes := range []time.Duration{38 * time.Second, 42 * time.Second} {
		testServeStates(t, takes)
	}
}

func testServeStates(t *testing.T, takes time.Duration) {
	t.Helper()
	leasetest.Bubble(t, func(t *testing.T) {
		var said, logged leasetest.Log
		st := memstore.New()
		c := &serveCmd{app: &app{console: console{w: &said, least: levelNotice}}, signals: make(chan os.Signal, 8)}
		if c.leaveStates(t.Context()); said.String() != "" {
			t.Errorf("without states it says %q", said.String())
		}
		c.states = states{prefix: "tf/", target: target{store: st, key: "tf/"}}
		c.opts.TTL, c.opts.Address, c.opts.Logger = 15*time.Second, "a:1", slog.New(slog.NewTextHandler(&logged, nil))
		var err error
		if c.server, err = serve.New(memstore.New(), &c.opts); err != nil {
			t.Fatal(err)
		}
		if err = c.keepStates(); err != nil {
			t.Fatal(err)
		}
		if err = c.server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ask := func(method, path string, body io.Reader) *httptest.ResponseRecorder {
			r, w := httptest.NewRequestWithContext(t.Context(), method, path, body), httptest.NewRecorder()
			r.Header.Set("Content-Type", "application/json")
			c.server.ServeHTTP(w, r)
			return w
		}
		if w := ask("LOCK", "/terraform/prod", strings.NewReader(`{"ID":"x"}`)); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		const acquired = `leasehold_acquire_duration_seconds_count{leasehold_kind="lock",leasehold_outcome="acquired",leasehold_waited="false"} 1` + "\n"
		if w := ask("GET", "/metrics", http.NoBody); !strings.Contains(w.Body.String(), acquired) {
			t.Errorf("the metrics are without\n%s\n%s", acquired, w.Body)
		}
		body, state := io.Pipe()
		began, answered := time.Now(), make(chan int, 1)
		go func() { answered <- ask("POST", "/terraform/prod?ID=x", body).Code }()
		go func() {
			time.Sleep(takes)
			_, _ = io.WriteString(state, `{"version":4,"serial":1,"lineage":"x"}`)
			_ = state.Close()
		}()
		synctest.Wait()
		if err = c.stop(t.Context(), os.Interrupt); err != nil || time.Since(began) != min(takes, 40*time.Second) {
			t.Errorf("it stops after %v: %v", time.Since(began), err)
		}
		if code := <-answered; takes < 40*time.Second && code != http.StatusOK {
			t.Errorf("a state that came late is answered %d", code)
		}
		if lock := leasetest.RecordIn(t, st, "tf/locks/prod/_lock"); !lock.Held || lock.Address != "a:1" {
			t.Errorf("the lock of the state is %+v", lock)
		}
		if strings.Contains(said.String(), "not all") != (takes > 40*time.Second) || !strings.Contains(logged.String(), "msg=locked state=prod id=x ") {
			t.Errorf("it says %q, and logs %q", said.String(), logged.String())
		}
		time.Sleep(time.Minute) // the session ends
	})
}

// TestStatesAreTold: where Terraform is answered, and a warning if every user of the machine can read the secrets in the
// states.
func TestStatesAreTold(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	token, err := localhttp.ReadToken(file)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := localhttp.ParseAddress("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := localhttp.ParseAddress("unix:" + filepath.Join(t.TempDir(), "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	const open = "leasehold: every user of this machine can read and write the states, and there are secrets in them: give --http-token-file\n"
	for name, tt := range map[string]struct {
		prefix string
		at     localhttp.Address
		http   localhttp.Options
		files  localhttp.Files
		want   string
	}{
		"none are kept": {"", tcp, localhttp.Options{}, localhttp.Files{}, ""},
		"for everybody": {"tf/", tcp, localhttp.Options{}, localhttp.Files{}, "WHERE/terraform/NAME\n" + open},
		"TLS alone":     {"tf/", tcp, localhttp.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, localhttp.Files{}, "WHERE/terraform/NAME\n" + open},
		"a token":       {"tf/", tcp, localhttp.Options{Token: token}, localhttp.Files{}, "WHERE/terraform/NAME\n"},
		"certificates":  {"tf/", tcp, localhttp.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, localhttp.Files{ClientCA: "ca"}, "WHERE/terraform/NAME\n"},
		"a socket":      {"tf/", socket, localhttp.Options{}, localhttp.Files{}, "WHERE/terraform/NAME\n"},
	} {
		var said bytes.Buffer
		c := &serveCmd{app: &app{console: console{w: &said, least: levelNotice}}, http: tt.http, files: tt.files}
		c.states = states{prefix: tt.prefix, target: target{name: "tf/"}}
		listener, failed := localhttp.ListenWith(t.Context(), tt.at, tt.http)
		if failed != nil {
			t.Fatal(failed)
		}
		c.tellOfStates(listener)
		where := c.where(listener)
		if failed = listener.Stop(t.Context()); failed != nil {
			t.Error(failed)
		}
		want := strings.ReplaceAll(tt.want, "WHERE", where)
		if want != "" {
			want = "leasehold: keeping the states of Terraform under tf/, at " + want
		}
		scheme := "http:"
		switch {
		case tt.at == socket:
			scheme = "unix:"
		case tt.http.TLS != nil:
			scheme = "https:"
		}
		if !strings.HasPrefix(where, scheme) {
			t.Errorf("%s: it answers at %s, want %s", name, where, scheme)
		}
		if said.String() != want {
			t.Errorf("%s: it says %q, want %q", name, &said, want)
		}
	}
}

// TestServePrices: requests are priced by the list of the store that the URL names, unless a flag names another; and answers
// name locks by their URLs.
func TestServePrices(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	for _, tt := range []struct{ store, flag, price, url string }{
		{"s3://bucket/locks?region=us-east-1", "", "s3", "s3://bucket/locks/a%20b/c?region=us-east-1"},
		{"s3://bucket/locks?region=us-east-1", "r2", "r2", "s3://bucket/locks/a%20b/c?region=us-east-1"},
		{"s3://bucket?endpoint=http://127.0.0.1:9", "", "", "s3://bucket/a%20b/c?endpoint=http://127.0.0.1:9"},
	} {
		c := &serveCmd{app: &app{console: console{w: io.Discard}}, given: func(string) bool { return false }}
		f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		c.flags(f)
		c.listen = "unix:" + filepath.Join(t.TempDir(), "none", "x.sock") // after which nothing is sent
		c.opts.Price = tt.flag
		if end, is := errors.AsType[*exit](c.run(t.Context(), tt.store)); !is || end.code != exitUsage {
			t.Fatal(end)
		}
		if got := c.opts.URL("a b/c"); c.opts.Price != tt.price || got != tt.url {
			t.Errorf("%s: priced as %q, want %q; a lock is %s, want %s", tt.store, c.opts.Price, tt.price, got, tt.url)
		}
	}
}

// TestServeLost: a server whose session is lost while it stops has nothing left that others would have to wait for, and
// does not say that it has.
func TestServeLost(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		var said leasetest.Log
		st := memstore.New()
		c := &serveCmd{app: &app{console: console{w: &said, least: levelNotice}}, signals: make(chan os.Signal, 8)}
		c.opts.TTL, c.opts.Logger = 15*time.Second, silent
		var err error
		if c.server, err = serve.New(st, &c.opts); err != nil {
			t.Fatal(err)
		}
		if err = c.server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		session := leasetest.Objects(t, st)[0]
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/locks/k/acquire", strings.NewReader(`{"ttl":"10s"}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if c.server.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		other := fmt.Sprintf(`{"format":1,"token":%d,"state":"free","holder":"other","ttl_ms":15000,"write_id":"x.1","layout":"session"}`, leasetest.RecordIn(t, st, session).Token+1)
		if err = st.Delete(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		if _, err = st.Put(t.Context(), session, []byte(other), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		if err = c.stop(t.Context(), os.Interrupt); err != nil {
			t.Errorf("it ends with %v", err)
		}
		if strings.Contains(said.String(), "not all was released") {
			t.Errorf("it says %q", said.String())
		}
		time.Sleep(time.Minute) // what is left ends
	})
}
