package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// looks notes when one that waits looks at a lock that another holds, with these options of both,
// in each of the spans of time.
func looks(t *testing.T, opts leasehold.LockOptions, spans ...time.Duration) (at []times) {
	t.Helper()
	at = make([]times, len(spans))
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		lease := acquire(t, newLock(t, inner, &opts))
		st := newStoreOver(inner)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := newLock(t, st, &opts).Acquire(ctx)
			done <- err
		}()
		for i, span := range spans {
			st.Clear()
			at[i].watch(st)
			time.Sleep(span)
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("gave up: %v", err)
		}
		release(t, lease)
	})
	return at
}

// A waiter looked once for each renewal from its first minute on: every five seconds at the default
// TTL, so that a lock stood idle for seconds after a release, and every eight hours at a TTL of a day.
// Now it looks once a second in the first ten minutes whatever the TTL, but at the end of a lease.
func TestWaiterPauses(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "the pauses are the same in every layout")
	for ttl, c := range map[time.Duration]struct{ most, after time.Duration }{
		2 * time.Second:      {1500 * time.Millisecond, 10 * time.Minute},
		leasehold.DefaultTTL: {5 * time.Second, 50 * time.Minute},
		leasehold.MaxTTL:     {10 * time.Second, 2 * time.Hour},
	} {
		at := looks(t, leasehold.LockOptions{TTL: ttl}, 5*time.Second, 10*time.Minute-5*time.Second, c.after, 10*time.Minute)
		if n := len(at[0].at) + len(at[1].at); n < 560 || n > 620 {
			t.Errorf("TTL %v: %d looks in ten minutes", ttl, n)
		}
		if got := at[1].pauses(); !between(got, 500, 450*time.Millisecond, 2100*time.Millisecond) {
			t.Errorf("TTL %v: after five seconds the pauses are %v", ttl, got)
		}
		if got := at[3].pauses(); !between(got, 46, c.most*3/4, c.most*5/4) {
			t.Errorf("TTL %v: after %v more the pauses are %v", ttl, c.after, got)
		}
	}
}

// TestPollInterval: pauses are those that are asked for, but the end of a lease is looked at at once.
func TestPollInterval(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "the pauses are the same in every layout")
	for interval, fits := range map[time.Duration]bool{
		-1: false, 1: false, 20*time.Millisecond - 1: false, 20 * time.Millisecond: true, 24 * time.Hour: true, 24*time.Hour + 1: false,
	} {
		if _, err := leasehold.NewLock(newStore(), "jobs/backup", &leasehold.LockOptions{PollInterval: interval}); (err == nil) != fits {
			t.Errorf("an interval of %v: %v", interval, err)
		}
	}
	for _, c := range []struct{ ttl, interval, low, high time.Duration }{
		{leasehold.MaxTTL, 20 * time.Millisecond, 15 * time.Millisecond, 25 * time.Millisecond},
		{leasehold.DefaultTTL, time.Second, 750 * time.Millisecond, 1250 * time.Millisecond},
		{leasehold.MaxTTL, time.Minute, 45 * time.Second, 75 * time.Second},
		{leasehold.DefaultTTL, time.Minute, 16 * time.Second, 18 * time.Second},
	} {
		at := looks(t, leasehold.LockOptions{TTL: c.ttl, PollInterval: c.interval}, time.Second+4*c.interval, 20*c.interval)
		if got := at[1].pauses(); !between(got, 15, c.low, c.high) {
			t.Errorf("an interval of %v with the TTL %v: %v", c.interval, c.ttl, got)
		}
	}
}

// TestReleaseIsNoticed: where each request takes 100 to 200 ms and two wait, a lock that was held
// for six seconds is idle for four times as long as a PUT takes, on average. At the default TTL it was
// idle for a second and more.
func TestReleaseIsNoticed(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "what it costs is counted there: the same in every layout, but for more requests")
	const candidates, rounds, put = 3, 200, 150 * time.Millisecond
	bubble(t, func(t *testing.T) {
		type turn struct {
			candidate int
			lease     *leasehold.Lease
		}
		locks := make([]*leasehold.Lock, candidates)
		shared, got := memstore.New(), make(chan turn)
		want := func(i int) { got <- turn{i, acquire(t, locks[i])} }
		for i := range candidates {
			var st store.Store = shared
			for _, kind := range []faultstore.Kind{faultstore.DelayBefore, faultstore.DelayAfter} {
				half := faultstore.Fault{Kind: kind, Delay: 50 * time.Millisecond, Jitter: 50 * time.Millisecond}
				st = faultstore.Wrap(st, &faultstore.Options{Seed: uint64(i), Faults: []faultstore.Fault{half}})
			}
			locks[i] = newLock(t, st, nil)
			go want(i)
		}
		var idle time.Duration
		for range rounds {
			holder := <-got
			time.Sleep(6 * time.Second)
			began := time.Now()
			go release(t, holder.lease)
			next := <-got
			idle += time.Since(began)
			go func() { got <- next }()
			time.Sleep(time.Second)
			go want(holder.candidate)
		}
		if mean := idle / rounds; mean > 4*put {
			t.Errorf("idle for %v on average, which is %.1f PUTs", mean, mean.Seconds()/put.Seconds())
		} else {
			t.Log(mean)
		}
		for range candidates {
			release(t, (<-got).lease)
		}
	})
}
