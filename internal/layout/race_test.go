package layout_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// TestManyNested: a lock below another, with very many objects, costs that no listing.
func TestManyNested(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		s := terms(t, e, 2, layout.Snapshot{})
		for i := range 3000 {
			plant(t, st, fmt.Sprintf("%s/sub/%d", e.Key, i), "x")
		}
		wants(t, "a newcomer's look", st.cost(func() { look(t, e, "") }), "1 GET, 0 PUT, 1 LIST, 0 DELETE")
		wants(t, "a claim", strings.Fields(st.cost(func() { write(t, e, candidate.Claim, s) }))[4], "1")
	})
}

// TestMadeByHand: the highest stays, even if it was no lease.
func TestMadeByHand(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		r := newRecord(false)
		r.AcquiredAt = time.Time{}
		if _, err := e.Write(t.Context(), candidate.Write{Op: candidate.Free, Record: r}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		wants(t, "collected", len(collected(t, e, layout.Collection{Limit: -1})), 0)
		for term, err := range e.Terms(t.Context()) {
			t.Errorf("it is called a lease: %+v, %v", term, err)
		}
	})
}

// TestTwoCollect: what another collects or puts up in between is no error.
func TestTwoCollect(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		var s layout.Snapshot
		for s.Record.Epoch < 500 {
			s = write(t, e, candidate.Free, write(t, e, candidate.Claim, s))
		}
		time.Sleep(time.Hour)
		first := layout.EpochKey(e.Key, 1)
		st.before = func(op, key string) {
			switch {
			case op == "get" && key == first:
				_ = st.Store.Delete(t.Context(), key)
			case op == "put":
				plant(t, st.Store, key, "{}")
			}
		}
		got := collected(t, e, layout.Collection{Limit: -1})
		st.before = nil
		if left := keys(t, st); len(left) != 2 || len(got) < 400 {
			t.Errorf("collected %d and left %q", len(got), left)
		}
	})
}

// TestHalfTakeover: the former lease is over, and the next has not begun.
func TestHalfTakeover(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		if !e.IfMatch {
			return // there it is one write
		}
		s := write(t, e, candidate.Claim, layout.Snapshot{})
		ctx, cancel := context.WithCancel(t.Context())
		puts := 0
		st.before = func(op, _ string) {
			if op == "put" {
				if puts++; puts == 2 {
					cancel()
				}
			}
		}
		next := newRecord(true)
		next.WriteID, next.RenewedAt = "rival.1", s.Record.RenewedAt.Add(time.Hour)
		if _, err := e.Write(ctx, candidate.Write{Op: candidate.Claim, Record: next, Over: s.Record, Expect: s.Version}); err == nil {
			t.Fatal("it took over")
		}
		for term, err := range e.Terms(t.Context()) {
			if err != nil || term.Why != record.EndedByTakeover || term.Ended.Sub(s.Record.ExpiresAt).Abs() > time.Millisecond {
				t.Errorf("%+v, %v", term, err)
			}
		}
		// And where it was the holder itself, which wanted another lease.
		st.before = nil
		ctx, cancel = context.WithCancel(t.Context())
		s = write(t, e, candidate.Claim, look(t, e, ""))
		puts = 0
		st.before = func(op, _ string) {
			if op == "put" {
				if puts++; puts == 2 {
					cancel()
				}
			}
		}
		next = newRecord(true)
		next.RenewedAt = s.Record.RenewedAt.Add(time.Hour)
		if _, err := e.Write(ctx, candidate.Write{Op: candidate.Claim, Record: next, Over: s.Record, Expect: s.Version}); err == nil {
			t.Fatal("it has another lease")
		}
		st.before = nil
		for term, err := range e.Terms(t.Context()) {
			if err != nil || term.Why != record.EndedByRelease || !term.Ended.Equal(next.RenewedAt) {
				t.Errorf("%+v, %v", term, err)
			}
			break
		}
	})
}

// An undated store does not tell in its listings when objects were written.
type undated struct{ *tapped }

func (s undated) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range s.tapped.List(ctx, prefix, after) {
			e.LastModified = time.Time{}
			if !yield(e, err) {
				return
			}
		}
	}
}

// An object without an age is not old: it used to count as older than anything.
func TestNoDates(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		terms(t, e, 5, layout.Snapshot{})
		e.Store = undated{st}
		wants(t, "collected", len(collected(t, e, layout.Collection{Limit: -1})), 0)
	})
}
