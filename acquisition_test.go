package leasehold_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestOptionsOfOneLease: name, meta data and TTL are those of the acquisition, for its lease only,
// also where the lock is passed on inside the process.
func TestOptionsOfOneLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Holder: "web", Meta: map[string]string{"app": "shop"}})
		meta := map[string]string{"run": "7"}
		lease, err := lock.Acquire(t.Context(), leasehold.WithHolder("job-7"), leasehold.WithMeta(meta), leasehold.WithTTL(40*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		meta["run"] = "8" // it is nobody's concern by now
		looks := func(lease *leasehold.Lease, holder, key, value string, ttl time.Duration) {
			t.Helper()
			info, err := newLock(t, st, nil).Inspect(t.Context())
			if err != nil || info.Holder != holder || info.TTL != ttl || len(info.Meta) != 1 || info.Meta[key] != value || lease.Holder() != holder {
				t.Errorf("%+v, held by %s, %v", info, lease.Holder(), err)
			}
		}
		time.Sleep(15 * time.Second)
		looks(lease, "job-7", "run", "7", 40*time.Second)
		next := make(chan *leasehold.Lease, 1)
		go func() {
			l, err := lock.Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
		synctest.Wait()
		release(t, lease)
		lease = <-next
		looks(lease, "web", "app", "shop", leasehold.DefaultTTL)
		release(t, lease)
	})
}

// ends checks that a lease ends by its terms, so long after now, and says so by all ways.
func ends(t *testing.T, lease *leasehold.Lease, in time.Duration, says string) {
	t.Helper()
	began := time.Now()
	if end := lease.End().Sub(began); end != in {
		t.Errorf("it is to end in %v, and says %v", in, end)
	}
	select {
	case <-lease.Done():
	case <-time.After(in + time.Hour):
	}
	if took := time.Since(began); took != in {
		t.Errorf("it ended after %v, want %v", took, in)
	}
	for _, err := range []error{lease.Err(), context.Cause(lease.Context()), lease.Release(t.Context())} {
		if !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, leasehold.ErrTimeUp) || !strings.Contains(err.Error(), says) {
			t.Errorf("it says %v, and not %q", err, says)
		}
	}
	if !lease.End().IsZero() {
		t.Error("a lease that is over is to end once more")
	}
}

// TestMaxHold: a lease is renewed until its longest hold is over, and then ends; the next one of the
// Lock does not.
func TestMaxHold(t *testing.T) {
	needs(t, renews(), "a plain marker is not renewed, and ends before")
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		lease, err := lock.TryAcquire(t.Context(), leasehold.WithMaxHold(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		ends(t, lease, time.Minute, "held for 1m0s at most")
		if n := st.Counts().Put; n < 11 || n > 12 { // claim, ten renewals at most, release
			t.Errorf("%d writes", n)
		}
		lease = acquire(t, lock)
		if !lease.End().IsZero() {
			t.Errorf("the next lease ends at %v", lease.End())
		}
		time.Sleep(2 * time.Minute)
		release(t, lease)
	})
}

// TestTimeUpByTheClock: a process that slept through the end of its lease learns the reason from the
// clock, before anybody has told it.
func TestTimeUpByTheClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease, err := newLock(t, newStore(), nil).Acquire(t.Context(), leasehold.WithMaxHold(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		slept.Store(int64(11 * time.Second))
		if err := lease.Err(); lease.Valid() || !errors.Is(err, leasehold.ErrTimeUp) || !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("valid %t, %v", lease.Valid(), err)
		}
		_ = lease.Release(t.Context())
	})
}

// TestWithoutRenewal: such a lease costs its claim and its release, and ends with its validity.
func TestWithoutRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease, err := newLock(t, st, nil).Acquire(t.Context(), leasehold.WithoutRenewal(), leasehold.WithTTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		ends(t, lease, time.Minute-5*time.Second-10*time.Millisecond, "not to be renewed")
		writes := 2
		if !here().Tokens() {
			writes = 1 // a release deletes the marker
		}
		if n := st.Counts().Put; n != writes {
			t.Errorf("%d writes", n)
		}
	})
}

// TestMaxHoldUnderASession: the lease ends although the session goes on, whose other leases do too.
func TestMaxHoldUnderASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startProcess(t, memstore.New(), "a")
		lease, err := p.lock("one").Acquire(t.Context(), leasehold.WithMaxHold(time.Minute), leasehold.WithHolder("job-7"))
		if err != nil || lease.Holder() != "job-7" {
			t.Fatal(lease, err)
		}
		other := p.acquire("two")
		ends(t, lease, time.Minute, "held for 1m0s at most")
		if other.Err() != nil {
			t.Error(other.Err())
		}
		release(t, other)
		p.close()
	})
}

// TestHoldAtLeast: a lock that is released early rests for what is left: for a candidate that tries,
// one that waits, a new one, and the next goroutine of the same process. Those that wait do so with
// few requests.
func TestHoldAtLeast(t *testing.T) {
	needs(t, here().Tokens(), "a marker that is released is gone, and cannot rest")
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock, other := newLock(t, st, &leasehold.LockOptions{Holder: "a"}), newLock(t, st, &leasehold.LockOptions{Holder: "b"})
		began := time.Now()
		lease, err := lock.Acquire(t.Context(), leasehold.WithHoldAtLeast(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		got := make(chan *leasehold.Lease, 2)
		wait := func(l *leasehold.Lock) {
			next, failed := l.Acquire(t.Context())
			if failed != nil {
				t.Error(failed)
			}
			got <- next
		}
		go wait(lock)
		go wait(other)
		synctest.Wait()
		release(t, lease)
		st.Reset()
		time.Sleep(time.Minute)
		resting(t, newLock(t, st, nil), 8*time.Minute)
		first := <-got
		if after := time.Since(began); after < 10*time.Minute || after > 10*time.Minute+5*time.Second {
			t.Errorf("somebody got it after %v", after)
		}
		if n := st.Counts(); n.Get+n.List > 60 || n.Put > 4 {
			t.Errorf("that took %+v", n)
		}
		release(t, first)
		second := <-got
		if after := time.Since(began); after > 10*time.Minute+30*time.Second {
			t.Errorf("the other got it after %v", after)
		}
		release(t, second)
	})
}

// resting checks what a candidate that tries is told of a lock that rests for about so long.
func resting(t *testing.T, lock *leasehold.Lock, d time.Duration) {
	t.Helper()
	about := func(rest time.Duration) bool { return rest >= d && rest <= d+2*time.Second }
	_, err := lock.TryAcquire(t.Context())
	held, ok := errors.AsType[*leasehold.HeldError](err)
	if !ok || !about(held.Info.Rest) || held.Info.Held || held.Info.Holder != "a" || !strings.Contains(err.Error(), "rests for") {
		t.Errorf("a lock that rests for %v: %v", d, err)
	}
	if info, failed := lock.Inspect(t.Context()); failed != nil || info.Held || !about(info.Rest) {
		t.Errorf("a look shows %+v, %v", info, failed)
	}
	patience, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = lock.Acquire(patience)
	held, ok = errors.AsType[*leasehold.HeldError](err)
	if !ok || !errors.Is(err, context.DeadlineExceeded) || held.Info.Rest < d-2*time.Second || held.Info.Rest > d+time.Second {
		t.Errorf("one who waits and gives up is told %v", err)
	}
}

// TestRestIsOver: a candidate that starts after the rest, or tries again after it, gets the lock at once.
func TestRestIsOver(t *testing.T) {
	needs(t, here().Tokens(), "a marker that is released is gone, and cannot rest")
	for _, again := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			lease, err := newLock(t, st, &leasehold.LockOptions{Holder: "a"}).Acquire(t.Context(), leasehold.WithHoldAtLeast(50*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			release(t, lease)
			lock := newLock(t, st, nil)
			if again {
				resting(t, lock, 50*time.Second)
			}
			time.Sleep(51 * time.Second)
			if lease, err = lock.TryAcquire(t.Context()); err != nil {
				t.Fatalf("one that tries again, %t: %v", again, err)
			}
			release(t, lease)
		})
	}
}

// TestBreakEndsARest: breaking a lock that rests by hand makes it free at once, with its token, and
// those who wait notice within about a minute.
func TestBreakEndsARest(t *testing.T) {
	needs(t, here().Tokens(), "a marker that is released is gone, and cannot rest")
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease, err := newLock(t, st, &leasehold.LockOptions{Holder: "a"}).Acquire(t.Context(), leasehold.WithHoldAtLeast(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		release(t, lease)
		waits := make(chan *leasehold.Lease, 1)
		go func() {
			next, failed := newLock(t, st, nil).Acquire(t.Context())
			if failed != nil {
				t.Error(failed)
			}
			waits <- next
		}()
		time.Sleep(10 * time.Minute)
		lock := newLock(t, st, nil)
		info, err := admin.Break(t.Context(), lock, lease.Token())
		if err != nil || info.Rest != 0 || info.Held || info.Token != lease.Token() {
			t.Fatalf("%+v, %v", info, err)
		}
		if now, err := lock.Inspect(t.Context()); err != nil || now.Rest != 0 || now.Token != lease.Token() {
			t.Errorf("%+v, %v", now, err)
		}
		broken := time.Now()
		next := <-waits
		if took := time.Since(broken); took > 70*time.Second {
			t.Errorf("one who waited noticed after %v", took)
		}
		release(t, next)
	})
}

// TestWrongOptions: what cannot be had fails before anything is sent, and says what was wrong.
func TestWrongOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		alone, marker := newLock(t, st, nil), newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutMarker})
		p := startProcess(t, st, "a")
		under := p.lock("under")
		large := map[string]string{"k": strings.Repeat("x", 70_000)}
		before := st.Counts()
		for _, c := range []struct {
			lock *leasehold.Lock
			opts []leasehold.AcquireOption
			says string
		}{
			{alone, []leasehold.AcquireOption{leasehold.WithHolder("")}, "WithHolder: the name is empty"},
			{alone, []leasehold.AcquireOption{leasehold.WithHolder("a\xff")}, "UTF-8"},
			{alone, []leasehold.AcquireOption{leasehold.WithMeta(large)}, "shorten"},
			{alone, []leasehold.AcquireOption{leasehold.WithTTL(0)}, "WithTTL: 0s is not between 1s and 24h0m0s"},
			{alone, []leasehold.AcquireOption{leasehold.WithTTL(time.Millisecond)}, "the TTL 1ms is not between 1s and 24h0m0s"},
			{alone, []leasehold.AcquireOption{leasehold.WithTTL(25 * time.Hour)}, "the TTL 25h0m0s is not between 1s and 24h0m0s"},
			{alone, []leasehold.AcquireOption{leasehold.WithMaxHold(0)}, "WithMaxHold: 0s"},
			{alone, []leasehold.AcquireOption{leasehold.WithMaxHold(-time.Second)}, "WithMaxHold: -1s"},
			{alone, []leasehold.AcquireOption{leasehold.WithMaxHold(time.Second - 1)}, "less than 1s"},
			{alone, []leasehold.AcquireOption{leasehold.WithHoldAtLeast(-1)}, "WithHoldAtLeast: -1ns is negative"},
			{alone, []leasehold.AcquireOption{leasehold.WithHoldAtLeast(24*time.Hour + 1)}, "is not between 0 and 24h0m0s"},
			{alone, []leasehold.AcquireOption{leasehold.WithHoldAtLeast(time.Minute + 1), leasehold.WithMaxHold(time.Minute)}, "more than the longest, 1m0s"},
			{under, []leasehold.AcquireOption{leasehold.WithTTL(time.Minute)}, "the TTL of the session"},
			{under, []leasehold.AcquireOption{leasehold.WithoutRenewal()}, "give it a longest hold"},
			{marker, []leasehold.AcquireOption{leasehold.WithHoldAtLeast(time.Second)}, "the layout marker cannot keep a shortest hold"},
		} {
			for name, acquire := range map[string]func() error{
				"Acquire":    func() error { _, err := c.lock.Acquire(t.Context(), c.opts...); return err },
				"TryAcquire": func() error { _, err := c.lock.TryAcquire(t.Context(), c.opts...); return err },
				"Do": func() error {
					return c.lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }, c.opts...)
				},
			} {
				if err := acquire(); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.lock.Key()) {
					t.Errorf("%s: %v, want %q", name, err, c.says)
				}
			}
		}
		if after := st.Counts(); after != before {
			t.Errorf("that took requests: %+v, before %+v", after, before)
		}
		p.close()
	})
}

// TestDoOnTerms: the options of Do are for its lease.
func TestDoOnTerms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lock := newLock(t, newStore(), nil)
		err := lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
			if lease.Holder() != "job-7" {
				t.Errorf("held by %s", lease.Holder())
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, leasehold.WithHolder("job-7"), leasehold.WithMaxHold(5*time.Second))
		if !errors.Is(err, leasehold.ErrTimeUp) {
			t.Error(err)
		}
	})
}
