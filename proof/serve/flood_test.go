// Package serve_test attacks leasehold serve over real connections, and keeps its clients in three languages to their
// leases in real time.
package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servetest"
	"github.com/leasehold/leasehold/store/memstore"
)

// A keeper keeps a lease, as a good client does, with a connection for each keepalive.
type keeper struct {
	lease  servetest.Answer
	failed atomic.Int64
	stop   context.CancelFunc
	done   chan struct{}
}

// keeps acquires a lease and keeps it, and the test fails if that is lost.
func keeps(t *testing.T, s *servetest.Server, key string) *keeper {
	t.Helper()
	k := &keeper{done: make(chan struct{})}
	if k.lease = s.Answered(t, "POST", "/v1/locks/"+key+"/acquire", `{"ttl":"5s"}`); k.lease.Code != 200 {
		t.Fatalf("acquire: %d %s", k.lease.Code, k.lease.Body)
	}
	ctx, stop := context.WithCancel(t.Context())
	k.stop = stop
	go func() {
		defer close(k.done)
		until := time.Now().Add(time.Duration(k.lease.Left) * time.Millisecond)
		for ctx.Err() == nil {
			sent := time.Now()
			a, err := s.Ask(t, "POST", "/v1/leases/"+k.lease.Lease+"/keepalive", "") //nolint:contextcheck // what is under way when it stops is to end well
			switch {
			case err != nil:
				k.failed.Add(1)
			case a.Code != 200:
				t.Errorf("the lease was lost: %d %s", a.Code, a.Body)
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
func (k *keeper) ends(t *testing.T, s *servetest.Server) {
	t.Helper()
	k.stop()
	<-k.done
	if a := s.Answered(t, "GET", "/v1/leases/"+k.lease.Lease, ""); a.Code != 200 || a.Token != k.lease.Token {
		t.Errorf("the lease that was held all the time: %d %s", a.Code, a.Body)
	}
	if a := s.Answered(t, "DELETE", "/v1/leases/"+k.lease.Lease, ""); a.Code != 204 {
		t.Errorf("its release: %d %s", a.Code, a.Body)
	}
}

// However many connections are opened that ask nothing, or ask slowly, none of those loses a lease who ask as they
// should.
func TestFlood(t *testing.T) {
	t.Parallel()
	const flood, atOnce = 10_000, 500
	s := servetest.Start(t, memstore.New(), 100, 15*time.Second)
	k := keeps(t, s, "held")
	gate := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	var dialled, refused atomic.Int64
	for i := range flood {
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Address)
			if err != nil {
				refused.Add(1)
				return
			}
			defer c.Close()
			dialled.Add(1)
			switch i % 3 { // nothing, half a request, and a request whose body does not come
			case 1:
				_, _ = fmt.Fprintf(c, "POST /v1/locks/evil/acquire HTTP/1.1\r\nHost: %s\r\n", s.Address)
			case 2:
				_, _ = fmt.Fprintf(c, "POST /v1/locks/evil/acquire HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", s.Address)
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
	k.ends(t, s)
	t.Logf("%d connections were opened and %d refused; %d keepalives had to be sent again", dialled.Load(), refused.Load(), k.failed.Load())
	if dialled.Load() < flood/2 {
		t.Errorf("only %d connections were opened", dialled.Load())
	}
	if a := s.Answered(t, "GET", "/v1/locks/evil", ""); a.Code != 404 {
		t.Errorf("the flood has acquired something: %d %s", a.Code, a.Body)
	}
}
