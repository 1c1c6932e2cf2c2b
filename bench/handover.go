package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// waiters are those that want a lock while another holds it.
var waiters = []int{2, 10, 100}

// releases are how many of them each figure is of.
const releases = 24

// holdFor is how long each holder keeps the lock at least, so that the others have settled to wait: with a time that is
// drawn, up to an interval of looks, that is 6 s on average, for which the goals are stated.
const holdFor = 3500 * time.Millisecond

// looks is the interval at which most subjects look at a lock that is held.
const looks = defaultTTL / 3

// A line is so many that wait for one lock, somewhere.
type line struct {
	n int
	p *place
}

// String names it as a place.
func (l line) String() string { return fmt.Sprintf("%d waiters, %s", l.n, l.p.name) }

// lines are those whose hand-overs are measured. Those of one element are measured at once: the short
// ones hardly load the machine, and of those behind a delay a little load does not show.
func (b *bench) lines() [][]line {
	near, far := b.near()[len(b.near())-1], b.far()[len(b.far())-1]
	light := []line{{waiters[0], near}, {waiters[1], near}, {waiters[0], far}, {waiters[2], far}}
	if b.short {
		return [][]line{{light[0], light[2]}}
	}
	return [][]line{light, {{waiters[2], near}}}
}

// handover measures how long a lock is idle when its holder releases it, and what that and
// the waiting cost in requests.
func handover(ctx context.Context, b *bench) error {
	rounds := releases
	if b.short {
		rounds = 2
	}
	s := b.section("Hand-over after a release")
	s.say("So many wait; the holder keeps the lock for %v to %v, 6 s on average, releases it, and waits again; the time until another holds it is idle. It depends on when the waiters look next, so the moment of each of %d releases is drawn evenly over an interval of looks (a third of the TTL of %v). Drawn as well are the moments when the waiters come and, where requests are delayed, the delay with which a hand-over begins. While they come the lock changes hands as often, and that is not counted. All subjects run at once, except those with peers, which run after them, alone, because their hand-overs are the quickest. Behind the delay are those on S3: the servers of the others are as near as before. \"Over one PUT\" is the ratio to one PUT with If-Match by the bare SDK in the same round.", holdFor, holdFor+looks, rounds, defaultTTL)
	s.say("Requests are those of all, from one hand-over to the next; beyond one release and one acquisition they are the price of waiting. Those for the lock are for its own object, renewals of a holder without a session included. Each candidate is a process of its own, so under sessions each has one, and writes its heartbeat every third of the TTL, by which a process keeps however many locks it has.")
	together := append([]subject{{name: "leasehold, election", open: openElection(false)}}, subjects...)
	alone := []subject{{name: withPeers, open: openElection(true)}, {name: fairWithPeers, open: openFair(true)}}
	for _, at := range b.lines() {
		if err := b.handovers(ctx, together, at, rounds); err != nil {
			return err
		}
	}
	all := slices.Concat(b.lines()...)
	if err := b.handovers(ctx, alone, all, rounds); err != nil {
		return err
	}
	slices.SortFunc(all, func(l, m line) int { return cmp.Or(strings.Compare(l.p.name, m.p.name), l.n-m.n) })
	for _, l := range all {
		b.showHandovers(s, l, append(together, alone...))
	}
	return nil
}

// withPeers is the subject whose hand-overs are the quickest.
const withPeers = "leasehold, election with peers"

// handovers plays those of these subjects in these lines, all at once.
func (b *bench) handovers(ctx context.Context, all []subject, lines []line, rounds int) error {
	var running sync.WaitGroup
	var failure error
	for _, l := range lines {
		for _, sub := range all {
			if sub.ownServer && l.p.delayed {
				continue // its server is as near as before
			}
			running.Go(func() {
				err := b.handoversOf(ctx, sub, l, rounds)
				b.locked(func() {
					switch done := b.of("handover", l.String(), sub.name, "idle ms").n; {
					case err == nil || errors.Is(err, errMissing):
					case done > 0 && ctx.Err() == nil: // on a machine that is too busy it may lose the lock
						b.note("%s among %s: %d of %d hand-overs: %v", sub.name, l, done, rounds, err)
					default:
						failure = errors.Join(failure, fmt.Errorf("%s among %s: %w", sub.name, l, err))
					}
				})
			})
		}
	}
	running.Wait()
	return failure
}

func (b *bench) showHandovers(s *section, l line, all []subject) {
	where := l.String()
	rows := [][]string{slices.Concat([]string{where, "idle ms", "over one PUT"}, sentColumns)}
	var chart []bar
	for _, sub := range all {
		idle := b.of("handover", where, sub.name, "idle ms")
		chart = append(chart, bar{sub.name, idle})
		if idle.n > 0 {
			ratio := b.of("handover", where, sub.name, "over one PUT")
			rows = append(rows, slices.Concat([]string{sub.name, idle.String(), ratio.String()}, b.sent("handover", where, sub.name)))
		}
	}
	s.table(rows)
	file := fmt.Sprintf("handover-%d.svg", l.n)
	if l.p.delayed {
		file = fmt.Sprintf("handover-%d-far.svg", l.n)
	}
	s.plot(file, "hand-over among "+where, bars("Idle after a release, "+where, "ms", chart))
}

// A turn is that of one candidate to hold the lock.
type turn struct {
	by      candidate
	release func(context.Context) error
	at      time.Time
	err     error
}

// handoversOf plays the hand-overs of one subject in one line.
func (b *bench) handoversOf(ctx context.Context, sub subject, l line, rounds int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	where, n := l.String(), l.n
	rng := b.chance("handover", where, sub.name)
	come := looks
	if l.p.delayed { // each has time for two requests, since those of some protocols follow each other
		come = max(come, time.Duration(2*n)*mostLatency)
	}
	early := 1 + int(come/(holdFor+looks/2)) // hand-overs until all wait
	arrive, hold, delays := draw(rng, n, come), draw(rng, early+rounds, looks), draw(rng, early+rounds, latencies)
	way := l.p.way(b.host) // each subject has a way of its own, which counts
	counted := *l.p
	counted.endpoint = way.endpoint
	one := &counted
	if sub.ownServer {
		one = nil
	}
	name := fmt.Sprintf("handover-%d", n)
	got := make(chan turn, n+1)
	want := func(c candidate, later time.Duration) {
		go func() {
			time.Sleep(later)
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
	}
	f, err := openFloor(ctx, &counted, "handover-floor-"+fmt.Sprint(n)+sub.name)
	if err != nil {
		return err
	}
	want(all[0], 0)
	holder := <-got
	if holder.err != nil {
		return holder.err
	}
	for i, c := range all[1:] {
		want(c, arrive[i])
	}
	for i := range early + rounds {
		before := way.traffic()
		time.Sleep(holdFor + hold[i])
		put, err := measure(3, f.ifMatch)
		if err != nil {
			return err
		}
		before.locks.Put += 3 // those of the floor
		way.from(delays[i])
		began := time.Now()
		released := make(chan error, 1)
		go func() { released <- holder.release(ctx) }()
		var next turn
		select {
		case next = <-got:
		case <-time.After(2 * time.Minute):
			return errors.New("nobody has the lock two minutes after its release")
		}
		if next.err != nil {
			return next.err
		}
		if err := <-released; err != nil {
			return err
		}
		want(holder.by, 0)
		idle := float64(next.at.Sub(began).Microseconds()) / 1000
		sent := way.traffic().per(1, before)
		holder = next
		round := i - early
		if round < 0 {
			continue
		}
		b.locked(func() {
			b.add("handover", where, sub.name, "idle ms", round, idle)
			b.add("handover", where, sub.name, "over one PUT", round, idle*1000/put.p50)
			if !sub.ownServer {
				b.addSent("handover", where, sub.name, round, sent)
			}
		})
	}
	return holder.release(ctx)
}
