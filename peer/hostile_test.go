package peer_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store/memstore"
)

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
	if err := leader.WaitForLeadership(t.Context()); err != nil {
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
	info := must(leader.Attend(t.Context(), leasehold.Question{Lock: key}))
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
		if err := leader.WaitForLeadership(t.Context()); err != nil {
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
