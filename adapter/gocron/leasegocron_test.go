package leasegocron_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/leasehold/leasehold"
	leasegocron "github.com/leasehold/leasehold/adapter/gocron"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"))
}

// A process has a scheduler that shares its jobs.
type process struct {
	gocron.Scheduler
	locks  *leasehold.Locks
	locker *leasegocron.Locker
	end    func()
}

// start makes a process, whose scheduler is not started yet.
func start(t testing.TB, st store.Store, opts *leasegocron.LockerOptions, lock *leasehold.LockOptions) *process {
	t.Helper()
	locks, err := leasehold.NewLocks(st, lock)
	if err != nil {
		t.Fatal(err)
	}
	locker, err := leasegocron.NewLocker(locks, opts)
	if err != nil {
		t.Fatal(err)
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		t.Fatal(err)
	}
	return &process{s, locks, locker, sync.OnceFunc(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})}
}

// every adds a job that is run first after a delay and then at that interval. Its errors are sent.
func every(t testing.TB, s gocron.Scheduler, name string, delay, interval time.Duration, task gocron.Task, failed chan<- error, opts ...gocron.JobOption) {
	t.Helper()
	opts = append([]gocron.JobOption{
		gocron.WithStartAt(gocron.WithStartDateTime(time.Now().Add(delay))),
		gocron.WithSingletonMode(gocron.LimitModeReschedule),
	}, opts...)
	if failed != nil {
		opts = append(opts, gocron.WithEventListeners(
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err }),
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { failed <- err })))
	}
	if name != "" {
		opts = append(opts, gocron.WithName(name))
	}
	if _, err := s.NewJob(gocron.DurationJob(interval), task, opts...); err != nil {
		t.Fatal(err)
	}
	s.Start()
}

func counts(runs *atomic.Int32) leasegocron.Func {
	return func(context.Context, *leasehold.Lease) error {
		runs.Add(1)
		return nil
	}
}

// TestClocksDiffer: of three schedulers whose clocks differ by up to two seconds, one runs a job that takes no time.
// Without a shortest hold all of them run it.
func TestClocksDiffer(t *testing.T) {
	for _, tc := range []struct {
		atLeast time.Duration
		want    int32
	}{{0, 3}, {-1, 9}} {
		leasetest.Bubble(t, func(t *testing.T) {
			st := memstore.New()
			var runs atomic.Int32
			for i := range 3 {
				p := start(t, st, &leasegocron.LockerOptions{HoldAtLeast: tc.atLeast}, nil)
				defer p.end()
				every(t, p, "report", time.Hour+time.Duration(i)*time.Second, time.Hour, p.locker.Task(counts(&runs)), nil)
			}
			time.Sleep(3*time.Hour + time.Minute)
			// gocron may plan a run for the very moment in which the last one has begun and ended, and in a bubble no time
			// passes meanwhile: so without a hold it is 9 at least.
			if got := runs.Load(); got != tc.want && (tc.atLeast == 0 || got < tc.want) {
				t.Errorf("hold at least %v: %d runs in three hours, want %d", tc.atLeast, got, tc.want)
			}
		})
	}
}

// TestHolderDies: a scheduler whose process is gone in mid-run costs no more than that run: another takes over at the
// next tick, though that is long after.
func TestHolderDies(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		dead := faultstore.Wrap(st, nil)
		a := start(t, dead, nil, nil)
		defer a.end()
		b, c := start(t, st, nil, nil), start(t, st, nil, nil)
		defer b.end()
		defer c.end()
		begun := make(chan bool)
		every(t, a, "report", time.Hour, 24*time.Hour, a.locker.Task(func(ctx context.Context, _ *leasehold.Lease) error {
			begun <- true
			<-ctx.Done()
			return nil
		}), nil)
		var runs atomic.Int32
		failed := make(chan error, 100)
		for _, p := range []*process{b, c} {
			every(t, p, "report", 2*time.Hour, time.Hour, p.locker.Task(counts(&runs)), failed)
		}
		<-begun
		dead.Partition(true)
		time.Sleep(time.Hour + 30*time.Second)
		if got := runs.Load(); got != 1 {
			t.Errorf("%d runs within half a minute after the next tick, want 1", got)
		}
		time.Sleep(time.Hour)
		if got := runs.Load(); got != 2 {
			t.Errorf("%d runs after two ticks, want 2", got)
		}
		for range 2 {
			if err := <-failed; !errors.Is(err, leasehold.ErrHeld) {
				t.Errorf("the other says %v, want %v", err, leasehold.ErrHeld)
			}
		}
		dead.Partition(false)
	})
}

// TestLoss: the context of a task ends before the lease could be another's, and gocron hears of it; the run after the
// store is back is as any other.
func TestLoss(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		p := start(t, st, nil, nil)
		defer p.end()
		own := errors.New("the work's own")
		failed := make(chan error, 1)
		var runs atomic.Int32
		every(t, p, "report", time.Minute, time.Hour, p.locker.Task(func(ctx context.Context, lease *leasehold.Lease) error {
			if runs.Add(1) > 1 {
				return nil
			}
			st.Partition(true)
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, leasehold.ErrLost) || lease.Valid() {
				t.Errorf("the context ends with %v, and the lease is valid: %t", cause, lease.Valid())
			}
			return own
		}), failed)
		if err := <-failed; !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, own) {
			t.Errorf("gocron hears %v", err)
		}
		st.Partition(false)
		time.Sleep(time.Hour)
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
	})
}

// TestShutdown: a scheduler that is shut down in mid-run has ended the contexts that gocron gives to the task and to
// Unlock; the lock is released nevertheless, with the rest of its shortest hold.
func TestShutdown(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		p := start(t, st, nil, nil)
		begun := make(chan bool)
		every(t, p, "report", time.Minute, time.Hour, p.locker.Task(func(ctx context.Context, _ *leasehold.Lease) error {
			begun <- true
			<-ctx.Done()
			return nil
		}), nil)
		<-begun
		p.end()
		info, err := must(leasehold.NewLock(st, "report", nil)).Inspect(t.Context())
		if err != nil || info.Held || info.Rest == 0 {
			t.Errorf("held %t, at rest for %v, %v", info.Held, info.Rest, err)
		}
	})
}

// TestUnlockIsBounded: a store that does not answer keeps Unlock for 5 s, and its error goes to the Logger.
func TestUnlockIsBounded(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		log := &logged{}
		p := start(t, st, &leasegocron.LockerOptions{Logger: log}, nil)
		defer p.end()
		lock := must(p.locker.Lock(t.Context(), "report"))
		st.Partition(true)
		began := time.Now()
		err := lock.Unlock(t.Context())
		if took := time.Since(began); took != 5*time.Second || !errors.Is(err, context.DeadlineExceeded) || log.errors.Load() != 1 {
			t.Errorf("%v after %v, %d logged", err, took, log.errors.Load())
		}
		st.Partition(false)
	})
}

type logged struct {
	gocron.Logger
	errors atomic.Int32
}

func (l *logged) Error(string, ...any) { l.errors.Add(1) }

// TestPlainTask: a task of gocron's own is locked too.
func TestPlainTask(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		ran, failed := make(chan bool, 10), make(chan error, 10)
		for range 2 {
			p := start(t, st, nil, nil)
			defer p.end()
			every(t, p, "report", time.Minute, time.Hour, gocron.NewTask(func() { ran <- true }), failed)
		}
		<-ran
		if err := <-failed; !errors.Is(err, leasehold.ErrHeld) || len(ran) != 0 {
			t.Errorf("%v, and %d runs more", err, len(ran))
		}
	})
}

// TestTaskWithoutLock: a task whose job this Locker does not lock does not run, and says what to do; nor does one
// whose job has no name, since all such jobs would have one lock.
func TestTaskWithoutLock(t *testing.T) {
	for what, tc := range map[string]struct {
		name string
		opts []gocron.JobOption
		want string
	}{
		"disabled": {"report", []gocron.JobOption{gocron.WithDisabledDistributedJobLocker(true)}, "no lock of this Locker"},
		"unnamed":  {"", nil, "WithName"},
	} {
		t.Run(what, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				p := start(t, memstore.New(), nil, nil)
				defer p.end()
				failed := make(chan error, 1)
				var runs atomic.Int32
				every(t, p, tc.name, time.Minute, time.Hour, p.locker.Task(counts(&runs)), failed, tc.opts...)
				if err := <-failed; !strings.Contains(err.Error(), tc.want) || runs.Load() != 0 {
					t.Errorf("%v, %d runs, want %q", err, runs.Load(), tc.want)
				}
			})
		})
	}
}

// TestNames: a name is a key as it is, or an error.
func TestNames(t *testing.T) {
	p := start(t, memstore.New(), nil, nil)
	defer p.end()
	names := []string{"report", "Report", "report/daily", "report%2Fdaily", "pkg.(*T).Run-fm", "ein Bericht", "報告", strings.Repeat("x", 200)}
	for _, name := range names {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lock, err := p.locker.Lock(ctx, name)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		defer func() { _ = lock.Unlock(ctx) }()
		if _, err := p.locker.Lock(t.Context(), name); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("%q: the second gets %v", name, err)
		}
	}
	for _, name := range []string{"", "/", "a//b", "..", "a/../b", "a\x00b", "a\nb", "\xff", strings.Repeat("x", 201), strings.Repeat("x/", 1000) + "x"} {
		if _, err := p.locker.Lock(t.Context(), name); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestOptions(t *testing.T) {
	locks := must(leasehold.NewLocks(memstore.New(), &leasehold.LockOptions{Layout: leasehold.LayoutMarker}))
	if _, err := leasegocron.NewLocker(nil, nil); err == nil {
		t.Error("no locks, and no error")
	}
	if _, err := must(leasegocron.NewLocker(locks, &leasegocron.LockerOptions{HoldAtLeast: 25 * time.Hour})).Lock(t.Context(), "report"); err == nil {
		t.Error("25 hours, and no error")
	}
	if _, err := leasegocron.NewElector(nil); err == nil {
		t.Error("no election, and no error")
	}
	if _, err := must(leasegocron.NewLocker(locks, nil)).Lock(t.Context(), "report"); err == nil || !strings.Contains(err.Error(), "shortest hold") {
		t.Errorf("a layout that cannot keep it: %v", err)
	}
	lock, err := must(leasegocron.NewLocker(locks, &leasegocron.LockerOptions{HoldAtLeast: -1})).Lock(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
