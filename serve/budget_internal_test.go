package serve

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A budget gives the requests of the first look once, and then as many a minute as its limit: unused ones are saved for a
// minute only. Whoever is put off is told when there is one again.
func TestBudgetOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(60, 100)
		refused := 0
		for i, step := range []struct {
			sleep time.Duration
			spend int
			pause time.Duration
		}{
			{0, 159, 0},
			{0, 1, time.Second},
			{time.Second, 0, 0},
			{0, 3, 3 * time.Second},
			{500 * time.Millisecond, 0, 2500 * time.Millisecond},
			{0, 0, 2500 * time.Millisecond},
			{20 * time.Second, 17, 0},
			{0, 2, 1500 * time.Millisecond},
			{time.Hour, 0, 0},
			{0, 59, 0},
			{0, 1, time.Second},
		} {
			time.Sleep(step.sleep)
			for range step.spend {
				b.sent.add(op(i % int(ops)))
			}
			if step.pause > 0 {
				refused++
			}
			if pause := b.pause().Round(time.Millisecond); pause != step.pause || b.timesRefused() != refused {
				t.Errorf("step %d: wait %v, want %v; %d were refused, want %d", i, pause, step.pause, b.timesRefused(), refused)
			}
		}
		b = newBudget(60, 100)
		time.Sleep(time.Hour)
		b.pause()
		for range 159 {
			b.sent.add(opGet)
		}
		if pause := b.pause(); pause > 0 {
			t.Errorf("what was given to the first look is gone after an hour: wait %v", pause)
		}
	})
}

// A meter has the requests of the last sixty seconds, and of all time, by their kind.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(meter)
		for i, step := range []struct {
			sleep time.Duration
			add   []op
			want  [ops]int64
		}{
			{0, []op{opGet, opGet, opDelete}, [ops]int64{2, 0, 0, 1}},
			{30 * time.Second, []op{opPut, opList}, [ops]int64{2, 1, 1, 1}},
			{29 * time.Second, nil, [ops]int64{2, 1, 1, 1}},
			{time.Second, nil, [ops]int64{0, 1, 1, 0}},
			{0, []op{opList}, [ops]int64{0, 1, 2, 0}},
			{30 * time.Second, nil, [ops]int64{0, 0, 1, 0}},
			{time.Hour, nil, [ops]int64{}},
		} {
			time.Sleep(step.sleep)
			for _, o := range step.add {
				m.add(o)
			}
			if got := m.lastMinute(); got != step.want {
				t.Errorf("step %d: %v, want %v", i, got, step.want)
			}
		}
		if got, want := m.totals(), ([ops]int64{2, 1, 2, 1}); got != want || sum(got) != 6 {
			t.Errorf("%v in all, want %v", got, want)
		}
	})
}

// The dollars of a month are by the price of each kind of request, and by none where a store has no prices.
func TestDollars(t *testing.T) {
	t.Parallel()
	price := func(f float64) *float64 { return &f }
	p := &cost.Price{Per: 10, Get: price(1), Put: price(20), List: price(300), Delete: price(4000)}
	minutes := cost.Month.Minutes()
	if got, want := dollars(p, [ops]int64{5, 6, 7, 8}), (5+6*20+7*300+8*4000)/10.0*minutes; math.Abs(got-want) > 1 {
		t.Errorf("%v, want %v", got, want)
	}
	if p, err := priceOf(""); p != nil || err != nil {
		t.Errorf("without a name: %v, %v", p, err)
	}
	if p, err := priceOf("s3"); err != nil || p.Name != "s3" {
		t.Errorf("of s3: %v, %v", p, err)
	}
}

// telling is a store that knows of itself.
type telling struct{ store.Store }

func (telling) Proves(storeName, use string) error  { return errors.New(storeName + " " + use) }
func (telling) VersionOf(body []byte) store.Version { return store.Version("of " + string(body)) }

// A store that counts counts each request as what it is, a listing as one for each thousand entries, and passes on what the
// store knows of itself.
func TestCounting(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := &counting{Store: memstore.New(), all: new(meter)}
	counts := func(what string, want [ops]int64) {
		t.Helper()
		if got := c.all.totals(); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	for i := range 2001 {
		if _, err := c.Put(ctx, fmt.Sprintf("k%04d", i), []byte("x"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	counts("puts", [ops]int64{0, 2001, 0, 0})
	if o, err := c.Get(ctx, "k0001", ""); err != nil || string(o.Body) != "x" {
		t.Errorf("%v, %v", o, err)
	}
	counts("a get", [ops]int64{1, 2001, 0, 0})
	listed := func(entries iter.Seq2[store.Entry, error], most int) (n int) {
		for range entries { //nolint:errcheck // they are counted
			if n++; n == most {
				break
			}
		}
		return n
	}
	if n := listed(c.List(ctx, "none", ""), 1); n != 0 {
		t.Errorf("%d entries", n)
	}
	counts("a listing of nothing", [ops]int64{1, 2001, 1, 0})
	if n := listed(c.List(ctx, "", ""), 1000); n != 1000 {
		t.Errorf("%d entries", n)
	}
	counts("a page", [ops]int64{1, 2001, 2, 0})
	if n := listed(c.List(ctx, "", ""), 9999); n != 2001 {
		t.Errorf("%d entries", n)
	}
	counts("three pages", [ops]int64{1, 2001, 5, 0})
	if err := c.Delete(ctx, "k0001"); err != nil {
		t.Error(err)
	}
	counts("a delete", [ops]int64{1, 2001, 5, 1})

	c.Store = telling{memstore.New()}
	if err, v := c.Proves("this", "that"), c.VersionOf([]byte("it")); err == nil || err.Error() != "this that" || v != "of it" {
		t.Errorf("what the store knows: %v, %q", err, v)
	}
	c.Store = struct{ store.Store }{memstore.New()}
	if err, v := c.Proves("this", "that"), c.VersionOf([]byte("it")); err != nil || v != "" {
		t.Errorf("of a store that knows nothing: %v, %q", err, v)
	}
	counts("which is no request", [ops]int64{1, 2001, 5, 1})
}
