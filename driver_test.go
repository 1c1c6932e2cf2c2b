package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// debugLog is a log of all there is to tell.
func debugLog(log *lines) *slog.Logger {
	return slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A marker is deleted when it is released, and nothing is left that says by whom. The change says
// who it was all the same, and that he holds it no more.
func TestObserveMarkers(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it uses markers: the same in every layout")
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		e, err := leasehold.NewElection(st, "jobs/backup", &leasehold.ElectionOptions{Layout: leasehold.LayoutMarkerIfMatch})
		if err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutMarkerIfMatch, Holder: "a", Address: "a:1"}))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		time.AfterFunc(time.Minute, func() { release(t, lease) })
		var got []string
		for c := range e.Observe(ctx) {
			got = append(got, c.Kind.String())
			if c.Info.Holder != "a" || c.Info.Address != "a:1" || c.Info.Held != (c.Kind == leasehold.Elected) || c.Info.Key != "jobs/backup" {
				t.Errorf("%v: %+v", c.Kind, c.Info)
			}
		}
		if want := []string{"elected", "resigned"}; !slices.Equal(got, want) {
			t.Errorf("observed %v, want %v", got, want)
		}
	})
}

// Each write is in the log, if that is to say everything: what it was for, its token, and how
// it went.
func TestWritesAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log lines
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Logger: debugLog(&log)})
		puts := cost(st, func() { release(t, acquire(t, lock)) })
		synctest.Wait()
		if n := strings.Count(log.String(), "level=DEBUG msg=write lock="); n != puts.put+puts.del {
			t.Errorf("%d of %v are in the log: %s", n, puts, &log)
		}
		for _, part := range []string{"op=claim token=", "op=free token=", "error=<nil>"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("%q is missing in the log: %s", part, &log)
			}
		}
	})
}

// A caller that does not wait, while another of the same Lock does, is told of the holder as that
// one sees him by now, and not as he was when the wait began.
func TestTryBesideAWaiter(t *testing.T) {
	needs(t, renews(), withoutRenewals)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Holder: "a"}))
		net := newStoreOver(st)
		lock := newLock(t, net, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := lock.Acquire(ctx)
			done <- err
		}()
		time.Sleep(time.Minute)
		var held *leasehold.HeldError
		if _, err := lock.TryAcquire(t.Context()); !errors.As(err, &held) || held.Info.Holder != "a" || time.Since(held.Info.RenewedAt) > leasehold.DefaultTTL {
			t.Errorf("a minute later the holder is told to be %+v", held)
		}
		net.Partition(true)
		time.Sleep(8 * time.Second)
		if _, err := lock.TryAcquire(t.Context()); fmt.Sprintf("%T", err) != "*leasehold.HeldError" {
			t.Errorf("that somebody else waits, and the store fails: %v", err)
		}
		net.Partition(false)
		time.Sleep(8 * time.Second)
		cancel()
		if err := <-done; !errors.As(err, &held) || time.Since(held.Info.RenewedAt) > leasehold.DefaultTTL || strings.Contains(err.Error(), "the store fails") {
			t.Errorf("who has waited is told that the holder is %+v: %v", held, err)
		}
		release(t, lease)
	})
}

// Whoever gives up while its claim is under way, after the holder that it has waited for has released the lock,
// is told of that holder: that it is free by now is not why there was a wait.
func TestGivenUpAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		lease := acquire(t, newLock(t, inner, patient(leasehold.LockOptions{Holder: "a"})))
		time.AfterFunc(3*time.Second, func() { release(t, lease) })
		ctx, cancel := context.WithCancel(t.Context())
		lock := newLock(t, &gate{Store: inner, put: func(string, []byte) {
			cancel()
			time.Sleep(time.Second)
		}}, nil)
		_, err := lock.Acquire(ctx)
		var held *leasehold.HeldError
		if !errors.As(err, &held) || !held.Info.Held || held.Info.Holder != "a" {
			t.Errorf("%v, of %+v", err, held)
		}
		if err = lock.Settle(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A caller that does not wait, while another of the same Lock is about to learn who holds it, is told
// which lock it is, and that its own process is at it.
func TestTryBesideTheFirstLook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: time.Second})
		lock := newLock(t, st, &leasehold.LockOptions{Holder: "me"})
		got := make(chan *leasehold.Lease)
		go func() { got <- acquire(t, lock) }()
		synctest.Wait()
		var held *leasehold.HeldError
		if _, err := lock.TryAcquire(t.Context()); !errors.As(err, &held) || held.Info.Key != lock.Key() || held.Info.Holder != "me" {
			t.Errorf("%+v", held)
		}
		release(t, <-got)
	})
}

// The session of a waiter runs out while the machine is suspended, and the waiter gives up before
// a timer has run. The next in the queue is told at once, and neither waits nor claims the lock.
func TestSessionRanOutInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		lease := acquire(t, locksOf(t, inner, nil, "shards/1")[0])
		lock := a.lock("shards/1")
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := lock.Acquire(ctx)
			first <- err
		}()
		synctest.Wait()
		go func() {
			_, err := lock.Acquire(t.Context())
			second <- err
		}()
		time.Sleep(3500 * time.Millisecond) // no look is under way, nor due
		slept.Add(int64(time.Minute))
		a.st.Reset()
		cancel()
		synctest.Wait()
		if sent := a.st.Log(); len(sent) > 0 {
			t.Errorf("sent under a session that has run out: %v", sent)
		}
		if err := <-first; !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		select {
		case err := <-second:
			if !errors.Is(err, leasehold.ErrSessionOver) {
				t.Error(err)
			}
		default:
			t.Error("it waits for a lock under a session that has run out")
		}
		_ = lease.Release(t.Context()) // the machine was suspended for that, too
		a.end()
	})
}

// A session that is to be ended by hand is tried three times, since its holder may be faster with a
// heartbeat, and no more often.
func TestBreakAgainstHeartbeats(t *testing.T) {
	for faster := range 4 {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			a := startProcess(t, inner, "a")
			lease := a.acquire("shards/1")
			tries := 0
			st := newStoreOver(&gate{Store: inner, put: func(key string, _ []byte) {
				if key != a.session.Key() {
					return
				}
				if tries++; tries > faster {
					return
				}
				obj, err := inner.Get(t.Context(), key, "")
				if err == nil {
					_, err = inner.Put(t.Context(), key, obj.Body, store.IfMatch(obj.Version))
				}
				if err != nil {
					t.Error(err)
				}
			}})
			_, err := locksOf(t, st, nil, "shards/1")[0].Break(t.Context(), lease.Token())
			if wants := min(faster+1, 3); tries != wants || requestsFor(st, a.session.Key()) != 2*wants || (err == nil) != (faster < 3) {
				t.Errorf("its holder was faster %d times: %d writes, want %d, and %v: %v", faster, tries, wants, err, st.Log())
			}
			a.close()
		})
	}
}

// requestsFor counts what was sent about one object.
func requestsFor(st *faultstore.Store, key string) (n int) {
	for _, e := range st.Log() {
		if e.Key == key {
			n++
		}
	}
	return n
}

// A lock whose session is over, deleted or not, is broken without a write to that. If nobody knows whether
// it is over, the lock is left as it is.
func TestBreakUnderASessionThatIsOver(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			a := startProcess(t, inner, "a")
			lease := a.acquire("shards/1")
			key := a.session.Key()
			a.close()
			if deleted {
				if err := inner.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			st := newStoreOver(inner)
			lock := locksOf(t, st, nil, "shards/1")[0]
			st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, When: func(c faultstore.Call) bool { return c.Key == key }})
			if info, err := lock.Break(t.Context(), lease.Token()); !errors.Is(err, store.ErrUnavailable) || !info.Held {
				t.Errorf("not knowing: %+v, %v", info, err)
			}
			st.Clear()
			st.Reset()
			if info, err := lock.Break(t.Context(), lease.Token()); err != nil || info.Held {
				t.Errorf("%+v, %v", info, err)
			}
			if n := requestsFor(st, key); n != 1 {
				t.Errorf("%d requests about a session that is over: %v", n, st.Log())
			}
		})
	}
}

// A leader whose renewal is late says so at once to those who ask it, half a TTL after the last one, and
// not when its own timer comes by; and to say so costs it nothing more.
func TestLateRenewalIsToldAtOnce(t *testing.T) {
	needs(t, renews(), withoutRenewals)
	bubble(t, func(t *testing.T) {
		st := newStore()
		e, err := leasehold.NewElection(st, "leaders/scheduler", nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		lease, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Delay: 4 * time.Second})
		said := attend(t, e, "")
		for _, leads := range []bool{false, true} { // and when the renewal has been confirmed
			said = attend(t, e, said.Version)
			after := time.Since(began)
			if said.Leading != leads || !leads && after != leasehold.DefaultTTL/2 {
				t.Errorf("after %v: %+v", after, said)
			}
		}
		st.Clear()
		release(t, lease)
	})
}

// To begin to wait for a lock that is held under a session costs one look at the lock: it is looked
// at once more only when it may have been released since.
func TestWaitUnderASessionBeginsWithOneLook(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it counts the looks at one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		s, lease := holdUnderSession(t, inner)
		st := newStoreOver(inner)
		lock := newLock(t, st, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := lock.Acquire(ctx); !errors.Is(err, leasehold.ErrHeld) {
			t.Fatal(err)
		}
		if looks := requestsFor(st, lock.Key()); looks != 1 {
			t.Errorf("%d looks at a lock that does not change", looks)
		}
		release(t, lease)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// stuck is a store that answers no read of a key for as long as that has not been given up.
type stuck struct {
	store.Store
	key  string
	open atomic.Int64
}

func (s *stuck) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if key != s.key {
		return s.Store.Get(ctx, key, unless)
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	<-ctx.Done()
	return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrUnavailable, Cause: ctx.Err()}
}

// A caller that has given up leaves no look behind, neither at the lock nor at the session of its holder.
func TestGivenUpLooksEnd(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it counts the looks at one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		s, lease := holdUnderSession(t, inner)
		for _, key := range []string{lease.Key(), s.Key()} {
			st := &stuck{Store: inner, key: key}
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error)
			go func() {
				_, err := newLock(t, st, nil).TryAcquire(ctx)
				failed <- err
			}()
			synctest.Wait()
			if n := st.open.Load(); n != 1 {
				t.Errorf("%d looks at %s are under way", n, key)
			}
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			synctest.Wait()
			if n := st.open.Load(); n != 0 {
				t.Errorf("%d looks at %s go on that nobody waits for", n, key)
			}
		}
		release(t, lease)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An onlooker hears of all that keeps it from knowing who leads, and of whom it has seen last: a store that
// does not answer, an object that is no lock, and one that was deleted, which is in the log too.
func TestObserveTrouble(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it plants one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		var log lines
		inner := memstore.New()
		lock := newLock(t, inner, &leasehold.LockOptions{Holder: "a"})
		lease := acquire(t, lock)
		st := newStoreOver(inner)
		e, err := leasehold.NewElection(st, lock.Key(), &leasehold.ElectionOptions{Logger: debugLog(&log)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		over := make(chan struct{})
		go func() {
			defer close(over)
			for c := range e.Observe(ctx) {
				text := c.Kind.String()
				switch {
				case errors.Is(c.Err, store.ErrUnavailable):
					text += " unavailable"
				case errors.Is(c.Err, leasehold.ErrForeignObject):
					text += " foreign"
				}
				if c.Kind == leasehold.Elected && len(got) > 0 {
					text += " " + c.Info.Holder
				} else if c.Kind != leasehold.Vanished && c.Info.Holder != "a" {
					t.Errorf("%s: %+v", text, c)
				}
				if c.Info.Key != lock.Key() || time.Since(c.Time) > time.Second {
					t.Errorf("%s: %+v", text, c)
				}
				if len(got) == 0 || got[len(got)-1] != text {
					got = append(got, text)
				}
			}
		}()
		time.Sleep(time.Minute)
		st.Partition(true)
		time.Sleep(10 * time.Second)
		st.Partition(false)
		time.Sleep(11 * time.Second)
		obj, err := inner.Get(t.Context(), lock.Key(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = inner.Put(t.Context(), lock.Key(), []byte("not a lock"), store.IfMatch(obj.Version)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		erase(t, inner)
		time.Sleep(20 * time.Second)
		if _, err = inner.Put(t.Context(), lock.Key(), obj.Body, store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		erase(t, inner)
		time.Sleep(20 * time.Second)
		next := acquire(t, newLock(t, inner, &leasehold.LockOptions{Holder: "b"}))
		time.Sleep(20 * time.Second)
		cancel()
		<-over
		if want := []string{"elected", "unreadable unavailable", "unreadable foreign", "vanished", "elected a", "vanished", "elected b"}; !slices.Equal(got, want) {
			t.Errorf("observed %v, want %v", got, want)
		}
		if n := strings.Count(log.String(), "the lock's object was deleted"); n != 2 || !strings.Contains(log.String(), fmt.Sprintf("token=%d", lease.Token())) {
			t.Errorf("that it was deleted is logged %d times: %s", n, &log)
		}
		_ = lease.Release(t.Context()) // it is lost
		release(t, next)
	})
}

// Each renewal is told of once, to the leader as to a follower, with the version that it made; and of a
// lock that nobody holds there is nothing to tell.
func TestObserveRenewals(t *testing.T) {
	needs(t, renews(), withoutRenewals)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		if _, _, err := newLock(t, st, nil).Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		var all []*leasehold.Election
		for range 2 {
			e, err := leasehold.NewElection(st, "jobs/backup", &leasehold.ElectionOptions{Renewals: true})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 18*time.Second)
		defer cancel()
		seen := make(chan []string)
		for _, e := range all {
			go func() {
				var got []string
				versions := map[store.Version]bool{"": true}
				for c := range e.Observe(ctx) {
					got = append(got, c.Kind.String())
					if versions[c.Info.Version] {
						t.Errorf("the version of %v is %q, again", c.Kind, c.Info.Version)
					}
					versions[c.Info.Version] = true
				}
				seen <- got
			}()
		}
		synctest.Wait()
		if _, err := all[0].Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range all {
			if got := <-seen; !slices.Equal(got, []string{"elected", "renewed", "renewed", "renewed"}) {
				t.Errorf("observed %v", got)
			}
		}
		if err := all[0].Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The status counts the questions that the leader was asked, each once.
func TestQuestionsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTown()
		all := w.settlers(t, 2, 0)
		time.Sleep(10 * time.Minute)
		counted := all[0].Status().Questions + all[1].Status().Questions
		if asked := w.asked.Load(); counted != asked || asked < 2 {
			t.Errorf("%d questions were asked, and %d are counted", asked, counted)
		}
		for _, c := range all {
			c.quit(t)
		}
	})
}

// The status says since when the store has not answered, and how many requests have failed since: that
// nothing has changed is an answer, and so is that of a write. It counts what was sent.
func TestStatusOfAStoreThatFails(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it counts the requests for one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		if _, _, err := newLock(t, inner, nil).Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, leads := range []bool{false, true} {
			st := newStoreOver(inner)
			e, err := leasehold.NewElection(st, "jobs/backup", nil)
			if err != nil {
				t.Fatal(err)
			}
			if leads {
				if _, err = e.Campaign(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() {
				defer close(over)
				for range e.Observe(ctx) {
					continue
				}
			}()
			var heard time.Time
			for _, cut := range []bool{false, true, false} {
				st.Partition(cut)
				if !cut {
					time.Sleep(53 * time.Second)
					synctest.Wait()
				}
				time.Sleep(8 * time.Second)
				s := e.Status()
				switch silence := time.Since(s.LastSeen); {
				case cut && (s.Failures < 2 || s.LastSeen != heard), !cut && (s.Failures != 0 || silence > 6*time.Second):
					t.Errorf("leads %t, cut off %t: %d failures, and the store was last heard of %v ago", leads, cut, s.Failures, silence)
				}
				heard = s.LastSeen
				if n := st.Counts(); s.Requests != (leasehold.Requests{Reads: int64(n.Get), Writes: int64(n.Put)}) {
					t.Errorf("leads %t, cut off %t: %+v are counted of %+v", leads, cut, s.Requests, n)
				}
			}
			cancel()
			<-over
			if leads {
				if err = e.Resign(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// Who waits for a lock under another session than its own is not told that the holder's is its own.
func TestHolderOfAnotherSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a, b := startProcess(t, inner, "a"), startProcess(t, inner, "b")
		a.acquire("shards/1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.lock("shards/1").Acquire(ctx); !errors.Is(err, leasehold.ErrHeld) || strings.Contains(err.Error(), "the same session") {
			t.Error(err)
		}
		a.end()
		b.end()
	})
}
