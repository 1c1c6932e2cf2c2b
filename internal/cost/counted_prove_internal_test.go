//go:build prove

package cost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

var bubble = leasetest.Bubble

// layouts are those in which leases last.
func layouts() (all []leasetest.Way) {
	for _, l := range leasetest.Ways {
		if l.Renews() {
			all = append(all, l)
		}
	}
	return all
}

// modes are those that there are in a layout.
func modes(layout leasetest.Way) []Mode {
	return slices.DeleteFunc(slices.Clone(Modes), func(m Mode) bool {
		return m == Session && !layout.Tokens() || m == Fair && layout != leasetest.Object
	})
}

// plans are some of each mode and layout.
func plans() (all []Plan) {
	for _, layout := range layouts() {
		for _, mode := range modes(layout) {
			all = append(all, Plan{TTL: 15 * time.Second, Candidates: 3, Locks: 2, Mode: mode, Layout: layout.Layout, NoIfMatch: layout.NoIfMatch})
		}
		if layout.Tokens() {
			all = append(all, Plan{TTL: 15 * time.Second, Candidates: 4, Locks: 100, Mode: Session, Layout: layout.Layout, NoIfMatch: layout.NoIfMatch})
		}
		all = append(all, Plan{TTL: time.Minute, Candidates: 2, Locks: 1, Mode: Store, Layout: layout.Layout, NoIfMatch: layout.NoIfMatch})
		all = append(all, Plan{TTL: time.Minute, Candidates: 2, Locks: 1, Mode: Wait, Layout: layout.Layout, NoIfMatch: layout.NoIfMatch})
		for _, interval := range []time.Duration{2 * time.Second, 8 * time.Second, 30 * time.Second} {
			all = append(all, Plan{TTL: 15 * time.Second, Candidates: 2, Locks: 2, Mode: Store, Layout: layout.Layout, NoIfMatch: layout.NoIfMatch, Infrequent: interval})
			all = append(all, Plan{TTL: 15 * time.Second, Candidates: 2, Locks: 2, Mode: Wait, Layout: layout.Layout, NoIfMatch: layout.NoIfMatch, Infrequent: interval / 2})
		}
	}
	for _, ttl := range []time.Duration{1200 * time.Millisecond, 2400 * time.Millisecond} {
		all = append(all, Plan{TTL: ttl, Candidates: 2, Locks: 1, Mode: Wait, Layout: leasehold.LayoutObject})
	}
	all = append(all, Plan{TTL: time.Minute, Candidates: 30, Locks: 1, Mode: Fair, Layout: leasehold.LayoutObject})
	return all
}

// within reports that each kind of request is between the bounds.
func within(got, low, high Requests) bool {
	return low.Get <= got.Get && got.Get <= high.Get && low.Put <= got.Put && got.Put <= high.Put &&
		low.List <= got.List && got.List <= high.List && low.Delete <= got.Delete && got.Delete <= high.Delete
}

// TestPlansAreCounted: an hour of several plans. Holders ask what the formulas say, give
// or take one renewal of each, and what may be done about the past; followers and waiters
// what they say and up to a twentieth more or less.
func TestPlansAreCounted(t *testing.T) {
	for _, p := range plans() {
		t.Run(fmt.Sprintf("%s %s %v %v", p.way(), p.Mode, p.TTL, p.Infrequent), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				if err := p.Check(); err != nil {
					t.Fatal(err)
				}
				st := memstore.New()
				m, err := Measure(t.Context(), st, "measured", p, p.Locks, time.Hour)
				if err != nil || m.Changes != 0 || m.For != time.Hour {
					t.Fatalf("%+v, %v", m, err)
				}
				empty(t, st)
				hours := float64(Month) / float64(time.Hour)
				parts := p.Parts()
				holders, others := parts[0].Times(1/hours), parts[1].Times(1/hours)
				past := Requests{}
				if len(parts) > 3 {
					past = p.collection(0).Times(float64(p.Locks) * (1 + time.Hour.Seconds()/protocol.Renewal(p.TTL).Seconds()/collectEvery))
				}
				one := p.budget().renew.Times(float64(p.Locks))
				if p.Mode == Session || p.Mode == Fair {
					one = put.Times(float64(parts[0].Number))
				}
				if !within(m.Holders, holders.Plus(one.Times(-1)), holders.Plus(one).Plus(past)) {
					t.Errorf("holders made %v, not %v", m.Holders, holders)
				}
				few := Requests{Get: 2, List: 2}.Times(float64(parts[1].Number))
				switch p.Mode {
				case Peer:
					few = Requests{Get: 2, List: 1} // its first look
				case Fair:
					few = Requests{Get: LooksOfFollower}.Times(float64(parts[1].Number)) // it comes to watch a session within the hour, and finds out when that is renewed
				}
				if !within(m.Others, others.Times(0.95).Plus(few.Times(-1)), others.Times(1.05).Plus(few)) {
					t.Errorf("the others made %v, not %v", m.Others, others)
				}
				t.Logf("%+.0f of %+.0f, %+.0f of %+.0f", m.Holders, holders, m.Others, others)
			})
		})
	}
}

// TestCollectionsAreCounted: epochs that are older than a day cost what the formulas say.
func TestCollectionsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := Plan{TTL: time.Minute, Candidates: 1, Locks: 1, Mode: Store, Layout: leasehold.LayoutEpochs, NoIfMatch: true}
		tr, err := newTrial(memstore.New(), "measured", p, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(26*time.Hour + 10*time.Second)
		before := tr.locks[0][0].requests.count()
		const hours = 10 // 1800 epochs
		time.Sleep(hours * time.Hour)
		got := tr.locks[0][0].requests.count().Plus(before.Times(-1))
		want := Total(p.Parts()).Times(hours / Month.Hours())
		few := Requests{Get: 2, Put: 2, List: 2, Delete: 2}
		if !within(got, want.Plus(few.Times(-1)), want.Plus(few)) {
			t.Errorf("%v, not %v", got, want)
		}
		t.Logf("%+.0f of %+.0f", got, want)
		if err := tr.end(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestChangesAreCounted: changes of holder cost at most what the formula says, and
// no less than a quarter of it, but for a look or two that chance spares them; the looks of waiters are what it says, up to a twentieth more or less.
func TestChangesAreCounted(t *testing.T) {
	const pause = 5*time.Minute + 2500*time.Millisecond
	for _, layout := range layouts() {
		for _, mode := range modes(layout) {
			changes := 20
			if mode == Store && layout != leasetest.EpochsNoIfMatch { // whose mean is near the formula, so that chance has to be evened out
				changes = 100
			}
			for _, candidates := range []int{2, 5} {
				p := Plan{TTL: 15 * time.Second, Candidates: candidates, Locks: 1, Mode: mode, Layout: layout.Layout, NoIfMatch: layout.NoIfMatch, Changes: float64(24*time.Hour) / float64(pause)}
				t.Run(fmt.Sprintf("%s %s %d", layout, mode, candidates), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						tr, err := newTrial(memstore.New(), "measured", p, 1)
						if err != nil {
							t.Fatal(err)
						}
						if err := tr.begin(t.Context()); err != nil {
							t.Fatal(err)
						}
						time.Sleep(pause)
						count := func() (all Requests) {
							for _, p := range tr.processes {
								all = all.Plus(p.requests.count())
							}
							if tr.processes != nil {
								return all
							}
							for _, c := range tr.locks[0] {
								all = all.Plus(c.requests.count())
							}
							return all
						}
						before, began := count(), time.Now()
						for range changes {
							changeHolder(t, tr)
							time.Sleep(pause)
						}
						got := count().Plus(before.Times(-1))
						steady := p
						steady.Changes = 0
						got = got.Plus(Total(steady.Parts()[:2]).Times(-float64(time.Since(began)) / float64(Month)))
						// A renewal or two fall out while nobody holds the lock.
						got, high := got.Times(1/float64(changes)), p.change()
						low := Requests{Get: high.Get/4 - 1, Put: high.Put - 2, List: high.List/4 - 1, Delete: high.Delete}
						if mode == Wait { // nearly all of it are looks while the lock is held
							low.Get, high.Get = high.Get*0.95, high.Get*1.05
						}
						if mode == Fair && candidates > 2 { // those in the middle watch nobody for a while when the queue has moved
							low.Get = -12 * float64(candidates-2)
						}
						if mode == Peer { // a look because of the change takes the place of a later one
							low.Get--
						}
						if layout == leasetest.EpochsNoIfMatch { // 60 epochs each, of which none is a day old
							high = high.Plus(Requests{Get: 1, Put: 0.2, List: 4, Delete: 0.1}.Times(0.7))
						}
						if !within(got, low, high) {
							t.Errorf("%+.2f, not %+.2f to %+.2f", got, low, high)
						}
						t.Logf("%+.2f of %+.2f", got, high)
						if err := tr.end(t.Context()); err != nil {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}

// changeHolder makes another the holder: a leader resigns, and the holder of a lock ends
// and comes back later.
func changeHolder(t *testing.T, tr *trial) {
	t.Helper()
	holder := tr.holders()[0]
	if holder == nil {
		t.Fatal("nobody holds the lock")
	}
	if holder.election != nil {
		if err := holder.election.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	holder.stop()
	<-holder.done
	time.Sleep(tr.plan.TTL)
	holder.done = make(chan struct{})
	tr.start(t.Context(), holder)
}

// empty checks that nothing is left.
func empty(t *testing.T, st store.Store) {
	t.Helper()
	for e, err := range st.List(t.Context(), "", "") {
		t.Errorf("%q is left, %v", e.Key, err)
	}
}

// TestMeasuringIsBrokenOff: when its context ends, and when the store denies access, all
// is released and nothing is left.
func TestMeasuringIsBrokenOff(t *testing.T) {
	for _, mode := range Modes {
		t.Run(string(mode), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := memstore.New()
				net := faultstore.Wrap(st, nil)
				p := Plan{TTL: 15 * time.Second, Candidates: 3, Locks: 4, Mode: mode, Layout: leasehold.LayoutObject}
				for _, after := range []time.Duration{0, time.Millisecond, 40 * time.Second} {
					ctx, cancel := context.WithTimeout(t.Context(), after)
					began := time.Now()
					if m, err := Measure(ctx, net, "measured", p, 4, time.Minute); m != nil || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("after %v: %+v, %v", after, m, err)
					}
					if late := time.Since(began) - after; late > time.Second {
						t.Errorf("after %v it took %v more", after, late)
					}
					cancel()
				}
				net.Partition(true)
				if _, err := Measure(t.Context(), net, "measured", p, 4, time.Minute); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("without a store: %v", err)
				}
				net.Partition(false)
				net.Inject(faultstore.Fault{Op: "put", Kind: faultstore.Denied})
				if _, err := Measure(t.Context(), net, "measured", p, 4, time.Minute); !errors.Is(err, store.ErrDenied) {
					t.Errorf("without access: %v", err)
				}
				empty(t, st)
			})
		})
	}
}

// TestCounter: each page of a listing is a request, also one that shows nothing.
func TestCounter(t *testing.T) {
	c := &counter{Store: memstore.New(), gate: new(gate)}
	list := func() {
		for _, err := range c.List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	list()
	for i := range 1001 {
		if _, err := c.Put(t.Context(), fmt.Sprint(i), nil, store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	list()
	for _, err := range c.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if _, err := c.Get(t.Context(), "none", ""); !errors.Is(err, store.ErrNotExist) {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), "none"); err != nil {
		t.Error(err)
	}
	if got, want := c.count(), (Requests{Get: 1, Put: 1001, List: 4, Delete: 1}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
