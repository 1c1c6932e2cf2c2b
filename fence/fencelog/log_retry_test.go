package fencelog_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencelog"
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
				st, lease := newStore(), fencecheck.Lease(t)
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
					_, appended := a.Append(t.Context(), []byte("x"))
					failed <- appended
				}()
				time.Sleep(5 * time.Second)
				if err = lease.Release(t.Context()); err != nil {
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
		st := newStore()
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
		st := newStore()
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

// A token claims a log once, also on the Log on which it has. No test noticed when the mark of
// a claim was kept, with which it could be made again.
func TestTokenClaimsOnce(t *testing.T) {
	st := newStore()
	l := newLog(t, st)
	a, err := l.Claim(t.Context(), fence.Token(1))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	_, err = l.Claim(t.Context(), fence.Token(1))
	fencecheck.Fenced(t, err, 1, 1)
	if err == nil || !strings.Contains(err.Error(), "a newer writer has claimed it with the same one") {
		t.Error(err)
	}
}

// A log whose checkpoint is none cannot be claimed: where its entries begin is not known. No
// test noticed when it was.
func TestClaimWithoutItsCheckpoint(t *testing.T) {
	st := newStore()
	plantCheckpoint(t, st, "rubbish\n")
	if _, err := newLog(t, st).Claim(t.Context(), fence.Token(2)); !errors.Is(err, fence.ErrForeign) {
		t.Errorf("%v, want ErrForeign", err)
	}
	if keys := fencecheck.Keys(t, st, "wal/0"); len(keys) > 0 {
		t.Errorf("it has written %q", keys)
	}
}

// A claim that went ahead of a busy appender closes the gap, and an error on the way is its
// own: no test noticed when it was dropped, or when a larger token in the gap was passed.
func TestClaimMeetsTroubleInTheGap(t *testing.T) {
	for _, larger := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			a := open(t, st, 1)
			appendTo(t, a, "a1")
			slow := faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{
				{Kind: faultstore.DelayBefore, Op: "put", Key: "wal/0000000000000000003", Nth: 1, Delay: 5 * time.Second}, // the appender is faster
			}})
			if larger {
				slow.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "wal/0000000000000000004", Nth: 1, Delay: 5 * time.Second})
			} else {
				slow.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "wal/0000000000000000004"})
			}
			claimed := make(chan error)
			go func() {
				_, err := newLog(t, slow).Claim(t.Context(), fence.Token(2))
				claimed <- err
			}()
			time.Sleep(time.Second)
			appendTo(t, a, "a2")
			if larger {
				time.Sleep(5 * time.Second) // the claim has gone ahead, and is about to close the gap
				plant(t, st, 4, `{"format":1,"kind":"fence","token":3,"claim":"c","id":"f","previous":""}`)
				fencecheck.Fenced(t, <-claimed, 2, 3)
				return
			}
			if err := <-claimed; !errors.Is(err, store.ErrDenied) {
				t.Errorf("%v, want that access was denied", err)
			}
		})
	}
}

// A log needs a store, and a key that leaves room for those of its entries and of its
// checkpoint. No test noticed when it was made without.
func TestLogsThatAreNone(t *testing.T) {
	for _, key := range []string{"", "a//b", "/", strings.Repeat("k/", 400) + "k"} {
		if l, err := fencelog.New(newStore(), key); l != nil || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v, %v", key, l, err)
		}
	}
	if l, err := fencelog.New(nil, "wal"); l != nil || err == nil {
		t.Errorf("without a store: %v, %v", l, err)
	}
}

// The entry of a checkpoint is never trimmed. Where it is missing, the log cannot be claimed: a
// former appender could still write there. No test noticed when it was.
func TestClaimWithoutTheEntryOfItsCheckpoint(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	for range 3 {
		appendTo(t, a, "x")
	}
	checkpoint(t, a, a.Last(), "state")
	if err := st.Delete(t.Context(), "wal/0000000000000000004"); err != nil {
		t.Fatal(err)
	}
	if _, err := newLog(t, st).Claim(t.Context(), fence.Token(2)); !errors.Is(err, fence.ErrForeign) || !strings.Contains(err.Error(), "the entry 4 is missing") {
		t.Errorf("%v, want that the entry 4 is missing", err)
	}
}

// An entry lands, the network delivers it once more, and its writer is refused and cannot read what is there. The
// error used to say that nothing was written.
func TestRefusedEntryMayBeThere(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	defer a.Close()
	st.Inject(
		faultstore.Fault{Kind: faultstore.SecondAnswer, Op: "put"},
		faultstore.Fault{Kind: faultstore.Denied, Op: "get"},
	)
	if _, err := a.Append(t.Context(), []byte("entry")); !errors.Is(err, store.ErrUnknownOutcome) || !errors.Is(err, store.ErrDenied) {
		t.Errorf("%v, want that the entry may be there", err)
	}
}
