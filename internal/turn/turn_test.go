package turn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/turn"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func newLocks(t *testing.T, st store.Store) *leasehold.Locks {
	t.Helper()
	locks, err := leasehold.NewLocks(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return locks
}

func take(ctx context.Context, t *testing.T, locks *leasehold.Locks) *leasehold.Lease {
	t.Helper()
	lease, err := turn.Take(ctx, locks, "report", turn.DefaultHoldAtLeast)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// TestTake: a lock that is free is taken; one that is held, or rests, is refused at once.
func TestTake(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := newLocks(t, st), newLocks(t, st)
		lease := take(t.Context(), t, a)
		refused := func(what string) {
			began := time.Now()
			if _, err := turn.Take(t.Context(), b, "report", -1); !errors.Is(err, leasehold.ErrHeld) || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		}
		refused("held")
		time.Sleep(time.Hour)
		refused("held for an hour")
		leasetest.Release(t, lease)
		leasetest.Release(t, take(t.Context(), t, a))
		refused("at rest")
		time.Sleep(6 * time.Second)
		leasetest.Release(t, take(t.Context(), t, b))
	})
}

// TestTakeOver: from a holder that is gone Take takes over, though nobody has seen its record before; of two that find
// it at once, one does, and the other hears that the lock is held. The end of its context ends that.
func TestTakeOver(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		gone := faultstore.Wrap(st, nil)
		defer gone.Partition(false)
		lost := take(t.Context(), t, newLocks(t, gone))
		gone.Partition(true)
		time.Sleep(time.Hour)
		short, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		if _, err := turn.Take(short, newLocks(t, st), "report", 0); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("one that gives up: %v", err)
		}
		began := time.Now()
		ends := make(chan error, 2)
		for range 2 {
			go func() {
				lease, err := turn.Take(t.Context(), newLocks(t, st), "report", turn.DefaultHoldAtLeast)
				if err == nil {
					err = lease.Release(t.Context()) // done at once, and the lock rests
				}
				ends <- err
			}()
		}
		first, second := <-ends, <-ends
		if (first == nil) == (second == nil) || !errors.Is(errors.Join(first, second), leasehold.ErrHeld) {
			t.Errorf("%v and %v", first, second)
		}
		if took := time.Since(began); took < 15*time.Second || took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		gone.Partition(false)
		if err := lost.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
	})
}

// TestLooksAbandoned: a record that only looks abandoned, since the store's clock is wrong, say, is left to its holder
// as soon as that has renewed.
func TestLooksAbandoned(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		gone := faultstore.Wrap(st, nil)
		lost := take(t.Context(), t, newLocks(t, gone))
		gone.Partition(true)
		time.Sleep(time.Hour)
		time.AfterFunc(5500*time.Millisecond, func() {
			record, err := st.Get(t.Context(), "report", "")
			if err == nil {
				_, err = st.Put(t.Context(), "report", record.Body, store.IfMatch(record.Version))
			}
			if err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		_, err := turn.Take(t.Context(), newLocks(t, st), "report", 0)
		if took := time.Since(began); !errors.Is(err, leasehold.ErrHeld) || took < 5*time.Second || took > 7*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		gone.Partition(false)
		_ = lost.Release(t.Context())
	})
}

// TestOwnLost: while this process itself has a lease that it has lost and not released, Take gives up in time, and does
// not wait for that.
func TestOwnLost(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		locks := newLocks(t, st)
		lease := take(t.Context(), t, locks)
		st.Partition(true)
		<-lease.Done()
		st.Partition(false)
		time.Sleep(time.Hour)
		began := time.Now()
		if _, err := turn.Take(t.Context(), locks, "report", 0); !errors.Is(err, leasehold.ErrHeld) || time.Since(began) > 25*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		_ = lease.Release(t.Context())
	})
}
