package s3lect_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestStartAndStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := newInstance(t, st, "a", nil)
		a.quit(t) // before Start
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.Start(t.Context()); err == nil {
			t.Error("it was started twice")
		}
		a.lead(t)
		a.quit(t)
		a.quit(t)
		if a.IsLeader() || a.LeaderID() != "" {
			t.Error("it leads after Stop")
		}
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.lead(t)
		a.quit(t)

		ended, end := context.WithCancel(t.Context())
		end()
		if err := a.Start(ended); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if a.IsLeader() {
			t.Error("it leads, and its context had ended before Start")
		}
		if n := len(a.deeds()); n != 4 {
			t.Errorf("hooks were called for %v", a.deeds())
		}
	})
}

// Each leadership begins and ends, whatever calls run at the same time.
func TestStartAndStopAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := newInstance(t, st, "a", swift)
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 50 {
					_ = a.Start(t.Context()) // it may have been started
					time.Sleep(10 * time.Millisecond)
					a.quit(t)
				}
			})
		}
		callers.Wait()
		a.quit(t)
		deeds := a.deeds()
		if len(deeds) == 0 || len(deeds)%2 != 0 {
			t.Errorf("hooks were called for %v", deeds)
		}
		if !contentsOf(t, read(t, st)).LastUpdated.IsZero() {
			t.Errorf("the lockfile is not free: %s", read(t, st))
		}
	})
}

// A hook that never returns keeps Stop for a bounded time, and so does one that waits
// for a goroutine that calls Stop.
func TestAHookThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		hang := make(chan struct{})
		a := newInstance(t, st, "a", func(c *s3lect.ElectorConfig) {
			c.OnAcquireLeadership = func(context.Context) error { <-hang; return nil }
		})
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		if err := a.Stop(); err == nil || !strings.Contains(err.Error(), "hook") {
			t.Errorf("Stop returned %v", err)
		}
		if took := time.Since(began); took != 20*time.Second { // LeaderTimeout and 5 s
			t.Errorf("Stop took %v", took)
		}
		if a.IsLeader() {
			t.Error("it leads")
		}
		if err := a.Start(t.Context()); err == nil {
			t.Error("it was started while it was stopping")
		}
		b := begin(t, st, "b", nil)
		b.lead(t) // when the lease of a has run out, whatever its hook does
		close(hang)
		a.quit(t)
		if !b.IsLeader() {
			t.Error("the end of the former leader's hook ended the next leadership")
		}
	})
}

// The contexts of the hooks: that of OnAcquireLeadership ends with the leadership, that
// of OnLoseLeadership begins with time left. Both have the values of Start's.
func TestContextsOfHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		var hooks []context.Context
		a := newInstance(t, memstore.New(), "a", func(c *s3lect.ElectorConfig) {
			c.OnAcquireLeadership = func(ctx context.Context) error { hooks = append(hooks, ctx); return nil }
			c.OnLoseLeadership = func(ctx context.Context) error {
				hooks = append(hooks, ctx)
				if at, ok := ctx.Deadline(); ctx.Err() != nil || !ok || time.Until(at) != 5*time.Second {
					t.Errorf("OnLoseLeadership got a context with error %v, deadline %v", ctx.Err(), at)
				}
				return errors.New("this is logged")
			}
		})
		if err := a.Start(context.WithValue(t.Context(), key{}, "value")); err != nil {
			t.Fatal(err)
		}
		a.lead(t)
		if hooks[0].Err() != nil {
			t.Error("the context of OnAcquireLeadership ended when it returned")
		}
		a.quit(t)
		if hooks[0].Err() == nil {
			t.Error("the context of OnAcquireLeadership goes on")
		}
		if len(hooks) != 2 || hooks[0].Value(key{}) != "value" || hooks[1].Value(key{}) != "value" {
			t.Error("the values of Start's context are missing")
		}
	})
}

// A trouble that makes campaigning pointless may pass, and then it campaigns.
func TestAForeignObjectIsWaitedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		const foreign = `{"name": "inventory", "lastUpdated": "2026-01-01T00:00:00Z"}`
		if _, err := st.Put(t.Context(), lockfile, []byte(foreign), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		a := begin(t, st, "a", nil)
		s, err := a.WaitForNextElection(t.Context(), time.Time{})
		if err != nil || s.IsLeader || s.LeaderID != "" || !time.Now().Equal(began) {
			t.Errorf("%+v, %v, after %v", s, err, time.Since(began))
		}
		time.Sleep(time.Hour)
		if got := read(t, st); got != foreign || a.IsLeader() {
			t.Fatalf("the object became %s", got)
		}
		if err := st.Delete(t.Context(), lockfile); err != nil {
			t.Fatal(err)
		}
		a.lead(t)
	})
}

func TestStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := begin(t, st, "a", nil), newInstance(t, st, "b", nil)
		a.lead(t)
		elected := time.Now()
		if s := b.GetLeadershipStatus(); *s != (s3lect.LeadershipStatus{ServerID: "b", LockfilePath: lockfile}) {
			t.Errorf("before Start the status was %+v", s)
		}
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.quit(t) })
		for _, i := range []*instance{a, b} {
			s, err := i.WaitForNextElection(t.Context(), time.Time{})
			want := s3lect.LeadershipStatus{
				ServerID: i.GetConfig().ServerID, LockfilePath: lockfile, IsLeader: i == a,
				LeaderID: "a", LeaderAddr: "a:8443", LeaderLastSeen: elected, LastElectionTime: elected,
			}
			if err != nil {
				t.Fatal(err)
			}
			if !s.LeaderLastSeen.Equal(elected) || !s.LastElectionTime.Equal(elected) {
				t.Errorf("the leader was last seen at %v and elected at %v", s.LeaderLastSeen, s.LastElectionTime)
			}
			s.LeaderLastSeen, s.LastElectionTime = elected, elected
			if *s != want || i.LeaderID() != "a" {
				t.Errorf("the status is  %+v\nand should be %+v", s, want)
			}
		}
		b.net.Partition(true)
		time.Sleep(time.Minute)
		if s := b.GetLeadershipStatus(); s.ConsecutiveFails == 0 {
			t.Errorf("the status is %+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s, err := b.WaitForNextElection(ctx, time.Now().Add(time.Hour)); s != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// Programs have tests with times like these, and leave InfrequentInterval as it is.
func TestTimeoutsUnderASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		short := func(c *s3lect.ElectorConfig) {
			c.FrequentInterval, c.LeaderTimeout = 100*time.Millisecond, 300*time.Millisecond
		}
		a := begin(t, st, "a", short)
		a.lead(t)
		b := begin(t, st, "b", short)
		for _, pause := range []time.Duration{0, 300 * time.Millisecond, 10 * time.Second} {
			time.Sleep(pause)
			if !a.IsLeader() || b.IsLeader() {
				t.Fatalf("leading: %t, %t", a.IsLeader(), b.IsLeader())
			}
			a.quit(t)
			stopped := time.Now()
			b.lead(t)
			if took := time.Since(stopped); took > time.Second {
				t.Errorf("the next leader began after %v", took)
			}
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			a, b = b, a
		}
		a.net.Partition(true)
		cut := time.Now()
		b.lead(t)
		if took := time.Since(cut); took > 3*time.Second { // a TTL is a second at least
			t.Errorf("the leader was replaced after %v", took)
		}
	})
}

func TestALeaderStepsDownWhenRenewalsFail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := begin(t, st, "a", nil)
		a.lead(t)
		b := begin(t, st, "b", nil)
		time.Sleep(time.Minute)
		cut := time.Now()
		a.net.Partition(true)
		for a.IsLeader() {
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		// It renews every 5 s, and a renewal is good for 15 s less a margin.
		if took := time.Since(cut); took > 14*time.Second {
			t.Errorf("it stepped down %v after its last renewal", took)
		}
		if got := a.deeds(); !slices.Equal(got, []string{"acquire", "lose"}) {
			t.Errorf("its hooks were called for %v", got)
		}
		if s := a.GetLeadershipStatus(); s.IsLeader || s.LeaderID != "" || s.ConsecutiveFails == 0 {
			t.Errorf("its status is %+v", s)
		}
		if b.IsLeader() {
			t.Error("another leads already")
		}
		b.lead(t)
		if a.last().at.After(b.last().at) {
			t.Errorf("it lost leadership at %v, and the other acquired it at %v", a.last().at, b.last().at)
		}
	})
}

func TestIsLeaderIsFalseWhenStartsContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := newInstance(t, st, "a", nil)
		ctx, end := context.WithCancel(t.Context())
		if err := a.Start(ctx); err != nil {
			t.Fatal(err)
		}
		a.lead(t)
		end()
		if a.IsLeader() || a.LeaderID() != "" || a.GetLeadershipStatus().IsLeader {
			t.Error("it leads")
		}
		synctest.Wait()
		if got := a.deeds(); !slices.Equal(got, []string{"acquire", "lose"}) {
			t.Errorf("its hooks were called for %v", got)
		}
		if !contentsOf(t, read(t, st)).LastUpdated.IsZero() {
			t.Errorf("it did not resign: %s", read(t, st))
		}
		if err := a.Start(t.Context()); err != nil {
			t.Errorf("it cannot be started again: %v", err)
		}
		a.quit(t)
	})
}

func TestStopWithTheObjectGoneDoesNotPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := begin(t, st, "a", nil)
		a.lead(t)
		if err := st.Delete(t.Context(), lockfile); err != nil {
			t.Fatal(err)
		}
		a.quit(t)
		if got := a.deeds(); !slices.Equal(got, []string{"acquire", "lose"}) {
			t.Errorf("its hooks were called for %v", got)
		}
	})
}

func TestStopFromAHookDoesNotDeadlock(t *testing.T) {
	for _, hook := range []string{"OnAcquireLeadership", "OnLoseLeadership"} {
		t.Run(hook, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := memstore.New()
				var a *instance
				stop := func(ctx context.Context) error {
					began := time.Now()
					// Nothing else may deadlock there either.
					_, _, _ = a.IsLeader(), a.LeaderID(), a.GetLeadershipStatus()
					if err := a.EnablePeerMode(nil); err != nil {
						t.Error(err)
					}
					if err := a.Stop(); err != nil || a.IsLeader() {
						t.Errorf("Stop returned %v, and it leads: %t", err, a.IsLeader())
					}
					if err := a.Start(ctx); err == nil {
						t.Error("it was started while it was stopping")
					}
					if took := time.Since(began); took > 0 {
						t.Errorf("the hook took %v", took)
					}
					a.note("stop")
					return errors.New("an error, for a change")
				}
				a = newInstance(t, st, "a", func(c *s3lect.ElectorConfig) {
					if hook == "OnAcquireLeadership" {
						c.OnAcquireLeadership = stop
					} else {
						c.OnLoseLeadership = stop
					}
				})
				ctx, end := context.WithCancel(t.Context())
				if err := a.Start(ctx); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				end()
				a.quit(t)
				if got := a.deeds(); !slices.Contains(got, "stop") || len(got) != 2 {
					t.Errorf("its hooks were called for %v", got)
				}
				b := begin(t, st, "b", nil)
				b.lead(t)
			})
		})
	}
}

// A goroutine that is not the hook's waits for it: else a process would exit before
// its hook has returned and its lockfile is free.
func TestStopWaitsForHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := newInstance(t, st, "a", func(c *s3lect.ElectorConfig) {
			c.OnAcquireLeadership = func(context.Context) error {
				time.Sleep(3 * time.Second)
				return nil
			}
		})
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		a.quit(t)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("Stop took %v", took)
		}
		if got := a.deeds(); !slices.Equal(got, []string{"lose"}) {
			t.Errorf("its hooks were called for %v", got)
		}
		if c := contentsOf(t, read(t, st)); !c.LastUpdated.IsZero() {
			t.Errorf("the lockfile is not free: %s", read(t, st))
		}
	})
}

func contentsOf(t *testing.T, body string) (r s3lect.LeaderRecord) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheInfrequentIntervalIsUsed(t *testing.T) {
	for _, interval := range []time.Duration{0, 10 * time.Second, 2 * time.Minute} {
		t.Run(interval.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := memstore.New()
				infrequent := func(c *s3lect.ElectorConfig) { c.InfrequentInterval = interval }
				a := begin(t, st, "a", infrequent)
				a.lead(t)
				b := begin(t, st, "b", infrequent)
				time.Sleep(5 * time.Minute)
				a.net.Reset()
				b.net.Reset()
				time.Sleep(20 * time.Minute)
				if interval == 0 {
					interval = 30 * time.Second // the default
				}
				want := int(20 * time.Minute / interval)
				// Each interval is varied by up to a quarter, so that followers do not poll in step.
				if got := b.net.Counts(); got.Put != 0 || got.Get < want*4/5-1 || got.Get > want*4/3+1 {
					t.Errorf("the follower made %+v in twenty minutes, and not %d reads", got, want)
				}
				// It renews every 5 s. A Storage does not tell the ETag of a write.
				if got := a.net.Counts(); got.Put < 239 || got.Put > 241 || got.Get < 239 || got.Get > 241 {
					t.Errorf("the leader made %+v in twenty minutes", got)
				}
			})
		})
	}
}

func TestTheHealthAnswerCarriesTheTimeOfTheLastRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := begin(t, memstore.New(), "a", nil)
		a.lead(t)
		acquired := time.Now()
		time.Sleep(2 * time.Second)
		handler := s3lect.NewLeadershipHandler(a.S3Elector, quiet)
		if r := ask(t, handler, http.StatusOK); !r.LastUpdated.Equal(acquired) || r.LeaderID != "a" || r.LeaderAddr != "a:8443" {
			t.Errorf("it answered %+v, and acquired leadership at %v", r, acquired)
		}
		time.Sleep(5 * time.Second)
		renewed := acquired.Add(5 * time.Second)
		if r := ask(t, handler, http.StatusOK); !r.LastUpdated.Equal(renewed) {
			t.Errorf("it answered %+v, and renewed at %v", r, renewed)
		}
		a.net.Partition(true)
		time.Sleep(4 * time.Second) // it cannot renew, and does not say that all is well
		if r := ask(t, handler, http.StatusNotFound); r != (s3lect.LeaderRecord{}) || !a.IsLeader() {
			t.Errorf("it answered %+v, and leads: %t", r, a.IsLeader())
		}
	})
}

// ask asks a health endpoint like an instance of the original package.
func ask(t *testing.T, h http.HandlerFunc, status int) s3lect.LeaderRecord {
	t.Helper()
	w := httptest.NewRecorder()
	h(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/leadership", nil))
	if w.Code != status || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d, %v, %s", w.Code, w.Header(), w.Body)
	}
	return contentsOf(t, w.Body.String())
}

// The watcher learns of each leader that there is, in order, and the hooks are called
// for each of them.
func TestNoElectionEventIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		var mu sync.Mutex
		var leaders, seen []string
		all := make([]*instance, 3)
		for i, id := range []string{"a", "b", "c"} {
			all[i] = begin(t, st, id, func(c *s3lect.ElectorConfig) {
				swift(c)
				acquired := c.OnAcquireLeadership
				c.OnAcquireLeadership = func(ctx context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					leaders = append(leaders, id)
					return acquired(ctx)
				}
			})
		}
		watcher := begin(t, st, "watcher", func(c *s3lect.ElectorConfig) {
			swift(c)
			c.OnAcquireLeadership = func(context.Context) error { return errors.New("it only watches") }
		})
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for since := (time.Time{}); ; since = time.Now() {
				s, err := watcher.WaitForNextElection(ctx, since)
				if err != nil {
					return
				}
				if s.LeaderID != "" && (len(seen) == 0 || seen[len(seen)-1] != s.LeaderID) {
					seen = append(seen, s.LeaderID)
				}
			}
		}()
		for range 20 {
			time.Sleep(20 * time.Second)
			leader := ruler(t, all...)
			if leader == nil {
				t.Fatal("nobody leads")
			}
			leader.quit(t)
			time.Sleep(20 * time.Second)
			if err := leader.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		end()
		<-done
		if !slices.Equal(seen, leaders) || len(seen) < 21 {
			t.Errorf("the watcher saw  %v\nand there were %v", seen, leaders)
		}
		for _, i := range all {
			i.quit(t)
			for n, what := range i.deeds() {
				if want := []string{"acquire", "lose"}[n%2]; what != want {
					t.Fatalf("hooks were called for %v", i.deeds())
				}
			}
		}
	})
}

// One waiter used to be woken, and one that had lost leadership before was told so
// instead of waiting.
func TestAllWhoWaitForLeadershipLearnOfIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := begin(t, memstore.New(), "a", swift)
		for range 3 {
			var waiting sync.WaitGroup
			for range 10 {
				waiting.Go(func() { a.lead(t) })
			}
			waiting.Wait()
			a.net.Partition(true)
			time.Sleep(time.Minute)
			if a.IsLeader() {
				t.Fatal("it leads")
			}
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := a.WaitForLeadership(soon); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("waiting returned %v", err)
			}
			cancel()
			a.net.Partition(false)
		}
	})
}

// swift makes failovers short.
func swift(c *s3lect.ElectorConfig) {
	c.LeaderTimeout, c.FrequentInterval, c.InfrequentInterval = 3*time.Second, time.Second, time.Second
}

func TestAnErrorOfOnAcquireLeadershipResigns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := begin(t, st, "a", func(c *s3lect.ElectorConfig) {
			c.OnAcquireLeadership = func(context.Context) error { return errors.New("no network interface") }
		})
		synctest.Wait()
		if a.IsLeader() || !contentsOf(t, read(t, st)).LastUpdated.IsZero() {
			t.Errorf("it leads: %t; the lockfile is %s", a.IsLeader(), read(t, st))
		}
		if got := a.deeds(); !slices.Equal(got, []string{"lose"}) { // to clean up
			t.Errorf("its hooks were called for %v", got)
		}
		b := begin(t, st, "b", nil)
		b.lead(t)
	})
}

func TestOnLoseLeadershipIsCalledOncePerTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := begin(t, st, "a", swift)
		want := []string(nil)
		for range 5 {
			a.lead(t)
			a.net.Partition(true)
			time.Sleep(time.Minute)
			want = append(want, "acquire", "lose")
			if got := a.deeds(); !slices.Equal(got, want) {
				t.Fatalf("after a loss its hooks were called for %v", got)
			}
			a.net.Partition(false)
			a.lead(t)
			a.quit(t)
			a.quit(t)
			want = append(want, "acquire", "lose")
			if got := a.deeds(); !slices.Equal(got, want) {
				t.Fatalf("after a Stop its hooks were called for %v", got)
			}
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
