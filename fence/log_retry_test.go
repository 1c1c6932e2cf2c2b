package fence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// An append is tried again while its lease is valid, and not after that. No test noticed
// when the lease was checked before the first try only, nor when the last error hid that
// an earlier try may have landed.
func TestAppendAfterTheLeaseHasEnded(t *testing.T) {
	for kind, unknown := range map[faultstore.Kind]bool{
		faultstore.Unavailable: false,
		faultstore.LostRequest: true,
		faultstore.LostAnswer:  true,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st, lease := newStore(1), fencecheck.Lease(t)
				a, err := newLog(t, st).Claim(t.Context(), lease)
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				st.Inject(
					faultstore.Fault{Kind: kind, Op: "put", Nth: 1},
					faultstore.Fault{Kind: faultstore.Unavailable, Op: "put"},
				)
				failed := make(chan error)
				go func() {
					_, err := a.Append(t.Context(), []byte("x"))
					failed <- err
				}()
				time.Sleep(5 * time.Second)
				if err := lease.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				st.Reset()
				st.Clear() // another try would be let through
				err = <-failed
				if !errors.Is(err, leasehold.ErrReleased) || errors.Is(err, store.ErrUnknownOutcome) != unknown {
					t.Errorf("%v, want that the lease is released, and of an unknown outcome: %v", err, unknown)
				}
				if n := st.Counts(); n.Put > 0 {
					t.Errorf("%d entries were sent after the end of the lease", n.Put)
				}
			})
		})
	}
}

// A later try is denied, but the first may have landed: the error says both. No test noticed
// when it said only the last.
func TestClaimTellsWhatIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore(1)
		appendTo(t, open(t, st, 1), "a")
		st.Inject(
			faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Key: "wal/0*", Nth: 1},
			faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "wal/0*"},
		)
		_, err := newLog(t, st).Claim(t.Context(), fence.Token(2))
		if !errors.Is(err, store.ErrUnknownOutcome) || !errors.Is(err, store.ErrDenied) {
			t.Errorf("%v, want that access was denied, and that the outcome is unknown", err)
		}
	})
}

// A claim that its caller cancels while the store is away ends with the context's error.
func TestClaimIsCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore(1)
		appendTo(t, open(t, st, 1), "a")
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: "wal/0*"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := newLog(t, st).Claim(ctx, fence.Token(2))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that the time was over", err)
		}
	})
}
