package admin_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/inside"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// here is the layout that a test runs over: see inside.DefaultLayout.
func here() leasehold.Layout { return leasehold.Layout(inside.DefaultLayout) }

// TestEveryLayout runs over the other layouts what depends on them.
func TestEveryLayout(t *testing.T) {
	for _, l := range leasehold.Layouts {
		if l == here() {
			continue
		}
		t.Run(string(l), func(t *testing.T) {
			before := inside.DefaultLayout
			inside.DefaultLayout = string(l)
			defer func() { inside.DefaultLayout = before }()
			for _, test := range []func(*testing.T){
				TestInitWhoseAnswerIsLost, TestBreak, TestBreakOfAnother, TestBreakIsOvertaken, TestBreakLooksAtTheToken, TestBreakUnderASession,
				TestList, TestListUnderSessions, TestHistory, TestCollect, TestCollectSessions,
			} {
				name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
				t.Run(name[strings.LastIndex(name, ".Test")+len(".Test"):], test)
			}
		})
	}
}

// needs leaves a test out.
func needs(t *testing.T, ok bool, reason string) {
	t.Helper()
	if !ok {
		t.Skip(reason)
	}
}

func hasEpochs() bool {
	return here() == leasehold.LayoutEpochs || here() == leasehold.LayoutEpochsIfMatch
}

// patient are the options of a candidate that takes over from a holder that is gone,
// which a marker that cannot be written over has to be swept for.
func patient(o leasehold.LockOptions) *leasehold.LockOptions {
	o.Sweep = here() == leasehold.LayoutMarker
	return &o
}

// bubble runs f in virtual time. Whatever it leaves running fails the test.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		defer clock.Set(func() time.Duration { return time.Since(start) + time.Hour })()
		f(t)
	})
}

// newStore is an empty store behind a network that can be made bad.
func newStore() *faultstore.Store { return newStoreOver(memstore.New()) }

func newStoreOver(st store.Store) *faultstore.Store { return faultstore.Wrap(st, nil) }

func newLock(t *testing.T, st store.Store, opts *leasehold.LockOptions) *leasehold.Lock {
	t.Helper()
	return lockOf(t, st, "jobs/backup", opts)
}

func lockOf(t *testing.T, st store.Store, key string, opts *leasehold.LockOptions) *leasehold.Lock {
	t.Helper()
	lock, err := leasehold.NewLock(st, key, opts)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func acquire(t *testing.T, lock *leasehold.Lock) *leasehold.Lease {
	t.Helper()
	lease, err := lock.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !lease.Valid() || lease.Err() != nil || lease.Context().Err() != nil {
		t.Fatalf("the lease is not valid: %v", lease.Err())
	}
	return lease
}

func release(t *testing.T, lease *leasehold.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lease.Valid() || !errors.Is(lease.Err(), leasehold.ErrReleased) || lease.Context().Err() == nil {
		t.Fatalf("the lease goes on after its release: %v", lease.Err())
	}
}

// A process is one in which there is a session, with its own way to the store.
type process struct {
	t       *testing.T
	st      *faultstore.Store
	session *leasehold.Session
}

func startProcess(t *testing.T, st store.Store, name string) *process {
	t.Helper()
	needs(t, here().Tokens(), "a marker has no record that can name a session")
	p := &process{t: t, st: newStoreOver(st)}
	p.session = newSession(t, p.st, &leasehold.SessionOptions{Holder: name})
	return p
}

func newSession(t *testing.T, st store.Store, opts *leasehold.SessionOptions) *leasehold.Session {
	t.Helper()
	s, err := leasehold.NewSession(t.Context(), st, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// overSession is the key of a session that is over.
func overSession(t *testing.T, st store.Store) string {
	t.Helper()
	s := newSession(t, st, nil)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.Key()
}

func (p *process) lock(key string) *leasehold.Lock {
	p.t.Helper()
	return lockOf(p.t, p.st, key, &leasehold.LockOptions{Session: p.session})
}

func (p *process) acquire(key string) *leasehold.Lease {
	p.t.Helper()
	return acquire(p.t, p.lock(key))
}

// end ends the process in order.
func (p *process) end() {
	p.t.Helper()
	err := errors.Join(leasehold.ReleaseAll(p.t.Context(), p.session.Leases()), p.session.Close(p.t.Context()))
	if err != nil && !errors.Is(err, leasehold.ErrLost) {
		p.t.Error(err)
	}
}

// close ends the process with its session first, so that its locks name that still.
func (p *process) close() {
	p.t.Helper()
	leases := p.session.Leases()
	closed := make(chan error)
	go func() { closed <- p.session.Close(p.t.Context()) }()
	<-p.session.Done()
	for _, lease := range leases {
		_ = lease.Release(p.t.Context()) // it is lost
	}
	if err := <-closed; err != nil {
		p.t.Error(err)
	}
}

// told is a store that tells of writes before they are sent, and of reads when they were answered.
type told struct {
	store.Store
	put  func(key string)
	read func()
}

func (s *told) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, err := s.Store.Get(ctx, key, unless)
	if s.read != nil {
		s.read()
	}
	return o, err
}

func (s *told) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if s.put != nil {
		s.put(key)
	}
	return s.Store.Put(ctx, key, body, only)
}

// plant puts an object into a store.
func plant(t *testing.T, st store.Store, key, body string) {
	t.Helper()
	if _, err := st.Put(t.Context(), key, []byte(body), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
}

// recordIn is what lies under a key.
func recordIn(t *testing.T, st store.Store, key string) record.Record {
	t.Helper()
	obj, err := st.Get(t.Context(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := record.DecodeIn(record.AnyLayout, obj.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// objects are the keys of all that there is.
func objects(t *testing.T, st store.Store) (keys []string) {
	t.Helper()
	for e, err := range st.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	return keys
}

// requests are what something cost.
type requests struct{ get, put, list, del int }

func (r requests) String() string {
	return fmt.Sprintf("%d GET, %d PUT, %d LIST, %d DELETE", r.get, r.put, r.list, r.del)
}

// cost runs f and returns the requests that it made.
func cost(st *faultstore.Store, f func()) requests {
	before := st.Counts()
	f()
	c := st.Counts()
	return requests{c.Get - before.Get, c.Put - before.Put, c.List - before.List, c.Delete - before.Delete}
}

// requestsFor counts what was sent about one object.
func requestsFor(st *faultstore.Store, key string) (n int) {
	for _, e := range st.Log() {
		if e.Key == key {
			n++
		}
	}
	return n
}

// breakLock frees a lock by hand, and tries again as Break says when its holder renews it
// at that very moment.
func breakLock(t *testing.T, lock *leasehold.Lock) {
	t.Helper()
	var err error
	for range 3 {
		var info leasehold.Info
		if info, err = lock.Inspect(t.Context()); err == nil {
			_, err = admin.Break(t.Context(), lock, info.Token)
		}
		if err == nil {
			return
		}
	}
	t.Error(err)
}
