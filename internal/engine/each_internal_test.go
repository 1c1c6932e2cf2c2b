package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A keyed is an Owner of a lock that has a name.
type keyed struct {
	nobody
	key string
}

func (k keyed) Place() Place {
	p := k.nobody.Place()
	p.Key, p.Layout = k.key, layout.Object{Store: k.st, Key: k.key}
	return p
}

func engines(n int) (all []member) {
	for i := range n {
		e := new(Engine)
		e.Init(keyed{nobody{memstore.New()}, fmt.Sprint(i)}, candidate.Config{TTL: protocol.DefaultTTL, Incarnation: "i"})
		all = append(all, e)
	}
	return all
}

func keysOf(all []member) (keys []string) {
	for _, e := range all {
		keys = append(keys, e.host().Place().Key)
	}
	return keys
}

// TestSplit: two processes have the same parts, whose locks are in one order, however they came. The
// parts are in an order that is drawn, and only the first is taken without a look.
func TestSplit(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{0: 0, 1: 1, 32: 1, 63: 1, 64: 2, 100: 3, 511: 15, 512: 16, 1000: 16} {
		parts := split(engines(n), func(int) int { return 0 })
		if got := len(parts); got != want {
			t.Errorf("%d are %d parts, not %d", n, got, want)
		}
		for _, p := range parts { // none is larger than it must be
			if most := (n + want - 1) / want; len(p.engines) > most {
				t.Errorf("of %d in %d parts one has %d, more than %d", n, want, len(p.engines), most)
			}
		}
	}
	const n = 1000
	first := split(engines(n), func(int) int { return 0 })
	other := engines(n)
	slices.Reverse(other)
	last := split(other, func(n int) int { return n - 1 })
	var order []string
	for i, p := range first {
		if p.late != (i > 0) || last[i].late != (i > 0) {
			t.Errorf("part %d is late: %t, %t", i, p.late, last[i].late)
		}
		order = append(order, keysOf(p.engines)...)
		same := func(o *part) bool { return slices.Equal(keysOf(o.engines), keysOf(p.engines)) }
		if j := slices.IndexFunc(last, same); j < 0 || j == i {
			t.Errorf("part %d of one process is part %d of the other", i, j)
		}
	}
	if slices.IsSorted(order) {
		t.Error("the order is that of the keys, which lie side by side in the store")
	}
	if slices.Sort(order); len(slices.Compact(order)) != n {
		t.Errorf("%d of %d are in a part", len(order), n)
	}
}

// A stage is a Runtime whose things happen when the test says so.
type stage struct {
	Process
	soon []func()
}

func (s *stage) Apart(f func()) { s.soon = append(s.soon, f) }
func (s *stage) Draw(int) int   { return 0 }
func (s *stage) play() {
	for len(s.soon) > 0 {
		f := s.soon[0]
		s.soon = s.soon[1:]
		f()
	}
}

// TestCrowd: each is begun once, and no more at a time than the store takes; those of a part that follow
// one that has found its lock taken look first, until one has not.
func TestCrowd(t *testing.T) {
	t.Parallel()
	type one struct {
		late bool
		done func(outcome)
	}
	rt, under, begun := &stage{}, []one{}, map[member]int{}
	all := engines(1000)
	c := crowd{rt: rt, parts: []*part{{engines: all[:500]}, {engines: all[500:]}}, window: protocol.NewWindow(32)}
	c.do = func(e member, late bool, done func(outcome)) {
		begun[e]++
		under = append(under, one{late, done})
	}
	c.more()
	end := func(o outcome) {
		now := under
		under = nil
		for _, u := range now {
			u.done(o)
		}
	}
	for i, step := range []struct {
		begin int
		late  bool
		then  outcome
	}{
		{32, false, outcome{}},
		{64, false, outcome{taken: true}},
		{128, true, outcome{failed: true}}, // which says nothing of the locks
		{64, true, outcome{}},
		{90, false, outcome{}},
	} {
		rt.play()
		if len(under) != step.begin || slices.ContainsFunc(under, func(o one) bool { return o.late != step.late }) {
			t.Errorf("step %d: %+v, and %d at a time, of which the first is late: %t", i, step, len(under), under[0].late)
		}
		end(step.then)
	}
	for len(begun) < len(all) {
		rt.play()
		end(outcome{})
	}
	for e, n := range begun {
		if n != 1 {
			t.Errorf("%s is begun %d times", e.host().Place().Key, n)
		}
	}
}

// failing is a store whose writes fail, or whose looks do too.
type failing struct {
	store.Store
	writes, looks error
}

func (f failing) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if f.looks != nil {
		return nil, f.looks
	}
	return f.Store.Get(ctx, key, unless)
}

func (f failing) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if f.writes != nil {
		return nil, f.writes
	}
	return f.Store.Put(ctx, key, body, only)
}

// TestOutcome: a store that asks for fewer requests, does not answer or is away has failed; one that
// refuses a write because of a rival's has not, and who holds a lease has not found its lock taken.
func TestOutcome(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for what, c := range map[string]struct {
		failing
		want outcome
	}{
		"acquired":          {want: outcome{}},
		"throttled":         {failing{writes: fmt.Errorf("%w: %w", store.ErrUnknownOutcome, store.ErrThrottled)}, outcome{failed: true}},
		"no answer":         {failing{writes: context.DeadlineExceeded}, outcome{failed: true}},
		"looks throttled":   {failing{looks: store.ErrThrottled}, outcome{failed: true}},
		"away":              {failing{looks: away, writes: away}, outcome{failed: true}},
		"a rival's":         {failing{writes: store.ErrPrecondition}, outcome{taken: true}},
		"a rival under way": {failing{writes: store.ErrConflict}, outcome{taken: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.Store = memstore.New()
			var e Engine
			e.Init(nobody{c.failing}, candidate.Config{TTL: protocol.DefaultTTL, Incarnation: "i"})
			if err := e.Acquire(t.Context(), candidate.Acquire{Wait: true}, nil, func() {}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := e.outcome(); got != c.want {
				t.Errorf("%s: %+v, want %+v", what, got, c.want)
			}
			if e.Cancel(); c.want == (outcome{}) {
				e.Release(func() candidate.Release { return candidate.Release{} })
			}
			time.Sleep(time.Hour) //nolint:forbidigo // of the bubble
		})
	}
}
