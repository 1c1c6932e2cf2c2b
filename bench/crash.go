package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// crashTTL is the TTL of leasehold's locks when their holders crash.
	crashTTL = 6 * time.Second
	// crashes are how many holders of each subject crash.
	crashes = 48
)

// crash measures how long a lock stays with a holder that is gone, when holder and follower
// may make as many requests as leasehold's do.
func crash(ctx context.Context, b *bench) error {
	p := b.near()[0]
	n, watch := crashes, 30*time.Second
	if b.short {
		n, watch = 2, 6*time.Second
	}
	s := b.section("Fail-over after a crash, at equal cost")
	s.say("One holds the lock, one waits for it; then the holder is cut off from the server. First each subject runs with a TTL of %v, and its requests are counted for %v. A subject that makes more or fewer than leasehold's election gets a TTL as much longer or shorter, so that all cost the same, and then its holder crashes. Measured from the cut until another holds the lock.", crashTTL, watch)
	s.say("Each subject has %d locks side by side, each with networks of its own. Holders renew every third of the TTL, and a fail-over takes as much longer as the cut comes sooner after a renewal. So three times of each lock are drawn evenly over such an interval: when the holder comes, how much later the waiter comes, and when, two TTLs after the holder, the count begins or the cut comes. Of the %[1]d times of a kind there is one in each of as many equal parts of the interval. A fail-over is the median of the %[1]d cuts, with the least and the most in brackets; requests are a mean.", n)
	all := append([]subject{{name: "leasehold, election", open: openElection(false)}}, subjects...)
	if err := b.eachS3(all, func(sub subject) error {
		return b.sideBySide(ctx, sub, p, crashTTL, n, "rate", func(i int, w *pair, _ time.Duration) error {
			before := w.count()
			time.Sleep(watch)
			if rate := float64(w.count()-before) / watch.Minutes(); len(w.next) == 0 { // the holder still holds it
				b.locked(func() { b.add("crash", p.name, sub.name, "requests a minute", i, rate) })
			}
			return nil
		})
	}); err != nil {
		return err
	}
	rates, ttls := map[string]float64{}, map[string]time.Duration{}
	for _, sub := range all {
		if counted := b.values("crash", p.name, sub.name, "requests a minute"); len(counted) > 0 {
			rates[sub.name] = mean(slices.Collect(maps.Values(counted)))
			ttl := time.Duration(float64(crashTTL) * rates[sub.name] / rates[all[0].name])
			ttls[sub.name] = max(ttl.Round(10*time.Millisecond), time.Second)
		}
	}
	if err := b.eachS3(all, func(sub subject) error {
		ttl := ttls[sub.name]
		return b.sideBySide(ctx, sub, p, ttl, n, "crash", func(i int, w *pair, at time.Duration) error {
			w.holders.cut()
			cut := time.Now()
			select {
			case next := <-w.next:
				w.next <- next
				if next.err != nil {
					return next.err
				}
				if took := next.at.Sub(cut); took > 0 {
					b.locked(func() {
						b.add("crash", p.name, sub.name, "cut at s", i, at.Seconds())
						b.add("crash", p.name, sub.name, "s", i, took.Seconds())
					})
				}
			case <-time.After(5*ttl + 20*time.Second): // nobody takes it over
			}
			return nil
		})
	}); err != nil {
		return err
	}
	rows := [][]string{{p.name, "requests a minute, TTL " + crashTTL.String(), "TTL at equal cost", "fail-over, s"}}
	for _, sub := range all {
		over := b.of("crash", p.name, sub.name, "s")
		if 0 < over.n && over.n < n {
			b.note("%s: %d of %d fail-overs, since nobody took the lock over or its holder had lost it before the cut", sub.name, n-over.n, n)
		}
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

// eachS3 calls f for each subject that runs on S3, for all at once.
func (b *bench) eachS3(all []subject, f func(subject) error) error {
	var running sync.WaitGroup
	errs := make([]error, len(all))
	for i, sub := range all {
		if sub.ownServer {
			continue
		}
		running.Go(func() {
			if err := f(sub); err != nil && !errors.Is(err, errMissing) {
				errs[i] = fmt.Errorf("%s: %w", sub.name, err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// A pair is one that holds a lock and one that waits for it.
type pair struct {
	holders, waiters *network
	next             chan turn // the waiter's, when it has the lock or has given up
}

// count is how many requests both have sent.
func (w *pair) count() int { return w.holders.count() + w.waiters.count() }

// sideBySide has n pairs of a subject at once. For each it calls f when both have settled, at a
// time that is drawn evenly over one interval of renewals.
func (b *bench) sideBySide(ctx context.Context, sub subject, p *place, ttl time.Duration, n int, what string, f func(i int, w *pair, at time.Duration) error) error {
	rng := b.chance("crash", sub.name, what)
	first, second, act := draw(rng, n, ttl/3), draw(rng, n, ttl/3), draw(rng, n, ttl/3)
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() {
			time.Sleep(first[i])
			errs[i] = b.withPair(ctx, sub, p, ttl, fmt.Sprint(what, i), second[i], func(w *pair, held time.Time) error {
				time.Sleep(time.Until(held.Add(2*ttl + act[i])))
				return f(i, w, act[i])
			})
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// withPair calls f while one holds the lock of that name, and says since when, and another waits
// for it that has come so much later.
func (b *bench) withPair(ctx context.Context, sub subject, p *place, ttl time.Duration, name string, later time.Duration, f func(*pair, time.Time) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &pair{p.way(b.host), p.way(b.host), make(chan turn, 1)}
	defer w.holders.cut()
	defer w.waiters.cut()
	open := func(way *network) (candidate, error) {
		at := *p
		at.endpoint = way.endpoint
		return sub.open(ctx, b, &at, ttl)
	}
	holder, err := open(w.holders)
	if err != nil {
		return err
	}
	defer holder.close()
	waiter, err := open(w.waiters)
	if err != nil {
		return err
	}
	defer waiter.close()
	if _, err = holder.acquire(ctx, name); err != nil { // it is never released
		return err
	}
	held := time.Now()
	time.Sleep(later)
	go func() {
		release, err := waiter.acquire(ctx, name)
		w.next <- turn{waiter, release, time.Now(), err}
	}()
	err = f(w, held)
	cancel()
	if next := <-w.next; next.err == nil {
		_ = next.release(context.WithoutCancel(ctx)) // on a machine that is too busy it may have lost the lock by now
	}
	return err
}
