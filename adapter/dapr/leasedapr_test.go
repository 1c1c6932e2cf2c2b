package leasedapr_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dapr/components-contrib/lock"
	"github.com/dapr/components-contrib/metadata"
	conformance "github.com/dapr/components-contrib/tests/conformance/lock"
	"go.uber.org/goleak"

	"github.com/leasehold/leasehold"
	leasedapr "github.com/leasehold/leasehold/adapter/dapr"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"))
}

// component makes one that is not initialized, on a store that it does not close.
func component(st store.Store, logger *slog.Logger) *leasedapr.Store {
	return &leasedapr.Store{
		Open:   func(context.Context, string) (store.Store, error) { return struct{ store.Store }{st}, nil },
		Logger: logger,
	}
}

// sidecar makes one.
func sidecar(t testing.TB, st store.Store) *leasedapr.Store {
	t.Helper()
	s := component(st, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err := s.InitLockStore(t.Context(), lock.Metadata{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func request(resource, owner string, seconds int32) *lock.TryLockRequest {
	return &lock.TryLockRequest{ResourceID: resource, LockOwner: owner, ExpiryInSeconds: seconds}
}

func tries(t *testing.T, s *leasedapr.Store, owner string, seconds int32, want bool) {
	t.Helper()
	got, err := s.TryLock(t.Context(), request("r", owner, seconds))
	if err != nil || got.Success != want {
		t.Fatalf("TryLock by %s: %v, %v, want %v", owner, got, err, want)
	}
}

func unlocks(t *testing.T, s *leasedapr.Store, owner string, want lock.Status) {
	t.Helper()
	got, err := s.Unlock(t.Context(), &lock.UnlockRequest{ResourceID: "r", LockOwner: owner})
	if err != nil || got.Status != want {
		t.Fatalf("Unlock by %s: %v, %v, want %v", owner, got, err, want)
	}
}

// TestTwoSidecars: a lock belongs to its owner, by whichever sidecar that comes.
func TestTwoSidecars(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		a, b := sidecar(t, p.Open(t)), sidecar(t, p.Open(t))
		unlocks(t, b, "me", lock.LockDoesNotExist)
		tries(t, a, "me", 600, true)
		for _, s := range []*leasedapr.Store{a, b} {
			tries(t, s, "you", 600, false)
			tries(t, s, "me", 600, false) // nobody has it twice
			unlocks(t, s, "you", lock.LockBelongsToOthers)
		}
		unlocks(t, b, "me", lock.Success)
		unlocks(t, a, "me", lock.LockDoesNotExist)
		tries(t, a, "you", 600, true)
		unlocks(t, a, "me", lock.LockBelongsToOthers)
		unlocks(t, a, "you", lock.Success)
		tries(t, b, "me", 600, true)
		unlocks(t, b, "me", lock.Success)
	})
}

// TestExpiry: a lock ends at its expiry, which nothing renews, and the next one of the same resource is not touched by
// that.
func TestExpiry(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := sidecar(t, st), sidecar(t, st)
		tries(t, a, "me", 10, true)
		time.Sleep(9999 * time.Millisecond)
		tries(t, b, "you", 10, false)
		time.Sleep(2 * time.Millisecond)
		tries(t, b, "you", 10, true)
		unlocks(t, a, "me", lock.LockBelongsToOthers)
		time.Sleep(9 * time.Second)
		tries(t, a, "me", 10, false) // though a has seen its own, and b's, end
		unlocks(t, a, "you", lock.Success)
		tries(t, a, "me", 10, true)
		time.Sleep(2 * time.Second) // the expiry of b's lock, which is another's now
		tries(t, b, "you", 10, false)
		unlocks(t, a, "me", lock.Success)
	})
}

// TestDeadSidecar: the lock of a sidecar that is gone ends too: for those who ask again and again, and for one who asks
// once an hour.
func TestDeadSidecar(t *testing.T) {
	for _, pause := range []time.Duration{time.Second, time.Hour} {
		t.Run(pause.String(), func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				st := memstore.New()
				a, b := component(st, nil), sidecar(t, st)
				if err := a.InitLockStore(t.Context(), lock.Metadata{}); err != nil {
					t.Fatal(err)
				}
				tries(t, a, "me", 10, true)
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
				n := 0
				for began := time.Now(); ; n++ {
					got, err := b.TryLock(t.Context(), request("r", "you", 10))
					if err != nil {
						t.Fatal(err)
					}
					if got.Success {
						if took := time.Since(began); took < 10*time.Second || pause < time.Minute && took > 13*time.Second || n > 13 {
							t.Errorf("b has the lock after %v and %d tries", took, n)
						}
						break
					}
					time.Sleep(pause)
				}
				unlocks(t, b, "me", lock.LockBelongsToOthers)
				unlocks(t, b, "you", lock.Success)
			})
		})
	}
}

// A hooked store calls its functions, which may be nil, before a read and after a write that landed.
type hooked struct {
	store.Store
	get, put func()
}

func (h *hooked) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if h.get != nil {
		h.get()
	}
	return h.Store.Get(ctx, key, unless)
}

func (h *hooked) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	o, err := h.Store.Put(ctx, key, body, only)
	if h.put != nil {
		h.put()
	}
	return o, err
}

// TestSlowStore: no lock is said to be taken when its expiry is over, whichever answer has been slow.
func TestSlowStore(t *testing.T) {
	slow := func() { time.Sleep(2 * time.Second) }
	for name, h := range map[string]*hooked{"read": {get: slow}, "write": {put: slow}} {
		t.Run(name, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				h.Store = memstore.New()
				a, b := sidecar(t, h), sidecar(t, h.Store)
				got, err := a.TryLock(t.Context(), request("r", "me", 2))
				if got.Success || err == nil || errors.Is(err, leasehold.ErrHeld) {
					t.Fatalf("%v, %v", got, err)
				}
				t.Log(err)
				time.Sleep(5 * time.Second) // in which the slow store is told that the lock is free
				tries(t, b, "you", 2, true)
			})
		})
	}
}

// TestUnlockMeetsTheNext: between the look and the write that frees the lock it has become another's.
func TestUnlockMeetsTheNext(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		h := &hooked{Store: memstore.New()}
		a, b := sidecar(t, h), sidecar(t, h.Store)
		tries(t, a, "me", 10, true)
		reads := 0
		h.get = func() {
			if reads++; reads == 2 {
				unlocks(t, b, "me", lock.Success)
				tries(t, b, "you", 10, true)
			}
		}
		unlocks(t, a, "me", lock.LockBelongsToOthers)
		if reads != 2 {
			t.Errorf("%d reads, want one of the lock and one before the write", reads)
		}
		h.get = nil
		unlocks(t, a, "you", lock.Success)
	})
}

// TestCosts: one lock of a sidecar that knows the resource costs one write to take it, and two reads and a write to
// unlock it, and nothing comes after.
func TestCosts(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		reads, writes := 0, 0
		a := sidecar(t, &hooked{memstore.New(), func() { reads++ }, func() { writes++ }})
		for range 2 {
			reads, writes = 0, 0
			tries(t, a, "me", 10, true)
			unlocks(t, a, "me", lock.Success)
			time.Sleep(20 * time.Second)
		}
		if reads != 3 || writes != 2 {
			t.Errorf("%d reads and %d writes", reads, writes)
		}
	})
}

func TestBadInput(t *testing.T) {
	ctx, s := t.Context(), component(memstore.New(), nil)
	for range 2 { // before and after it was initialized
		for _, r := range []*lock.TryLockRequest{
			request("", "me", 10), request("r", "", 10), request("r", "me", 0), request("r", "me", -1), request("r", "me", 1<<31-1),
			request(strings.Repeat("r", 1000), "me", 10), request("..", "me", 10), request("r", "me\xff", 10), request("r", strings.Repeat("me", 1<<20), 10),
		} {
			got, err := s.TryLock(ctx, r)
			if got == nil || got.Success || err == nil || len(err.Error()) > 2000 {
				t.Errorf("TryLock of %.40q by %.40q for %d s: %v, %v", r.ResourceID, r.LockOwner, r.ExpiryInSeconds, got, err)
			}
		}
		for _, resource := range []string{"", "..", strings.Repeat("r", 1000)} {
			got, err := s.Unlock(ctx, &lock.UnlockRequest{ResourceID: resource, LockOwner: "me"})
			if got == nil || got.Status != lock.InternalError || err == nil {
				t.Errorf("Unlock of %.40q: %v, %v", resource, got, err)
			}
		}
		_ = s.InitLockStore(ctx, lock.Metadata{})
	}
	if err := s.InitLockStore(ctx, lock.Metadata{}); err == nil {
		t.Error("it can be initialized twice")
	}
	for _, resource := range []string{"a/b", "a%2Fb", "a", "b", "a\x00b", "/", "//", "a/../b", "A", "lock||app||r", "\xff", "é"} {
		got, err := s.TryLock(ctx, request(resource, "me", 10))
		if err != nil || !got.Success {
			t.Errorf("the lock of %q is another's, or none: %v, %v", resource, got, err)
		}
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if got, err := s.TryLock(ctx, request("r", "me", 10)); got.Success || !errors.Is(err, leasehold.ErrClosed) {
		t.Errorf("after Close: %v, %v", got, err)
	}
	bad := &leasedapr.Store{}
	if err := bad.InitLockStore(ctx, lock.Metadata{Base: metadata.Base{Properties: map[string]string{"url": "ftp://x"}}}); err == nil {
		t.Error("ftp is a store")
	}
	if err := bad.Close(); err != nil {
		t.Error(err)
	}
	var names []string
	for name := range bad.GetComponentMetadata() {
		names = append(names, name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"prefix", "url"}) {
		t.Errorf("properties %v", names)
	}
}

// TestLostBreakIsLogged: what fails in the background is not silent.
func TestLostBreakIsLogged(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		var said bytes.Buffer
		cut := faultstore.Wrap(memstore.New(), nil)
		s := component(cut, slog.New(slog.NewTextHandler(&said, nil)))
		if err := s.InitLockStore(t.Context(), lock.Metadata{}); err != nil {
			t.Fatal(err)
		}
		tries(t, s, "me", 2, true)
		cut.Partition(true)
		time.Sleep(time.Minute)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(said.String(), "was not freed") {
			t.Errorf("the log says %q", said.String())
		}
	})
}

// TestRounds: an application works from its TryLock until the expiry, and unlocks then.
func TestRounds(t *testing.T) {
	const expiry = 2 * adaptertest.TTL // the holder is cut off within the first half
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
		s := component(st, nil)
		if err := s.InitLockStore(context.Background(), lock.Metadata{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				working, end := context.WithTimeout(ctx, expiry) // from before TryLock on
				if got, err := s.TryLock(working, request("contended", name, int32(expiry/time.Second))); err == nil && got.Success {
					work(working)
					unlocking, giveUp := context.WithTimeout(ctx, expiry)
					_, _ = s.Unlock(unlocking, &lock.UnlockRequest{ResourceID: "contended", LockOwner: name})
					giveUp()
				}
				end()
			}
		}()
		return func() {
			cancel()
			<-done
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRow runs their conformance tests of a lock component everywhere.
func TestRow(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		config, err := conformance.NewTestConfig("leasehold", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := component(p.Open(t), nil)
		conformance.ConformanceTests(t, nil, s, config)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	row := adaptertest.Row{
		Module: "github.com/dapr/components-contrib",
		Ran:    []string{"tests/conformance/lock.ConformanceTests"},
		LeftOut: map[string]string{
			"those of lock/redis": "they test the connection to Redis; the conformance tests cover locking and unlocking",
		},
	}
	if !t.Failed() {
		row.Passed = 1
	}
	row.Check(t)
}

// TestReadme: the program in the README is the example, which is run.
func TestReadme(t *testing.T) { adaptertest.Readme(t, "example_test.go") }
