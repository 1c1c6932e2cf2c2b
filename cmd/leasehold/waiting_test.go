package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// settled is a candidate that has nothing to settle.
type settled struct{}

func (settled) Settle(context.Context) error { return nil }

// newWaiter is a job that says what it says to a buffer, which is no terminal.
func newWaiter() (*job, *bytes.Buffer) {
	said := &bytes.Buffer{}
	return &job{
		app: &app{console: console{w: said, least: levelNotice}}, target: target{name: "l"}, candidate: settled{},
		signals: make(chan os.Signal, 8), blockers: make(chan *blocker, 1), opts: leasehold.LockOptions{TTL: 15 * time.Second},
	}, said
}

// A wait that no terminal shows says so at once, and then once a minute, for as long as it
// lasts; it used to say nothing, so that it looked as if it hung. Trouble with the store is
// said once a minute instead; a candidate of an election says only that it waits; and -q says
// nothing.
func TestWaitsAloud(t *testing.T) {
	t.Parallel()
	const first = "leasehold: waiting for l, held by first, token 5\n"
	minutes := first
	for _, text := range []string{"1m1s", "2m2s", "3m3s"} {
		minutes += "leasehold: waiting for l, held by first: " + text + "\n"
	}
	for name, tt := range map[string]struct {
		set  func(*job)
		want string
	}{
		"run":    {func(*job) {}, minutes},
		"elect":  {func(j *job) { j.candidate = &leasehold.Election{} }, first},
		"quiet":  {func(j *job) { j.console.least = slog.LevelError }, ""},
		"nobody": {func(j *job) { <-j.blockers }, strings.ReplaceAll(strings.TrimPrefix(minutes, first), ", held by first", "")},
		"another": {func(j *job) {
			go func() {
				time.Sleep(2 * time.Minute)
				j.blockers <- blockerOf(leasehold.Info{Holder: "second", Token: 6}, time.Now())
			}()
		}, strings.NewReplacer("first: 2m", "second: 2m", "first: 3m", "second: 3m").Replace(minutes)},
		"another, with -v": {func(j *job) {
			j.console.least = slog.LevelInfo
			j.candidate = &leasehold.Election{}
			go func() {
				time.Sleep(2 * time.Minute)
				j.blockers <- blockerOf(leasehold.Info{Holder: "second", Token: 6}, time.Now())
			}()
		}, first + "leasehold: waiting for l, held by second, token 6\n"},
		"announced": {func(j *job) {
			j.candidate = &leasehold.Election{}
			j.announced = true
		}, ""},
		"trouble": {func(j *job) {
			go func() {
				for range 3 {
					time.Sleep(time.Minute)
					j.console.warn("trouble")
				}
			}()
		}, first + strings.Repeat("leasehold: trouble\n", 3)},
	} {
		synctest.Test(t, func(t *testing.T) {
			j, said := newWaiter()
			j.blockers <- blockerOf(leasehold.Info{Holder: "first", Token: 5}, time.Now())
			tt.set(j)
			_, err := j.await(t.Context(), func(context.Context) (held, error) {
				time.Sleep(3*time.Minute + 30*time.Second)
				return nil, nil //nolint:nilnil // nobody looks at the lease
			})
			if err != nil || said.String() != tt.want {
				t.Errorf("%s: it is said\n%s%v; want\n%s", name, said, err, tt.want)
			}
		})
	}
}

// The last thing that is done is bounded, says so if it takes long, and ends with the second
// signal of all that came; none used to end it. Those within a second are one: two at a time, as
// timeout(1) sends them, used to cut a release short. No signal is lost by that: elect used to
// campaign on when it was told to end while it released the lock.
func TestSecondSignalEndsSettling(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, tt := range []struct {
		before, during int // signals
		apart          time.Duration
		want           time.Duration
		says           string
	}{
		{0, 0, 0, 5 * time.Second, "leasehold: settling: for 5s at most; a signal more ends that\n"},
		{0, 1, 0, 5 * time.Second, "leasehold: settling: for 5s at most; a signal more ends that\n"},
		{0, 2, sameStop, 2 * sameStop, "leasehold: settling: for 5s at most; a signal more ends that\n"},
		{0, 8, 10 * time.Millisecond, 5 * time.Second, "leasehold: settling: for 5s at most; a signal more ends that\n"},
		{1, 0, 0, 5 * time.Second, "leasehold: settling: for 5s at most; a signal more ends that\n"},
		{1, 1, sameStop, sameStop, "leasehold: settling: for 5s at most; a signal more ends that\n"},
		{1, 8, 10 * time.Millisecond, 5 * time.Second, "leasehold: settling: for 5s at most; a signal more ends that\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			j, said := newWaiter()
			go func() {
				for range tt.during {
					time.Sleep(tt.apart)
					j.signals <- syscall.SIGINT
				}
			}()
			began := time.Now()
			var e ending
			if tt.before > 0 {
				e.again()
			}
			err := j.last(t.Context(), e, "settling", hang)
			if took := time.Since(began); took != tt.want || err == nil || said.String() != tt.says {
				t.Errorf("%+v: it took %v, %v, and said %q", tt, took, err, said)
			}
			if still := len(j.signals); still != tt.during {
				t.Errorf("%+v: %d signals are still there", tt, still)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		j, said := newWaiter()
		wrong := errors.New("wrong")
		if err := j.last(t.Context(), ending{}, "settling", func(context.Context) error { return wrong }); !errors.Is(err, wrong) || said.Len() > 0 {
			t.Errorf("%v, and it is said %q", err, said)
		}
		// A signal is answered at once.
		j.signals <- syscall.SIGINT
		err := j.last(t.Context(), ending{time.Now()}, "settling", func(context.Context) error {
			time.Sleep(time.Nanosecond)
			return wrong
		})
		if want := "leasehold: settling: for 5s at most; a signal more ends that\n"; !errors.Is(err, wrong) || said.String() != want {
			t.Errorf("%v, and after a signal it is said %q", err, said)
		}
	})
}

func TestLastTime(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		2 * time.Second: 2 * time.Second, 15 * time.Second: 5 * time.Second, time.Minute: 20 * time.Second, time.Hour: 30 * time.Second,
	} {
		j := job{opts: leasehold.LockOptions{TTL: ttl}}
		if got := j.lastTime(); got != want {
			t.Errorf("with a TTL of %v it may take %v", ttl, got)
		}
	}
}

// TestInterruptedWait: a wait that a signal ends tells the service manager that this process stops, and lets the claim that is
// under way come to its end.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, said := newWaiter()
		var told []string
		j.notifier = newNotifier(func(_ context.Context, messages ...string) error {
			told = append(told, messages...)
			return nil
		}, 0, &j.console, func() string { return "waiting" }, nil)
		go j.notifier.run(t.Context())
		c := &unsettled{takes: time.Hour}
		j.candidate = c
		go func() {
			time.Sleep(time.Minute)
			j.signals <- syscall.SIGTERM
		}()
		began := time.Now()
		lease, err := j.await(t.Context(), func(ctx context.Context) (held, error) { <-ctx.Done(); return nil, ctx.Err() })
		if end, is := errors.AsType[*exit](err); lease != nil || !is || end.Error() != "exit code 143: terminated: gave up waiting for l" {
			t.Errorf("it ends with %v, %v", lease, err)
		}
		if took := time.Since(began); took != time.Minute+5*time.Second || !c.called {
			t.Errorf("it ends after %v", took)
		}
		synctest.Wait()
		if got, want := strings.Join(told, " "), "STATUS=waiting STOPPING=1"; got != want {
			t.Errorf("the manager is told %q, want %q", got, want)
		}
		j.notifier.end()
		want := "leasehold: waiting for the answer to a claim of l, so that nobody has to wait for a lock that nobody holds: for 5s at most; a signal more ends that\n" +
			"leasehold: a claim of l is still under way: if it lands, others wait for up to 21s\n"
		if said.String() != want {
			t.Errorf("it says\n%swant\n%s", said, want)
		}
	})
}

// An unsettled candidate has a claim under way.
type unsettled struct {
	takes  time.Duration
	called bool
}

func (c *unsettled) Settle(ctx context.Context) error {
	c.called = true
	select {
	case <-time.After(c.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestFullDisk: nothing is waited for of a claim that a full directory has refused: nothing of it can have landed.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for why, want := range map[error]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: false} {
		synctest.Test(t, func(t *testing.T) {
			j, _ := newWaiter()
			c := &unsettled{}
			j.candidate = c
			failure := &store.Error{Op: "put", Key: "l", Kind: store.ErrUnavailable, Cause: &os.PathError{Op: "write", Path: "l", Err: why}}
			lease, err := j.await(t.Context(), func(context.Context) (held, error) { return nil, failure })
			if lease != nil || !errors.Is(err, why) || c.called == want {
				t.Errorf("%v: %v, and the claim is waited for: %v", err, lease, c.called)
			}
		})
	}
}
