package peer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestClientOptions(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string]*peer.ClientOptions{
		"Timeout -1s":                 {Timeout: -time.Second},
		"MaxAnswer -1":                {MaxAnswer: -1},
		`"x" must begin with a slash`: {Path: "x"},
		"is that the end of a line?":  {Token: "secret\n"},
		"byte 1 that is not visible":  {Token: "a b"},
		"byte 0 that is not visible":  {Token: "\n"},
	} {
		if _, err := peer.NewClient(opts); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "peer client: ") {
			t.Errorf("%+v: %v, not %q", opts, err, want)
		}
	}
}

// A token may have any visible character.
func TestTokens(t *testing.T) {
	t.Parallel()
	newClient(t, &peer.ClientOptions{Token: "!~"})
}

// TestAddress: a text that is no address is refused before anything is dialled.
func TestAddress(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var dialled []string
	c := newClient(t, &peer.ClientOptions{Dial: func(_ context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		dialled = append(dialled, network+" "+address)
		return nil, errors.New("not today")
	}})
	for address, want := range map[string]string{
		"":                        "",
		"leader":                  "",
		":8443":                   "",
		"leader:8443/path":        "",
		"leader:https":            "",
		"::1:8443":                "",
		"http://leader:8443":      "",
		"ftp://leader":            "",
		"https://":                "",
		"https://me:pw@leader":    "",
		"https://leader?x=y":      "",
		"https://leader#x":        "",
		"leader:8443?x":           "",
		"leader:8443\r\nX: y":     "",
		"10.0.1.42:8443":          "tcp 10.0.1.42:8443",
		"[::1]:8443":              "tcp [::1]:8443",
		"https://leader":          "tcp leader:443",
		"https://leader:8443/":    "tcp leader:8443",
		"https://leader:8444/a/b": "tcp leader:8444",
	} {
		dialled = nil
		_, err := c.Ask(t.Context(), address, now)
		switch {
		case err == nil || !strings.HasPrefix(err.Error(), "asking "+address+": "):
			t.Errorf("%q: the error does not name it: %v", address, err)
		case want == "" && (len(dialled) > 0 || !strings.Contains(err.Error(), "neither HOST:PORT nor an https URL")):
			t.Errorf("%q: dialled %q: %v", address, dialled, err)
		case want != "" && (len(dialled) != 1 || dialled[0] != want || !strings.Contains(err.Error(), "no connection: not today")):
			t.Errorf("%q: dialled %q, not %q: %v", address, dialled, want, err)
		}
	}
}

// TestRequest: what is sent, and that nothing is sent that was not asked for: no
// cookies, nothing to a proxy of the environment.
func TestRequest(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.test:3128")
	t.Setenv("https_proxy", "http://proxy.test:3128")
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.client.Token = "open-sesame"
		config := &tls.Config{Certificates: []tls.Certificate{w.Issue(t, "leader.test")}, NextProtos: []string{"h2", "http/1.1"}}
		requests := make(chan *http.Request, 2)
		w.serve(t, w.listen("leader.test:1"), config, func(c net.Conn, r *http.Request) bool {
			requests <- r
			return say("204 No Content\r\nSet-Cookie: a=b", "")(c, r)
		})
		c := newClient(t, &w.client)
		q := leasehold.Question{Lock: "leaders/a&b", Holder: "web 2/é", Waited: 90 * time.Second, Known: "7 leading", Wait: 7500 * time.Millisecond}
		for _, want := range []url.Values{
			{"lock": {"leaders/a&b"}, "holder": {"web 2/é"}, "waited": {"1m30s"}, "wait": {"7.5s"}, "version": {"7 leading"}},
			{"lock": {"leaders/a&b"}, "holder": {"web 2/é"}, "waited": {"1m30s"}},
			{"lock": {"leaders/a&b"}, "holder": {"web 2/é"}},
		} {
			if _, err := c.Ask(t.Context(), "leader.test:1", q); err == nil {
				t.Error("got an answer")
			}
			r := <-requests
			got, err := url.ParseQuery(r.URL.RawQuery)
			if err != nil || !reflect.DeepEqual(got, want) || r.URL.Path != peer.DefaultPath || r.Method != "GET" || r.Host != "leader.test:1" {
				t.Errorf("it asked %s %s of %s, not %v", r.Method, r.URL, r.Host, want)
			}
			header := http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer open-sesame"}, "User-Agent": {"Go-http-client/1.1"}}
			if !reflect.DeepEqual(r.Header, header) {
				t.Errorf("with the headers %v, not %v", r.Header, header)
			}
			if q.Known == "" {
				q.Waited = 0
			}
			q.Known = ""
		}
	})
}

// TestShortPatience: a leader that keeps answers for less than the question says is
// asked again, in one Ask, until that is over or something changes.
func TestShortPatience(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		e, lease, _ := lead(t, &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: 24 * time.Hour}})
		asked := 0
		var late time.Duration
		h := peer.NewHandler(&peer.HandlerOptions{MaxWait: 10 * time.Second}, e)
		s := must(peer.NewServer(&peer.ServerOptions{
			Certificate: w.Issue(t, "leader.test"),
			Handler:     http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked++; time.Sleep(late); h.ServeHTTP(w, r) }),
		}))
		defer w.open(t, "leader.test:1", s)()
		c := newClient(t, &w.client)
		q := now
		q.Known, q.Wait = version(t, h), time.Minute
		began := time.Now()
		if said, err := c.Ask(t.Context(), "leader.test:1", q); err != nil || !said.Leading || time.Since(began) != time.Minute || asked != 6 {
			t.Errorf("after %v and %d requests: %+v, %v", time.Since(began), asked, said, err)
		}
		began = time.Now()
		time.AfterFunc(25*time.Second, func() { _ = lease.Release(context.Background()) })
		if said, err := c.Ask(t.Context(), "leader.test:1", q); err != nil || !said.Free || time.Since(began) != 25*time.Second || asked != 9 {
			t.Errorf("after %v and %d requests: %+v, %v", time.Since(began), asked, said, err)
		}
		if made := w.made("leader.test:1"); made != 1 {
			t.Errorf("%d connections were made", made)
		}
		q.Known, asked = version(t, h), 0
		began = time.Now()
		if said, err := c.Ask(t.Context(), "leader.test:1", q); err != nil || said.Leading || time.Since(began) != 10*time.Second || asked != 1 {
			t.Errorf("of one that does not lead it hears after %v and %d requests: %+v, %v", time.Since(began), asked, said, err)
		}
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		began, asked, late, q.Known = time.Now(), 0, 2*time.Second, "old"
		if said, err := c.Ask(t.Context(), "leader.test:1", q); err != nil || !said.Leading || time.Since(began) != late || asked != 1 {
			t.Errorf("of what it did not know it hears after %v and %d requests: %+v, %v", time.Since(began), asked, said, err)
		}
	})
}

// TestIdleConnections: questions about any number of elections that have one leader share its connections, and keep as many
// as they need at a time, until they were not used for 15 s.
func TestIdleConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const many = 4
		w := newWorld(t)
		var all []*leasehold.Election
		for i := range many {
			e := must(leasehold.NewElection(memstore.New(), fmt.Sprint("leaders/", i), nil))
			lease := must(e.Campaign(t.Context()))
			defer lease.Release(context.WithoutCancel(t.Context())) //nolint:errcheck // it ends with the test
			all = append(all, e)
		}
		s := must(peer.NewServer(&peer.ServerOptions{Certificate: w.Issue(t, "leader.test")}, all...))
		defer w.open(t, "leader.test:1", s)()
		c := newClient(t, &w.client)
		var known [many]string
		for i := range many {
			known[i] = must(c.Ask(t.Context(), "leader.test:1", leasehold.Question{Lock: fmt.Sprint("leaders/", i)})).Version
		}
		if made := w.made("leader.test:1"); made != 1 {
			t.Errorf("one question after the other took %d connections", made)
		}
		for range 2 {
			var asking sync.WaitGroup
			for i := range many {
				asking.Go(func() {
					if said, err := c.Ask(t.Context(), "leader.test:1", leasehold.Question{Lock: fmt.Sprint("leaders/", i), Known: known[i], Wait: 3 * time.Second}); err != nil || !said.Leading {
						t.Errorf("%+v, %v", said, err)
					}
				})
			}
			asking.Wait()
			if made := w.made("leader.test:1"); made != many {
				t.Errorf("%d questions at a time took %d connections", many, made)
			}
		}
		time.Sleep(14500 * time.Millisecond)
		if open := w.alive("leader.test:1"); open != many {
			t.Errorf("after 14.5 s %d connections are open", open)
		}
		time.Sleep(time.Second)
		if open := w.alive("leader.test:1"); open != 0 {
			t.Errorf("after 15.5 s %d connections are open", open)
		}
	})
}

// TestStrangeAnswers: what a client makes of each status and size, asking and telling. It leaves no connection open on
// which there is more to read.
func TestStrangeAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		config := &tls.Config{Certificates: []tls.Certificate{w.Issue(t, "leader.test")}}
		var head, body string
		w.serve(t, w.listen("leader.test:1"), config, func(c net.Conn, r *http.Request) bool { return say(head, body)(c, r) })
		answer := marshal(peer.Answer{Lock: key, State: peer.StateHeld, Holder: "a", Token: 1, TTL: 15000, Valid: 13000, Incarnation: "i", Version: "v"})
		w.client.MaxAnswer = int64(len(answer))
		c := newClient(t, &w.client)
		for _, tc := range []struct{ head, body, asking, telling string }{
			{jsonHead, answer, "", "it answers 200 OK"},
			{jsonHead, answer + " ", "the answer has more than", "the answer has more than"},
			{jsonHead, answer + "   ", "the answer has more than", "the answer has more than"}, // not all of it is read
			{"204 No Content", "", "it answers 204", ""},
			{"300 Multiple Choices", "", "it redirects (300 Multiple Choices)", "it answers 300"},
			{"399 Odd", "", "it redirects (399 Odd)", "it answers 399"},
			{"400 Bad Request", "no\n", `it answers 400 Bad Request: "no\n"`, `it answers 400 Bad Request: "no\n"`},
			{"401 Unauthorized", "", "it refuses the bearer token (401 Unauthorized)", "it refuses the bearer token (401 Unauthorized)"},
			{"403 Forbidden", "", "it refuses the bearer token (403 Forbidden)", "it refuses the bearer token (403 Forbidden)"},
			{"404 Not Found", "", "it knows nothing of the lock, or of the path /health/leadership (404 Not Found)", "it knows nothing of the semaphore"},
			{"405 Method Not Allowed", "", "it answers 405", "it knows nothing of the semaphore, or of the path /health/leadership (405 Method Not Allowed)"},
		} {
			head, body = tc.head, tc.body
			_, err := c.Ask(t.Context(), "leader.test:1", now)
			for what, err := range map[string]error{tc.asking: err, tc.telling: c.Changed(t.Context(), "leader.test:1", key, "v")} {
				if (err == nil) != (what == "") || err != nil && !strings.Contains(err.Error(), what) {
					t.Errorf("%s: %v, not %q", head, err, what)
				}
			}
			synctest.Wait()
			if open := w.alive("leader.test:1"); open > 1 || len(body) > len(answer)+1 && open > 0 {
				t.Errorf("%s: %d connections are open", head, open)
			}
		}
	})
}

// TestToldAgain: a word that meets a connection which its other end has just closed is sent again on another one.
func TestToldAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		config := &tls.Config{Certificates: []tls.Certificate{w.Issue(t, "leader.test")}}
		var words int
		w.serve(t, w.listen("leader.test:1"), config, func(c net.Conn, r *http.Request) bool {
			words++
			return words != 2 && say("204 No Content", "")(c, r)
		})
		c := newClient(t, &w.client)
		for range 2 {
			if err := c.Changed(t.Context(), "leader.test:1", key, "v"); err != nil {
				t.Error(err)
			}
		}
		if made := w.made("leader.test:1"); words != 3 || made != 2 {
			t.Errorf("%d words came, on %d connections", words, made)
		}
	})
}

// cut is a connection that breaks.
type cut struct{ net.Conn }

func (cut) Read([]byte) (int, error) {
	return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}
func (cut) Write(b []byte) (int, error) { return len(b), nil }

// TestKeepsNothingOfAQuestion: a client that asks and tells for years does not grow: it keeps nothing of what ended. The
// error of a connection that breaks is told as it is.
func TestKeepsNothingOfAQuestion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		c := newClient(t, &peer.ClientOptions{Dial: func(context.Context, string, string) (net.Conn, error) { return cut{here}, nil }})
		type name struct{}
		ask := func() weak.Pointer[[1024]byte] {
			value := new([1024]byte)
			ctx := context.WithValue(t.Context(), name{}, value)
			if _, err := c.Ask(ctx, "leader.test:1", now); err == nil || err.Error() != "asking leader.test:1: read tcp: connection reset by peer" {
				t.Errorf("it says %v", err)
			}
			if err := c.Changed(ctx, "leader.test:1", key, "v"); err == nil || err.Error() != "telling leader.test:1: read tcp: connection reset by peer" {
				t.Errorf("it says %v", err)
			}
			return weak.Make(value)
		}
		value := ask()
		time.Sleep(time.Minute) // the timers that were stopped are gone by then
		for range 10 {
			runtime.GC()
		}
		if value.Value() != nil {
			t.Error("the context of a question is kept")
		}
	})
}

// TestClose: a question that waits ends with ErrClosed, or with its context; then
// nothing is asked any more, and no connection is left.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		e, _, _ := lead(t, nil)
		h := peer.NewHandler(nil, e)
		s := must(peer.NewServer(&peer.ServerOptions{Certificate: w.Issue(t, "leader.test"), Handler: h}))
		defer w.open(t, "leader.test:1", s)()
		c := must(peer.NewClient(&w.client))
		if _, err := c.Ask(t.Context(), "leader.test:1", now); err != nil {
			t.Fatal(err)
		}
		q := now
		q.Known, q.Wait = version(t, h), time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 3)
		for _, ctx := range []context.Context{ctx, t.Context(), t.Context()} {
			go func() {
				_, err := c.Ask(ctx, "leader.test:1", q)
				results <- err
			}()
		}
		synctest.Wait()
		if open := w.alive("leader.test:1"); h.Waiting() != 3 || open != 3 {
			t.Errorf("%d wait on %d connections", h.Waiting(), open)
		}
		began := time.Now()
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) || time.Since(began) != 0 {
			t.Errorf("the end of its context gave %v", err)
		}
		synctest.Wait()
		if h.Waiting() != 2 {
			t.Errorf("%d wait", h.Waiting())
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			if err := <-results; !errors.Is(err, peer.ErrClosed) {
				t.Errorf("the client's end gave %v", err)
			}
		}
		if _, err := c.Ask(t.Context(), "leader.test:1", now); !errors.Is(err, peer.ErrClosed) {
			t.Errorf("a closed client says %v", err)
		}
		synctest.Wait()
		if open := w.alive("leader.test:1"); open != 0 || h.Waiting() != 0 || time.Since(began) != 0 {
			t.Errorf("%d connections are open, %d questions wait", open, h.Waiting())
		}
	})
}

// TestFormerLeader: the connection to a leader is closed when another one is asked
// about the same lock, and those of other elections that wait are left alone.
func TestFormerLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		one, _, _ := lead(t, nil)
		other := must(leasehold.NewElection(memstore.New(), "leaders/other", nil))
		if _, err := other.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := peer.NewHandler(nil, one, other)
		for i := range 2 {
			name := fmt.Sprint("leader", i, ".test")
			s := must(peer.NewServer(&peer.ServerOptions{Certificate: w.Issue(t, name), Handler: h}))
			defer w.open(t, name+":1", s)()
		}
		c := newClient(t, &w.client)
		said, err := c.Ask(t.Context(), "leader0.test:1", leasehold.Question{Lock: "leaders/other"})
		if err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		go func() {
			_, err := c.Ask(t.Context(), "leader0.test:1", leasehold.Question{Lock: "leaders/other", Known: said.Version, Wait: 20 * time.Second})
			waited <- err
		}()
		synctest.Wait()
		for range 2 {
			if _, err := c.Ask(t.Context(), "leader0.test:1", now); err != nil {
				t.Fatal(err)
			}
		}
		if open := w.alive("leader0.test:1"); open != 2 {
			t.Errorf("%d connections to the leader of two elections", open)
		}
		if _, err := c.Ask(t.Context(), "leader1.test:1", now); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if former, open := w.alive("leader0.test:1"), w.alive("leader1.test:1"); former != 1 || open != 1 {
			t.Errorf("%d connections to the former leader, %d to the leader", former, open)
		}
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}
