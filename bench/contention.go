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

// tasks are how many want one lock at the same time, and taskFor how long each needs it.
const (
	tasks   = 100
	taskFor = 20 * time.Millisecond
	// enough is when those are given up that have not had their turn.
	enough = time.Minute
)

// contention measures a hundred tasks that want one lock.
func contention(ctx context.Context, b *bench) error {
	p := b.near()[len(b.near())-1]
	s := b.section("A hundred tasks and one lock")
	s.say("Each task is a candidate of its own, or those of a process share one lock, and needs the lock for %v, so %v is the least that all can take. After %v those are given up that have not had their turn. Requests are counted at a proxy, refused ones included; their price is S3's list price of %s. Create-and-delete is the loop that people begin with: it creates a marker, or else tries again after 0.5 to 1 s, and deletes it.", taskFor, tasks*taskFor, enough, cost.ListPrices().Date)
	where := hundred(p)
	n := tasks
	if b.short {
		n = 10
	}
	rows := [][]string{{where, "all done, s", "in use", "turns", "requests for each turn", "$ for 1,000 turns"}}
	shared := []subject{
		{name: "leasehold, tasks of one process", processes: 1, open: openLeasehold("")},
		{name: "leasehold, tasks of ten processes", processes: 10, open: openLeasehold("")},
	}
	for _, sub := range slices.Concat(shared, subjects) {
		for round := range min(b.rounds, 3) {
			err := b.contend(ctx, sub, p, where, n, round)
			if errors.Is(err, errMissing) {
				break
			}
			if err != nil {
				return fmt.Errorf("%s: %w", sub.name, err)
			}
			if b.of("contention", where, sub.name, "s").most > enough.Seconds()/3 {
				break // it does not become another by being repeated
			}
		}
		of := func(metric string) spread { return b.of("contention", where, sub.name, metric) }
		if of("s").n == 0 {
			continue
		}
		requests, dollars := "–", "–"
		if !sub.ownServer {
			requests, dollars = of("requests").String(), fmt.Sprintf("%.4f", of("dollars").median)
		}
		rows = append(rows, []string{sub.name, of("s").String(), fmt.Sprintf("%.0f %%", of("in use").median*100), number(of("turns").median), requests, dollars})
	}
	s.table(rows)
	return nil
}

// hundred names the place of it.
func hundred(p *place) string { return fmt.Sprintf("%d tasks, %s", tasks, p.name) }

func (b *bench) contend(ctx context.Context, sub subject, p *place, where string, n, round int) error {
	prices, err := cost.ListPrices().Store("s3")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	counted := *p
	counted.endpoint = p.counted.endpoint
	one := &counted
	if sub.ownServer {
		one = nil
	}
	var all []candidate
	defer func() {
		for _, c := range all {
			c.close()
		}
	}()
	for range n {
		c, err := sub.open(ctx, b, one, defaultTTL)
		if err != nil {
			return err
		}
		if all = append(all, c); len(all) == sub.processes {
			break
		}
	}
	name := fmt.Sprintf("contended-%d", round)
	before, kinds, began := p.counted.count(), p.counted.kinds(), time.Now()
	var mu sync.Mutex
	var inside, turns int
	var used time.Duration
	var failure error
	var tasks sync.WaitGroup
	for i := range n {
		c := all[i%len(all)]
		tasks.Go(func() {
			release, err := c.acquire(ctx, name)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				if ctx.Err() == nil {
					failure = errors.Join(failure, err)
				}
				return
			}
			mu.Lock()
			inside++
			if inside > 1 {
				failure = errors.New("two held the lock at once")
			}
			turns++
			mu.Unlock()
			start := time.Now()
			time.Sleep(taskFor)
			mu.Lock()
			inside--
			used += time.Since(start)
			mu.Unlock()
			if err := release(context.WithoutCancel(ctx)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failure = errors.Join(failure, err)
			}
		})
	}
	tasks.Wait()
	if failure != nil {
		return failure
	}
	took := time.Since(began)
	b.add("contention", where, sub.name, "s", round, took.Seconds())
	b.add("contention", where, sub.name, "in use", round, used.Seconds()/took.Seconds())
	b.add("contention", where, sub.name, "turns", round, float64(turns))
	b.add("contention", where, sub.name, "requests", round, float64(p.counted.count()-before)/float64(max(turns, 1)))
	b.add("contention", where, sub.name, "dollars", round, prices.Of(p.counted.kinds().Plus(kinds.Times(-1)))/float64(max(turns, 1))*1000)
	return nil
}
