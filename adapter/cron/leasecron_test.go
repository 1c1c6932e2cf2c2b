package leasecron_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"go.uber.org/goleak"

	"github.com/leasehold/leasehold"
	leasecron "github.com/leasehold/leasehold/adapter/cron"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"))
}

// logged is a cron.Logger that keeps what it is told by adapters, and not by cron.
type logged struct {
	mu    sync.Mutex
	skips []string
	errs  []error
	news  chan bool
}

func newLog() *logged { return &logged{news: make(chan bool, 1000)} }

func (l *logged) Info(msg string, with ...any) {
	if msg == "skip" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.skips = append(l.skips, fmt.Sprint(with...))
		l.news <- true
	}
}

func (l *logged) Error(err error, msg string, with ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, fmt.Errorf("%s, %s: %w", msg, fmt.Sprint(with...), err))
	l.news <- true
}

func (l *logged) told() (skips int, errs error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.skips), errors.Join(l.errs...)
}

// late is a schedule by a clock that is late.
type late struct {
	every, by time.Duration
}

func (l late) Next(now time.Time) time.Time {
	return now.Add(-l.by).Truncate(l.every).Add(l.every + l.by)
}

// A process runs jobs of cron.
type process struct {
	*cron.Cron
	locks *leasehold.Locks
	ctx   context.Context
	log   *logged
	opts  *leasecron.Options
	end   func()
}

func start(t testing.TB, st store.Store, atLeast time.Duration, lock *leasehold.LockOptions) *process {
	t.Helper()
	locks, err := leasehold.NewLocks(st, lock)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	log := newLog()
	c := cron.New(cron.WithLogger(log))
	c.Start()
	return &process{c, locks, ctx, log, &leasecron.Options{HoldAtLeast: atLeast, Logger: log}, sync.OnceFunc(func() {
		cancel()
		<-c.Stop().Done()
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})}
}

func (p *process) job(name string, f leasecron.Func) cron.Job {
	return leasecron.NewJob(p.ctx, p.locks, name, f, p.opts)
}

func counts(runs *atomic.Int32) leasecron.Func {
	return func(context.Context, *leasehold.Lease) error {
		runs.Add(1)
		return nil
	}
}

// TestClocksDiffer: of three processes whose clocks differ by up to two seconds, one makes each run of a job that takes
// no time. Without a shortest hold all of them make it.
func TestClocksDiffer(t *testing.T) {
	for _, tc := range []struct {
		atLeast time.Duration
		want    int32
	}{{0, 3}, {-1, 9}} {
		leasetest.Bubble(t, func(t *testing.T) {
			time.Sleep(30 * time.Minute) // to between two ticks
			st := memstore.New()
			var runs atomic.Int32
			skips := 0
			for i := range 3 {
				p := start(t, st, tc.atLeast, nil)
				defer func() {
					p.end()
					n, err := p.log.told()
					if skips += n; err != nil {
						t.Error(err)
					}
					if i == 0 && int32(skips) != 9-tc.want {
						t.Errorf("%d runs were left out, want %d", skips, 9-tc.want)
					}
				}()
				p.Schedule(late{time.Hour, time.Duration(i) * time.Second}, p.job("report", counts(&runs)))
			}
			time.Sleep(3 * time.Hour)
			if got := runs.Load(); got != tc.want {
				t.Errorf("hold at least %v: %d runs in three hours, want %d", tc.atLeast, got, tc.want)
			}
		})
	}
}

// TestHolderDies: a process that is gone in mid-run costs no more than that run: another takes over at the next tick,
// though that is long after, and the third leaves the run to it.
func TestHolderDies(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		dead := faultstore.Wrap(st, nil)
		a, b, c := start(t, dead, 0, nil), start(t, st, 0, nil), start(t, st, 0, nil)
		defer a.end()
		defer b.end()
		defer c.end()
		begun := make(chan bool)
		go a.job("report", func(ctx context.Context, _ *leasehold.Lease) error {
			begun <- true
			<-ctx.Done()
			return nil
		}).Run()
		<-begun
		dead.Partition(true)
		var runs atomic.Int32
		for _, p := range []*process{b, c} {
			p.Schedule(late{every: time.Hour}, p.job("report", counts(&runs)))
		}
		time.Sleep(time.Hour + 30*time.Second)
		if got := runs.Load(); got != 1 {
			t.Errorf("%d runs within half a minute after the next tick, want 1", got)
		}
		time.Sleep(time.Hour)
		if got := runs.Load(); got != 2 {
			t.Errorf("%d runs after two ticks, want 2", got)
		}
		dead.Partition(false)
	})
}

// TestHolderIsAlive: a run that takes longer than the interval is not made again elsewhere, nor here.
func TestHolderIsAlive(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		var runs atomic.Int32
		for range 2 {
			p := start(t, st, 0, nil)
			defer p.end()
			p.Schedule(late{every: time.Minute}, p.job("report", func(ctx context.Context, lease *leasehold.Lease) error {
				runs.Add(1)
				time.Sleep(4*time.Minute + 30*time.Second)
				return ctx.Err()
			}))
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Minute)) + 10*time.Minute + 10*time.Second)
		if got := runs.Load(); got != 2 {
			t.Errorf("%d runs in ten minutes, want 2", got)
		}
		time.Sleep(10 * time.Minute)
	})
}

// TestLoss: the context of a Func ends with the lease, and the log says so at once; so it does for a job of cron's own.
func TestLoss(t *testing.T) {
	for _, plain := range []bool{false, true} {
		leasetest.Bubble(t, func(t *testing.T) {
			st := faultstore.Wrap(memstore.New(), nil)
			p := start(t, st, 0, nil)
			defer p.end()
			own := errors.New("the work's own")
			lost := func() bool {
				_, err := p.log.told()
				return errors.Is(err, leasehold.ErrLost)
			}
			job := p.job("report", func(ctx context.Context, lease *leasehold.Lease) error {
				st.Partition(true)
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, leasehold.ErrLost) || lease.Valid() {
					t.Errorf("the context ends with %v, and the lease is valid: %t", cause, lease.Valid())
				}
				return own
			})
			if plain {
				job = leasecron.Wrapper(p.ctx, p.locks, "report", p.opts)(cron.FuncJob(func() {
					st.Partition(true)
					time.Sleep(14 * time.Second)
					if !lost() {
						t.Error("nobody is told of the loss while the job goes on")
					}
				}))
			}
			job.Run()
			_, err := p.log.told()
			if !lost() || !plain && !errors.Is(err, own) || strings.Count(err.Error(), leasehold.ErrLost.Error()) != 1 {
				t.Errorf("the log has %v", err)
			}
			st.Partition(false)
		})
	}
}

// TestShutdown: the end of the context ends a run, whose lock is released nevertheless, and no other begins.
func TestShutdown(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		p := start(t, st, 0, nil)
		begun := make(chan bool, 10)
		job := p.job("report", func(ctx context.Context, _ *leasehold.Lease) error {
			begun <- true
			<-ctx.Done()
			return nil
		})
		p.Schedule(late{every: time.Minute}, job)
		<-begun
		p.end()
		job.Run()
		skips, errs := p.log.told()
		if len(begun) != 0 || skips != 1 || errs != nil {
			t.Errorf("after the end: %d runs, %d left out, %v", len(begun), skips, errs)
		}
		info, err := must(leasehold.NewLock(st, "report", nil)).Inspect(t.Context())
		if err != nil || info.Held || info.Rest == 0 {
			t.Errorf("held %t, at rest for %v, %v", info.Held, info.Rest, err)
		}
	})
}

// TestReleaseIsBounded: a store that does not answer keeps a run for 5 s after its work, and the log has the error.
func TestReleaseIsBounded(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		p := start(t, st, 0, nil)
		defer p.end()
		began := time.Now()
		p.job("report", func(context.Context, *leasehold.Lease) error {
			st.Partition(true)
			return nil
		}).Run()
		if _, err := p.log.told(); time.Since(began) != 5*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		st.Partition(false)
	})
}

// TestPanic: work that panics releases its lock, and cron.Recover hears of it.
func TestPanic(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		p := start(t, memstore.New(), -1, nil)
		defer p.end()
		boom := cron.FuncJob(func() { panic("boom") })
		cron.NewChain(cron.Recover(p.log), leasecron.Wrapper(p.ctx, p.locks, "report", p.opts)).Then(boom).Run()
		if _, err := p.log.told(); err == nil || !strings.Contains(err.Error(), "boom") {
			t.Errorf("the log has %v", err)
		}
		var runs atomic.Int32
		if p.job("report", counts(&runs)).Run(); runs.Load() != 1 {
			t.Error("the lock is not free")
		}
	})
}

// TestChains: SkipIfStillRunning and DelayIfStillRunning go around a job of ours. With the former the lock is not even
// tried for; with the latter both runs are made, one after the other.
func TestChains(t *testing.T) {
	for name, tc := range map[string]struct {
		around  func(cron.Logger) cron.JobWrapper
		atLeast time.Duration
		runs    int32
	}{
		"skip":               {cron.SkipIfStillRunning, -1, 1},
		"delay":              {cron.DelayIfStillRunning, -1, 2},
		"delay, within hold": {cron.DelayIfStillRunning, time.Hour, 1},
	} {
		p := start(t, memstore.New(), tc.atLeast, nil)
		var runs atomic.Int32
		begun, done := make(chan bool, 2), make(chan bool)
		job := cron.NewChain(tc.around(p.log)).Then(p.job("report", func(context.Context, *leasehold.Lease) error {
			runs.Add(1)
			begun <- true
			<-done
			return nil
		}))
		var both sync.WaitGroup
		both.Go(job.Run)
		<-begun
		both.Go(job.Run)
		if name == "skip" {
			<-p.log.news // the second is over before the first
		}
		close(done)
		both.Wait()
		if skips, err := p.log.told(); runs.Load() != tc.runs || skips != int(2-tc.runs) || err != nil {
			t.Errorf("%s: %d runs, %d left out, %v; want %d runs", name, runs.Load(), skips, err, tc.runs)
		}
		p.end()
	}
}

// TestWrapperOfTwo: a wrapper has one name, so it is for one job. The other one is not run, and the log says why.
func TestWrapperOfTwo(t *testing.T) {
	p := start(t, memstore.New(), 0, nil)
	defer p.end()
	var first, second atomic.Int32
	chain := cron.NewChain(leasecron.Wrapper(p.ctx, p.locks, "report", p.opts))
	a := chain.Then(cron.FuncJob(func() { first.Add(1) }))
	b := chain.Then(cron.FuncJob(func() { second.Add(1) }))
	b.Run()
	a.Run()
	if _, err := p.log.told(); first.Load() != 1 || second.Load() != 0 || err == nil || strings.Count(err.Error(), "for each job") != 2 {
		t.Errorf("%d and %d runs, and the log has %v", first.Load(), second.Load(), err)
	}
}

// TestNames: a name is a key as it is, or an error in the log.
func TestNames(t *testing.T) {
	p := start(t, memstore.New(), 0, nil)
	defer p.end()
	for _, name := range []string{"report", "Report", "report/daily", "report%2Fdaily", "ein Bericht", "報告", strings.Repeat("x", 200)} {
		var runs atomic.Int32
		job := p.job(name, counts(&runs))
		job.Run()
		job.Run() // within the hold
		if runs.Load() != 1 {
			t.Errorf("%q: %d runs, want 1", name, runs.Load())
		}
	}
	if skips, err := p.log.told(); skips != 7 || err != nil {
		t.Errorf("%d left out, %v", skips, err)
	}
	for _, name := range []string{"", "/", "a//b", "..", "a/../b", "a\x00b", "a\nb", "\xff", strings.Repeat("x", 201), strings.Repeat("x/", 1000) + "x"} {
		log := newLog()
		var runs atomic.Int32
		leasecron.NewJob(p.ctx, p.locks, name, counts(&runs), &leasecron.Options{Logger: log}).Run()
		if _, err := log.told(); !errors.Is(err, store.ErrInvalid) || runs.Load() != 0 {
			t.Errorf("%q: %d runs, %v", name, runs.Load(), err)
		}
	}
}

// TestMistakes: what NewJob cannot return as an error the log has, when the job is made and at each run.
func TestMistakes(t *testing.T) {
	marker := must(leasehold.NewLocks(memstore.New(), &leasehold.LockOptions{Layout: leasehold.LayoutMarker}))
	var runs atomic.Int32
	for _, tc := range []struct {
		locks *leasehold.Locks
		f     leasecron.Func
		want  string
		times int
	}{
		{nil, counts(&runs), "the locks are nil", 2},
		{marker, nil, "there is no work", 2},
		{marker, counts(&runs), "shortest hold", 1},
	} {
		log := newLog()
		leasecron.NewJob(t.Context(), tc.locks, "report", tc.f, &leasecron.Options{Logger: log}).Run()
		if _, err := log.told(); err == nil || strings.Count(err.Error(), tc.want) != tc.times || runs.Load() != 0 {
			t.Errorf("%q: %d runs, %v", tc.want, runs.Load(), err)
		}
	}
	leasecron.NewJob(t.Context(), marker, "report", counts(&runs), &leasecron.Options{HoldAtLeast: -1}).Run()
	if runs.Load() != 1 {
		t.Error("without a shortest hold it does not run with that layout")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
