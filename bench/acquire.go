package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// cycle acquires and releases a lock that nobody else wants.
func (e *entrant) cycle(ctx context.Context, name string) error {
	release, err := e.acquire(ctx, name)
	if err != nil {
		return err
	}
	return release(ctx)
}

// acquireRelease measures an uncontended lock.
func acquireRelease(ctx context.Context, b *bench) error {
	s := b.section("Acquire and release, nobody else wants it")
	s.say("A lock that the candidate has held before, acquired and released. \"Over two PUTs\" is the ratio to two PUTs with If-Match by the bare SDK in the same round. Requests are counted at a proxy. One server stands for all here and in the next section: the others make the same requests, at the times of [the floor](#the-floor-single-requests).")
	for _, p := range append([]*place{nil}, b.places...) {
		if err := b.acquireAt(ctx, s, p); err != nil {
			return err
		}
	}
	last := b.near()[len(b.near())-1]
	chart := func(p *place) (all []bar) {
		for _, sub := range subjects {
			where := p.name
			if sub.ownServer {
				where = own
			}
			ms := b.of("acquire", where, sub.name, "p50 µs")
			all = append(all, bar{sub.name, spread{ms.median / 1000, ms.least / 1000, ms.most / 1000, ms.n}})
		}
		return all
	}
	s.plot("acquire.svg", "acquire and release on "+last.name, bars("Acquire and release, p50; S3 is "+last.name+", others have their own servers here", "ms", chart(last)))
	far := b.far()[len(b.far())-1]
	s.plot("acquire-far.svg", "acquire and release on "+far.name, bars("Acquire and release, p50; S3 is "+far.name+", others have their own servers here", "ms", chart(far)))
	return nil
}

func (b *bench) acquireAt(ctx context.Context, s *section, p *place) error {
	entrants, err := b.enter(ctx, p, defaultTTL)
	if err != nil {
		return err
	}
	defer leave(entrants)
	cycles := map[string]func() error{}
	var names []string
	for _, e := range entrants {
		names = append(names, e.name)
		cycles[e.name] = func() error { return e.cycle(ctx, "free") }
	}
	if p != nil {
		f, err := openFloor(ctx, p, "floor-two")
		if err != nil {
			return err
		}
		names = append(names, rawTwo)
		cycles[rawTwo] = f.two
	}
	where := own
	if p != nil {
		where = p.name
	}
	for _, name := range names { // until each knows its lock and has its connections
		if _, err := measure(2, cycles[name]); err != nil {
			return fmt.Errorf("%s, %s: %w", where, name, err)
		}
	}
	for round := range b.roundsAt(p) {
		err := turns(names, func(name string) error {
			t, err := measure(b.operations(p), cycles[name])
			if err != nil {
				return fmt.Errorf("%s, %s: %w", where, name, err)
			}
			b.addTiming("acquire", where, name, round, t)
			return nil
		})
		if err != nil {
			return err
		}
	}
	requests, err := b.countRequests(ctx, p, defaultTTL, func(e *entrant) error { return e.cycle(ctx, "counted") })
	if err != nil {
		return err
	}
	requests[rawTwo] = "2"
	head := []string{where, "p50 ms", "p99 ms", "over two PUTs", "allocations", "requests"}
	rows := [][]string{head}
	for _, name := range names {
		p99 := b.of("acquire", where, name, "p99 µs")
		rows = append(rows, []string{
			name, b.ms("acquire", where, name), number(p99.median / 1000), b.ratio("acquire", where, "p50 µs", name, rawTwo).String(),
			number(b.of("acquire", where, name, "allocations").median), requests[name],
		})
	}
	if b.stands(p) {
		s.table(rows)
	}
	return nil
}

// countRequests runs an operation of each some times through a proxy that counts.
func (b *bench) countRequests(ctx context.Context, p *place, ttl time.Duration, operation func(*entrant) error) (map[string]string, error) {
	requests := map[string]string{}
	if p == nil {
		return requests, nil
	}
	counted := *p
	counted.endpoint = p.counted.endpoint
	entrants, err := b.enter(ctx, &counted, ttl)
	if err != nil {
		return nil, err
	}
	defer leave(entrants)
	const times = 10
	for _, e := range entrants {
		if err := operation(e); err != nil {
			return nil, err
		}
		before := p.counted.count()
		for range times {
			if err := operation(e); err != nil {
				return nil, err
			}
		}
		requests[e.name] = number(float64(p.counted.count()-before) / times)
	}
	return requests, nil
}

// tryHeld measures how long it takes to learn that another holds a lock.
func tryHeld(ctx context.Context, b *bench) error {
	s := b.section("Try a lock that another holds")
	s.say("How long it takes to be told so.")
	for _, p := range append([]*place{nil}, b.places...) {
		if err := b.heldAt(ctx, s, p); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) heldAt(ctx context.Context, s *section, p *place) error {
	holders, err := b.enter(ctx, p, 10*defaultTTL)
	if err != nil {
		return err
	}
	defer leave(holders)
	others, err := b.enter(ctx, p, 10*defaultTTL)
	if err != nil || len(others) == 0 {
		return err
	}
	defer leave(others)
	for _, h := range holders {
		release, err := h.acquire(ctx, "held")
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		defer func() { _ = release(ctx) }()
	}
	for round := range b.roundsAt(p) {
		err := turns(others, func(e *entrant) error {
			t, err := measure(b.operations(p), func() error { return e.refused(ctx, "held") })
			if err != nil {
				return fmt.Errorf("%s, %s: %w", e.place, e.name, err)
			}
			b.addTiming("held", e.place, e.name, round, t)
			return nil
		})
		if err != nil {
			return err
		}
	}
	requests, err := b.countRequests(ctx, p, 10*defaultTTL, func(e *entrant) error { return e.refused(ctx, "held") })
	if err != nil {
		return err
	}
	where := others[0].place
	rows := [][]string{{where, "p50 ms", "p99 ms", "allocations", "requests"}}
	for _, e := range others {
		rows = append(rows, []string{
			e.name, b.ms("held", where, e.name), number(b.of("held", where, e.name, "p99 µs").median / 1000),
			number(b.of("held", where, e.name, "allocations").median), requests[e.name],
		})
	}
	if b.stands(p) {
		s.table(rows)
	}
	return nil
}

// refused tries a lock that is held.
func (e *entrant) refused(ctx context.Context, name string) error {
	release, err := e.try(ctx, name)
	if err == nil {
		return errors.Join(errors.New("it was acquired, and another holds it"), release(ctx))
	}
	if errors.Is(err, errHeld) {
		return nil
	}
	return err
}
