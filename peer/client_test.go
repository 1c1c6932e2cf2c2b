package peer_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
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
		q := peer.Question{Lock: "leaders/a&b", Holder: "web 2/é", Waited: 90 * time.Second, Known: "7 leading", Wait: 7500 * time.Millisecond}
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
			known[i] = must(c.Ask(t.Context(), "leader.test:1", peer.Question{Lock: fmt.Sprint("leaders/", i)})).Version
		}
		if made := w.made("leader.test:1"); made != 1 {
			t.Errorf("one question after the other took %d connections", made)
		}
		for range 2 {
			var asking sync.WaitGroup
			for i := range many {
				asking.Go(func() {
					if said, err := c.Ask(t.Context(), "leader.test:1", peer.Question{Lock: fmt.Sprint("leaders/", i), Known: known[i], Wait: 3 * time.Second}); err != nil || !said.Leading {
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
		said, err := c.Ask(t.Context(), "leader0.test:1", peer.Question{Lock: "leaders/other"})
		if err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		go func() {
			_, err := c.Ask(t.Context(), "leader0.test:1", peer.Question{Lock: "leaders/other", Known: said.Version, Wait: 20 * time.Second})
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

// A service answers one request on a connection, which is closed when it returns
// false.
type service func(c net.Conn, r *http.Request) bool

// serve lets a service answer on a listener, over TLS if there is a configuration.
func (w *world) serve(t *testing.T, l *listener, config *tls.Config, s service) {
	t.Helper()
	go func() {
		for {
			c, err := (door{l}).Accept()
			if err != nil {
				return
			}
			if config != nil {
				c = tls.Server(c, config)
			} else {
				_, _ = io.WriteString(c, "220 mail.test ESMTP\r\n")
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil || !s(c, r) {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
}

// say answers each request with the same.
func say(head string, body string) service {
	answer := fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", head, len(body), body)
	return func(c net.Conn, _ *http.Request) bool {
		_, err := c.Write(answer)
		return err == nil
	}
}

const jsonHead = "200 OK\r\nContent-Type: application/json"

// endless writes begin, and then more until the other side has enough of it.
func endless(begin, more string, pause time.Duration) service {
	return func(c net.Conn, _ *http.Request) bool {
		if _, err := io.WriteString(c, begin); err != nil {
			return false
		}
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, c)
		}()
		for {
			if _, err := io.WriteString(c, more); err != nil {
				return false
			}
			select {
			case <-time.After(pause):
			case <-gone:
				return false
			}
		}
	}
}

// through lets a handler answer.
func through(h http.Handler) service {
	return func(c net.Conn, r *http.Request) bool {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var b bytes.Buffer
		answer := w.Result()
		answer.ContentLength = int64(w.Body.Len())
		_ = answer.Write(&b)
		_, err := c.Write(b.Bytes())
		return err == nil
	}
}

// TestHostile: whatever is at the leader's address, its follower says so once, follows
// the store instead, and takes over when the lease has ended, not before.
func TestHostile(t *testing.T) {
	never, err := leasehold.NewElection(memstore.New(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := leasehold.NewElection(memstore.New(), "leaders/other", nil)
	if err != nil {
		t.Fatal(err)
	}
	held := func(a peer.Answer) peer.Answer {
		a.State, a.Holder, a.Token, a.TTL, a.Valid, a.Incarnation, a.Version = peer.StateHeld, "a", 1, 15000, 13000, "i", "v"
		return a
	}
	for _, tc := range []struct {
		name    string
		service service
		tls     func(t *testing.T, w *world, config *tls.Config) // changes the service's side
		plain   bool
		want    string // in the one line that is logged
	}{
		{name: "other authority", tls: func(t *testing.T, _ *world, config *tls.Config) {
			t.Helper()
			config.Certificates = []tls.Certificate{servers.NewAuthority(t).Issue(t, host("a"))}
		}, want: "its certificate is not accepted"},
		{name: "other name", tls: func(t *testing.T, w *world, config *tls.Config) {
			t.Helper()
			config.Certificates = []tls.Certificate{w.Issue(t, host("x"))}
		}, want: "check RootCAs, and the names"},
		{name: "other client authority", tls: func(t *testing.T, w *world, config *tls.Config) {
			t.Helper()
			config.ClientCAs, config.ClientAuth = rootsOf(t, servers.NewAuthority(t)), tls.RequireAndVerifyClientCert
		}, want: "it refuses this side's TLS"},
		{name: "other token", service: through(peer.NewHandler(&peer.HandlerOptions{Token: "x"}, never)), want: "it refuses the bearer token (401 Unauthorized)"},
		{name: "forbidden", service: say("403 Forbidden", ""), want: "it refuses the bearer token (403 Forbidden)"},
		{name: "no TLS", plain: true, service: say("200 OK", ""), want: "it does not speak TLS"},
		{name: "html", service: say("200 OK\r\nContent-Type: text/html", "<html>It works!</html>"), want: `the answer is "text/html" and not JSON`},
		{name: "no type", service: say("200 OK", "{}"), want: `the answer is "" and not JSON`},
		{name: "other json", service: say(jsonHead, `{"status":"ok"}`), want: "the answer is not a leader's: it names no lock"},
		{name: "broken json", service: say(jsonHead, `{"lock":`), want: "it is not the JSON of an answer"},
		{name: "not utf-8", service: say(jsonHead, "{\"lock\":\"\xff\"}"), want: "it is not UTF-8"},
		{name: "other lock's handler", service: through(peer.NewHandler(nil, elsewhere)), want: "it knows nothing of the lock"},
		{name: "other lock's answer", service: say(jsonHead, marshal(held(peer.Answer{Lock: "leaders/other"}))), want: "it answers for the lock"},
		{name: "other candidate", service: through(peer.NewHandler(nil, never)), want: "answers there, with token 0"},
		{name: "other leader", service: say(jsonHead, marshal(held(peer.Answer{Lock: key}))), want: "answers there, with token 1"},
		{name: "contradiction", service: say("404 Not Found\r\nContent-Type: application/json", marshal(held(peer.Answer{Lock: key}))), want: "contradicts its status 404"},
		{name: "redirect", service: say("302 Found\r\nLocation: https://"+host("a")+":8443/elsewhere", ""), want: "it redirects (302 Found), which is not followed"},
		{name: "server error", service: say("500 Oops", "no\n"), want: `it answers 500 Oops: "no\n"`},
		{name: "busy", service: say("503 Service Unavailable\r\nRetry-After: 1", ""), want: "it answers 503"},
		{name: "no content", service: say("204 No Content", ""), want: "it answers 204"},
		{name: "a megabyte", service: say(jsonHead, `{"lock":"`+strings.Repeat("x", 1<<20)+`"}`), want: "the answer has more than 131072 bytes"},
		{name: "endless body", service: endless("HTTP/1.1 "+jsonHead+"\r\nTransfer-Encoding: chunked\r\n\r\n", "1000\r\n"+strings.Repeat("x", 0x1000)+"\r\n", 0), want: "the answer has more than 131072 bytes"},
		{name: "endless header", service: endless("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("x", 1000), 0), want: "server response headers exceeded 16384 bytes"},
		{name: "endless headers", service: endless("HTTP/1.1 200 OK\r\n", "X: "+strings.Repeat("x", 100)+"\r\n", 0), want: "server response headers exceeded"},
		{name: "endless 1xx", service: endless("", "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", 0), want: "asking a.test:8443: "},
		{name: "a byte a second", service: endless("HTTP/1.1 200 OK\r\nX: ", "x", time.Second), want: "no answer in 3s"},
		{name: "a slow body", service: endless("HTTP/1.1 "+jsonHead+"\r\nContent-Length: 100\r\n\r\n", "x", time.Second), want: "the answer broke off: no answer in 3s"},
		{name: "silence", service: endless("", "", time.Hour), want: "no answer in 3s"},
		{name: "closed", service: func(net.Conn, *http.Request) bool { return false }, want: "EOF"},
		{name: "closed in the headers", service: cutOff("HTTP/1.1 200 OK\r\nContent-"), want: "malformed MIME header"},
		{name: "closed in the body", service: cutOff("HTTP/1.1 " + jsonHead + "\r\nContent-Length: 100\r\n\r\n{"), want: "the answer broke off: unexpected EOF"},
		{name: "not HTTP", service: cutOff("220 mail.test ESMTP\r\n"), want: "malformed HTTP status code"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				config := &tls.Config{Certificates: []tls.Certificate{w.Issue(t, host("a"))}}
				if tc.tls != nil {
					tc.tls(t, w, config)
				}
				if tc.plain {
					config = nil
				}
				if tc.service == nil {
					tc.service = say("500 Oops", "")
				}
				w.serve(t, w.listen(address("a")), config, tc.service)
				fallsBack(t, w, w.follow(t, "a"), tc.want)
			})
		})
	}
}

func cutOff(text string) service {
	return func(c net.Conn, _ *http.Request) bool {
		_, _ = io.WriteString(c, text)
		return false
	}
}

// TestNobody: nobody is at the leader's address, or nothing comes from there, or it is
// no address.
func TestNobody(t *testing.T) {
	for name, want := range map[string]string{"mute": "it is silent: net/http: TLS handshake timeout", "refused": "no connection: dial pipe: connection refused", "swallowed": "no connection: not in 2s: is its server running"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				switch name {
				case "swallowed":
					w.listen(address("a")) // and nobody accepts
				case "mute":
					l := w.listen(address("a"))
					go func() {
						for {
							c, err := (door{l}).Accept()
							if err != nil {
								return
							}
							defer c.Close()
							go io.Copy(io.Discard, c) //nolint:errcheck // until it is closed
						}
					}()
					t.Cleanup(func() { _ = l.Close() })
				}
				fallsBack(t, w, w.follow(t, "a"), want)
			})
		})
	}
}

// fallsBack: the leader is there and cannot be asked. A follower follows the store,
// with a look for each renewal, says once why, and succeeds the leader.
func fallsBack(t *testing.T, w *world, leader *candidate, want string) {
	t.Helper()
	if err := leasetest.Lead(t.Context(), leader.Election); err != nil {
		t.Fatal(err)
	}
	follower := w.join(t, "b")
	time.Sleep(20 * time.Second)
	follower.net.Reset()
	questions := follower.Status().Questions
	time.Sleep(time.Minute)
	if counts := follower.net.Counts(); counts.Put != 0 || counts.Get < 10 || counts.Get > 13 {
		t.Errorf("in a minute it made %+v", counts)
	}
	if asked := follower.Status().Questions - questions; asked < 1 || asked > 60 {
		t.Errorf("in a minute it asked %d times", asked)
	}
	if lines := follower.logs.about(""); len(lines) != 1 || !strings.Contains(lines[0], silence) || !strings.Contains(lines[0], want) || !strings.Contains(lines[0], "asking "+address("a")) && !strings.Contains(lines[0], "address="+address("a")) {
		t.Errorf("it logged %q, not once %q", lines, want)
	}
	leader.net.Partition(true)
	info := must(peer.Attend(t.Context(), leader.Election, peer.Question{Lock: key}))
	for !follower.IsLeader() {
		if time.Since(info.RenewedAt) > time.Minute {
			t.Fatalf("it does not lead: %+v", follower.Status())
		}
		time.Sleep(10 * time.Millisecond)
		if leader.IsLeader() && follower.IsLeader() {
			t.Fatal("two leaders")
		}
	}
	// The TTL, twice the margin and the jitter, after the last renewal.
	if d := time.Since(info.RenewedAt); d < 15*time.Second || d > 25*time.Second {
		t.Errorf("it leads %v after the last renewal", d)
	}
	leader.net.Partition(false)
	time.Sleep(time.Minute)
	if n := len(leaders([]*candidate{leader, follower})); n != 1 || !follower.IsLeader() {
		t.Errorf("%d leaders", n)
	}
	if lines := append(leader.logs.about(silence), follower.logs.about(silence)...); len(lines) != 1 {
		t.Errorf("in the end they had logged %q", lines)
	}
	leader.quit(t)
	follower.quit(t)
}

// TestHasty: a leader's answers are true and come at once, however long they may be
// kept. Its followers do not ask in a tight loop.
func TestHasty(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		leader := w.follow(t, "a")
		h := peer.NewHandler(nil, leader.Election)
		h.Stop() // so that nothing waits
		config := &tls.Config{Certificates: []tls.Certificate{w.Issue(t, host("a"))}}
		w.serve(t, w.listen(address("a")), config, through(h))
		if err := leasetest.Lead(t.Context(), leader.Election); err != nil {
			t.Fatal(err)
		}
		follower := w.join(t, "b")
		time.Sleep(time.Minute)
		follower.net.Reset()
		before := follower.Status().Questions
		time.Sleep(time.Hour)
		asked := follower.Status().Questions - before
		if counts := follower.net.Counts(); counts.Get > 121 || counts.Put != 0 || asked < 479 || asked > 481 {
			t.Errorf("it asked %d times, and made %+v", asked, counts)
		}
		if lines := follower.logs.about(""); len(lines) != 0 {
			t.Errorf("it logged %q", lines)
		}
		leader.quit(t)
		follower.quit(t)
	})
}
