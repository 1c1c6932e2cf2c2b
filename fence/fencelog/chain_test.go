package fencelog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// However slow a reader is, eight entries have been asked for at most that it has not done
// with, and none is asked for once it has had enough. No test noticed when it was another
// number, nor when the rest was still being fetched after the reader had gone.
func TestReadIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, st, 1)
		for i := range 20 {
			appendTo(t, a, fmt.Sprint(i))
		}
		st.Reset()
		for _, err := range newLog(t, st).Read(context.WithoutCancel(t.Context()), 1) { // what goes on would do so for ever
			if err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			break
		}
		time.Sleep(time.Minute)
		if n := st.Counts(); n.Get != 8 {
			t.Errorf("a reader that has had one entry has fetched %d, want 8", n.Get)
		}
	})
}

// A reader whose context ends in the middle is told so: what it has is not all. No test
// noticed when the log seemed to end there.
func TestReadIsCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, st, 1)
		for i := range 20 {
			appendTo(t, a, fmt.Sprint(i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var errs []error
		for e, err := range newLog(t, st).Read(ctx, 1) {
			switch {
			case err != nil:
				errs = append(errs, err)
			case e.Position == 2:
				time.Sleep(time.Second) // what may be fetched has been
				cancel()
				st.Reset()
			}
		}
		if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
			t.Errorf("it yields the errors %v, want that of the context", errs)
		}
		if n := st.Counts(); n != (faultstore.Counts{}) {
			t.Errorf("after the end of its context it sent %+v", n)
		}
	})
}

// A claim that went ahead and was fenced, or crashed, leaves a gap. A reader that follows
// the log stops before the gap and goes on when it is closed. No test noticed when following
// ended there, or went on behind the gap.
func TestFollowOverAGap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		appendTo(t, open(t, st, 1), "a1")
		plant(t, st, 6, `{"format":1,"kind":"fence","token":2,"claim":"c","id":"f","previous":""}`)
		var got []string
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error)
		go func() {
			var end error
			for e, err := range newLog(t, st).Follow(ctx, 0, time.Second) {
				if end = err; err == nil {
					got = append(got, string(e.Records[0]))
				}
			}
			ended <- end
		}()
		time.Sleep(30 * time.Second)
		c := open(t, st, 3)
		want := []string{"a1"}
		for i := range 5 {
			want = append(want, fmt.Sprint("c", i))
			appendTo(t, c, want[i+1])
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(got, want) {
			t.Errorf("it saw %q and then %v, want %q until its time is over", got, err, want)
		}
	})
}

// (1) R lists the entries. (2) The appender makes a checkpoint and trims. (3) R asks for the
// first of them. No test noticed when R was told of an object that does not exist.
func TestReadMeetsATrim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, st, 1)
		for i := range 4 {
			appendTo(t, a, fmt.Sprint(i))
		}
		slow := faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Op: "get", Key: "wal/0*2", Delay: time.Second}}})
		ended := make(chan error)
		go func() {
			_, err := records(t.Context(), newLog(t, slow), 0)
			ended <- err
		}()
		time.Sleep(500 * time.Millisecond)
		checkpoint(t, a, a.Last(), "state")
		trim(t, a)
		if err := <-ended; !errors.Is(err, fencelog.ErrTrimmed) || !strings.Contains(err.Error(), ": 2 may not be there") {
			t.Errorf("%v, want that the entry 2 was trimmed", err)
		}
	})
}

// A late write into a place that was trimmed is not taken for what had been there, and an
// entry in the place of another is noticed by the one after it. No test noticed when either
// was read.
func TestEntriesThatAreNotWhatWasThere(t *testing.T) {
	const late = `{"format":1,"kind":"data","token":1,"claim":"c","id":"x","previous":"","records":[4]}` + "\nlate"
	st := newStore()
	a := open(t, st, 1)
	for i := range 4 {
		appendTo(t, a, fmt.Sprint(i))
	}
	if err := st.Delete(t.Context(), "wal/0000000000000000002"); err != nil {
		t.Fatal(err)
	}
	plant(t, st, 2, late)
	got, err := records(t.Context(), newLog(t, st), 0)
	if !errors.Is(err, fencelog.ErrTrimmed) || !strings.Contains(err.Error(), "2 is not what it was when 3 was written") || len(got) > 1 {
		t.Errorf("an entry in the place of another: it yields %q, %v", got, err)
	}

	checkpoint(t, a, a.Last(), "state")
	trim(t, a)
	plant(t, st, 2, late)
	got, err = records(t.Context(), newLog(t, st), 0)
	if !errors.Is(err, fencelog.ErrTrimmed) || !strings.Contains(err.Error(), ": 2 may not be there") || len(got) > 0 {
		t.Errorf("a late write into a place that was trimmed: it yields %q, %v", got, err)
	}
}

// Each twentieth look in a row that finds nothing is followed by a LIST, and one that finds
// something begins the row anew. No test noticed when it was another number.
func TestFollowListsNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, st, 1)
		st.Reset()
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e, err := range newLog(t, st).Follow(ctx, a.Last(), time.Second) {
				if err != nil {
					return
				}
				if string(e.Records[0]) != "x" {
					t.Errorf("it saw %q", e.Records)
				}
			}
		}()
		for _, c := range []struct {
			at    time.Duration
			lists int
		}{
			{19500 * time.Millisecond, 1}, {20500 * time.Millisecond, 2}, // from here on, looks at 21 s, 22 s…
			{24500 * time.Millisecond, 2},                                // the look at 25 s finds something, and then nothing
			{43500 * time.Millisecond, 2}, {44500 * time.Millisecond, 3}, // the twentieth after that
		} {
			time.Sleep(time.Until(begin.Add(c.at)))
			if n := st.Counts(); n.List != c.lists {
				t.Errorf("after %v it had sent %d LISTs, want %d", c.at, n.List, c.lists)
			}
			if c.at == 24500*time.Millisecond {
				appendTo(t, a, "x")
			}
		}
		cancel()
		<-ended
	})
}

// Where an entry is missing, and nobody can say whether it was trimmed, the reader is told
// that. No test noticed when it was said to be trimmed.
func TestGapThatNobodyExplains(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	for i := range 3 {
		appendTo(t, a, fmt.Sprint(i))
	}
	if err := st.Delete(t.Context(), "wal/0000000000000000003"); err != nil {
		t.Fatal(err)
	}
	st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "wal/checkpoint"})
	got, err := records(t.Context(), newLog(t, st), 0)
	if !errors.Is(err, store.ErrDenied) || errors.Is(err, fencelog.ErrTrimmed) || len(got) != 1 {
		t.Errorf("it yields %q, %v, want that access was denied", got, err)
	}
}
