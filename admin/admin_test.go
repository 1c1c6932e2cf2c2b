package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// The tests of other packages need these too.
var (
	bubble      = leasetest.Bubble
	here        = leasetest.Here
	hasEpochs   = leasetest.HasEpochs
	needs       = leasetest.Needs
	patient     = leasetest.Patient
	acquire     = leasetest.Acquire
	release     = leasetest.Release
	recordIn    = leasetest.RecordIn
	objects     = leasetest.Objects
	requestsFor = leasetest.RequestsFor
)

// TestEveryLayout runs over the other layouts what depends on them.
func TestEveryLayout(t *testing.T) {
	leasetest.EveryWay(t, []func(*testing.T){
		TestInitWhoseAnswerIsLost, TestBreak, TestBreakOfAnother, TestBreakIsOvertaken, TestBreakLooksAtTheToken, TestBreakUnderASession,
		TestInspect, TestInspectUnderASession, TestHistoryIsDocumented, TestWatchIsDocumented, TestList, TestListUnderSessions, TestHistory, TestLongHistory, TestHistoryOfOneProcess, TestHistoryUnderASession, TestCollect, TestCollectSessions,
		TestMove, TestMoveInterrupted, TestMoveContended,
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

// A process is one in which there is a session, with its own way to the store.
type process struct {
	t       *testing.T
	st      *faultstore.Store
	session *leasehold.Session
}

func startProcess(t *testing.T, st store.Store, name string) *process {
	t.Helper()
	return startPatient(t, st, name, leasehold.DefaultTTL)
}

// startPatient starts one whose session beats as seldom as such a TTL needs: in days of virtual time it costs real seconds.
func startPatient(t *testing.T, st store.Store, name string, ttl time.Duration) *process {
	t.Helper()
	needs(t, here().Tokens(), "a marker has no record that can name a session")
	p := &process{t: t, st: newStoreOver(st)}
	p.session = newSession(t, p.st, &leasehold.SessionOptions{Holder: name, TTL: ttl})
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
	leasetest.EndSession(p.t, p.session)
}

// close ends the process with its session first, so that its locks name that still.
func (p *process) close() {
	p.t.Helper()
	leasetest.CloseSession(p.t, p.session)
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

func TestInitWhoseAnswerIsLost(t *testing.T) {
	st := newStore()
	st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put"})
	info, made, err := admin.Init(t.Context(), newLock(t, st, nil))
	if err != nil || !info.Exists || made != here().Tokens() { // a free marker is no object
		t.Errorf("got %+v, %v, %v", info, made, err)
	}
}

// TestInit: it costs a read and a write, says what it has made, and does not say that it has made what it
// could not make.
func TestInit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		absent, err := lock.Inspect(t.Context())
		if want := (leasehold.Info{Key: "jobs/backup", Age: -1}); err != nil || fmt.Sprint(absent) != fmt.Sprint(want) {
			t.Errorf("of no lock: %+v, %v", absent, err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Nth: 1}, faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 4})
		if info, made, err := admin.Init(t.Context(), lock); !errors.Is(err, store.ErrDenied) || made || info.Exists {
			t.Errorf("a write that was denied: %+v, %v, %v", info, made, err)
		}
		got := cost(st, func() {
			if info, made, err := admin.Init(t.Context(), lock); err != nil || !made || !info.Exists || info.Held || info.Key != "jobs/backup" || info.Token == 0 {
				t.Errorf("%+v, %v, %v", info, made, err)
			}
		})
		if want := (requests{get: 1, put: 1}); got != want {
			t.Errorf("it made %v, want %v", got, want)
		}
	})
}
