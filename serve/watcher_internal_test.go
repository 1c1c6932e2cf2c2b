package serve

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// What this server has changed is not answered from a look that began before, however many other keys it has changed since,
// and however long the look took. It used to be, when more than a thousand keys had changed within the look.
func TestTouchedAmongMany(t *testing.T) {
	for _, pause := range []time.Duration{0, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New(memstore.New(), nil)
			if err != nil {
				t.Fatal(err)
			}
			w, began := s.watch, time.Now()
			seen := func(began time.Time, want string, wantReads int64) {
				t.Helper()
				before := w.budget.sent.totals()[opGet]
				w.last = &look{began: began, ended: time.Now(), objects: []Object{{Key: "k", Report: Report{State: "as seen"}}}}
				o, err := w.object(t.Context(), "k")
				if reads := w.budget.sent.totals()[opGet] - before; err != nil || o.State != want || reads != wantReads {
					t.Errorf("k is %q, want %q, by %d reads: %v", o.State, want, reads, err)
				}
			}
			time.Sleep(time.Millisecond)
			w.touched("k")
			seen(began, "absent", 1)
			w.touched("k")
			time.Sleep(pause)
			for i := range 1100 {
				w.touched(fmt.Sprint(i))
			}
			time.Sleep(time.Millisecond)
			seen(began, "absent", 1)
			seen(time.Now(), "as seen", 0)
			if len(w.touches) > keptLooks {
				t.Errorf("%d changes are remembered", len(w.touches))
			}
		})
	}
}

// Looks at single keys are remembered for a second, and more than a thousand of them only as long as they are fresh or under
// way.
func TestSingleLooksKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(memstore.New(), &Options{Budget: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		w := s.watch
		reads := func(key string, want int64) {
			t.Helper()
			before := w.budget.sent.totals()[opGet]
			if _, err := w.object(t.Context(), key); err != nil {
				t.Error(err)
			}
			if n := w.budget.sent.totals()[opGet] - before; n != want {
				t.Errorf("%s: %d reads, want %d", key, n, want)
			}
		}
		for i := range keptLooks - 1 {
			reads(fmt.Sprint(i), 1)
		}
		time.Sleep(time.Second - 1)
		reads("0", 0)
		time.Sleep(time.Nanosecond)
		reads("0", 1)
		reads("fresh", 1)
		if len(w.single) != keptLooks {
			t.Errorf("%d looks are remembered", len(w.single))
		}
		w.single["1"] = &single{began: time.Now().Add(-time.Minute), done: make(chan struct{})} // under way for long
		reads("another", 1)
		if len(w.single) != 4 || w.single["0"] == nil || w.single["1"] == nil || w.single["fresh"] == nil || w.single["another"] == nil {
			t.Errorf("%d looks are remembered when there was one too many", len(w.single))
		}
	})
}

// What is told of everything is as much as 8 MiB and one object more, and says that it is cut.
func TestLookIsBounded(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	s, err := New(st, &Options{Budget: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := leasehold.NewLock(st, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := lock.Acquire(t.Context(), leasehold.WithMeta(map[string]string{"x": strings.Repeat("y", 16<<10)}))
	if err != nil {
		t.Fatal(err)
	}
	if err = lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	record, err := st.Get(t.Context(), "a", "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if _, err = st.Put(t.Context(), fmt.Sprintf("k%03d", i), record.Body, store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	l, err := s.watch.look()
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, body := range l.bodies {
		size += len(body)
	}
	last := len(l.bodies[len(l.bodies)-1])
	if !l.seen.Cut || size <= 8<<20 || size-last > 8<<20 || len(l.bodies) != len(l.objects) || len(l.objects) != len(l.seen.Rows) || l.seen.Requests != int(sum(s.watch.budget.sent.totals())) {
		t.Errorf("%d objects of %d bytes, for %d requests; cut: %t", len(l.objects), size, l.seen.Requests, l.seen.Cut)
	}
	before := sum(s.watch.budget.sent.totals())
	if l, err = s.watch.look(); err != nil || l.seen.Requests != int(sum(s.watch.budget.sent.totals())-before) {
		t.Errorf("the second look took %d requests: %v", l.seen.Requests, err)
	}
}
