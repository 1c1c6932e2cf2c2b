package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store/memstore"
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
