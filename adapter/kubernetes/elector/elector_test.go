package leaseelector_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/leasehold/leasehold"
	leasekubernetes "github.com/leasehold/leasehold/adapter/kubernetes"
	leaseelector "github.com/leasehold/leasehold/adapter/kubernetes/elector"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"))
}

const ttl = 12 * time.Second

func candidate(t testing.TB, st store.Store, name string, ttl time.Duration) *leasekubernetes.Lock {
	t.Helper()
	lock, err := leasekubernetes.New(st, "contended", &leasehold.LockOptions{TTL: ttl}, resourcelock.ResourceLockConfig{Identity: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return lock
}

func leading(work func(context.Context)) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{ReleaseOnCancel: true, Callbacks: leaderelection.LeaderCallbacks{
		OnStartedLeading: work, OnStoppedLeading: func() {},
	}}
}

// TestRounds: work under the adapter's elector, and under client-go's own with nothing but the lock and its Timing, has
// ended before another's begins.
func TestRounds(t *testing.T) {
	for name, run := range map[string]func(context.Context, *leasekubernetes.Lock, leaderelection.LeaderElectionConfig) error{
		"adapter's":   leaseelector.Run,
		"client-go's": bare,
	} {
		t.Run(name, func(t *testing.T) {
			adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
				lock := candidate(t, st, name, adaptertest.TTL)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() {
					defer close(done)
					for ctx.Err() == nil {
						err := run(ctx, lock, leading(func(ctx context.Context) {
							work(ctx)
							if ctx.Err() == nil {
								cancel()
							}
						}))
						if err != nil && !errors.Is(err, leasehold.ErrLost) {
							t.Error(err)
						}
					}
				}()
				return func() {
					cancel()
					<-done
				}
			})
		})
	}
}

// bare is client-go's own elector. It returns when the work has, as its users have to see to.
func bare(ctx context.Context, lock *leasekubernetes.Lock, c leaderelection.LeaderElectionConfig) error {
	t := lock.Timing()
	c.Lock, c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = lock, t.LeaseDuration, t.RenewDeadline, t.RetryPeriod
	var wg sync.WaitGroup
	work, before := c.Callbacks.OnStartedLeading, lock.Lease()
	wg.Add(1)
	c.Callbacks.OnStartedLeading = func(ctx context.Context) {
		defer wg.Done()
		work(ctx)
	}
	elector, err := leaderelection.NewLeaderElector(c)
	if err != nil {
		return err
	}
	if elector.Run(ctx); lock.Lease() != before {
		wg.Wait()
	}
	return nil
}

// TestElections: electors on one lock lead one after the other, wherever that lies.
func TestElections(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		var working, worked int
		for _, name := range []string{"a", "b", "c"} {
			lock := candidate(t, p.Open(t), name, adaptertest.TTL)
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := leaseelector.Run(ctx, lock, leading(func(ctx context.Context) {
					mu.Lock()
					working++
					worked++
					if working > 1 {
						t.Error("two work")
					}
					mu.Unlock()
					cancel()
					<-ctx.Done()
					mu.Lock()
					working--
					mu.Unlock()
				}))
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if worked != 3 {
			t.Errorf("%d have led, want 3", worked)
		}
	})
}

// TestLoss: when the lease is lost the context of the work ends, Run says why, and it does not lead before the work has
// returned.
func TestLoss(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		mem := memstore.New()
		st := faultstore.Wrap(mem, nil)
		lock := candidate(t, st, "a", ttl)
		var stopped, ended time.Duration
		start := time.Now()
		c := leading(func(ctx context.Context) {
			st.Partition(true)
			<-ctx.Done()
			ended = time.Since(start)
			time.Sleep(ttl)
		})
		c.Callbacks.OnStoppedLeading = func() { stopped = time.Since(start) }
		c.WatchDog = leaderelection.NewLeaderHealthzAdaptor(time.Second)
		err := leaseelector.Run(t.Context(), lock, c)
		if !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
		if took := time.Since(start); took != ended+ttl {
			t.Errorf("Run returns after %v, want %v", took, ended+ttl)
		}
		if ended > ttl*5/6 || stopped > ttl*5/6 || ended < ttl*2/3 {
			t.Errorf("the work is ended after %v, and OnStoppedLeading is called after %v", ended, stopped)
		}
		st.Partition(false)
	})
}

// TestGivesUp: an elector that has given up ends the work, even if the store takes renewals again by then.
func TestGivesUp(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		lock := candidate(t, st, "a", ttl)
		var ended time.Duration
		start := time.Now()
		err := leaseelector.Run(t.Context(), lock, leading(func(ctx context.Context) {
			st.Partition(true)
			time.Sleep(ttl*3/4 - time.Millisecond) // the last renewal that could fail
			st.Partition(false)
			<-ctx.Done()
			ended = time.Since(start)
			time.Sleep(2 * ttl)
		}))
		if took := time.Since(start); err == nil || took > ended+2*ttl+time.Second || ended > ttl {
			t.Errorf("the work ends after %v, and Run returns after %v: %v", ended, took, err)
		}
	})
}

// TestSuspended: a machine that was suspended ends the work, though client-go's timers have not counted it.
func TestSuspended(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		lock := candidate(t, memstore.New(), "a", ttl)
		err := leaseelector.Run(t.Context(), lock, leading(func(ctx context.Context) {
			leasetest.Slept.Add(int64(ttl))
			start := time.Now()
			<-ctx.Done()
			if took := time.Since(start); took > ttl/3 || !errors.Is(context.Cause(ctx), leasehold.ErrLost) {
				t.Errorf("the work goes on for %v: %v", took, context.Cause(ctx))
			}
		}))
		if !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
	})
}

// TestRelease: with ReleaseOnCancel the lock is held for as long as the work takes to end, and free then.
func TestRelease(t *testing.T) {
	for _, release := range []bool{true, false} {
		leasetest.Bubble(t, func(t *testing.T) {
			st := memstore.New()
			a, b := candidate(t, st, "a", ttl), candidate(t, st, "b", ttl)
			ctx, cancel := context.WithCancel(t.Context())
			var ended time.Time
			c := leading(func(ctx context.Context) {
				cancel()
				<-ctx.Done()
				time.Sleep(2 * ttl)
				ended = time.Now()
				if a.Lease().Valid() != release {
					t.Errorf("release: %v, and at the end of the work its lease is valid: %v", release, !release)
				}
			})
			c.ReleaseOnCancel = release
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := leaseelector.Run(ctx, a, c); err != nil {
					t.Error(err)
				}
			})
			<-ctx.Done()
			other, stop := context.WithCancel(t.Context())
			if err := leaseelector.Run(other, b, leading(func(context.Context) {
				if release && (ended.IsZero() || time.Since(ended) > ttl/4) {
					t.Errorf("the other leads at %v, the work has ended at %v", time.Now(), ended)
				}
				stop()
			})); err != nil {
				t.Error(err)
			}
			wg.Wait()
		})
	}
}

// TestCanceled: a leader that is not to lead any more when it begins to does no work.
func TestCanceled(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		lock := candidate(t, memstore.New(), "a", ttl)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := leaseelector.Run(ctx, lock, leading(func(ctx context.Context) { <-ctx.Done() })); err != nil {
			t.Error(err)
		}
	})
}

// TestBadConfig: an elector that cannot be is not run.
func TestBadConfig(t *testing.T) {
	lock := candidate(t, memstore.New(), "a", ttl)
	for want, spoil := range map[string]func(*leaderelection.LeaderElectionConfig){
		"RenewDeadline of 10s is too long": func(c *leaderelection.LeaderElectionConfig) {
			c.LeaseDuration, c.RenewDeadline = 15*time.Second, 10*time.Second
		},
		"coordinated":        func(c *leaderelection.LeaderElectionConfig) { c.Coordinated = true },
		"OnStartedLeading":   func(c *leaderelection.LeaderElectionConfig) { c.Callbacks.OnStartedLeading = nil },
		"renewDeadline must": func(c *leaderelection.LeaderElectionConfig) { c.RetryPeriod = time.Minute },
	} {
		c := leading(func(context.Context) {})
		spoil(&c)
		if err := leaseelector.Run(t.Context(), lock, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
