package serve_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/internal/longtest"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// served is a server on a loopback address until the end of the test, with so many connections; and where it is.
func served(t *testing.T, st store.Store, conns int) (s *serve.Server, address string, stop func()) {
	t.Helper()
	s = made(t, st, nil)
	at, err := localhttp.ParseAddress("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := localhttp.ListenWith(t.Context(), at, localhttp.Options{Conns: conns, Refuse: s.Refuse})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Serve(s, slog.New(slog.DiscardHandler)) }()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = l.Stop(ctx) // what is open yet is cut off
		if err := <-done; err != nil {
			t.Error(err)
		}
		now, cancelNow := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancelNow()
		if err := s.Stop(now); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, l.Address(), stop
}

// over asks by a connection of its own.
func over(t *testing.T, address, method, path, body string, change func(*http.Request)) (answer, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Timeout: 30 * time.Second, Transport: transport}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if change != nil {
		change(r)
	}
	w, err := client.Do(r)
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
func answered(t *testing.T, address, method, path, body string, change func(*http.Request)) answer {
	t.Helper()
	a, err := over(t, address, method, path, body, change)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
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
func keeps(t *testing.T, address, key string) *keeper {
	t.Helper()
	k := &keeper{done: make(chan struct{})}
	if k.lease = answered(t, address, "POST", "/v1/locks/"+key+"/acquire", `{"ttl":"5s"}`, nil); k.lease.code != 200 {
		t.Fatalf("acquire: %d %s", k.lease.code, k.lease.body)
	}
	ctx, stop := context.WithCancel(t.Context())
	k.stop = stop
	go func() {
		defer close(k.done)
		until := time.Now().Add(time.Duration(k.lease.Left) * time.Millisecond)
		for ctx.Err() == nil {
			sent := time.Now()
			a, err := over(t, address, "POST", "/v1/leases/"+k.lease.Lease+"/keepalive", "", nil) //nolint:contextcheck // what is under way when it stops is to end well
			switch {
			case err != nil:
				k.failed.Add(1)
			case a.code != 200:
				t.Errorf("the lease was lost: %d %s", a.code, a.body)
				return
			default:
				until = sent.Add(time.Duration(a.Left) * time.Millisecond)
			}
			if time.Now().After(until) {
				t.Errorf("no keepalive was answered before the end; %d failed", k.failed.Load())
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return k
}

// ends stops it, and checks that the lease is what it was.
func (k *keeper) ends(t *testing.T, address string) {
	t.Helper()
	k.stop()
	<-k.done
	if a := answered(t, address, "GET", "/v1/leases/"+k.lease.Lease, "", nil); a.code != 200 || a.Token != k.lease.Token {
		t.Errorf("the lease that was held all the time: %d %s", a.code, a.body)
	}
	if a := answered(t, address, "DELETE", "/v1/leases/"+k.lease.Lease, "", nil); a.code != 204 {
		t.Errorf("its release: %d %s", a.code, a.body)
	}
}

// raw sends text as it is, and gives the status of the answer; 0: the connection was closed without one.
func raw(t *testing.T, address, text string) int {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err = io.WriteString(c, text); err != nil && !errors.Is(err, net.ErrClosed) {
		return 0
	}
	w, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		if ne, is := errors.AsType[net.Error](err); is && ne.Timeout() {
			t.Errorf("%.40q: neither an answer nor an end", text)
		}
		return 0
	}
	_ = w.Body.Close()
	return w.StatusCode
}

// What a hostile client sends is refused or cut off, whatever it is; a lease that somebody holds goes on meanwhile, and
// nothing is acquired.
func TestHostileClients(t *testing.T) {
	t.Parallel()
	longtest.Only(t)
	_, address, _ := served(t, memstore.New(), 0)
	k := keeps(t, address, "held")
	t.Run("each", func(t *testing.T) { hostile(t, address) })
	own := func(r *http.Request) { r.Header.Set("Origin", "http://"+address) }
	if a := answered(t, address, "GET", "/v1/locks/held", "", own); a.code != 200 {
		t.Errorf("a page of its own: %d %s", a.code, a.body)
	}
	k.ends(t, address)
}

// hostile sends what no good client does.
func hostile(t *testing.T, address string) {
	t.Helper()
	host := "Host: " + address + "\r\n"
	acquire := "POST /v1/locks/evil/acquire HTTP/1.1\r\n"
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
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			got := raw(t, address, tc.text)
			for _, code := range tc.codes {
				if got == code {
					return
				}
			}
			t.Errorf("it was answered with %d, want one of %v", got, tc.codes)
		})
	}
}

// However many connections are opened that ask nothing, or ask slowly, none of those loses a lease who ask as they
// should.
func TestFlood(t *testing.T) {
	t.Parallel()
	const flood, atOnce = 10_000, 500
	_, address, _ := served(t, memstore.New(), 100)
	k := keeps(t, address, "held")
	gate := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	var dialled, refused atomic.Int64
	for i := range flood {
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
			if err != nil {
				refused.Add(1)
				return
			}
			defer c.Close()
			dialled.Add(1)
			switch i % 3 { // nothing, half a request, and a request whose body does not come
			case 1:
				_, _ = fmt.Fprintf(c, "POST /v1/locks/evil/acquire HTTP/1.1\r\nHost: %s\r\n", address)
			case 2:
				_, _ = fmt.Fprintf(c, "POST /v1/locks/evil/acquire HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", address)
			}
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.Copy(io.Discard, c); err != nil {
				if ne, is := errors.AsType[net.Error](err); is && ne.Timeout() {
					t.Error("a connection that asks nothing stays")
				}
			}
		})
	}
	all.Wait()
	k.ends(t, address)
	t.Logf("%d connections were opened and %d refused; %d keepalives had to be sent again", dialled.Load(), refused.Load(), k.failed.Load())
	if dialled.Load() < flood/2 {
		t.Errorf("only %d connections were opened", dialled.Load())
	}
	if a := answered(t, address, "GET", "/v1/locks/evil", "", nil); a.code != 404 {
		t.Errorf("the flood has acquired something: %d %s", a.code, a.body)
	}
}

// A wait may last for longer than any other request, and one that is left ends.
func TestLongWaits(t *testing.T) {
	t.Parallel()
	longtest.Only(t)
	s, address, _ := served(t, memstore.New(), 0)
	k := keeps(t, address, "held")
	began := time.Now()
	if a := answered(t, address, "POST", "/v1/locks/held/acquire", `{"wait":"6s"}`, nil); a.code != 409 || time.Since(began) < 6*time.Second {
		t.Errorf("after %v: %d %s", time.Since(began), a.code, a.body)
	}
	if a := answered(t, address, "GET", "/v1/leases/"+k.lease.Lease+"?wait=6s", "", nil); a.code != 200 || time.Since(began) < 12*time.Second {
		t.Errorf("after %v: %d %s", time.Since(began), a.code, a.body)
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, "POST", "http://"+address+"/v1/locks/held/acquire", strings.NewReader(`{"wait":"1h"}`))
		if err != nil {
			left <- err
			return
		}
		r.Header.Set("Content-Type", "application/json")
		w, err := http.DefaultClient.Do(r)
		if err == nil {
			_ = w.Body.Close()
		}
		left <- err
	}()
	waiting := func(n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			_, _, usages, _ := s.Sizes()
			a := answered(t, address, "GET", "/metrics", "", nil)
			if strings.Contains(a.body, fmt.Sprintf("leasehold_serve_waiting{for=\"lock\"} %d\n", n)) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("there are not %d who wait, of %d keys:\n%s", n, usages, a.body)
			}
		}
	}
	waiting(1)
	leave()
	if err := <-left; err == nil {
		t.Error("it was answered")
	}
	waiting(0)
	k.ends(t, address)
}
