package s3lect_test

import (
	"context"
	"errors"
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
