package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// waiters are those that want a lock while another holds it.
var waiters = []int{2, 10, 100}

// holdFor is how long each holder keeps the lock, so that the others have settled to wait.
const holdFor = 6 * time.Second

// handover measures how long a lock is idle when its holder releases it, and what that and
// the waiting cost in requests.
func handover(ctx context.Context, b *bench) error {
	s := b.section("Hand-over after a release")
	s.say("So many wait; the holder keeps the lock for %v, and releases it; the time until another holds it is idle. Requests are those of all, from one hand-over to the next; beyond one release and one acquisition they are the price of waiting. All subjects run at once, except those with peers, which run after them, alone, because their hand-overs are the quickest. \"Over one PUT\" is the ratio to one PUT with If-Match by the bare SDK in the same round.", holdFor)
	near, far := b.near()[len(b.near())-1], b.far()[len(b.far())-1]
	for _, n := range waiters {
		if b.short && n > 2 {
			continue
		}
		if err := b.handoverAmong(ctx, s, near, n); err != nil {
			return err
		}
	}
	return b.handoverAmong(ctx, s, far, waiters[0])
}

// among names the place of a hand-over.
func among(n int, p *place) string { return fmt.Sprintf("%d waiters, %s", n, p.name) }

func (b *bench) handoverAmong(ctx context.Context, s *section, p *place, n int) error {
	together := append([]subject{{name: "leasehold, election", open: openElection(false)}}, subjects...)
	alone := []subject{{name: "leasehold, election with peers", open: openElection(true)}}
	where := among(n, p)
	rounds := min(b.rounds, 5)
	for _, group := range [][]subject{together, alone} {
		var all sync.WaitGroup
		var failure error
		for _, sub := range group {
			all.Go(func() {
				err := b.handoversOf(ctx, sub, p, where, n, rounds)
				b.mu.Lock()
				defer b.mu.Unlock()
				if errors.Is(err, errMissing) {
					return
				}
				failure = errors.Join(failure, err)
			})
		}
		all.Wait()
		if failure != nil {
			return failure
		}
	}
	rows := [][]string{{where, "idle ms", "over one PUT", "requests for each"}}
	for _, sub := range append(together, alone...) {
		idle := b.of("handover", where, sub.name, "idle ms")
		if idle.n == 0 {
			continue
		}
		ratio := b.of("handover", where, sub.name, "over one PUT")
		requests := "–"
		if !sub.ownServer {
			requests = b.of("handover", where, sub.name, "requests").String()
		}
		rows = append(rows, []string{sub.name, idle.String(), ratio.String(), requests})
	}
	s.table(rows)
	var chart []bar
	for _, sub := range append(together, alone...) {
		chart = append(chart, bar{sub.name, b.of("handover", where, sub.name, "idle ms")})
	}
	file := fmt.Sprintf("handover-%d.svg", n)
	if p.delayed {
		file = fmt.Sprintf("handover-%d-far.svg", n)
	}
	s.plot(file, "hand-over among "+where, bars("Idle after a release, "+where, "ms", chart))
	return nil
}

// A turn is that of one candidate to hold the lock.
type turn struct {
	by      candidate
	release func(context.Context) error
	at      time.Time
	err     error
}

// handoversOf plays the hand-overs of one subject.
func (b *bench) handoversOf(ctx context.Context, sub subject, p *place, where string, n, rounds int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	counted := *p // each subject has a way of its own, which counts
	var way *network
	if !sub.ownServer {
		way = startNetwork(b.host, p.endpoint, 0, 0)
		counted.endpoint = way.endpoint
	}
	one := &counted
	if sub.ownServer {
		one = nil
	}
	name := fmt.Sprintf("handover-%d", n)
	got := make(chan turn, n+1)
	want := func(c candidate) {
		go func() {
			release, err := c.acquire(ctx, name)
			got <- turn{c, release, time.Now(), err}
		}()
	}
	var all []candidate
	defer func() {
		cancel()
		for _, c := range all {
			c.close()
		}
	}()
	for range n + 1 {
		c, err := sub.open(ctx, b, one, defaultTTL)
		if err != nil {
			return err
		}
		all = append(all, c)
		want(c)
	}
	f, err := openFloor(ctx, &counted, "handover-floor-"+fmt.Sprint(n)+sub.name)
	if err != nil {
		return err
	}
	holder := <-got
	if holder.err != nil {
		return fmt.Errorf("%s: %w", sub.name, holder.err)
	}
	count := func() float64 {
		if way == nil {
			return 0
		}
		return float64(way.count())
	}
	for round := range rounds {
		before := count()
		time.Sleep(holdFor)
		put, err := measure(3, f.ifMatch)
		if err != nil {
			return err
		}
		began := time.Now()
		released := make(chan error, 1)
		go func() { released <- holder.release(ctx) }()
		var next turn
		select {
		case next = <-got:
		case <-time.After(2 * time.Minute):
			return fmt.Errorf("%s: nobody has the lock two minutes after its release", sub.name)
		}
		if next.err != nil {
			return fmt.Errorf("%s: %w", sub.name, next.err)
		}
		if err := <-released; err != nil {
			return fmt.Errorf("%s: %w", sub.name, err)
		}
		want(holder.by)
		idle := float64(next.at.Sub(began).Microseconds()) / 1000
		requests := count() - before - 3 // less those of the floor
		b.locked(func() {
			b.add("handover", where, sub.name, "idle ms", round, idle)
			b.add("handover", where, sub.name, "over one PUT", round, idle*1000/put.p50)
			b.add("handover", where, sub.name, "requests", round, requests)
		})
		holder = next
	}
	return holder.release(ctx)
}
