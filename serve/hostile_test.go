package serve_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/internal/pipenet"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

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
