package leasecertmagic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	leasecertmagic "github.com/leasehold/leasehold/adapter/certmagic"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// two are the storages of two processes; the first may be cut off from the store.
func two(t *testing.T, opts *leasehold.LockOptions) (a, b *leasecertmagic.Storage, cut *faultstore.Store) {
	t.Helper()
	st := memstore.New()
	cut = faultstore.Wrap(st, nil)
	t.Cleanup(cut.Close)
	return newStorage(t, cut, opts), newStorage(t, st, nil), cut
}

func wantTry(t *testing.T, s *leasecertmagic.Storage, name string, want bool) {
	t.Helper()
	if got, err := s.TryLock(t.Context(), name); err != nil || got != want {
		t.Fatalf("TryLock is %v, %v, want %v", got, err, want)
	}
}

// lose cuts the first storage off until it has lost the lock.
func lose(t *testing.T, s *leasecertmagic.Storage, name string, cut *faultstore.Store) {
	t.Helper()
	lease, err := s.Lease(name)
	must(t, err)
	cut.Partition(true)
	<-lease.Done()
	cut.Partition(false)
}

func TestLocker(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		ctx, a, b := t.Context(), newStorage(t, p.Open(t), nil), newStorage(t, p.Open(t), nil)
		must(t, a.Lock(ctx, "x"))
		wantTry(t, a, "x", false)
		wantTry(t, b, "x", false)
		wantTry(t, b, "y", true)
		must(t, a.RenewLockLease(ctx, "x", time.Hour))
		got := make(chan error, 2)
		for _, s := range []*leasecertmagic.Storage{a, b} {
			go func() {
				err := s.Lock(ctx, "x")
				if err == nil {
					err = s.Unlock(ctx, "x")
				}
				got <- err
			}()
		}
		must(t, a.Unlock(ctx, "x"))
		must(t, <-got)
		must(t, <-got)
		must(t, b.Unlock(ctx, "y"))
	})
}

// TestContexts: what ends, or has ended, is a wait. What needs none is done: a free lock is taken, and one's own released.
func TestContexts(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		a, b, _ := two(t, nil)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		must(t, a.Lock(over, "x"))
		for _, s := range []*leasecertmagic.Storage{a, b} {
			if err := s.Lock(over, "x"); !errors.Is(err, context.Canceled) || !errors.Is(err, leasehold.ErrHeld) {
				t.Error(err)
			}
			begin := time.Now()
			brief, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := s.Lock(brief, "x"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, leasehold.ErrHeld) || time.Since(begin) != 20*time.Second {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
			if ok, err := s.TryLock(over, "x"); ok || err != nil {
				t.Error(ok, err)
			}
		}
		must(t, a.Unlock(over, "x"))
		wantTry(t, b, "x", true)
		must(t, b.Unlock(t.Context(), "x"))
	})
}

// TestUnlockIsBounded: a store that does not answer keeps no Unlock, and the name is free in this process.
func TestUnlockIsBounded(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		for _, over := range []bool{false, true} {
			a, _, cut := two(t, nil)
			must(t, a.Lock(t.Context(), "x"))
			cut.Inject(faultstore.Fault{Kind: faultstore.Hang})
			ctx, cancel := context.WithCancel(t.Context())
			if over {
				cancel()
			}
			begin := time.Now()
			err := a.Unlock(ctx, "x")
			cancel()
			if limit := 16 * time.Second; err == nil || time.Since(begin) > limit || over && time.Since(begin) > 6*time.Second {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
			cut.Clear()
			must(t, a.Lock(t.Context(), "x")) // when the lease is over
			must(t, a.Unlock(t.Context(), "x"))
		}
	})
}

// TestAbandoned: TryLock, called as seldom as certmagic does, takes over from a process that is gone.
func TestAbandoned(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		a, b, cut := two(t, nil)
		must(t, a.Lock(t.Context(), "ari"))
		wantTry(t, b, "ari", false)
		cut.Partition(true)
		time.Sleep(10 * time.Minute)
		begin := time.Now()
		wantTry(t, b, "ari", true)
		if time.Since(begin) > time.Minute {
			t.Errorf("it took %v", time.Since(begin))
		}
		must(t, b.Unlock(t.Context(), "ari"))
		cut.Partition(false)
		if err := a.Unlock(t.Context(), "ari"); !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
	})
}

// TestLost: a lost lease ends its context, is told of by the Trace and Unlock, and is replaced by RenewLockLease as soon as that can be.
func TestLost(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		ctx, lost := t.Context(), 0
		a, b, cut := two(t, &leasehold.LockOptions{Trace: leasetest.OnLost(func(error) { lost++ })})
		must(t, a.Lock(ctx, "x"))
		lease, err := a.Lease("x")
		must(t, err)
		must(t, a.RenewLockLease(ctx, "x", time.Second))
		if again, failure := a.Lease("x"); again != lease {
			t.Error("a lease that is valid was replaced", failure)
		}

		lose(t, a, "x", cut) // and nobody else wants it
		must(t, a.RenewLockLease(ctx, "x", time.Hour))
		second, err := a.Lease("x")
		must(t, err)
		if second.Token() <= lease.Token() || !second.Valid() || !errors.Is(context.Cause(lease.Context()), leasehold.ErrLost) {
			t.Error(second.Token(), lease.Token(), context.Cause(lease.Context()))
		}

		lose(t, a, "x", cut)
		must(t, b.Lock(ctx, "x"))
		for range 2 {
			if err := a.RenewLockLease(ctx, "x", time.Hour); !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, leasehold.ErrHeld) {
				t.Error(err)
			}
			wantTry(t, a, "x", false) // whoever has locked it here has not unlocked it
		}
		must(t, b.Unlock(ctx, "x"))
		must(t, a.RenewLockLease(ctx, "x", time.Hour))
		wantTry(t, b, "x", false)
		must(t, a.Unlock(ctx, "x"))

		must(t, a.Lock(ctx, "x"))
		lose(t, a, "x", cut)
		if err := a.Unlock(ctx, "x"); !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
		wantTry(t, b, "x", true)
		must(t, b.Unlock(ctx, "x"))
		synctest.Wait()
		if lost != 3 {
			t.Errorf("Lost was called %d times, want 3", lost)
		}
	})
}

// TestNotHeld: calls for locks that are not held here say so, and do nothing to those of others.
func TestNotHeld(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		ctx := t.Context()
		a, b, _ := two(t, nil)
		must(t, b.Lock(ctx, "x"))
		for _, name := range []string{"x", "y", ""} {
			_, err := a.Lease(name)
			for _, err := range []error{err, a.Unlock(ctx, name), a.RenewLockLease(ctx, name, time.Hour)} {
				if !errors.Is(err, leasecertmagic.ErrNotHeld) || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
					t.Error(err)
				}
			}
		}
		must(t, b.Unlock(ctx, "x"))
		if err := b.Unlock(ctx, "x"); !errors.Is(err, leasecertmagic.ErrNotHeld) {
			t.Error(err)
		}
	})
}

// TestLockNames: a lock's name may be anything but empty, and no two names are of one lock.
func TestLockNames(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		ctx, a, b := t.Context(), newStorage(t, p.Open(t), nil), newStorage(t, p.Open(t), nil)
		long := strings.Repeat("x", 190)
		names := []string{
			"issue_cert_*.example.com", "issue_cert_example.com", "a", "A", "a/b", "a%2fb", "a//b", "/a", "a/", ".", "..", "../values/a",
			"a\\b", "a\x00b", "a\xffb", "a\nb", " ", ".leasehold.lock", long, long + "x", long + "-", long + "/x", long + "%/-x", strings.Repeat("☃", 60),
		}
		for _, name := range names {
			wantTry(t, a, name, true)
		}
		for _, name := range names {
			wantTry(t, b, name, false)
			must(t, a.Unlock(ctx, name))
		}
		for _, name := range []string{"", strings.Repeat("x", 1000), strings.Repeat("\x00", 300)} {
			for _, err := range []error{a.Lock(ctx, name), try(a, name)} {
				if !errors.Is(err, store.ErrInvalid) {
					t.Errorf("%.20q: %v", name, err)
				}
			}
		}
	})
}

func try(s *leasecertmagic.Storage, name string) error {
	_, err := s.TryLock(context.Background(), name)
	return err
}

// TestClose: it waits for what is locked, which can be unlocked, and refuses what is new.
func TestClose(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		ctx := t.Context()
		a, _, _ := two(t, nil)
		must(t, a.Lock(ctx, "x"))
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := a.Close(brief); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for _, err := range []error{a.Lock(ctx, "y"), try(a, "y")} {
			if !errors.Is(err, leasehold.ErrClosed) {
				t.Error(err)
			}
		}
		must(t, a.RenewLockLease(ctx, "x", time.Hour))
		must(t, a.Unlock(ctx, "x"))
		must(t, a.Close(ctx))
		must(t, a.Store(ctx, "k", nil))
	})
}

func TestNew(t *testing.T) {
	if s, err := leasecertmagic.New(nil, nil); err == nil || s != nil {
		t.Error(s, err)
	}
	if s, err := leasecertmagic.New(memstore.New(), &leasehold.LockOptions{TTL: 1}); err == nil || s != nil {
		t.Error(s, err)
	}
	if s := newStorage(t, memstore.New(), nil); !strings.HasPrefix(s.String(), "leasehold:") {
		t.Error(s)
	}
}

// TestRounds: whoever has locked a name works with the context of the name's lease.
func TestRounds(t *testing.T) {
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
		s, err := leasecertmagic.New(st, &leasehold.LockOptions{TTL: adaptertest.TTL, Holder: name})
		must(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				if s.Lock(ctx, "contended") != nil {
					continue
				}
				if lease, err := s.Lease("contended"); err == nil {
					work(lease.Context())
				}
				_ = s.Unlock(ctx, "contended")
			}
		}()
		return func() {
			cancel()
			<-done
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}
