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

// overhead measures what leasehold itself does for an operation: its store answers at once.
func overhead(ctx context.Context, b *bench) error {
	st := &null{}
	lock, err := leasehold.NewLock(st, "lock", nil)
	if err != nil {
		return err
	}
	session, err := leasehold.NewSession(ctx, st, nil)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close(ctx) }()
	cycle := func(opts ...leasehold.AcquireOption) func() error {
		return func() error {
			lease, err := lock.Acquire(ctx, opts...)
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		}
	}
	store := func() error {
		for range 2 {
			if _, err := st.Put(ctx, "lock", nil, store.IfAbsent()); err != nil {
				return err
			}
		}
		return nil
	}
	type one struct {
		name string
		f    func() error
	}
	all := []one{{"acquire and release", cycle()}, {"the same under a session", cycle(leasehold.WithSession(session))}, {"the store alone", store}}
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
	return nil
}
