package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// crashTTL is the TTL of leasehold's locks when their holders crash.
const crashTTL = 6 * time.Second

// crash measures how long a lock stays with a holder that is gone, when holder and follower
// may make as many requests as leasehold's do.
func crash(ctx context.Context, b *bench) error {
	p := b.near()[0]
	s := b.section("Fail-over after a crash, at equal cost")
	s.say("One holds the lock, one waits for it; then the holder is cut off from the server. First each subject runs with a TTL of %v, and its requests are counted. A subject that makes more or fewer than leasehold's election gets a TTL as much longer or shorter, so that all cost the same, and then its holder crashes. Measured from the cut until another holds the lock.", crashTTL)
	all := append([]subject{{name: "leasehold, election", open: openElection(false)}}, subjects...)
	rounds, watch := min(b.rounds, 3), 30*time.Second
	if b.short {
		rounds, watch = 1, 6*time.Second
	}
	rates := map[string]float64{}
	if err := b.eachS3(all, func(sub subject) error {
		rate, _, err := b.crashOf(ctx, sub, p, crashTTL, watch, "rate")
		b.locked(func() { rates[sub.name] = rate })
		return err
	}); err != nil {
		return err
	}
	ttls := map[string]time.Duration{}
	for _, sub := range all {
		if rate, known := rates[sub.name]; known {
			ttl := time.Duration(float64(crashTTL) * rate / rates["leasehold, election"])
			ttls[sub.name] = max(ttl.Round(10*time.Millisecond), time.Second)
		}
	}
	for round := range rounds {
		if err := b.eachS3(all, func(sub subject) error {
			_, took, err := b.crashOf(ctx, sub, p, ttls[sub.name], 2*ttls[sub.name]/3, fmt.Sprint("crash", round))
			if err != nil {
				return err
			}
			b.locked(func() { b.add("crash", p.name, sub.name, "s", round, took.Seconds()) })
			return nil
		}); err != nil {
			return err
		}
	}
	rows := [][]string{{p.name, "requests a minute, TTL " + crashTTL.String(), "TTL at equal cost", "fail-over, s"}}
	for _, sub := range all {
		over := b.of("crash", p.name, sub.name, "s")
		switch rate, known := rates[sub.name]; {
		case !known:
		case over.n == 0:
			rows = append(rows, []string{sub.name, number(rate), "–", "never: nobody takes it over"})
		default:
			rows = append(rows, []string{sub.name, number(rate), ttls[sub.name].String(), over.String()})
		}
	}
	s.table(rows)
	var chart []bar
	for _, sub := range all {
		chart = append(chart, bar{sub.name, b.of("crash", p.name, sub.name, "s")})
	}
	s.plot("crash.svg", "fail-over at equal cost", bars("From the crash of the holder until another holds the lock, at equal cost", "s", chart))
	return nil
}

// locked calls f alone.
func (b *bench) locked(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// errNever: nobody takes over.
var errNever = errors.New("nobody takes it over")

// eachS3 calls f for each subject that runs on S3, for all at once.
func (b *bench) eachS3(all []subject, f func(subject) error) error {
	var running sync.WaitGroup
	errs := make([]error, len(all))
	for i, sub := range all {
		if sub.ownServer {
			continue
		}
		running.Go(func() {
			if err := f(sub); err != nil && !errors.Is(err, errMissing) && !errors.Is(err, errNever) {
				errs[i] = fmt.Errorf("%s: %w", sub.name, err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// crashOf lets one hold and one wait for a while, tells how many requests a minute that
// took, and then cuts the holder off.
func (b *bench) crashOf(ctx context.Context, sub subject, p *place, ttl, watch time.Duration, name string) (rate float64, took time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	open := func() (candidate, *network, error) {
		way := startNetwork(b.host, p.endpoint, 0, 0)
		at := *p
		at.endpoint = way.endpoint
		c, err := sub.open(ctx, b, &at, ttl)
		return c, way, err
	}
	holder, hers, err := open()
	if err != nil {
		return 0, 0, err
	}
	defer holder.close()
	other, his, err := open()
	if err != nil {
		return 0, 0, err
	}
	defer other.close()
	if _, err = holder.acquire(ctx, name); err != nil {
		return 0, 0, err
	}
	got := make(chan error, 1)
	var release func(context.Context) error
	go func() {
		var err error
		release, err = other.acquire(ctx, name)
		got <- err
	}()
	giveUp := func() {
		cancel()
		if err := <-got; err == nil {
			_ = release(context.WithoutCancel(ctx))
		}
	}
	time.Sleep(ttl) // until the other knows the holder
	before := hers.count() + his.count()
	time.Sleep(watch)
	rate = float64(hers.count()+his.count()-before) / watch.Minutes()
	hers.cut()
	began := time.Now()
	late := 5*ttl + 20*time.Second
	if name == "rate" {
		giveUp()
		return rate, 0, nil
	}
	select {
	case err = <-got:
		took = time.Since(began)
	case <-time.After(late):
		giveUp()
		return rate, 0, errNever
	}
	if err != nil {
		return rate, 0, err
	}
	return rate, took, release(ctx)
}
