//go:build unix

// Package quorum_test lets candidates fight for locks in a quorum of real servers of different kinds, behind
// proxies, while the servers fail and are replaced.
package quorum_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/s3store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// TestMain lets the tests run at a time: they wait for leases to end, most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// kinds are the servers of the members.
var kinds = []string{"minio", "versitygw", servers.GCS}

// A place is a bucket behind a proxy of its own: a member of a quorum, or one to be.
type place struct {
	t      *testing.T
	server *servers.Server
	bucket string
	proxy  *servers.Proxy
	name   string       // as the quorum has it
	slow   atomic.Int64 // for how long a request is held back
	came   atomic.Int64 // the requests so far
}

// start starts the servers, with a bucket in each.
func start(t *testing.T) []*place {
	t.Helper()
	var places []*place
	for _, kind := range kinds {
		if kind == servers.GCS {
			places = append(places, newPlace(t, servers.StartGCS(t)))
		} else {
			places = append(places, newPlace(t, servers.Start(t, kind)))
		}
	}
	return places
}

func newPlace(t *testing.T, server *servers.Server) *place {
	t.Helper()
	p := &place{t: t, server: server}
	if server.Name == servers.GCS {
		p.bucket = server.GCSBucket(t)
	} else {
		p.bucket = server.Bucket(t)
	}
	p.proxy = servers.StartProxy(t, server.Endpoint, &servers.ProxyOptions{Fault: func(*http.Request, int) servers.Fault {
		p.came.Add(1)
		return servers.Delay(time.Duration(p.slow.Load()))
	}})
	p.name = p.open(t.Context()).String()
	return p
}

// open opens the place over connections of its own.
func (p *place) open(ctx context.Context) store.Store { return p.openAt(ctx, p.proxy.Endpoint) }

func (p *place) openAt(ctx context.Context, endpoint string) store.Store {
	p.t.Helper()
	var (
		st  store.Store
		err error
	)
	if p.server.Name == servers.GCS {
		st, err = storeurl.Open(ctx, servers.GCSURLAt(endpoint, p.bucket))
	} else {
		st, err = s3store.New(p.server.ClientAt(endpoint), p.bucket, nil)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	if c, ok := st.(io.Closer); ok {
		p.t.Cleanup(func() { _ = c.Close() })
	}
	return st
}

// lasts reports that the server still has its objects after it was killed.
func (p *place) lasts() bool { return p.server.Name != servers.GCS && p.server.Name != "gofakes3" }

// revive starts the server again. It reports whether the objects are gone.
func (p *place) revive() (lost bool) {
	p.t.Helper()
	p.server.Restart(p.t)
	if p.lasts() {
		return false
	}
	p.server.MakeBucket(p.t, p.bucket)
	return true
}

// empty deletes all objects, past the proxy.
func (p *place) empty() {
	p.t.Helper()
	st := p.openAt(p.t.Context(), p.server.Endpoint)
	n := 0
	for e, err := range st.List(p.t.Context(), "", "") {
		if err == nil {
			err = st.Delete(p.t.Context(), e.Key)
		}
		if err != nil {
			p.t.Fatalf("empty %s: %v", p.server.Name, err)
		}
		n++
	}
	if n == 0 {
		p.t.Errorf("there was nothing to delete in %s", p.server.Name)
	}
}

// notes counts, by the names of members, how often somebody was told that one fails.
type notes struct {
	slog.Handler
	mu    sync.Mutex
	fails map[string]int
}

func newNotes() *notes { return &notes{Handler: slog.DiscardHandler, fails: map[string]int{}} }

func (n *notes) Enabled(context.Context, slog.Level) bool { return true }

func (n *notes) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "member" {
			n.fails[a.Value.String()]++
		}
		return true
	})
	return nil
}

// of is how often it was said of a member.
func (n *notes) of(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fails[name]
}

// A process is what is particular to one that opens the quorum.
type process struct {
	known func() []*place               // the places that a later configuration may name
	wrap  func(store.Store) store.Store // each member; nil: with nothing
	notes *notes
}

// open opens the quorum of these members as a process of its own would.
func open(t *testing.T, members []*place, of process) *quorumstore.Store {
	t.Helper()
	if of.wrap == nil {
		of.wrap = func(st store.Store) store.Store { return st }
	}
	var stores []store.Store
	for _, p := range members {
		stores = append(stores, of.wrap(p.open(t.Context())))
	}
	opts := quorumstore.Options{Open: func(ctx context.Context, name string) (store.Store, error) {
		for _, p := range of.known() {
			if p.name == name {
				return of.wrap(p.open(ctx)), nil
			}
		}
		return nil, errors.New("no such place: " + name)
	}}
	if of.notes != nil {
		opts.Logger = slog.New(of.notes)
	}
	st, err := quorumstore.New(stores, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// voting says who does not vote in the quorum; nil: all do.
func voting(ctx context.Context, st *quorumstore.Store) error {
	_, members, err := st.Status(ctx)
	for _, m := range members {
		switch {
		case m.Err != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", m.Place, m.Err))
		case !m.Whole:
			err = errors.Join(err, fmt.Errorf("%s is being filled", m.Place))
		}
	}
	return err
}

// patience only bounds the wait for what never happens. A quorum logs that a member fails once a
// minute at most, and some conditions are such a message.
const patience = 5 * time.Minute

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it never happened that %s", what)
		}
	}
}
