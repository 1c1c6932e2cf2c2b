package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/cost"
)

const (
	// tasks are how many want one lock at the same time, and taskFor how long each needs it on average.
	tasks   = 100
	taskFor = 20 * time.Millisecond
	// enough is when those are given up that have not had their turn.
	enough = time.Minute
	// tooLong is what takes too long to be repeated.
	tooLong = enough / 6
	// comes is how often each task wants the lock where the waits are compared.
	comes = 3

	inUse     = "in use"
	waitRatio = "longest wait over the mean"
)

// contention measures a hundred tasks that want one lock.
func contention(ctx context.Context, b *bench) error {
	p := b.near()[len(b.near())-1]
	s := b.section("A hundred tasks and one lock")
	s.say("Each task is a candidate of its own, or those of a process share one lock. All want it at the same moment, and that is the load. For how long each needs it is drawn evenly from 0 to %v, so that no protocol's first look comes just when a task is done; it is %v on average, so %v is the least that all can take. After %v those are given up that have not had their turn. Requests are counted in a round of its own, at a proxy, refused ones included, as for [hand-overs](#hand-over-after-a-release): it would share two processors with the servers that it stands before, and not with the others; their price is S3's list price of %s. Create-and-delete is the loop that people begin with: it creates a marker, or else tries again after 0.5 to 1 s, and deletes it.", 2*taskFor, taskFor, tasks*taskFor, enough, cost.ListPrices().Date)
	once, again := contest{hundred(p), tasks, 1}, contest{returning(p), tasks, comes}
	if b.short {
		once.n, again.n = 10, 10
	}
	all := slices.Concat([]subject{
		{name: tasksOfOne, processes: 1, open: openLeasehold("")},
		{name: "leasehold, tasks of ten processes", processes: 10, open: openLeasehold("")},
		{name: fairOfOne, processes: 1, open: openFair(false)},
		{name: fairWithPeers, open: openFair(true)},
	}, subjects)
	for _, sub := range all {
		if err := b.contestOf(ctx, sub, p, once, min(b.rounds, 3)); err != nil {
			return err
		}
	}
	rows := [][]string{slices.Concat([]string{once.where, "all done, s", inUse, "turns"}, sentColumns, []string{"$ for 1,000 turns"})}
	for _, sub := range all {
		of := func(metric string) spread { return b.of("contention", once.where, sub.name, metric) }
		if of("s").n > 0 {
			dollars := "–"
			if !sub.ownServer {
				dollars = fmt.Sprintf("%.4f", of("dollars").median)
			}
			rows = append(rows, slices.Concat(
				[]string{sub.name, of("s").String(), percent(of(inUse)), number(of("turns").median)},
				b.sent("contention", once.where, sub.name), []string{dollars},
			))
		}
	}
	s.table(rows)
	s.say("Who has had its turn may wait again: here each task comes back at once until it has had %d. A queue that nobody jumps makes the longest wait little longer than the mean. The mean includes the first turns, for which the queue forms, and the last, before which it becomes shorter; one that still waits at the end has waited until then. Those are left out that took longer than %v above.", comes, tooLong)
	rows = [][]string{{again.where, waitRatio, "mean wait, s", inUse, "turns"}}
	for _, sub := range all {
		took := b.of("contention", once.where, sub.name, "s")
		if took.n == 0 || took.median > tooLong.Seconds() && sub.name != fairLock && sub.name != fairWithPeers { // which is held to it
			continue
		}
		if err := b.contestOf(ctx, sub, p, again, min(b.rounds, 3)); err != nil {
			return err
		}
		of := func(metric string) spread { return b.of("contention", again.where, sub.name, metric) }
		rows = append(rows, []string{sub.name, of(waitRatio).String(), of("mean wait s").String(), percent(of(inUse)), number(of("turns").median)})
	}
	s.table(rows)
	return nil
}

// hundred names the place of it, and returning that of tasks that come back.
func hundred(p *place) string { return fmt.Sprintf("%d tasks, %s", tasks, p.name) }

func returning(p *place) string {
	return fmt.Sprintf("%d tasks, %d turns each, %s", tasks, comes, p.name)
}

func percent(s spread) string { return fmt.Sprintf("%.0f %%", s.median*100) }

// A contest is of so many tasks, each of which wants the lock so often.
type contest struct {
	where    string
	n, comes int
}

// contestOf has a subject play it, less often where it takes long, and once more while its requests are counted.
func (b *bench) contestOf(ctx context.Context, sub subject, p *place, t contest, rounds int) error {
	for round := range rounds {
		took, u, err := b.contend(ctx, sub, p, t, round)
		if errors.Is(err, errMissing) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", sub.name, err)
		}
		add := func(metric string, value float64) { b.add("contention", t.where, sub.name, metric, round, value) }
		add("s", took.Seconds())
		add(inUse, u.used.Seconds()/took.Seconds())
		add("turns", float64(u.turns))
		add("mean wait s", mean(u.waits))
		add(waitRatio, slices.Max(u.waits)/mean(u.waits))
		if took > tooLong && t.comes == 1 {
			break // it does not become another by being repeated
		}
	}
	if sub.ownServer || t.comes > 1 {
		return nil
	}
	prices, err := cost.ListPrices().Store("s3")
	if err != nil {
		return err
	}
	counted := *p
	counted.endpoint = p.counted.endpoint
	before := p.counted.traffic()
	_, u, err := b.contend(ctx, sub, &counted, t, rounds)
	if err != nil {
		return fmt.Errorf("%s, counted: %w", sub.name, err)
	}
	sent := p.counted.traffic().per(float64(max(u.turns, 1)), before)
	b.addSent("contention", t.where, sub.name, 0, sent)
	b.add("contention", t.where, sub.name, "dollars", 0, 1000*prices.Of(sent.all()))
	return nil
}

// contend has a subject play it once at a place.
func (b *bench) contend(ctx context.Context, sub subject, p *place, t contest, round int) (time.Duration, *use, error) {
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	if sub.ownServer {
		p = nil
	}
	var all []candidate
	defer func() {
		for _, c := range all {
			c.close()
		}
	}()
	for range t.n {
		c, err := sub.open(ctx, b, p, defaultTTL)
		if err != nil {
			return 0, nil, err
		}
		if all = append(all, c); len(all) == sub.processes {
			break
		}
	}
	u := &use{name: fmt.Sprintf("contended-%d-%d", t.comes, round)}
	needs := draw(b.chance("contention", t.comes, round), t.n*t.comes, 2*taskFor) // the same for all subjects
	began := time.Now()
	var tasks sync.WaitGroup
	for i := range t.n {
		tasks.Go(func() {
			for _, need := range needs[i*t.comes:][:t.comes] {
				if !u.turn(ctx, all[i%len(all)], need) {
					return
				}
			}
		})
	}
	tasks.Wait()
	return time.Since(began), u, u.failure
}

// A use is that of one lock by many tasks.
type use struct {
	name string

	mu      sync.Mutex
	inside  int
	turns   int
	used    time.Duration
	waits   []float64 // s
	failure error
}

// turn has one task use the lock once, for so long. It reports whether the task may go on.
func (u *use) turn(ctx context.Context, c candidate, need time.Duration) bool {
	came := time.Now()
	release, err := c.acquire(ctx, u.name)
	start := time.Now()
	u.mu.Lock()
	u.waits = append(u.waits, start.Sub(came).Seconds())
	if err != nil {
		if ctx.Err() == nil {
			u.failure = errors.Join(u.failure, err)
		}
		u.mu.Unlock()
		return false
	}
	if u.inside++; u.inside > 1 {
		u.failure = errors.New("two held the lock at once")
	}
	u.turns++
	u.mu.Unlock()
	time.Sleep(need)
	u.mu.Lock()
	u.inside--
	u.used += time.Since(start)
	u.mu.Unlock()
	err = release(context.WithoutCancel(ctx))
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failure = errors.Join(u.failure, err)
	return u.failure == nil
}
