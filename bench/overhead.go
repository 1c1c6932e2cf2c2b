package main

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// null is a store that takes every write for a success and keeps nothing.
type null struct{ writes atomic.Int64 }

func (n *null) Put(context.Context, string, []byte, store.Condition) (*store.Object, error) {
	return &store.Object{Version: store.Version(fmt.Sprint(n.writes.Add(1)))}, nil
}

func (n *null) Get(_ context.Context, key string, _ store.Version) (*store.Object, error) {
	return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
}

func (n *null) Delete(context.Context, string) error { return nil }

func (n *null) List(context.Context, string, string) iter.Seq2[store.Entry, error] {
	return func(func(store.Entry, error) bool) {}
}

func (n *null) String() string { return "null://" }

// An overheads has what leasehold itself does for an operation: its store answers at once.
type overheads struct {
	ctx     context.Context
	st      *null
	lock    *leasehold.Lock
	under   *leasehold.Lock // the same under a session
	session *leasehold.Session
}

func newOverhead(ctx context.Context) (*overheads, error) {
	o := &overheads{ctx: ctx, st: &null{}}
	var err error
	if o.lock, err = leasehold.NewLock(o.st, "lock", nil); err != nil {
		return nil, err
	}
	if o.session, err = leasehold.NewSession(ctx, o.st, nil); err != nil {
		return nil, err
	}
	o.under, err = leasehold.NewLock(o.st, "lock", &leasehold.LockOptions{Session: o.session})
	return o, err
}

// cycle acquires and releases the lock.
func (o *overheads) cycle() func() error { return o.cycleOf(o.lock) }

func (o *overheads) cycleOf(l *leasehold.Lock) func() error {
	return func() error {
		lease, err := l.Acquire(o.ctx)
		if err != nil {
			return err
		}
		return lease.Release(o.ctx)
	}
}

func (o *overheads) underSession() func() error { return o.cycleOf(o.under) }

// alone does what the store has to do for that.
func (o *overheads) alone() error {
	for range 2 {
		if _, err := o.st.Put(o.ctx, "lock", nil, store.IfAbsent()); err != nil {
			return err
		}
	}
	return nil
}

// The measured parts of it.
const (
	ownCycle = "acquire and release"
	ownStore = "the store alone"
)

// overhead measures it.
func overhead(ctx context.Context, b *bench) error {
	o, err := newOverhead(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = o.session.Close(ctx) }()
	type one struct {
		name string
		f    func() error
	}
	all := []one{{ownCycle, o.cycle()}, {"the same under a session", o.underSession()}, {ownStore, o.alone}}
	n := 20_000
	if b.short {
		n = 100
	}
	for round := range b.rounds {
		err := turns(all, func(x one) error {
			t, err := measure(n, x.f)
			b.addTiming("overhead", "null", x.name, round, t)
			return err
		})
		if err != nil {
			return err
		}
	}
	s := b.section("What leasehold itself does")
	s.say("Two operations (an acquisition and a release) on a store that answers at once, so that nothing is left but leasehold: its part of each is half of this.")
	rows := [][]string{{"", "p50 µs", "allocations"}}
	for _, x := range all {
		rows = append(rows, []string{x.name, b.of("overhead", "null", x.name, "p50 µs").String(), number(b.of("overhead", "null", x.name, "allocations").median)})
	}
	s.table(rows)
	s.say("A renewal, likewise, over a week of virtual time at the default TTL. Under a session one renewal is that of all its leases.")
	rows = [][]string{{"leases", "CPU for a renewal, µs", "allocations"}}
	for _, n := range []int{1, 100, b.most(10_000)} {
		told, err := b.play(ctx, "TestVirtualRenewals", "-leases", fmt.Sprint(n))
		if err != nil {
			return err
		}
		v := told[0]
		name := thousands(n) + ", one session"
		if n == 1 {
			name = "1"
		}
		b.add("overhead", "virtual time", "renewal of "+name, "CPU µs", 0, v.Micros)
		b.add("overhead", "virtual time", "renewal of "+name, "allocations", 0, v.Allocations)
		rows = append(rows, []string{name, number(v.Micros), number(v.Allocations)})
	}
	s.table(rows)
	return nil
}
