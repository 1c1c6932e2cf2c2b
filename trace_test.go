package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A diary is what a Trace was told, a line for each event, with the time since the diary was begun.
type diary struct {
	began    time.Time
	requests bool // are written down too

	mu    sync.Mutex
	lines []string
}

func newDiary(requests bool) *diary { return &diary{began: time.Now(), requests: requests} }

func (d *diary) add(at time.Time, of locktrace.Subject, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	d.lines = append(d.lines, fmt.Sprintf("%v %v of %s: %s", at.Sub(d.began), of.Kind, of.Holder, line))
}

// take returns what has come since, when all that is under way has been told.
func (d *diary) take() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *diary) wants(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := d.take(); !slices.Equal(got, want) {
		t.Errorf("%s: told\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// why is an error in a word.
func why(err error) string {
	for _, w := range []struct {
		err  error
		word string
	}{
		{nil, "nil"},
		{leasehold.ErrSessionOver, "session over"},
		{leasehold.ErrLost, "lost"},
		{context.Canceled, "canceled"},
		{context.DeadlineExceeded, "late"},
		{leasehold.ErrHeld, "held"},
		{store.ErrUnknownOutcome, "unknown"},
		{store.ErrUnavailable, "unavailable"},
		{store.ErrPrecondition, "precondition"},
		{store.ErrDenied, "denied"},
	} {
		if err == nil && w.err == nil || w.err != nil && errors.Is(err, w.err) {
			return w.word
		}
	}
	return err.Error()
}

// holderOf is the holder that an error names.
func holderOf(held error) string {
	if h, ok := errors.AsType[*leasehold.HeldError](held); ok {
		return h.Info.Holder
	}
	return fmt.Sprint(held)
}

func flags(of map[string]bool) string {
	var set []string
	for name, is := range of {
		if is {
			set = append(set, ", "+name)
		}
	}
	slices.Sort(set)
	return strings.Join(set, "")
}

func (d *diary) trace() *locktrace.Trace {
	t := &locktrace.Trace{
		AcquireStart: func(ctx context.Context, e locktrace.AcquireStart) context.Context {
			d.add(e.Time, e.Subject, "start")
			return ctx
		},
		Waiting: func(_ context.Context, e locktrace.Waiting) {
			d.add(e.Time, e.Subject, "waits for %s%s", holderOf(e.Held), flags(map[string]bool{"local": e.Local}))
		},
		AcquireDone: func(_ context.Context, e locktrace.AcquireDone) {
			if (e.Err == nil) != (e.Token > 0) {
				d.add(e.Time, e.Subject, "token %v, error %v", e.Token, e.Err)
			}
			d.add(e.Time, e.Subject, "done, %s, took %v%s", why(e.Err), e.Took,
				flags(map[string]bool{"waited": e.Waited, "took over": e.TookOver, "attached": e.Attached}))
		},
		Renewed: func(_ context.Context, e locktrace.Renewed) {
			d.add(e.Time, e.Subject, "renewed, took %v, %d requests, left %v of %v", e.Took, e.Requests, e.Left, e.TTL)
		},
		Lost: func(_ context.Context, e locktrace.Lost) {
			d.add(e.Time, e.Subject, "lost, %s, held %v", why(e.Cause), e.Held)
		},
		Released: func(_ context.Context, e locktrace.Released) {
			d.add(e.Time, e.Subject, "released, %s, held %v, took %v%s", why(e.Err), e.Held, e.Took,
				flags(map[string]bool{"lost": e.Lost, "detached": e.Detached}))
		},
		Trouble: func(_ context.Context, e locktrace.Trouble) {
			d.add(e.Time, e.Subject, "trouble, %s, %d failures", why(e.Err), e.Failures)
		},
		Leader: func(_ context.Context, e locktrace.Leader) {
			d.add(e.Time, e.Subject, "leader %s%s", e.Name, flags(map[string]bool{"known": e.Known, "was known": e.WasKnown, "new": e.New}))
		},
	}
	if d.requests {
		t.Request = func(_ context.Context, e locktrace.Request) {
			d.add(e.Time, e.Subject, "%s, %s, took %v", e.Op, why(e.Err), e.Took)
		}
	}
	return t
}

// object are options of a lock that is written over, since what is told of requests depends on the layout.
func (d *diary) object(holder string) *leasehold.LockOptions {
	return &leasehold.LockOptions{Holder: holder, Layout: leasehold.LayoutObject, Trace: d.trace()}
}

// TestTraceOfALock: all that happens to a lock is told once and in order, and has been told when the call
// returns that it is about.
func TestTraceOfALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, d := newStore(), newDiary(true)
		lock := newLock(t, st, d.object("a"))
		lease := acquire(t, lock)
		d.wants(t, "acquired",
			"0s lock of a: start",
			"0s lock of a: read, nil, took 0s",
			"0s lock of a: claim, nil, took 0s",
			"0s lock of a: done, nil, took 0s")
		time.Sleep(6 * time.Second)
		d.wants(t, "renewed",
			"5s lock of a: renew, nil, took 0s",
			"5s lock of a: renewed, took 0s, 1 requests, left 8.74s of 15s")
		if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		d.wants(t, "tried in the same process",
			"6s lock of a: start",
			"6s lock of a: done, held, took 0s")
		if _, err := newLock(t, st, d.object("b")).TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		d.wants(t, "tried in another process",
			"6s lock of b: start",
			"6s lock of b: read, nil, took 0s",
			"6s lock of b: done, held, took 0s")
		release(t, lease)
		release(t, lease)
		d.wants(t, "released",
			"6s lock of a: free, nil, took 0s",
			"6s lock of a: released, nil, held 6s, took 0s")
		if _, err := lock.Inspect(t.Context()); err != nil {
			t.Error(err)
		}
		d.wants(t, "looked at", "6s lock of a: read, nil, took 0s")
		if lease, err := lock.Acquire(t.Context(), leasehold.WithHolder("job"), leasehold.WithTTL(time.Second)); err != nil {
			t.Error(err)
		} else {
			time.Sleep(400 * time.Millisecond)
			release(t, lease)
		}
		d.wants(t, "acquired with options",
			"6s lock of job: start",
			"6s lock of a: claim, nil, took 0s",
			"6s lock of job: done, nil, took 0s",
			"6.333333333s lock of a: renew, nil, took 0s",
			"6.333333333s lock of job: renewed, took 0s, 1 requests, left 573.333334ms of 1s",
			"6.4s lock of a: free, nil, took 0s",
			"6.4s lock of job: released, nil, held 400ms, took 0s")
		if _, err := lock.Acquire(t.Context(), leasehold.WithHolder("")); err == nil {
			t.Error("it has no name")
		}
		d.wants(t, "an acquisition that cannot be")
	})
}

// TestTraceOfWaiting: a wait is told by the holder it is for, and an end of it that is no lease has its error.
func TestTraceOfWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, d := newStore(), newDiary(false)
		lock := newLock(t, st, &leasehold.LockOptions{Holder: "a", Layout: leasehold.LayoutObject})
		lease := acquire(t, lock)
		waiter := newLock(t, st, d.object("b"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := waiter.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		d.wants(t, "given up",
			"0s lock of b: start",
			"0s lock of b: waits for a",
			"3s lock of b: done, late, took 3s, waited")
		got := make(chan *leasehold.Lease, 2)
		for range 2 {
			go func() {
				l, err := waiter.Acquire(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
			synctest.Wait()
		}
		d.wants(t, "two wait",
			"3s lock of b: start",
			"3s lock of b: waits for a",
			"3s lock of b: start",
			"3s lock of b: waits for a, local")
		release(t, lease)
		first := <-got
		lines := d.take()
		if len(lines) != 1 || !strings.Contains(lines[0], "lock of b: done, nil, took ") || !strings.HasSuffix(lines[0], ", waited") {
			t.Errorf("when it is free: %q", lines)
		}
		release(t, first)
		second := <-got
		release(t, second)
		synctest.Wait()
		if lines = d.take(); len(lines) != 3 || !strings.Contains(lines[0], "released, nil") || !strings.HasSuffix(lines[1], ", waited") || !strings.Contains(lines[2], "released, nil") {
			t.Errorf("passed on: %q", lines)
		}

		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := waiter.Acquire(ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if lines = d.take(); len(lines) != 2 || !strings.Contains(lines[1], "done, canceled, took 0s") {
			t.Errorf("of a caller that does not want it: %q", lines)
		}
	})
}

// TestTraceOfATakeover: a holder that is gone loses its lease, and the next one says that it has taken over.
func TestTraceOfATakeover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, d := newStore(), newDiary(false)
		cut := faultstore.Wrap(st, nil)
		gone := acquire(t, newLock(t, cut, d.object("a")))
		cut.Partition(true)
		lease := acquire(t, newLock(t, st, d.object("b")))
		lines := d.take()
		i := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, "of b: done") })
		if i < 0 || !strings.HasSuffix(lines[i], ", took over, waited") {
			t.Errorf("b: %q", lines)
		}
		lines = slices.Delete(lines, i, i+1)
		if want := []string{
			"0s lock of a: start", "0s lock of a: done, nil, took 0s", "0s lock of b: start", "0s lock of b: waits for a",
			"trouble", "13.74s lock of a: lost, lost, held 13.74s",
		}; len(lines) != len(want) || !strings.Contains(lines[4], "lock of a: trouble, unavailable, ") {
			t.Errorf("a: %q", lines)
		} else if lines[4] = want[4]; !slices.Equal(lines, want) {
			t.Errorf("told %q, want %q", lines, want)
		}
		release(t, lease)
		d.take()
		cut.Partition(false)
		began := time.Since(d.began)
		if err := gone.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
		d.wants(t, "the release of what was lost", fmt.Sprintf("%v lock of a: released, nil, held 13.74s, took 0s, lost", began))
	})
}

// TestTraceOfAnOutage: an outage that a lease survives is told by its trouble and by how long the renewal took;
// an answer that is lost, by the requests.
func TestTraceOfAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, d := newStore(), newDiary(false)
		lease := acquire(t, newLock(t, st, d.object("a")))
		d.take()
		st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Nth: 1})
		time.Sleep(6 * time.Second)
		d.wants(t, "an answer is lost", "5s lock of a: renewed, took 0s, 2 requests, left 8.74s of 15s")
		st.Clear()
		time.Sleep(3 * time.Second)
		st.Partition(true)
		time.Sleep(5 * time.Second)
		st.Partition(false)
		time.Sleep(4 * time.Second)
		lines := d.take()
		if len(lines) != 2 || !strings.Contains(lines[0], "trouble, unavailable, ") || !strings.Contains(lines[1], " requests, left ") || lease.Err() != nil {
			t.Fatalf("%q, %v", lines, lease.Err())
		}
		var at, took, left, ttl time.Duration
		var at2, took2, left2, ttl2 string
		var requests int
		if _, err := fmt.Sscanf(strings.ReplaceAll(lines[1], ",", ""), "%s lock of a: renewed took %s %d requests left %s of %s", &at2, &took2, &requests, &left2, &ttl2); err != nil {
			t.Fatal(err)
		}
		for text, into := range map[string]*time.Duration{at2: &at, took2: &took, left2: &left, ttl2: &ttl} {
			*into, _ = time.ParseDuration(text)
		}
		// It was first sent 5 s after the one before, at 10 s.
		if took != at-10*time.Second || took < 4*time.Second || left != 18740*time.Millisecond-at || requests < 4 {
			t.Errorf("%q", lines[1])
		}
		release(t, lease)
		d.take()

		st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		if _, err := newLock(t, st, d.object("c")).Acquire(t.Context()); !errors.Is(err, store.ErrDenied) {
			t.Error(err)
		}
		if lines := d.take(); len(lines) != 2 || !strings.HasSuffix(lines[1], "lock of c: done, denied, took 0s") {
			t.Errorf("%q", lines)
		}
	})
}

// TestTraceOfASession: a session is told of as a lease, and the leases under it by their beginning and end.
func TestTraceOfASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, d := newStore(), newDiary(false)
		s, err := leasehold.NewSession(t.Context(), st, &leasehold.SessionOptions{Holder: "s", Trace: d.trace()})
		if err != nil {
			t.Fatal(err)
		}
		opts := d.object("a")
		opts.Session = s
		kept, given := acquire(t, newLock(t, st, opts)), func() *leasehold.Lease {
			lock, err := leasehold.NewLock(st, "other", opts)
			if err != nil {
				t.Fatal(err)
			}
			return acquire(t, lock)
		}()
		time.Sleep(6 * time.Second)
		d.wants(t, "begun",
			"0s session of s: start",
			"0s session of s: done, nil, took 0s",
			"0s lock of a: start",
			"0s lock of a: done, nil, took 0s",
			"0s lock of a: start",
			"0s lock of a: done, nil, took 0s",
			"5s session of s: renewed, took 0s, 1 requests, left 8.74s of 15s")
		release(t, given)
		lines := d.take()
		slices.Sort(lines) // the two have queues of their own
		if want := []string{
			"6s lock of a: released, nil, held 6s, took 0s",
			"6s session of s: renewed, took 0s, 1 requests, left 12.74s of 15s", // it tells of the release
		}; !slices.Equal(lines, want) {
			t.Errorf("%q, want %q", lines, want)
		}
		go s.Close(t.Context()) // kept is released below
		d.wants(t, "closed", "6s lock of a: lost, session over, held 6s")
		_ = kept.Release(t.Context()) // it was lost with the session
		lines = d.take()
		slices.Sort(lines)
		if want := []string{
			"6s lock of a: released, nil, held 6s, took 0s, lost",
			"6s session of s: released, nil, held 6s, took 0s",
		}; !slices.Equal(lines, want) {
			t.Errorf("%q, want %q", lines, want)
		}
		if _, err := newLock(t, st, opts).Acquire(t.Context()); !errors.Is(err, leasehold.ErrSessionOver) {
			t.Error(err)
		}
		d.wants(t, "after it", "6s lock of a: start", "6s lock of a: done, session over, took 0s")
	})
}

// TestTraceOfASessionOfOthers: what the watch of a holder's session asks of the store is told, with that
// session as its subject.
func TestTraceOfASessionOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, d := newStore(), newDiary(true)
		s, lease := holdUnderSessionIn(t, st)
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		if _, err := newLock(t, st, d.object("b")).Acquire(ctx); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		lines := d.take()
		watched := slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return !strings.Contains(s, " session of b: read, nil") })
		if len(watched) < 2 || len(watched) > 30 {
			t.Errorf("%d looks at the session: %q", len(watched), lines)
		}
		_ = lease.Release(t.Context())
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func holdUnderSessionIn(t *testing.T, st store.Store) (*leasehold.Session, *leasehold.Lease) {
	t.Helper()
	s, err := leasehold.NewSession(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, acquire(t, newLock(t, st, &leasehold.LockOptions{Session: s, Layout: leasehold.LayoutObject}))
}

// TestTraceOfAnElection: through a failover both candidates are told who leads, once for each change.
func TestTraceOfAnElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		cut := newStoreOver(st)
		da, db := newDiary(false), newDiary(false)
		a := newElection(t, cut, leasehold.ElectionOptions{LockOptions: *da.object("a")})
		b := newElection(t, st, leasehold.ElectionOptions{LockOptions: *db.object("b")})
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		run := func(e *leasehold.Election) {
			all.Go(func() {
				_ = e.Run(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
					<-ctx.Done()
					return nil
				})
			})
		}
		run(a)
		synctest.Wait()
		da.wants(t, "a leads", "0s election of a: start", "0s election of a: done, nil, took 0s", "0s election of a: leader a, known, new")
		run(b)
		time.Sleep(time.Second)
		db.wants(t, "b follows", "0s election of b: start", "0s election of b: waits for a", "0s election of b: leader a, known, new")
		cut.Partition(true)
		time.Sleep(30 * time.Second)
		lines := db.take()
		if len(lines) < 3 || !strings.HasSuffix(lines[0], "election of b: leader a, was known") ||
			!strings.HasSuffix(lines[1], ", took over, waited") || !strings.HasSuffix(lines[2], "election of b: leader b, known, new") {
			t.Errorf("b takes over: %q", lines)
		}
		if lines = da.take(); !slices.Contains(lines, "13.74s election of a: lost, lost, held 13.74s") {
			t.Errorf("a is cut off: %q", lines)
		}
		cut.Partition(false)
		time.Sleep(20 * time.Second)
		if lines = da.take(); !strings.Contains(strings.Join(lines, "\n"), "election of a: leader b, known, new, was known") {
			t.Errorf("a is back: %q", lines)
		}
		db.take()
		stop()
		all.Wait()
		if lines = db.take(); len(lines) < 2 || !strings.Contains(lines[0], "released, nil") || !strings.HasSuffix(lines[1], "election of b: leader b, was known") {
			t.Errorf("b ends: %q", lines)
		}
		if lines = da.take(); len(lines) == 0 || !strings.Contains(lines[0], "election of a: done, canceled, took ") {
			t.Errorf("a ends: %q", lines)
		}
	})
}

// TestTraceOfADetachedLease: the lease ends here and begins there.
func TestTraceOfADetachedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, d := newStore(), newDiary(false)
		lease := acquire(t, newLock(t, st, d.object("a")))
		time.Sleep(time.Second)
		left, err := detached.From(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		if err = lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		lock := newLock(t, st, d.object("b"))
		if left, err = detached.Renew(t.Context(), lock, left, nil); err != nil {
			t.Fatal(err)
		}
		next, err := detached.Attach(t.Context(), lock, left)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		release(t, next)
		if _, err := detached.Attach(t.Context(), lock, left); !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
		d.wants(t, "detached and attached",
			"0s lock of a: start",
			"0s lock of a: done, nil, took 0s",
			"1s lock of a: released, nil, held 1s, took 0s, detached",
			"1s lock of b: start",
			"1s lock of b: done, nil, took 0s, attached",
			"2s lock of b: released, nil, held 1s, took 0s",
			"2s lock of b: start",
			"2s lock of b: done, lost, took 0s, attached")
	})
}

// TestTraceThatHangs: a function that does not return delays no renewal and ends no lease. Acquire and
// Release wait for it a second, what is told to it is bounded, and the log says so.
func TestTraceThatHangs(t *testing.T) {
	for _, name := range []string{"Waiting", "AcquireDone", "Renewed", "Lost", "Released", "Trouble", "Leader", "Request"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				goOn := make(chan struct{})
				hang := func() { <-goOn }
				trace := &locktrace.Trace{}
				switch name {
				case "Waiting":
					trace.Waiting = func(context.Context, locktrace.Waiting) { hang() }
				case "AcquireDone":
					trace.AcquireDone = func(context.Context, locktrace.AcquireDone) { hang() }
				case "Renewed":
					trace.Renewed = func(context.Context, locktrace.Renewed) { hang() }
				case "Lost":
					trace.Lost = func(context.Context, locktrace.Lost) { hang() }
				case "Released":
					trace.Released = func(context.Context, locktrace.Released) { hang() }
				case "Trouble":
					trace.Trouble = func(context.Context, locktrace.Trouble) { hang() }
				case "Leader":
					trace.Leader = func(context.Context, locktrace.Leader) { hang() }
				case "Request":
					trace.Request = func(context.Context, locktrace.Request) { hang() }
				}
				var log leasetest.Log
				st := newStore()
				opts := &leasehold.LockOptions{Layout: leasehold.LayoutObject, Trace: trace, Logger: slog.New(slog.NewTextHandler(&log, nil))}
				lock := newLock(t, st, opts)
				began := time.Now()
				lease := acquire(t, lock)
				renewals := st.Counts().Put
				time.Sleep(151 * time.Second)
				if n := st.Counts().Put - renewals; n < 30 || lease.Err() != nil {
					t.Errorf("%d renewals in ten TTLs, %v", n, lease.Err())
				}
				release(t, lease)
				if took := time.Since(began); took > 153*time.Second {
					t.Errorf("Acquire and Release took %v", took-151*time.Second)
				}
				want := map[string]bool{"AcquireDone": true, "Renewed": true, "Request": true}[name]
				if said := strings.Contains(log.String(), "a function of a Trace does not return"); said != want {
					t.Errorf("the log says %t: %s", said, &log)
				}
				close(goOn)
			})
		})
	}
}

// TestTraceDropsEvents: what is kept for a function that hangs is bounded, and what was dropped is told.
func TestTraceDropsEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		goOn, told := make(chan struct{}), 0
		var log leasetest.Log
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{
			Layout: leasehold.LayoutObject, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Trace: &locktrace.Trace{Request: func(context.Context, locktrace.Request) {
				<-goOn
				told++
			}},
		})
		lease := acquire(t, lock)
		time.Sleep(2*time.Hour + time.Second)
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		sent := st.Counts().Get + st.Counts().Put
		close(goOn)
		synctest.Wait()
		if told != 1025 || sent < 1100 {
			t.Errorf("%d of %d were told", told, sent)
		}
		release(t, lease)
		synctest.Wait()
		text := log.String()
		if strings.Count(text, "events of a Trace are dropped") != 1 || !strings.Contains(text, fmt.Sprintf("number=%d", sent-1025)) {
			t.Errorf("%d were dropped, and the log says\n%s", sent-1025, text)
		}
	})
}

type traceKey struct{}

// valued is a store that notes which value the contexts of requests have.
type valued struct {
	store.Store
	mu   sync.Mutex
	seen map[any]int
}

func (v *valued) note(ctx context.Context) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen[ctx.Value(traceKey{})]++
}

func (v *valued) count(value any) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen[value]
}

func (v *valued) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	v.note(ctx)
	return v.Store.Get(ctx, key, unless)
}

func (v *valued) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	v.note(ctx)
	return v.Store.Put(ctx, key, body, only)
}

// TestTraceContext: the context of AcquireStart is that of the requests, of the lease and of all events, which
// do not end.
func TestTraceContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &valued{Store: memstore.New(), seen: map[any]int{}}
		n, seen := 0, map[any]int{}
		note := func(ctx context.Context) {
			if ctx.Err() != nil || ctx.Done() != nil {
				t.Errorf("the context of an event ends: %v", ctx.Err())
			}
			seen[ctx.Value(traceKey{})]++
		}
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject, Trace: &locktrace.Trace{
			AcquireStart: func(ctx context.Context, _ locktrace.AcquireStart) context.Context {
				if n++; n == 3 {
					return nil // is ctx
				}
				return context.WithValue(ctx, traceKey{}, n)
			},
			AcquireDone: func(ctx context.Context, _ locktrace.AcquireDone) { note(ctx) },
			Renewed:     func(ctx context.Context, _ locktrace.Renewed) { note(ctx) },
			Released:    func(ctx context.Context, _ locktrace.Released) { note(ctx) },
			Request:     func(ctx context.Context, _ locktrace.Request) { note(ctx) },
		}})
		for i := 1; i <= 3; i++ {
			ctx, cancel := context.WithCancel(t.Context())
			lease, err := lock.Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			time.Sleep(6 * time.Second)
			if v := lease.Context().Value(traceKey{}); i < 3 && v != i || i == 3 && v != nil {
				t.Errorf("lease %d has %v", i, v)
			}
			release(t, lease)
		}
		synctest.Wait()
		// A read the first time; a claim, a renewal, a release; and six events, or seven.
		if st.seen[1] != 4 || st.seen[2] != 3 || st.seen[nil] != 3 || seen[1] != 7 || seen[2] != 6 || seen[nil] != 6 {
			t.Errorf("requests %v, events %v", st.seen, seen)
		}
	})
}

// TestJoinTraces: all are told, in their order, and each adds to the context.
func TestJoinTraces(t *testing.T) {
	if locktrace.Join() != nil || locktrace.Join(nil, nil) != nil {
		t.Error("of none there is one")
	}
	one := &locktrace.Trace{}
	if locktrace.Join(nil, one) != one {
		t.Error("one is joined with nothing")
	}
	if j := locktrace.Join(one, one); j.Renewed != nil || j.Request != nil {
		t.Error("it has functions that nobody wants")
	}
	bubble(t, func(t *testing.T) {
		var order []string
		named := func(name string) *locktrace.Trace {
			return &locktrace.Trace{
				AcquireStart: func(ctx context.Context, _ locktrace.AcquireStart) context.Context {
					before, _ := ctx.Value(traceKey{}).(string)
					return context.WithValue(ctx, traceKey{}, before+name)
				},
				AcquireDone: func(context.Context, locktrace.AcquireDone) { order = append(order, name+" done") },
				Released:    func(context.Context, locktrace.Released) { order = append(order, name+" released") },
			}
		}
		lock := newLock(t, newStore(), &leasehold.LockOptions{Trace: locktrace.Join(named("a"), nil, one, named("b"))})
		lease := acquire(t, lock)
		if v := lease.Context().Value(traceKey{}); v != "ab" {
			t.Errorf("the context has %v", v)
		}
		release(t, lease)
		synctest.Wait()
		if want := []string{"a done", "b done", "a released", "b released"}; !slices.Equal(order, want) {
			t.Errorf("%q", order)
		}
	})
}

// TestTraceIsWhole: whatever the store does, each acquisition that begins ends once, each lease is released
// once and lost once at most, in that order, and nothing is told of a lease that is over.
func TestTraceIsWhole(t *testing.T) {
	for seed := range leasetest.Seeds(2) {
		bubble(t, func(t *testing.T) {
			g := &grammar{t: t, state: map[int]string{}}
			inner := memstore.New()
			random := rand.New(rand.NewPCG(seed, 1))
			var all sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			for _, holder := range []string{"a", "b", "c"} {
				st := faultstore.Wrap(inner, &faultstore.Options{Seed: seed, Faults: []faultstore.Fault{
					{Kind: faultstore.Unavailable, Probability: 0.1},
					{Kind: faultstore.LostAnswer, Probability: 0.1},
					{Kind: faultstore.LostRequest, Probability: 0.05},
					{Kind: faultstore.DelayAfter, Probability: 0.1, Jitter: 8 * time.Second},
				}})
				lock := newLock(t, st, &leasehold.LockOptions{Holder: holder, TTL: 5 * time.Second, Layout: leasehold.LayoutObject, Trace: g.trace()})
				for range 2 {
					own := rand.New(rand.NewPCG(random.Uint64(), 2))
					all.Go(func() { useAtRandom(ctx, lock, own) })
				}
			}
			time.Sleep(20 * time.Minute)
			stop()
			all.Wait()
			time.Sleep(time.Minute) // what was given up is settled
			g.mu.Lock()
			defer g.mu.Unlock()
			leases := 0
			for n, state := range g.state {
				switch state {
				case "released", "released after loss":
					leases++
				case "failed":
				default:
					t.Errorf("acquisition %d is %q in the end", n, state)
				}
			}
			if leases < 50 || g.lost < 2 {
				t.Errorf("seed %d shows little: %d leases, %d lost", seed, leases, g.lost)
			}
		})
	}
}

// useAtRandom acquires, holds, abandons, detaches and releases a lock until ctx ends.
func useAtRandom(ctx context.Context, lock *leasehold.Lock, random *rand.Rand) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, time.Duration(random.Int64N(int64(20*time.Second))))
		take := (*leasehold.Lock).Acquire
		if random.IntN(4) == 0 {
			take = (*leasehold.Lock).TryAcquire
		}
		lease, err := take(lock, limited)
		if err == nil {
			select {
			case <-time.After(time.Duration(random.Int64N(int64(8 * time.Second)))):
			case <-ctx.Done():
			}
			switch random.IntN(6) {
			case 0:
				lease.Abandon(nil)
			case 1:
				if left, err := detached.From(limited, lease); err == nil {
					if next, err := detached.Attach(ctx, lock, left); err == nil {
						_ = next.Release(limited)
					}
				}
			}
			_ = lease.Release(limited)
		}
		cancel()
		time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
	}
}

// A grammar checks the order of what is told of each acquisition and its lease.
type grammar struct {
	t     *testing.T
	mu    sync.Mutex
	n     int
	state map[int]string // of acquisitions
	lost  int
}

func (g *grammar) step(ctx context.Context, what string, to map[string]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, _ := ctx.Value(traceKey{}).(int)
	next, ok := to[g.state[n]]
	if !ok {
		g.t.Errorf("acquisition %d is %s when it is %q", n, what, g.state[n])
	}
	g.state[n] = next
}

func (g *grammar) trace() *locktrace.Trace {
	return &locktrace.Trace{
		AcquireStart: func(ctx context.Context, _ locktrace.AcquireStart) context.Context {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.n++
			g.state[g.n] = "begun"
			return context.WithValue(ctx, traceKey{}, g.n)
		},
		Waiting: func(ctx context.Context, _ locktrace.Waiting) {
			g.step(ctx, "waiting", map[string]string{"begun": "begun"})
		},
		AcquireDone: func(ctx context.Context, e locktrace.AcquireDone) {
			if e.Err != nil {
				g.step(ctx, "failed", map[string]string{"begun": "failed"})
				return
			}
			g.step(ctx, "acquired", map[string]string{"begun": "held"})
		},
		Renewed: func(ctx context.Context, e locktrace.Renewed) {
			g.step(ctx, "renewed", map[string]string{"held": "held"})
			if e.Left <= 0 || e.Left > e.TTL || e.Requests < 1 || e.Took < 0 {
				g.t.Errorf("%+v", e)
			}
		},
		Lost: func(ctx context.Context, _ locktrace.Lost) {
			g.step(ctx, "lost", map[string]string{"held": "lost"})
			g.mu.Lock()
			defer g.mu.Unlock()
			g.lost++
		},
		Released: func(ctx context.Context, e locktrace.Released) {
			from := map[string]string{"held": "released"}
			if e.Lost {
				from = map[string]string{"lost": "released after loss"}
			}
			g.step(ctx, "released", from)
			if e.Held < 0 || e.Took < 0 {
				g.t.Errorf("%+v", e)
			}
		},
	}
}

// crossing is a store that ends the caller's context as its first write lands.
type crossing struct {
	store.Store
	end func()
}

func (c crossing) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	obj, err := c.Store.Put(ctx, key, body, only)
	c.end()
	return obj, err
}

// TestTraceOfALeaseThatNobodyGets: one that comes as its caller gives up has been acquired, and is released. Which of the two
// is noticed first is open. If it is the end of the caller's context, nothing has been acquired, and what lands is freed.
func TestTraceOfALeaseThatNobodyGets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDiary(false)
		start, given, undone := "0s lock of a: start", "0s lock of a: done, canceled, took 0s",
			[]string{"0s lock of a: done, nil, took 0s", "0s lock of a: released, nil, held 0s, took 0s"}
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			lock := newLock(t, crossing{memstore.New(), cancel}, d.object("a"))
			if _, err := lock.Acquire(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			switch got := d.take(); {
			case slices.Equal(got, append([]string{start}, undone...)):
				return
			case !slices.Equal(got, []string{start, given}):
				t.Fatalf("told\n\t%s", strings.Join(got, "\n\t"))
			}
		}
		t.Error("of 1,000 leases none came before the end of the caller's context was noticed")
	})
}

// TestTraceOfNoTakeover: a lock that was released, or whose object was deleted, is not taken over, and nor is what
// this very candidate has left.
func TestTraceOfNoTakeover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, d := newStore(), newDiary(false)
		a, b := newLock(t, st, d.object("a")), newLock(t, st, d.object("b"))
		release(t, acquire(t, a))
		lease := acquire(t, b)
		d.wants(t, "released",
			"0s lock of a: start", "0s lock of a: done, nil, took 0s", "0s lock of a: released, nil, held 0s, took 0s",
			"0s lock of b: start", "0s lock of b: done, nil, took 0s")
		if _, err := a.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) { // it has seen b
			t.Error(err)
		}
		if err := st.Delete(t.Context(), "jobs/backup"); err != nil {
			t.Error(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		d.take()
		time.Sleep(time.Minute)
		lease = acquire(t, a)
		if lines := d.take(); len(lines) != 3 || !strings.Contains(lines[2], "done, nil") || !strings.HasSuffix(lines[2], "s, waited") {
			t.Errorf("deleted: %q", lines)
		}
		st.Partition(true)
		if err := lease.Release(t.Context()); err == nil {
			t.Error("it was released without a store")
		}
		lines := d.take()
		if n := len(lines); n == 0 || !strings.HasSuffix(lines[n-1], ", held 0s, took 15s") || strings.Contains(lines[n-1], "released, nil") {
			t.Errorf("%q", lines)
		}
		st.Partition(false)
		lease = acquire(t, a)
		if lines = d.take(); len(lines) != 2 || strings.Contains(lines[1], "took over") || !strings.Contains(lines[1], "done, nil") {
			t.Errorf("its own: %q", lines)
		}
		release(t, lease)
	})
}

// TestTraceSaysWhatItIsAbout: each event names the store, the key, the token and the time, and how long things
// took.
func TestTraceSaysWhatItIsAbout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		name := st.String() // without faults
		var mu sync.Mutex
		var token int64
		events := map[string]int{}
		var failures []int
		check := func(what string, of locktrace.Subject, at time.Time, has int64) {
			mu.Lock()
			defer mu.Unlock()
			events[what]++
			if !strings.HasPrefix(of.Store, name) || of.Key != "jobs/backup" || at != time.Now() || has != token {
				t.Errorf("%s is about %+v at %v, token %v, and not about %v", what, of, at, has, token)
			}
		}
		var requests []locktrace.Request
		var released locktrace.Released
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject, Trace: &locktrace.Trace{
			AcquireDone: func(_ context.Context, e locktrace.AcquireDone) {
				mu.Lock()
				token = e.Token
				mu.Unlock()
				check("done", e.Subject, e.Time, e.Token)
			},
			Renewed: func(_ context.Context, e locktrace.Renewed) { check("renewed", e.Subject, e.Time, e.Token) },
			Lost:    func(_ context.Context, e locktrace.Lost) { check("lost", e.Subject, e.Time, e.Token) },
			Released: func(_ context.Context, e locktrace.Released) {
				check("released", e.Subject, e.Time, e.Token)
				released = e
			},
			Trouble: func(_ context.Context, e locktrace.Trouble) {
				check("trouble", e.Subject, e.Time, token)
				failures = append(failures, e.Failures)
			},
			Request: func(_ context.Context, e locktrace.Request) {
				check("request", e.Subject, e.Time, token)
				requests = append(requests, e)
			},
		}})
		token = 0
		lease := acquire(t, lock)
		time.Sleep(6 * time.Second)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Delay: time.Second})
		if _, err := lock.Inspect(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if r := requests[len(requests)-1]; r.Op != "read" || r.Took != time.Second || r.Err != nil {
			t.Errorf("a look is %+v", r)
		}
		release(t, lease)
		if r := requests[len(requests)-1]; r.Op != "free" || r.Took != time.Second || released.Took != time.Second || released.Held != 7*time.Second {
			t.Errorf("a slow release is %+v, by %+v", released, r)
		}
		st.Clear()
		lease = acquire(t, lock)
		st.Partition(true)
		time.Sleep(20 * time.Second)
		_ = lease.Release(t.Context()) // it was lost, and the store is away
		if released.Err == nil || !released.Lost {
			t.Errorf("a release that cannot be is %+v", released)
		}
		if _, err := lock.Inspect(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		synctest.Wait()
		if r := requests[len(requests)-1]; !errors.Is(r.Err, store.ErrUnavailable) {
			t.Errorf("a look that fails is %+v", r)
		}
		if len(failures) == 0 || failures[0] < 3 || events["done"] != 2 || events["released"] != 2 || events["lost"] != 1 || events["renewed"] == 0 {
			t.Errorf("%v, trouble after %v failures", events, failures)
		}
	})
}
