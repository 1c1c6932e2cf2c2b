package fence_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// A write is tried again while its lease is valid, and not after that; the error says whether
// it may have landed. No test noticed when the lease was checked before the first try only.
func TestPutAfterTheLeaseHasEnded(t *testing.T) {
	for kind, unknown := range map[faultstore.Kind]bool{faultstore.Unavailable: false, faultstore.LostRequest: true} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st, lease := newStore(), fencecheck.Lease(t)
				o := newObject(t, st, nil)
				put(t, o, lease, "before")
				st.Inject(
					faultstore.Fault{Kind: kind, Op: "put", Nth: 1},
					faultstore.Fault{Kind: faultstore.Unavailable, Op: "put"},
				)
				failed := make(chan error)
				go func() { failed <- o.Put(t.Context(), lease, strings.NewReader("after")) }()
				time.Sleep(5 * time.Second)
				if n := st.Counts(); n.Put > 30 {
					t.Errorf("%d writes in five seconds", n.Put)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				st.Clear()
				if err := <-failed; !errors.Is(err, leasehold.ErrReleased) || errors.Is(err, store.ErrUnknownOutcome) != unknown {
					t.Errorf("%v, want that the lease is released, and of an unknown outcome: %v", err, unknown)
				}
				holds(t, st, "before")
			})
		})
	}
}

// A holder whose version of the object is old reads the new one at once, and pauses only when
// that was not enough. No test noticed a pause before the first look.
func TestOldVersionTakesNoTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a, b := newObject(t, st, nil), newObject(t, st, nil)
		begun := time.Now()
		for range 10 {
			put(t, a, fence.Token(1), "a")
			put(t, b, fence.Token(1), "b")
		}
		if d := time.Since(begun); d > 0 {
			t.Errorf("twenty writes in turn took %v, of requests that take no time", d)
		}
		holds(t, st, "b")
	})
}

// (1) The store is away for most of the time that a write has. (2) It is back, and the write
// loses a race, which it would try again at once. (3) Its time is over. It used to say that
// all was well, with nothing written.
func TestPutThatLosesARaceAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		other := newObject(t, st, nil)
		put(t, other, fence.Token(1), "before")
		slow := faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{
			{Kind: faultstore.Unavailable, Op: "get"},
		}})
		o := newObject(t, slow, nil)
		failed := make(chan error)
		go func() { failed <- o.Put(t.Context(), fence.Token(1), strings.NewReader("mine")) }()
		time.Sleep(25 * time.Second)
		slow.Clear()
		slow.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Nth: 1, Delay: 8 * time.Second})
		time.Sleep(4 * time.Second) // it has read, and its write is on the way
		put(t, other, fence.Token(1), "theirs")
		if err := <-failed; !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("%v, want that it has lost a race", err)
		}
		holds(t, st, "theirs")
	})
}

// That the first look comes at once after a lost race says nothing of those after it, which
// pause as after any failure. No test noticed when they did not.
func TestTroubleAfterALostRace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		o := newObject(t, st, nil)
		put(t, o, fence.Token(1), "mine")
		put(t, newObject(t, st, nil), fence.Token(1), "theirs")
		looks := 0
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", When: func(faultstore.Call) bool {
			looks++
			return looks <= 5
		}})
		begin := time.Now()
		put(t, o, fence.Token(1), "mine again")
		if d := time.Since(begin); d < 1550*time.Millisecond { // 50 ms, and then twice as long each time
			t.Errorf("five looks that failed took %v", d)
		}
		holds(t, st, "mine again")
	})
}

// An error of a write says things once: see fencecheck.
func TestErrorsOfPutsSayThingsOnce(t *testing.T) {
	fencecheck.SaysThingsOnce(t, func(t *testing.T, st *faultstore.Store) func() error {
		t.Helper()
		o := newObject(t, st, nil)
		return func() error { return o.Put(t.Context(), fence.Token(1), strings.NewReader("x")) }
	})
}

// A refusal says what was refused, and by which token: a larger one, or the same one in other
// hands.
func TestFencedError(t *testing.T) {
	for newest, want := range map[leasehold.Token]string{
		8: "wal refuses token 7: a holder with token 8 has claimed it",
		7: "wal refuses token 7: a newer writer has claimed it with the same one",
	} {
		if err := (&fence.FencedError{Resource: "wal", Token: 7, Newest: newest}); err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}
