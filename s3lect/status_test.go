package s3lect_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store/memstore"
)

// next waits for the next end of an election cycle, and returns how long that took.
func (i *instance) next(t *testing.T, since time.Time) (*s3lect.LeadershipStatus, time.Duration) {
	t.Helper()
	began := time.Now()
	s, err := i.WaitForNextElection(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	return s, time.Since(began)
}

// A cycle ends with each renewal of this instance, and with the loss of its lease
// before the hook that goes with it.
func TestCyclesOfTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := begin(t, memstore.New(), "a", func(c *s3lect.ElectorConfig) {
			c.OnLoseLeadership = func(context.Context) error { time.Sleep(4 * time.Second); return nil }
		})
		a.lead(t)
		for range 3 {
			if s, took := a.next(t, time.Now()); !s.IsLeader || took != 5*time.Second {
				t.Errorf("%+v after %v", s, took)
			}
		}
		a.net.Partition(true)
		if s, took := a.next(t, time.Now()); s.IsLeader || took != 15*time.Second*11/12-10*time.Millisecond {
			t.Errorf("%+v after %v", s, took)
		}
		// And when it could not look, once it has tried to resign for a TTL.
		if s, took := a.next(t, time.Now()); s.IsLeader || took > 20*time.Second || s.ConsecutiveFails == 0 {
			t.Errorf("%+v after %v", s, took)
		}
	})
}

// The first cycle of who becomes the leader ends when OnAcquireLeadership has returned:
// who waits must not be told that there is no leader, nor that it leads before it does.
func TestTheFirstCycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var a *instance
		a = newInstance(t, memstore.New(), "a", func(c *s3lect.ElectorConfig) {
			c.OnAcquireLeadership = func(ctx context.Context) error {
				if err := a.WaitForLeadership(ctx); err != nil || !a.IsLeader() { // at once, within
					t.Errorf("within the hook: %v", err)
				}
				time.Sleep(2 * time.Second)
				return nil
			}
		})
		began := time.Now()
		led := make(chan time.Duration)
		go func() {
			a.lead(t)
			led <- time.Since(began)
		}()
		synctest.Wait() // it waits before there is a leader
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.quit(t) })
		if s, took := a.next(t, time.Time{}); !s.IsLeader || s.LeaderID != "a" || took != 2*time.Second {
			t.Errorf("%+v after %v", s, took)
		}
		if took := <-led; took != 2*time.Second {
			t.Errorf("WaitForLeadership returned after %v", took)
		}
	})
}

// Renewals go on while OnAcquireLeadership does, and are no reason to return.
func TestWaitForLeadershipWaitsForASlowHook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newInstance(t, memstore.New(), "a", func(c *s3lect.ElectorConfig) {
			c.OnAcquireLeadership = func(context.Context) error { time.Sleep(12 * time.Second); return nil }
		})
		began := time.Now()
		waiting := make(chan struct{})
		go func() {
			defer close(waiting)
			a.lead(t)
		}()
		synctest.Wait()
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.quit(t) })
		<-waiting
		if took := time.Since(began); took != 12*time.Second {
			t.Errorf("it returned after %v", took)
		}
	})
}

// A process that has crashed and starts again under its name does not take the record
// of its former life for its own.
func TestARestartIsNotTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := begin(t, st, "a", nil)
		a.lead(t)
		a.net.Partition(true) // for the others it has crashed
		again := begin(t, st, "a", frequent)
		time.Sleep(time.Second)
		if s := again.GetLeadershipStatus(); s.IsLeader || s.LeaderID != "" {
			t.Errorf("its status is %+v", s)
		}
		if s, took := again.next(t, time.Time{}); took < 14*time.Second {
			t.Errorf("%+v after %v", s, took)
		}
		again.lead(t)
	})
}

// An address is in the record also without peer mode, and that nobody answers there is
// then nothing to complain of.
func TestNoComplaintsWithoutPeerMode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := begin(t, st, "a", nil)
		a.lead(t)
		var log leasetest.Log
		e, err := s3lect.NewS3Elector(s3lect.S3ElectorOptions{
			Config:  &s3lect.ElectorConfig{LockfilePath: lockfile, ServerID: "b", ServerAddr: "b:8443"},
			Storage: newStorage(st), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := e.Stop(); err != nil {
			t.Fatal(err)
		}
		if log.String() != "" {
			t.Errorf("the log has\n%s", &log)
		}
	})
}

// While the hooks run for a leadership that does not come to be, this instance leads in
// the first and not in the second, and the log has the error.
func TestTheHooksOfALeadershipThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log leasetest.Log
		at := newStorage(memstore.New())
		var e *s3lect.S3Elector
		var led []bool
		note := func(context.Context) error {
			led = append(led, e.IsLeader())
			return errors.New("no network interface")
		}
		e, err := s3lect.NewS3Elector(s3lect.S3ElectorOptions{
			Storage: at, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Config: &s3lect.ElectorConfig{
				LockfilePath: lockfile, ServerID: "a", ServerAddr: "a:8443", OnAcquireLeadership: note, OnLoseLeadership: note,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := e.Stop(); err != nil {
			t.Fatal(err)
		}
		if len(led) != 2 || !led[0] || led[1] {
			t.Errorf("it led: %v", led)
		}
		for _, hook := range []string{"OnAcquireLeadership", "OnLoseLeadership"} {
			if !strings.Contains(log.String(), hook+": no network interface") {
				t.Errorf("the log does not say that %s failed:\n%s", hook, &log)
			}
		}
	})
}

// A machine that wakes up after its lease has ended does not lead, though no timer has
// run yet.
func TestASuspendedLeaderDoesNotLead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := begin(t, memstore.New(), "a", nil)
		a.lead(t)
		slept.Add(int64(15 * time.Second))
		if a.IsLeader() || a.GetLeadershipStatus().IsLeader || a.LeaderID() != "" {
			t.Error("it leads")
		}
	})
}

// Stop returns at once within a hook of its own elector only.
func TestStopFromAHookOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := begin(t, memstore.New(), "a", func(c *s3lect.ElectorConfig) {
			c.OnLoseLeadership = func(context.Context) error { time.Sleep(2 * time.Second); return nil }
		})
		a.lead(t)
		began := time.Now()
		b := begin(t, memstore.New(), "b", func(c *s3lect.ElectorConfig) {
			c.OnAcquireLeadership = func(context.Context) error { return a.Stop() }
		})
		b.lead(t)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("Stop returned after %v", took)
		}
	})
	// Nor where a hook of that elector is under way, and this is one of another.
	bubble(t, func(t *testing.T) {
		a := begin(t, memstore.New(), "a", func(c *s3lect.ElectorConfig) {
			c.OnLoseLeadership = func(context.Context) error { time.Sleep(2 * time.Second); return nil }
		})
		a.lead(t)
		go func() { _ = a.Stop() }()
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		b := begin(t, memstore.New(), "b", func(c *s3lect.ElectorConfig) {
			c.OnAcquireLeadership = func(context.Context) error { return a.Stop() }
		})
		b.lead(t)
		if took := time.Since(began); took != 1500*time.Millisecond {
			t.Errorf("Stop returned after %v", took)
		}
	})
}

// The time for which a leader of the original package is waited for is this instance's
// LeaderTimeout, as it is now.
func TestUpdateConfigChangesThePatienceWithTheOriginal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		o := beginOriginal(t, st, "old")
		o.lead(t)
		a := begin(t, st, "a", frequent)
		time.Sleep(time.Minute)
		c := *a.GetConfig()
		c.LeaderTimeout = time.Minute
		if err := a.UpdateConfig(c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		o.crash()
		gone := contentsOf(t, read(t, st)).LastUpdated
		a.lead(t)
		if took := time.Since(gone); took < time.Minute || took > 90*time.Second {
			t.Errorf("it took over %v after the last renewal", took)
		}
	})
}
