package semaphore_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func acquired(t *testing.T, s *semaphore.Semaphore, weight int) *leasehold.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), weight)
	if err != nil {
		t.Fatal(err)
	}
	if !l.Valid() || l.Err() != nil || l.Context().Err() != nil {
		t.Fatalf("the lease is not valid: %v", l.Err())
	}
	return l
}

// says checks that an error has all these texts.
func says(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v; it does not say %q", what, err, text)
		}
	}
}

// unproven is a proof of nothing.
type unproven struct{}

func (unproven) Proves(storeName, use string) error {
	return errors.New(storeName + " was not tested for " + use)
}

// TestOptions: what cannot be used is refused before anything is sent, with what it is.
func TestOptions(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		elsewhere, err := leasehold.NewSession(t.Context(), faultstore.Wrap(memstore.New(), &faultstore.Options{Seed: 7}), nil)
		if err != nil {
			t.Fatal(err)
		}
		for what, c := range map[string]struct {
			st   store.Store
			key  string
			size int
			opts *semaphore.Options
			says []string
		}{
			"no store":          {nil, "slots", 1, nil, []string{"the store of a semaphore is nil"}},
			"no key":            {st, "", 1, nil, []string{"semaphore", `""`}},
			"a key that is not": {st, "a\x00", 1, nil, []string{"semaphore", `"a\x00"`}},
			"size zero":         {st, "slots", 0, nil, []string{`semaphore "slots"`, "the size 0 is not between 1 and 1073741824"}},
			"size too large":    {st, "slots", semaphore.MaxSize + 1, nil, []string{"the size 1073741825 is not between 1 and 1073741824"}},
			"TTL too short":     {st, "slots", 1, &semaphore.Options{TTL: time.Millisecond}, []string{`semaphore "slots"`, "TTL 1ms"}},
			"TTL too long":      {st, "slots", 1, &semaphore.Options{TTL: 25 * time.Hour}, []string{"TTL 25h"}},
			"holder":            {st, "slots", 1, &semaphore.Options{Holder: "a\xff"}, []string{`"a\xff" is not valid UTF-8`}},
			"address":           {st, "slots", 1, &semaphore.Options{Address: "a\xff"}, []string{`"a\xff" is not valid UTF-8`}},
			"meta data":         {st, "slots", 1, &semaphore.Options{Meta: map[string]string{"k": strings.Repeat("v", 1<<20)}}, []string{"bytes, more than"}},
			"proof":             {st, "slots", 1, &semaphore.Options{Proof: unproven{}}, []string{"was not tested for object"}},
			"session":           {st, "slots", 1, &semaphore.Options{Session: elsewhere}, []string{"its session is in another store", "seed 7"}},
		} {
			s, err := semaphore.New(c.st, c.key, c.size, c.opts)
			if s != nil {
				t.Errorf("%s: there is a semaphore", what)
			}
			says(t, what, err, c.says...)
		}
		s := newSemaphore(t, st, 2, nil)
		for _, weight := range []int{0, -1, 3} {
			l, err := s.Acquire(t.Context(), weight)
			if l != nil {
				t.Errorf("weight %d: there is a lease", weight)
			}
			says(t, "weight", err, "the semaphore mem://", "/slots: the weight", "is not between 1 and its size 2")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Acquire(ended, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
		if n := len(st.Log()); n != 0 || s.Key() != "slots" || s.Size() != 2 {
			t.Errorf("%d requests; %s of %d", n, s.Key(), s.Size())
		}
		closed(t, s, elsewhere)
	})
}

// TestCounts: acquire and release are a write each where the slot is free and known; the first of a process
// begins a session, by a look and a write, and looks besides.
func TestCounts(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 1, nil)
		released(t, acquired(t, s, 1))
		if c := st.Counts(); c != (faultstore.Counts{Get: 2, Put: 3}) {
			t.Errorf("the first time it takes %+v", c)
		}
		released(t, acquired(t, s, 1))
		if c := st.Counts(); c != (faultstore.Counts{Get: 2, Put: 5}) {
			t.Errorf("and after the second time %+v", c)
		}
		if n := leasetest.RequestsFor(st, "slots"); n != 5 {
			t.Errorf("%d of them are for the slots", n)
		}
		closed(t, s)
	})
}

// TestLooksInAnHour: a slot that is held for an hour costs those who wait a bounded number of requests, be
// it after turns of a few milliseconds.
func TestLooksInAnHour(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		a := newSemaphore(t, st, 1, nil)
		for range 20 {
			l := acquired(t, a, 1)
			time.Sleep(5 * time.Millisecond)
			released(t, l)
		}
		held := acquired(t, a, 1)
		var waiters []closer
		var all sync.WaitGroup
		for range 5 {
			s := newSemaphore(t, st, 1, nil)
			waiters = append(waiters, s)
			all.Go(func() { released(t, acquired(t, s, 1)) })
			time.Sleep(time.Second)
		}
		before := leasetest.RequestsFor(st, "slots")
		time.Sleep(time.Hour)
		if n := leasetest.RequestsFor(st, "slots") - before; n > 2500 {
			t.Errorf("five that wait look %d times in an hour", n)
		}
		released(t, held)
		all.Wait()
		closed(t, append(waiters, a)...)
	})
}

// TestLooksInALineThatNeverMoved: those behind the head look at the table the less often the longer nothing has moved,
// also where nobody knows yet how long a turn is. They used to look every ten seconds for ever.
func TestLooksInALineThatNeverMoved(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		holder := newSemaphore(t, st, 1, nil)
		held := acquired(t, holder, 1)
		var waiters []closer
		var nets []*faultstore.Store
		var all sync.WaitGroup
		for range 6 {
			net := faultstore.Wrap(st, nil)
			s := newSemaphore(t, net, 1, nil)
			waiters, nets = append(waiters, s), append(nets, net)
			all.Go(func() { released(t, acquired(t, s, 1)) })
			time.Sleep(time.Second)
		}
		reads := func() (line, sessions []int) {
			for _, net := range nets {
				n := leasetest.RequestsFor(net, "slots")
				line, sessions = append(line, n), append(sessions, net.Counts().Get-n)
			}
			return line, sessions
		}
		begun, _ := reads()
		time.Sleep(time.Hour)
		first, watched := reads()
		time.Sleep(time.Hour)
		line, sessions := reads()
		for i, n := range line {
			if i > 0 && (first[i]-begun[i] > 60 || n-first[i] > 16) { // every five minutes, and a quarter of that for chance
				t.Errorf("number %d looks %d times in the first hour, and %d times in the second", i, first[i]-begun[i], n-first[i])
			}
			// The first three look at each heartbeat of the one before them, the others once in 8/5 of a TTL, give or
			// take a quarter by chance: never more than 200 times an hour.
			if n := sessions[i] - watched[i]; i >= 3 && n > 200 {
				t.Errorf("number %d looks %d times in an hour at the session of the one before it", i, n)
			}
		}
		began := time.Now()
		released(t, held)
		all.Wait()
		t.Logf("six turns took %v", time.Since(began))
		closed(t, append(waiters, holder)...)
	})
}

// TestSession: leases under a session that is given are its members, share its end, and cost no session of
// their own; and it goes on when the semaphore is closed.
func TestSession(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		session, err := leasehold.NewSession(t.Context(), st, &leasehold.SessionOptions{Prefix: "my/sessions"})
		if err != nil {
			t.Fatal(err)
		}
		var lost []error
		opts := &semaphore.Options{Session: session, Holder: "me", Trace: leasetest.OnLost(func(err error) { lost = append(lost, err) })}
		a, b := newSemaphore(t, st, 2, opts), newSemaphore(t, st, 2, opts)
		first, second := acquired(t, a, 1), acquired(t, b, 1)
		info, err := a.Inspect(t.Context())
		if err != nil || len(info.Holders) != 2 || info.Holders[0].Session != session.Key() || info.Holders[1].Session != session.Key() || info.Holders[0].Holder != "me" {
			t.Errorf("it looks like %+v, %v", info, err)
		}
		if n := len(leasetest.Objects(t, st)); n != 2 {
			t.Errorf("there are %d objects", n)
		}
		released(t, first)
		closed(t, a)
		if !second.Valid() || session.Err() != nil {
			t.Errorf("the session ended with a semaphore: %v", session.Err())
		}
		done := make(chan error, 1)
		go func() { done <- session.Close(t.Context()) }()
		<-second.Done()
		if !errors.Is(second.Err(), leasehold.ErrLost) || !errors.Is(second.Err(), leasehold.ErrSessionOver) || second.Valid() {
			t.Errorf("the session is closed, and the lease: %v", second.Err())
		}
		if err := second.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("released: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("closed: %v", err)
		}
		synctest.Wait()
		if len(lost) != 1 || !errors.Is(lost[0], leasehold.ErrSessionOver) {
			t.Errorf("OnLost: %v", lost)
		}
		for range 2 {
			if _, err := b.Acquire(t.Context(), 1); !errors.Is(err, leasehold.ErrSessionOver) {
				t.Errorf("under a session that is over: %v", err)
			}
		}
		if after, err := b.Inspect(t.Context()); err != nil || after.Token != info.Token {
			t.Errorf("slots were granted under it: %+v, %v", after, err)
		}
		closed(t, b)
	})
}

// TestSessionLost: work whose session is lost is told at once, by its context, its lease and OnLost, which
// is called once for each lease; and acquisitions go on under another session.
func TestSessionLost(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		var first, second *leasehold.Lease
		var lost []leasehold.Token
		var after bool // the contexts had ended
		s := newSemaphore(t, st, 3, &semaphore.Options{Trace: &locktrace.Trace{Lost: func(_ context.Context, e locktrace.Lost) {
			if e.Kind == locktrace.Semaphore {
				lost = append(lost, leasehold.Token(e.Token))
				after = errors.Is(e.Cause, leasehold.ErrLost) && first.Context().Err() != nil && second.Context().Err() != nil
			}
		}}})
		first, second = acquired(t, s, 1), acquired(t, s, 1)
		st.Partition(true)
		began := time.Now()
		err := second.Context().Err()
		<-second.Done()
		if took := time.Since(began); err != nil || took > leasehold.DefaultTTL || took < leasehold.DefaultTTL/2 {
			t.Errorf("it ended after %v, %v", took, err)
		}
		synctest.Wait()
		for _, l := range []*leasehold.Lease{first, second} {
			if l.Valid() || !errors.Is(l.Err(), leasehold.ErrLost) || !errors.Is(context.Cause(l.Context()), leasehold.ErrLost) || !l.Deadline().IsZero() {
				t.Errorf("it goes on: %v until %v", l.Err(), l.Deadline())
			}
		}
		if len(lost) != 2 || !slices.Contains(lost, first.Token()) || !slices.Contains(lost, second.Token()) || !after {
			t.Errorf("OnLost: %d times", len(lost))
		}
		st.Partition(false)
		third := acquired(t, s, 1) // though the first two have not been released
		for _, l := range []*leasehold.Lease{first, second, second} {
			if err := l.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
				t.Errorf("released: %v", err)
			}
		}
		synctest.Wait()
		if len(lost) != 2 || !third.Valid() {
			t.Errorf("OnLost: %d times; the third: %v", len(lost), third.Err())
		}
		released(t, third)
		closed(t, s)
	})
}

// TestClose: it waits until the leases have been released, and lets their work go on till then.
func TestClose(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 2, nil)
		first, second := acquired(t, s, 1), acquired(t, s, 1)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := s.Close(short); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		began = time.Now()
		if err := s.Close(short); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("with a context that has ended, after %v: %v", time.Since(began), err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Close(t.Context()) }()
		time.Sleep(time.Minute)
		if !first.Valid() || !second.Valid() {
			t.Errorf("the leases ended: %v, %v", first.Err(), second.Err())
		}
		released(t, first)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("it did not wait for the second: %v", err)
		default:
		}
		released(t, second)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if info, err := s.Inspect(t.Context()); err != nil || len(info.Holders) != 0 {
			t.Errorf("it looks like %+v, %v", info, err)
		}
		sent := len(st.Log())
		time.Sleep(time.Hour)
		if n := len(st.Log()) - sent; n != 0 {
			t.Errorf("%d requests after it was closed", n)
		}
		released(t, acquired(t, s, 2)) // it can be used again
		closed(t, s, s)
		closed(t, newSemaphore(t, st, 2, nil)) // one that was never used
	})
}

// TestCloseAfterGivingUp: it waits until an acquisition that was given up has left nothing.
func TestCloseAfterGivingUp(t *testing.T) {
	for _, title := range []string{"a session of its own", "one that is given"} {
		t.Run(title, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				st := faultstore.Wrap(memstore.New(), nil)
				var opts semaphore.Options
				if title == "one that is given" {
					session, err := leasehold.NewSession(t.Context(), st, nil)
					if err != nil {
						t.Fatal(err)
					}
					opts.Session = session
					defer closed(t, session)
				}
				a, b := newSemaphore(t, st, 1, nil), newSemaphore(t, st, 1, &opts)
				held := acquired(t, a, 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "slots", Nth: 2, Delay: 2 * time.Second})
				if _, err := b.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, leasehold.ErrHeld) {
					t.Errorf("gave up: %v", err)
				}
				began := time.Now()
				closed(t, b)
				if took := time.Since(began); took < 2*time.Second {
					t.Errorf("closed after %v", took)
				}
				if info, err := a.Inspect(t.Context()); err != nil || len(info.Waiters) != 0 {
					t.Errorf("it looks like %+v, %v", info, err)
				}
				released(t, held)
				closed(t, a)
			})
		})
	}
}

// TestCloseInTime: what is not settled in half of the time that Close has does not keep the slots from others: the
// session ends, and they go to the next at its next look. Where work goes on under the session it does not end.
func TestCloseInTime(t *testing.T) {
	for _, c := range []struct {
		title string
		left  string // what is left to settle
		kind  faultstore.Kind
	}{
		{"others are faster", "a slot", faultstore.Conflict},
		{"a slot, no answer", "a slot", faultstore.Unavailable},
		{"a place in the queue, no answer", "a place", faultstore.Unavailable},
		{"work goes on", "work", faultstore.Unavailable},
	} {
		t.Run(c.title, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				inner := memstore.New()
				st := faultstore.Wrap(inner, nil)
				a, b := newSemaphore(t, st, 1, nil), newSemaphore(t, inner, 1, nil)
				var next func() *leasehold.Lease
				switch c.left {
				case "a place":
					held := acquired(t, b, 1)
					ctx, cancel := context.WithCancel(t.Context())
					gaveUp := make(chan struct{})
					go func() {
						defer close(gaveUp)
						if _, err := a.Acquire(ctx, 1); !errors.Is(err, context.Canceled) {
							t.Errorf("gave up: %v", err)
						}
					}()
					time.Sleep(time.Minute) // it waits
					st.Inject(faultstore.Fault{Kind: c.kind, Op: "put", Key: "slots"})
					cancel()
					<-gaveUp
					next = func() *leasehold.Lease {
						released(t, held)
						return acquired(t, b, 1)
					}
				default:
					lease := acquired(t, a, 1)
					time.Sleep(time.Minute)
					st.Inject(faultstore.Fault{Kind: c.kind, Op: "put", Key: "slots"})
					go func() {
						if c.left == "work" {
							time.Sleep(4 * time.Second)
						}
						_ = lease.Release(t.Context())
					}()
					next = func() *leasehold.Lease { return acquired(t, b, 1) }
				}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				err := a.Close(ctx)
				took := time.Since(began)
				if c.left == "work" { // and its half began when that was done
					if err != nil || took < 4500*time.Millisecond {
						t.Errorf("closed after %v: %v", took, err)
					}
				} else if err != nil || took < 2500*time.Millisecond || took > 3*time.Second {
					t.Errorf("closed after %v: %v", took, err)
				}
				if n := heldIn(t, inner, "sessions/"); n > 1 || n == 1 && c.left != "a place" {
					t.Errorf("%d sessions go on", n)
				}
				began = time.Now()
				lease := next()
				if took := time.Since(began); took > leasehold.DefaultTTL/3+time.Second {
					t.Errorf("the next had the slot after %v", took)
				}
				released(t, lease)
				closed(t, b)
			})
		})
	}
}

// TestCloseUnderAGivenSession: Close does not end a session that it was given, under which others may be, for want of time.
func TestCloseUnderAGivenSession(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		session, err := leasehold.NewSession(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := newSemaphore(t, st, 1, &semaphore.Options{Session: session})
		lease := acquired(t, s, 1)
		st.Inject(faultstore.Fault{Kind: faultstore.Conflict, Op: "put", Key: "slots"})
		done := make(chan error, 1)
		go func() { done <- lease.Release(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = s.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || session.Err() != nil {
			t.Errorf("closed: %v; the session: %v", err, session.Err())
		}
		says(t, "closed", err, "what is under way in the semaphore mem://", "is not settled")
		st.Clear()
		if err := <-done; err != nil {
			t.Errorf("released: %v", err)
		}
		closed(t, s, session)
	})
}

// endsLate is a context that ends without waking anybody: as if the answer had come first.
type endsLate struct {
	context.Context
	ended *atomic.Bool
}

func (c endsLate) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// TestGivesUpAsItComes: slots that came as their caller gave up are given back.
func TestGivesUpAsItComes(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		session, err := leasehold.NewSession(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		var told diary
		opts := told.options("a")
		opts.Session = session
		s := newSemaphore(t, st, 1, opts)
		ctx := endsLate{t.Context(), new(atomic.Bool)}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "slots", When: func(faultstore.Call) bool {
			ctx.ended.Store(true)
			return false
		}})
		if l, err := s.Acquire(ctx, 1); l != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("acquired: %v, %v", l, err)
		}
		closed(t, s)
		told.wants(t, "given up", "0s semaphore of a: start", "0s semaphore of a: done, nil, waited false, took over false",
			"0s semaphore of a: released, nil, held 0s, lost false")
		if info, err := s.Inspect(t.Context()); err != nil || info.Token == 0 || len(info.Holders) != 0 {
			t.Errorf("it looks like %+v, %v", info, err)
		}
		closed(t, session)
	})
}

// TestGivesUpEarly: one that gives up while the session is being begun leaves none, and the next one does not
// wait for it.
func TestGivesUpEarly(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{
			{Kind: faultstore.DelayBefore, Op: "put", Key: "sessions/*", Nth: 1, Delay: 8 * time.Second},
		}})
		s := newSemaphore(t, st, 1, nil)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		shorter, cancelToo := context.WithTimeout(t.Context(), time.Second/2)
		defer cancelToo()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := s.Acquire(short, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the first: %v", err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			began := time.Now()
			if _, err := s.Acquire(shorter, 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second/2 {
				t.Errorf("the second, after %v: %v", time.Since(began), err)
			}
		})
		began := time.Now()
		l := acquired(t, s, 1)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the third had its slot after %v", took)
		}
		all.Wait()
		released(t, l)
		closed(t, s)
		time.Sleep(time.Minute) // what was sent late is settled by now
		if held := heldIn(t, st, "sessions/"); held != 0 {
			t.Errorf("%d sessions go on", held)
		}
	})
}

// heldIn counts the locks that are held with these keys.
func heldIn(t *testing.T, st store.Store, prefix string) (n int) {
	t.Helper()
	for _, key := range leasetest.Objects(t, st) {
		if strings.HasPrefix(key, prefix) && leasetest.RecordIn(t, st, key).Held {
			n++
		}
	}
	return n
}

// TestForeign: what lies in the place of a semaphore and is none is left as it is, and named.
func TestForeign(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		for what, c := range map[string]struct{ body, says string }{
			"something":         {"hello", "it is not a JSON object"},
			"a lock":            {`{"format":1,"token":1,"state":"free","ttl_ms":1,"write_id":"x"}`, `it belongs to the layout "object", not "table"`},
			"a newer semaphore": {`{"format":2}`, "upgrade leasehold"},
		} {
			st := memstore.New()
			obj, err := st.Put(t.Context(), "slots", []byte(c.body), store.IfAbsent())
			if err != nil {
				t.Fatal(err)
			}
			s := newSemaphore(t, st, 1, nil)
			_, acquire := s.Acquire(t.Context(), 1)
			_, try := s.TryAcquire(t.Context(), 1)
			_, inspect := s.Inspect(t.Context())
			for _, err := range []error{acquire, try, inspect} {
				if !errors.Is(err, leasehold.ErrForeignObject) {
					t.Errorf("%s: %v", what, err)
				}
				says(t, what, err, "mem:///slots", c.says, "it was left as it is")
			}
			if now, err := st.Get(t.Context(), "slots", ""); err != nil || now.Version != obj.Version || string(now.Body) != c.body {
				t.Errorf("%s: it is %+v, %v", what, now, err)
			}
			closed(t, s)
		}
	})
}

// TestTwoKinds: a new key that is used as a semaphore, and as a lock or for an election, at one moment is one of these, and
// only the caller who was second is refused. Its session used to end, and with it every other lease of the process.
func TestTwoKinds(t *testing.T) {
	for _, late := range []string{"lock", "election", "semaphore"} {
		slow := faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "slots", Delay: time.Second}
		t.Run(late, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) { testTwoKinds(t, late, slow) })
		})
		t.Run(late+" after a conflict", func(t *testing.T) {
			conflict := faultstore.Fault{Kind: faultstore.Conflict, Op: "put", Key: "slots", Nth: 1}
			leasetest.Bubble(t, func(t *testing.T) { testTwoKinds(t, late, conflict, slow) })
		})
	}
}

func testTwoKinds(t *testing.T, late string, faults ...faultstore.Fault) {
	t.Helper()
	mem := memstore.New()
	st := faultstore.Wrap(mem, nil)
	session, err := leasehold.NewSession(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	lock := func(st store.Store, key string, s *leasehold.Session) *leasehold.Lock {
		l, wrong := leasehold.NewLock(st, key, &leasehold.LockOptions{Session: s})
		if wrong != nil {
			t.Fatal(wrong)
		}
		return l
	}
	other, err := lock(st, "other", session).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st.Inject(faults...)
	go func() { // another process
		time.Sleep(time.Second / 2)
		body := `{"format":1,"layout":"table","size":3,"token":1,"write_id":"x"}`
		if late == "semaphore" {
			body = `{"format":1,"token":1,"state":"free","ttl_ms":1,"write_id":"x"}`
		}
		if _, wrong := mem.Put(t.Context(), "slots", []byte(body), store.IfAbsent()); wrong != nil {
			t.Error(wrong)
		}
	}()
	switch late {
	case "lock":
		_, err = lock(st, "slots", session).Acquire(t.Context())
	case "election":
		var e *leasehold.Election
		if e, err = leasehold.NewElection(st, "slots", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Session: session}}); err == nil {
			_, err = e.Campaign(t.Context())
		}
	case "semaphore":
		_, err = newSemaphore(t, st, 3, &semaphore.Options{Session: session}).Acquire(t.Context(), 1)
	}
	if !errors.Is(err, leasehold.ErrForeignObject) {
		t.Errorf("the second one: %v", err)
	}
	time.Sleep(time.Minute)
	if err := other.Err(); err != nil {
		t.Errorf("another lease of the process: %v", err)
	}
	if err := errors.Join(other.Release(t.Context()), session.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestDeleted: when somebody deletes the object nobody gets a slot before the sessions of those are over who
// held some. Those who notice lose their leases, and it is logged.
func TestDeleted(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		var log leasetest.Log
		a := newSemaphore(t, st, 2, nil)
		b := newSemaphore(t, st, 2, &semaphore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		unaware, aware := acquired(t, a, 1), acquired(t, b, 1)
		got := make(chan *leasehold.Lease, 1)
		go func() { got <- acquired(t, b, 1) }()
		time.Sleep(time.Minute)
		if err := st.Delete(t.Context(), "slots"); err != nil {
			t.Fatal(err)
		}
		<-aware.Done()
		says(t, "the one that noticed", aware.Err(), "the lease was lost", "was deleted")
		time.Sleep(time.Hour)
		if !unaware.Valid() || len(got) != 0 {
			t.Fatalf("the one that did not: %v; others have slots: %d", unaware.Err(), len(got))
		}
		if err := aware.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("released: %v", err)
		}
		time.Sleep(time.Hour)
		if !unaware.Valid() || len(got) != 0 {
			t.Fatalf("the one that did not: %v; others have slots: %d", unaware.Err(), len(got))
		}
		released(t, unaware)
		closed(t, a) // its session is over
		began := time.Now()
		l := <-got
		if took := time.Since(began); took > 20*time.Second || l.Token() <= aware.Token() {
			t.Errorf("after %v: the token %d after %d", took, l.Token(), aware.Token())
		}
		synctest.Wait()
		if text := log.String(); strings.Count(text, "the semaphore's object was deleted") != 1 || !strings.Contains(text, "semaphore=mem:///slots") {
			t.Errorf("the log: %s", text)
		}
		released(t, l)
		closed(t, b)
	})
}

// TestExisting: an object that must exist is never made.
func TestExisting(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := newSemaphore(t, st, 1, &semaphore.Options{Existing: true})
		_, acquire := s.Acquire(t.Context(), 1)
		_, try := s.TryAcquire(t.Context(), 1)
		for _, err := range []error{acquire, try} {
			if !errors.Is(err, store.ErrNotExist) {
				t.Errorf("%v", err)
			}
			says(t, "absent", err, "the semaphore mem:///slots is to exist already, and does not")
		}
		if info, err := s.Inspect(t.Context()); err != nil || info.Exists || info.Key != "slots" || info.Age != -1 {
			t.Errorf("it looks like %+v, %v", info, err)
		}
		time.Sleep(time.Millisecond)
		maker := newSemaphore(t, st, 1, nil)
		released(t, acquired(t, maker, 1))
		released(t, acquired(t, s, 1))
		closed(t, s, maker)
	})
}

// TestRefusedForGood: where trying again is pointless an acquisition fails at once, whatever is refused.
func TestRefusedForGood(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		for what, f := range map[string]faultstore.Fault{
			"all":           {Kind: faultstore.Denied},
			"writes":        {Kind: faultstore.Denied, Op: "put"},
			"the table":     {Kind: faultstore.Denied, Key: "slots"},
			"to read it":    {Kind: faultstore.Denied, Key: "slots", Op: "get"},
			"to write it":   {Kind: faultstore.Denied, Key: "slots", Op: "put"},
			"the session's": {Kind: faultstore.Denied, Key: "sessions/*"},
		} {
			st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{f}})
			s := newSemaphore(t, st, 1, nil)
			began := time.Now()
			_, acquire := s.Acquire(t.Context(), 1)
			_, try := s.TryAcquire(t.Context(), 1)
			for _, err := range []error{acquire, try} {
				if !errors.Is(err, store.ErrDenied) {
					t.Errorf("%s: %v", what, err)
				}
				says(t, what, err, "the semaphore mem://", "/slots: ")
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s: it took %v", what, took)
			}
			st.Clear()
			closed(t, s)
			if info, err := s.Inspect(t.Context()); err != nil || len(info.Holders)+len(info.Waiters) != 0 || heldIn(t, st, "sessions/") != 0 {
				t.Errorf("%s: it left %+v, %v", what, info, err)
			}
		}
	})
}

// TestFailsForNow: a store that fails for a while keeps those who want slots waiting, and says so once a minute.
func TestFailsForNow(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		var troubles []error
		var log leasetest.Log
		s := newSemaphore(t, st, 2, &semaphore.Options{
			Trace: leasetest.OnTrouble(func(err error) { troubles = append(troubles, err) }), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		var kept *leasehold.Lease
		for _, c := range []struct{ what, op, key string }{
			{"no session yet", "", ""},
			{"a session", "", "slots"},
			{"reads", "get", ""},
		} {
			what := c.what
			time.Sleep(time.Minute)
			troubles = nil
			st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: c.op, Key: c.key})
			got := make(chan *leasehold.Lease, 1)
			before := len(st.Log())
			go func() { got <- acquired(t, s, 1) }()
			time.Sleep(50 * time.Second)
			synctest.Wait()
			if len(troubles) != 1 || !errors.Is(troubles[0], store.ErrUnavailable) {
				t.Errorf("%s: told of %v", what, troubles)
			}
			if n := len(st.Log()) - before; n > 60 {
				t.Errorf("%s: %d requests in 50 s", what, n)
			}
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := s.Acquire(short, 1)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
			if what != "no session yet" && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: it does not say why: %v", what, err)
			}
			st.Clear()
			began := time.Now()
			released(t, <-got)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: it took %v when the store was back", what, took)
			}
			if kept == nil {
				kept = acquired(t, s, 1) // and with it the session
			}
		}
		released(t, kept)
		closed(t, s)
		if n := strings.Count(log.String(), locktrace.TroubleMessage); n != 3 {
			t.Errorf("it is logged %d times: %s", n, &log)
		}
	})
}

// TestWaiting: one that waits is told of its place, when it begins to and when that changes.
func TestWaiting(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		var places []locktrace.Waiting
		holding := func(i int) leasehold.Info {
			held, _ := errors.AsType[*leasehold.HeldError](places[i].Held)
			return held.Info
		}
		a, b, c := newSemaphore(t, st, 1, &semaphore.Options{Holder: "a"}), newSemaphore(t, st, 1, &semaphore.Options{Holder: "b"}),
			newSemaphore(t, st, 1, &semaphore.Options{Trace: &locktrace.Trace{
				Waiting: func(_ context.Context, e locktrace.Waiting) { places = append(places, e) },
			}})
		held := acquired(t, a, 1)
		second, third := make(chan *leasehold.Lease, 1), make(chan *leasehold.Lease, 1)
		go func() { second <- acquired(t, b, 1) }()
		time.Sleep(time.Second)
		go func() { third <- acquired(t, c, 1) }()
		time.Sleep(time.Minute)
		released(t, held)
		l := <-second
		time.Sleep(time.Minute)
		released(t, l)
		released(t, <-third)
		synctest.Wait()
		if len(places) != 2 || places[0].Ahead != 1 || places[1].Ahead != 0 ||
			holding(0).Holders[0].Holder != "a" || holding(1).Holders[0].Holder != "b" || len(holding(0).Waiters) != 2 {
			t.Errorf("the places were %+v", places)
		}
		closed(t, a, b, c)
	})
}

// TestDo: what f returns is what Do returns, and that the lease was lost; and the lease is released
// whatever f does.
func TestDo(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 1, nil)
		free := func(what string) {
			t.Helper()
			if info, err := s.Inspect(t.Context()); err != nil || len(info.Holders)+len(info.Waiters) != 0 {
				t.Errorf("%s: it looks like %+v, %v", what, info, err)
			}
		}
		broken := errors.New("broken")
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, 7)
		err := s.Do(ctx, 1, func(ctx context.Context, l *leasehold.Lease) error {
			if ctx.Value(key{}) != 7 || l.Context().Value(key{}) != 7 || !l.Valid() || leasehold.Internal.Core(l).Of().Weight() != 1 || l.Key() != "slots" {
				t.Errorf("the lease is %+v", l)
			}
			return broken
		})
		if !errors.Is(err, broken) || errors.Is(err, leasehold.ErrLost) {
			t.Errorf("it failed: %v", err)
		}
		free("failed")

		func() {
			defer func() {
				if r := recover(); r != "oh" {
					t.Errorf("it panicked with %v", r)
				}
			}()
			_ = s.Do(t.Context(), 1, func(context.Context, *leasehold.Lease) error { panic("oh") })
		}()
		free("panicked")

		cancelled, cancel := context.WithCancel(t.Context())
		if err := s.Do(cancelled, 1, func(ctx context.Context, l *leasehold.Lease) error {
			cancel()
			<-ctx.Done()
			if !l.Valid() {
				t.Error("the lease ended with the context of the caller")
			}
			return nil
		}); err != nil {
			t.Errorf("cancelled: %v", err)
		}
		free("cancelled")

		if err := s.Do(cancelled, 1, func(context.Context, *leasehold.Lease) error {
			t.Error("it was called")
			return nil
		}); !errors.Is(err, context.Canceled) {
			t.Errorf("called with a context that has ended: %v", err)
		}

		if err := s.Do(t.Context(), 1, func(ctx context.Context, l *leasehold.Lease) error {
			st.Partition(true)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), leasehold.ErrLost) || l.Valid() {
				t.Errorf("the context ended by %v", context.Cause(ctx))
			}
			st.Partition(false)
			return broken
		}); !errors.Is(err, broken) || !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("lost: %v", err)
		}
		if err := s.Close(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestDeadline: it moves with each heartbeat of the session, is never later than the lease is valid, and is
// zero when that has ended.
func TestDeadline(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := newSemaphore(t, memstore.New(), 1, &semaphore.Options{TTL: 30 * time.Second})
		l := acquired(t, s, 1)
		until := time.Until(l.Deadline())
		if until > 30*time.Second-30*time.Second/12 || until < 25*time.Second {
			t.Errorf("it is valid for %v", until)
		}
		time.Sleep(time.Minute)
		if again := time.Until(l.Deadline()); again < 15*time.Second || again > 30*time.Second {
			t.Errorf("a minute later it is valid for %v", again)
		}
		released(t, l)
		if !l.Deadline().IsZero() {
			t.Errorf("it is released, and ends in %v", time.Until(l.Deadline()))
		}
		closed(t, s)
	})
}

// TestSuspended: after the machine was suspended for longer than the TTL a lease is not valid, before any
// timer has gone off.
func TestSuspended(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := newSemaphore(t, memstore.New(), 1, nil)
		l := acquired(t, s, 1)
		leasetest.Slept.Store(int64(time.Hour))
		if l.Valid() || !errors.Is(l.Err(), leasehold.ErrLost) || !l.Deadline().Before(time.Now()) {
			t.Errorf("it is valid: %v until %v", l.Err(), l.Deadline())
		}
		if err := l.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) { // it used to be nil if nothing had noticed yet
			t.Errorf("released: %v", err)
		}
		if err := s.Close(t.Context()); err != nil && !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestSuspendedWhileAcquiring: a slot that is granted while the machine sleeps for longer than the session
// lasts is no lease.
func TestSuspendedWhileAcquiring(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		session, err := leasehold.NewSession(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := newSemaphore(t, st, 1, &semaphore.Options{Session: session})
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "slots", When: func(faultstore.Call) bool {
			leasetest.Slept.Store(int64(time.Hour))
			return false
		}})
		if l, err := s.Acquire(t.Context(), 1); l != nil || !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("acquired: %v, %v", l, err)
		}
		_ = session.Close(t.Context()) // it was lost
	})
}

// TestAbandon: a lease that is abandoned ends at once, and keeps its slots until it is released.
func TestAbandon(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		why := errors.New("refused")
		var lost []error
		s := newSemaphore(t, st, 2, &semaphore.Options{Trace: leasetest.OnLost(func(err error) { lost = append(lost, err) })})
		for _, cause := range []error{why, nil} {
			lost = nil
			l, other := acquired(t, s, 1), acquired(t, s, 1)
			l.Abandon(cause)
			l.Abandon(cause)
			l.Abandon(errors.New("again"))
			synctest.Wait()
			if l.Valid() || !errors.Is(l.Err(), leasehold.ErrLost) || !l.Deadline().IsZero() || cause != nil && !errors.Is(context.Cause(l.Context()), why) {
				t.Errorf("abandoned: %v", l.Err())
			}
			if len(lost) != 1 || !errors.Is(lost[0], leasehold.ErrLost) || cause != nil && !errors.Is(lost[0], why) {
				t.Errorf("OnLost: %v", lost)
			}
			if info, err := s.Inspect(t.Context()); err != nil || info.Taken() != 2 || !other.Valid() {
				t.Errorf("it looks like %+v, %v; the other: %v", info, err, other.Err())
			}
			if err := l.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
				t.Errorf("released: %v", err)
			}
			released(t, other)
			other.Abandon(why) // it has ended
			if !errors.Is(other.Err(), leasehold.ErrReleased) || len(lost) != 1 {
				t.Errorf("it was released: %v; OnLost: %v", other.Err(), lost)
			}
		}
		if info, err := s.Inspect(t.Context()); err != nil || info.Taken() != 0 {
			t.Errorf("it looks like %+v, %v", info, err)
		}
		closed(t, s)
	})
}

// TestFence: a fair lock's tokens fence: what a newer holder has claimed an older one cannot write, and
// its lease ends.
func TestFence(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		net := faultstore.Wrap(inner, nil)
		lock := func(st store.Store) *semaphore.Lock {
			l, err := semaphore.NewLock(st, "line", nil)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		guarded := func() *fence.Object {
			o, err := fence.NewObject(inner, "data", nil)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		a, b := lock(net), lock(inner)
		old, err := a.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := guarded()
		if err = before.Put(t.Context(), old, strings.NewReader("old")); err != nil {
			t.Fatal(err)
		}
		token := fence.Token(old.Token())
		net.Partition(true)
		next, err := b.Acquire(t.Context())
		if err != nil || next.Token() <= old.Token() {
			t.Fatalf("%v, the token %d after %d", err, next.Token(), old.Token())
		}
		if err = guarded().Put(t.Context(), next, strings.NewReader("new")); err != nil {
			t.Fatal(err)
		}
		if err = before.Put(t.Context(), old, strings.NewReader("late")); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("under a lease that was lost: %v", err)
		}
		if err = before.Put(t.Context(), token, strings.NewReader("late")); !errors.Is(err, fence.ErrFenced) {
			t.Errorf("by the token alone: %v", err)
		}
		v, err := guarded().Get(t.Context())
		if err != nil || v.Token != next.Token() {
			t.Errorf("there is %+v, %v", v, err)
		}
		net.Partition(false)
		_ = old.Release(t.Context())
		released(t, next)
		closed(t, b)
		_ = a.Close(t.Context()) // its session was lost

		// A newer token ends the lease that meets it.
		mine, err := b.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = guarded().Claim(t.Context(), fence.Token(mine.Token()+1)); err != nil {
			t.Fatal(err)
		}
		if err = guarded().Put(t.Context(), mine, strings.NewReader("mine")); !errors.Is(err, fence.ErrFenced) {
			t.Errorf("with a token that is too old: %v", err)
		}
		if !errors.Is(mine.Err(), leasehold.ErrLost) || !errors.Is(mine.Err(), fence.ErrFenced) || mine.Valid() {
			t.Errorf("its lease: %v", mine.Err())
		}
		_ = mine.Release(t.Context())
		closed(t, b)
	})
}

// TestReleaseUnanswered: where the store does not say for a TTL that a release has landed, it says so, and the
// session ends, since nobody else could free the slot.
func TestReleaseUnanswered(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		var log leasetest.Log
		s := newSemaphore(t, st, 2, &semaphore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		l, other := acquired(t, s, 1), acquired(t, s, 1)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Key: "slots"})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Release(short)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before its end: %v", err)
		}
		says(t, "before its end", err, "/slots is under way and not confirmed yet")
		if l.Valid() || !errors.Is(l.Err(), leasehold.ErrReleased) {
			t.Errorf("before its end it is valid: %v", l.Err())
		}
		began := time.Now()
		err = l.Release(t.Context())
		if took := time.Since(began); took > leasehold.DefaultTTL {
			t.Errorf("it took %v", took)
		}
		says(t, "unanswered", err, "the slots in mem://", "/slots may still be taken for held, until the end of its session")
		if errors.Is(err, leasehold.ErrLost) || !errors.Is(l.Err(), leasehold.ErrReleased) {
			t.Errorf("released: %v; the lease: %v", err, l.Err())
		}
		<-other.Done()
		if !errors.Is(other.Err(), leasehold.ErrSessionOver) {
			t.Errorf("the other under that session: %v", other.Err())
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "so the session ends") {
			t.Errorf("the log: %s", &log)
		}
		st.Clear()
		_ = other.Release(t.Context())
		again := acquired(t, s, 2)
		released(t, again)
		closed(t, s)
	})
}

// TestCloseOfAnOrphan: a session that had to end because of one release has taken the other leases with it. Close says
// so; it used to return nil.
func TestCloseOfAnOrphan(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 2, nil)
		l, other := acquired(t, s, 1), acquired(t, s, 1)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Key: "slots"})
		says(t, "released", l.Release(t.Context()), "may still be taken for held")
		<-other.Done()
		if err := other.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("the other: %v", err)
		}
		if err := s.Close(t.Context()); !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, leasehold.ErrSessionOver) {
			t.Errorf("closed: %v", err)
		}
		closed(t, s) // there is none any more
	})
}

// TestReleaseUnreachable: while the store cannot be reached at all, a session ends before its table has tried for a
// TTL. The release says that the slot may be taken for held; it used to return nil.
func TestReleaseUnreachable(t *testing.T) {
	for _, title := range []string{"a session of its own", "one that is given"} {
		t.Run(title, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				inner := memstore.New()
				st := faultstore.Wrap(inner, nil)
				opts := &semaphore.Options{}
				if title == "one that is given" {
					session, err := leasehold.NewSession(t.Context(), st, nil)
					if err != nil {
						t.Fatal(err)
					}
					opts.Session = session
					defer func() { _ = session.Close(t.Context()) }() // it was lost
				}
				s := newSemaphore(t, st, 1, opts)
				l := acquired(t, s, 1)
				time.Sleep(7 * time.Second)
				st.Partition(true)
				began := time.Now()
				err := l.Release(t.Context())
				if took := time.Since(began); took > leasehold.DefaultTTL {
					t.Errorf("it took %v", took)
				}
				says(t, "unreachable", err, "the slots in mem://", "may still be taken for held, until the end of its session is known to others")
				if !errors.Is(err, leasehold.ErrSessionOver) || errors.Is(err, leasehold.ErrLost) || !errors.Is(l.Err(), leasehold.ErrReleased) {
					t.Errorf("released: %v; the lease: %v", err, l.Err())
				}
				if again := l.Release(t.Context()); again != err { //nolint:errorlint // the very same
					t.Errorf("released again: %v", again)
				}
				if info, err := newSemaphore(t, inner, 1, nil).Inspect(t.Context()); err != nil || info.Taken() != 1 {
					t.Errorf("it looks like %+v, %v", info, err)
				}
				st.Partition(false)
				_ = s.Close(t.Context()) // its session was lost
			})
		})
	}
}

// TestOneCallbackAtATime: whatever tells of it, trouble is told of once a minute, and by one callback at a time.
func TestOneCallbackAtATime(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		var mu sync.Mutex
		running, most := 0, 0
		calls := map[string]int{}
		callback := func(name string) {
			mu.Lock()
			running++
			calls[name]++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(7 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			running--
		}
		a := newSemaphore(t, st, 1, &semaphore.Options{
			TTL: time.Minute, Trace: &locktrace.Trace{
				Trouble: func(context.Context, locktrace.Trouble) { callback("trouble") },
				Lost: func(_ context.Context, e locktrace.Lost) {
					if e.Kind == locktrace.Semaphore {
						callback("lost")
					}
				},
			},
		})
		held := acquired(t, a, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := a.Acquire(ctx, 1)
			done <- err
		}()
		time.Sleep(time.Minute)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable}) // for the table and for the session
		time.Sleep(50 * time.Second)
		mu.Lock()
		if calls["trouble"] != 1 || most != 1 {
			t.Errorf("in 50 s there were %v, %d at a time", calls, most)
		}
		mu.Unlock()
		<-held.Done()
		time.Sleep(5 * time.Minute)
		mu.Lock()
		if calls["trouble"] < 5 || calls["trouble"] > 6 || calls["lost"] != 1 || most != 1 {
			t.Errorf("in six minutes there were %v, %d at a time", calls, most)
		}
		mu.Unlock()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it waited until %v", err)
		}
		st.Clear()
		_ = held.Release(t.Context())
		_ = a.Close(t.Context()) // the session was lost
		time.Sleep(time.Hour)
	})
}

// TestTraceThatHangs: the log names a function that does not return, and says that a wait began again at the
// end of the queue because the session ended.
func TestTraceThatHangs(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		var log leasetest.Log
		hang := make(chan struct{})
		s := newSemaphore(t, st, 1, &semaphore.Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Trace: leasetest.OnLost(func(error) { <-hang }),
		})
		lease := acquired(t, s, 1)
		done := make(chan error, 1)
		go func() {
			next, err := s.Acquire(t.Context(), 1)
			if err == nil {
				err = next.Release(t.Context())
			}
			done <- err
		}()
		time.Sleep(time.Second)
		st.Partition(true)
		<-lease.Done()
		time.Sleep(2 * leasehold.DefaultTTL)
		st.Partition(false)
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, want := range []string{"a function of a Trace does not return", "function=Lost", "begins again at the end of the queue"} {
			if n := strings.Count(log.String(), want); n != 1 {
				t.Errorf("%d times %q in the log:\n%s", n, want, log.String())
			}
		}
		close(hang)
		_ = lease.Release(t.Context())
		_ = s.Close(t.Context()) // the first session was lost
		synctest.Wait()
		for _, of := range []string{`lock="mem:// behind faults of seed 0/sessions/`, `semaphore="mem:// behind faults of seed 0/slots"`} {
			if !strings.Contains(log.String(), `msg="lease lost" `+of) {
				t.Errorf("the log does not say that the lease of %s was lost: %s", of, &log)
			}
		}
		if strings.Contains(log.String(), "was not closed") { // of a session that was lost all has been said
			t.Errorf("the log says %s", &log)
		}
	})
}

// Each lease is held, and each waiter waits, under the name that its acquisition gave; a name that cannot be is
// refused before anything is sent.
func TestWithHolder(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 2, &semaphore.Options{Holder: "process"})
		for _, name := range []string{"", strings.Repeat("x", 1025)} {
			if _, err := s.TryAcquire(t.Context(), 1, leasehold.WithHolder(name)); err == nil || !strings.Contains(err.Error(), "WithHolder: the name ") {
				t.Errorf("a name of %d bytes: %v", len(name), err)
			}
		}
		if _, err := s.Acquire(t.Context(), 1, leasehold.WithHolder("a\xff")); err == nil || !strings.Contains(err.Error(), `WithHolder: the name "a\xff" is not valid UTF-8`) {
			t.Errorf("a name that is no text: %v", err)
		}
		if n := st.Counts(); n.Get+n.Put != 0 {
			t.Errorf("that sent %+v", n)
		}
		first, err := s.Acquire(t.Context(), 1, leasehold.WithHolder("first"))
		if err != nil {
			t.Fatal(err)
		}
		second, err := s.TryAcquire(t.Context(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		third := make(chan *leasehold.Lease, 1)
		go func() {
			l, failed := s.Acquire(t.Context(), 1, leasehold.WithHolder("third"))
			if failed != nil {
				t.Error(failed)
			}
			third <- l
		}()
		time.Sleep(3 * time.Second)
		info, err := s.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Holders) != 2 || info.Holders[0].Holder != "first" || info.Holders[1].Holder != "process" || first.Holder() != "first" || second.Holder() != "process" {
			t.Errorf("it is held by %+v", info.Holders)
		}
		if len(info.Waiters) != 1 || info.Waiters[0].Holder != "third" {
			t.Errorf("waiting are %+v", info.Waiters)
		}
		if _, err = s.Acquire(t.Context(), 1, leasehold.WithHolder("a\xff")); err == nil { // it used to be the end of the third
			t.Error("a name that is no text was taken")
		}
		released(t, first)
		released(t, second, <-third)
		closed(t, s)
	})
}

// TestReleasedWithin: a function that releases its own lease, be it with its own context, which ends by that, has
// done its work.
func TestReleasedWithin(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 1, nil)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Key: "slots", Delay: time.Second})
		for what, with := range map[string]func(ctx context.Context, l *leasehold.Lease) context.Context{
			"another context":  func(context.Context, *leasehold.Lease) context.Context { return t.Context() },
			"its own":          func(_ context.Context, l *leasehold.Lease) context.Context { return l.Context() },
			"that of its work": func(ctx context.Context, _ *leasehold.Lease) context.Context { return ctx },
		} {
			if err := s.Do(t.Context(), 1, func(ctx context.Context, l *leasehold.Lease) error {
				err := l.Release(with(ctx, l))
				if info, failed := s.Inspect(t.Context()); failed != nil || info.Taken() != 0 { //nolint:contextcheck // that of f has ended with the lease
					t.Errorf("%s: it looks like %+v, %v", what, info, failed)
				}
				return err
			}); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		st.Clear()
		l := acquired(t, s, 1)
		st.Partition(true)
		began := time.Now()
		err := l.Release(l.Context())
		if took := time.Since(began); err == nil || took != 5*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		st.Partition(false)
		closed(t, s)
	})
}

// TestDoWhileSuspended: work that went on while the machine slept for longer than the TTL has lost its lease, though
// no timer has gone off since.
func TestDoWhileSuspended(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := newSemaphore(t, memstore.New(), 1, nil)
		if err := s.Do(t.Context(), 1, func(context.Context, *leasehold.Lease) error {
			leasetest.Slept.Store(int64(time.Hour))
			return nil
		}); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("it returned %v", err)
		}
		if err := s.Close(t.Context()); err != nil && !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestReleaseAfterItsContext: a release whose context has ended has 5 s all the same, and no more.
func TestReleaseAfterItsContext(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 1, nil)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		l := acquired(t, s, 1)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Key: "slots", Delay: 2 * time.Second})
		if err := l.Release(ended); err != nil {
			t.Errorf("released in two seconds: %v", err)
		}
		st.Clear()
		l = acquired(t, s, 1)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Key: "slots"})
		began := time.Now()
		err := l.Release(ended)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 5*time.Second {
			t.Errorf("while the store fails it took %v: %v", took, err)
		}
		st.Clear()
		closed(t, s)
	})
}

// TestTryAnotherSize: whether or not there is a slot, and a session, one that was configured differently is told so.
func TestTryAnotherSize(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := newSemaphore(t, st, 3, nil), newSemaphore(t, st, 2, nil)
		l := acquired(t, a, 3)
		for range 2 {
			if _, err := b.TryAcquire(t.Context(), 1); !errors.Is(err, semaphore.ErrSize) || errors.Is(err, leasehold.ErrHeld) {
				t.Errorf("of another size: %v", err)
			}
		}
		released(t, l)
		if _, err := b.TryAcquire(t.Context(), 1); !errors.Is(err, semaphore.ErrSize) {
			t.Errorf("of another size, and free: %v", err)
		}
		closed(t, a, b)
	})
}

// TestJoinAfterTheSession: an acquisition that cannot begin, since the session that it has begun has run out by then,
// keeps nobody from closing that.
func TestJoinAfterTheSession(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := newSemaphore(t, memstore.New(), 1, &semaphore.Options{Trace: &locktrace.Trace{AcquireDone: func(_ context.Context, e locktrace.AcquireDone) {
			if e.Kind == locktrace.Session {
				leasetest.Slept.Store(int64(time.Hour))
			}
		}}})
		if l, err := s.TryAcquire(t.Context(), 1); l != nil || !errors.Is(err, leasehold.ErrSessionOver) {
			t.Errorf("acquired: %v, %v", l, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); errors.Is(err, context.DeadlineExceeded) || err != nil && !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestRolledBack: where somebody puts an older version of the object back, from a backup, the tokens of a process that
// has seen larger ones stay above those. They used to come again.
func TestRolledBack(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := newSemaphore(t, st, 1, nil)
		l := acquired(t, s, 1)
		released(t, l)
		old, err := st.Get(t.Context(), "slots", "")
		if err != nil {
			t.Fatal(err)
		}
		var last leasehold.Token
		for range 3 {
			l = acquired(t, s, 1)
			last = l.Token()
			released(t, l)
		}
		now, err := st.Get(t.Context(), "slots", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = st.Put(t.Context(), "slots", old.Body, store.IfMatch(now.Version)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if l = acquired(t, s, 1); l.Token() <= last {
			t.Errorf("the token %d was given out after %d", l.Token(), last)
		}
		released(t, l)
		closed(t, s)
	})
}

// TestRolledBackAfterALook: a process that has only looked at the object, by Inspect or by a TryAcquire that found it full,
// has seen its token, too. It used to give out the same ones again.
func TestRolledBackAfterALook(t *testing.T) {
	for _, look := range []func(t *testing.T, s *semaphore.Semaphore){
		func(t *testing.T, s *semaphore.Semaphore) {
			if _, err := s.Inspect(t.Context()); err != nil {
				t.Error(err)
			}
		},
		func(t *testing.T, s *semaphore.Semaphore) {
			if _, err := s.TryAcquire(t.Context(), 1); !errors.Is(err, leasehold.ErrHeld) {
				t.Error(err)
			}
		},
	} {
		leasetest.Bubble(t, func(t *testing.T) {
			st := memstore.New()
			other, s := newSemaphore(t, st, 1, nil), newSemaphore(t, st, 1, nil)
			released(t, acquired(t, other, 1))
			old, err := st.Get(t.Context(), "slots", "")
			if err != nil {
				t.Fatal(err)
			}
			released(t, acquired(t, other, 1))
			l := acquired(t, other, 1)
			last := l.Token()
			look(t, s)
			released(t, l)
			closed(t, other)
			now, err := st.Get(t.Context(), "slots", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err = st.Put(t.Context(), "slots", old.Body, store.IfMatch(now.Version)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if l = acquired(t, s, 1); l.Token() <= last {
				t.Errorf("the token %d was given out after %d", l.Token(), last)
			}
			released(t, l)
			closed(t, s)
		})
	}
}

// TestTroubleIsLogged: a program that says nothing of a Logger learns why it waits for a store that cannot be reached,
// be it for its session or for the table.
func TestTroubleIsLogged(t *testing.T) {
	for what, key := range map[string]string{"its session": "sessions/*", "the table": "slots"} {
		leasetest.Bubble(t, func(t *testing.T) {
			var text leasetest.Log
			leasetest.LogByDefault(t, &text)
			st := faultstore.Wrap(memstore.New(), nil)
			s := newSemaphore(t, st, 1, nil)
			st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Key: key})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := s.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: it returned %v", what, err)
			}
			for _, part := range []string{"the store fails, and is tried again", "mem://", "goes on until its context ends: give it a deadline"} {
				if !strings.Contains(text.String(), part) {
					t.Errorf("%s: the log does not say %q: %s", what, part, &text)
				}
			}
			st.Clear()
			closed(t, s)
		})
	}
}

// A mute store answers nothing.
type mute struct{ store.Store }

func (mute) Get(ctx context.Context, _ string, _ store.Version) (*store.Object, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (mute) Put(ctx context.Context, _ string, _ []byte, _ store.Condition) (*store.Object, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestTryAcquireWithoutAnAnswer: it ends within a TTL, with an error that says that the store is unavailable.
func TestTryAcquireWithoutAnAnswer(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := newSemaphore(t, mute{memstore.New()}, 1, nil)
		if _, err := s.TryAcquire(t.Context(), 1); !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // requests end
		closed(t, s)
	})
}

// A queue that is full is full, and says so; and whoever leaves can still give all of it slots. A grant
// makes an entry longer, so a writer that had as many readers behind it as there was room for could not be
// released.
func TestFull(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		l, err := semaphore.NewRWLock(st, "far/down/below/table", &semaphore.Options{Holder: strings.Repeat("h", 200)})
		if err != nil {
			t.Fatal(err)
		}
		writer, err := l.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		full, read := 0, 0
		for range 1200 {
			all.Go(func() {
				err := l.RDo(t.Context(), func(context.Context, *leasehold.Lease) error {
					mu.Lock()
					defer mu.Unlock()
					read++
					return nil
				})
				if errors.Is(err, semaphore.ErrFull) {
					mu.Lock()
					defer mu.Unlock()
					full++
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		released(t, writer)
		all.Wait()
		if full == 0 || read < 500 {
			t.Errorf("%d had their turn, and for %d there was no room", read, full)
		}
		closed(t, l)
	})
}
