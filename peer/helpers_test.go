// Most of what these tests cost are handshakes, and the hybrid key exchange is much of that.
//
//go:debug tlsmlkem=0
package peer_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

const key = "leaders/scheduler"

// bubble runs f in virtual time, which the clock of leases follows. It fails if
// anything that f began is left running.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Setenv("VIRTUAL_CLOCK", "1") // panics in a parallel test: others would read its clock
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		t.Cleanup(clock.Set(func() time.Duration { return time.Since(start) + time.Hour }))
		t.Cleanup(func() { time.Sleep(time.Minute) }) // time stands still afterwards
		f(t)
	})
}

// rootsOf is a pool with one authority.
func rootsOf(t testing.TB, a *servers.Authority) *x509.CertPool {
	t.Helper()
	pool, err := peer.ParseCAs(a.PEM())
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// A network connects processes in memory.
type network struct {
	mu     sync.Mutex
	places map[string]*listener
	conns  []*wire // all that were ever made
}

func newNetwork() *network { return &network{places: map[string]*listener{}} }

// A wire is one end of a connection. Like TCP it takes some bytes that the other end
// has not read yet, and delivers them after it was closed, if they are wanted. It
// knows whether it was closed.
type wire struct {
	net.Conn
	address string
	out     chan []byte
	until   atomic.Pointer[time.Time] // nothing is taken after it, if it is not zero
	once    sync.Once
	closed  chan struct{} // on this end
	broken  chan struct{} // what was written last was not wanted
}

func newWire(c net.Conn, address string) *wire {
	w := &wire{Conn: c, address: address, out: make(chan []byte, 64), closed: make(chan struct{}), broken: make(chan struct{})}
	go w.carry()
	return w
}

func (w *wire) carry() {
	defer w.Conn.Close()
	defer close(w.broken)
	for {
		select {
		case b := <-w.out:
			if _, err := w.Conn.Write(b); err != nil {
				return
			}
		case <-w.closed:
			for len(w.out) > 0 {
				if _, err := w.Conn.Write(<-w.out); err != nil {
					return
				}
			}
			return
		}
	}
}

func (w *wire) Write(b []byte) (int, error) {
	if until := w.until.Load(); until != nil && !until.IsZero() && !time.Now().Before(*until) {
		return 0, os.ErrDeadlineExceeded
	}
	select {
	case <-w.closed:
		return 0, net.ErrClosed
	case <-w.broken:
		return 0, syscall.EPIPE
	case w.out <- bytes.Clone(b):
		return len(b), nil
	}
}

func (w *wire) SetWriteDeadline(t time.Time) error { w.until.Store(&t); return nil }

func (w *wire) SetDeadline(t time.Time) error {
	return errors.Join(w.SetWriteDeadline(t), w.SetReadDeadline(t))
}

func (w *wire) Close() error {
	w.once.Do(func() {
		close(w.closed)
		_ = w.SetReadDeadline(time.Unix(1, 0))
		_ = w.Conn.SetWriteDeadline(time.Now().Add(time.Second))
	})
	return nil
}

func (w *wire) open() bool {
	select {
	case <-w.closed:
		return false
	default:
		return true
	}
}

// Dial fails at once where nobody listens, as a host does that is there.
func (n *network) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.places[address]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}
	if l == nil {
		return nil, refused
	}
	here, there := net.Pipe()
	select {
	case l.accept <- there:
		w := newWire(here, address)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.conns = append(n.conns, w)
		return w, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// alive is how many connections to an address have not been closed by who made them.
func (n *network) alive(address string) (alive int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		if c.address == address && c.open() {
			alive++
		}
	}
	return alive
}

// made is how many connections to an address there ever were.
func (n *network) made(address string) (made int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		if c.address == address {
			made++
		}
	}
	return made
}

func (n *network) listen(address string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{address: address, accept: make(chan net.Conn), closed: make(chan struct{})}
	l.Close = sync.OnceValue(func() error { close(l.closed); return nil })
	n.places[address] = l
	return l
}

type listener struct {
	address string
	accept  chan net.Conn
	closed  chan struct{}
	Close   func() error
}

// door makes a net.Listener of it.
type door struct{ *listener }

func (d door) Close() error { return d.listener.Close() }

func (d door) Accept() (net.Conn, error) {
	select {
	case c := <-d.accept:
		return newWire(c, ""), nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d door) Addr() net.Addr  { return d }
func (d door) Network() string { return "pipe" }
func (d door) String() string  { return d.address }

// logs keeps the warnings and errors that are logged.
type logs struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func newLogs() *logs { return &logs{Handler: slog.DiscardHandler} }

func (l *logs) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.lines = append(l.lines, line)
	return nil
}

// about are the lines with a text in them.
func (l *logs) about(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// silence is what is logged once for each leader that cannot be asked.
const silence = "the leader does not answer"

// A world is a store and a network with an authority.
type world struct {
	*network
	*servers.Authority
	roots  *x509.CertPool
	st     store.Store
	client peer.ClientOptions // what all have in common
	server peer.ServerOptions
	ttl    time.Duration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{network: newNetwork(), Authority: servers.NewAuthority(t), st: memstore.New()}
	w.roots = rootsOf(t, w.Authority)
	w.client.RootCAs, w.client.Dial = w.roots, w.Dial
	return w
}

// A candidate is one process: an election under Run behind a faulty network to the
// store, a client and a server.
type candidate struct {
	*leasehold.Election
	net    *faultstore.Store
	client *peer.Client
	logs   *logs
	hush   func() // ends its server
	stop   context.CancelFunc
	done   chan error
}

// host is what a candidate's certificate names.
func host(name string) string { return name + ".test" }

func address(name string) string { return host(name) + ":8443" }

// join begins a candidate that others can ask.
func (w *world) join(t *testing.T, name string) *candidate {
	t.Helper()
	c := w.follow(t, name)
	opts := w.server
	opts.Certificate = w.Issue(t, host(name))
	server, err := peer.NewServer(&opts, c.Election)
	if err != nil {
		t.Fatal(err)
	}
	c.hush = w.open(t, address(name), server)
	return c
}

// follow begins a candidate that asks others and does not answer them itself.
func (w *world) follow(t *testing.T, name string) *candidate {
	t.Helper()
	c := &candidate{net: faultstore.Wrap(w.st, nil), logs: newLogs(), hush: func() {}, done: make(chan error, 1)}
	var err error
	if c.client, err = peer.NewClient(&w.client); err != nil {
		t.Fatal(err)
	}
	c.Election, err = leasehold.NewElection(c.net, key, &leasehold.ElectionOptions{
		LockOptions: leasehold.LockOptions{Holder: name, Address: address(name), TTL: w.ttl, Logger: slog.New(c.logs)},
		Peers:       c.client,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() {
		c.done <- c.Run(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
			<-ctx.Done()
			return nil
		})
	}()
	return c
}

// quit ends a candidate and returns when nothing of it is left.
func (c *candidate) quit(t *testing.T) {
	t.Helper()
	c.net.Partition(false)
	c.stop()
	if err := <-c.done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
	c.hush()
	if err := c.client.Close(); err != nil {
		t.Errorf("the client was closed: %v", err)
	}
}

// open lets a server serve at an address until close is called.
func (n *network) open(t *testing.T, address string, s *peer.Server) (close func()) {
	t.Helper()
	l := n.listen(address)
	served := make(chan error, 1)
	go func() { served <- s.Serve(door{l}) }()
	return func() {
		t.Helper()
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("the server was stopped: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	}
}

// lead makes an election that leads now, in a store of its own.
func lead(t testing.TB, opts *leasehold.ElectionOptions) (*leasehold.Election, *leasehold.Lease, *faultstore.Store) {
	t.Helper()
	st := faultstore.Wrap(memstore.New(), nil)
	e, err := leasehold.NewElection(st, key, opts)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return e, lease, st
}
