package leasegocron_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	leasegocron "github.com/leasehold/leasehold/adapter/gocron"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/store"
)

// TestEverywhere: of two schedulers one runs a job that is due on both at once, on each store.
func TestEverywhere(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		var runs atomic.Int32
		ran, failed := make(chan bool, 10), make(chan error, 10)
		for range 2 {
			p := start(t, p.Open(t), &leasegocron.LockerOptions{HoldAtLeast: time.Hour}, nil)
			defer p.end()
			every(t, p, "report", 100*time.Millisecond, time.Hour, p.locker.Task(func(ctx context.Context, lease *leasehold.Lease) error {
				err := counts(&runs)(ctx, lease)
				ran <- true
				return err
			}), failed)
		}
		<-ran
		if err := <-failed; !errors.Is(err, leasehold.ErrHeld) || runs.Load() != 1 {
			t.Errorf("%d runs, and the other says %v", runs.Load(), err)
		}
	})
}

func contender(work func(ctx context.Context)) leasegocron.Func {
	return func(ctx context.Context, _ *leasehold.Lease) error {
		work(ctx)
		return nil
	}
}

// TestRounds: the work of a holder that is cut off has ended before another's begins.
func TestRounds(t *testing.T) {
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
		p := start(t, st, &leasegocron.LockerOptions{HoldAtLeast: -1}, &leasehold.LockOptions{TTL: adaptertest.TTL, Holder: name})
		every(t, p, "contended", 10*time.Millisecond, 100*time.Millisecond, p.locker.Task(contender(work)), nil)
		return p.end
	})
}

// TestElectorRounds is the same of an elector.
func TestElectorRounds(t *testing.T) {
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
		opts := &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: adaptertest.TTL, Holder: name}}
		c := campaign(t, st, "contended", opts)
		every(t, c, "report", 10*time.Millisecond, 100*time.Millisecond, c.Task(contender(work)), nil)
		return func() { c.end(t) }
	})
}

// TestRow runs gocron's own tests about lockers and electors, and writes down what became of them.
func TestRow(t *testing.T) {
	const pkg, dir = "github.com/go-co-op/gocron/v2", "testdata/upstream"
	theirs := adaptertest.Outside(t, dir, pkg, "scheduler_test.go",
		"newTestScheduler", "TestScheduler_WithDistributed", "TestScheduler_WithLocker_WithEventListeners")
	empty := t.TempDir() + "/empty_test.go"
	if err := os.WriteFile(empty, []byte("package gocron_test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"scheduler_test.go": theirs, "ours_test.go": dir + "/ours_test.go"}
	for _, others := range []string{"example", "job", "logger", "scheduler_monitor", "util"} {
		files[others+"_test.go"] = empty
	}
	results := adaptertest.Upstream{
		Package: pkg, Dir: dir, Run: "^TestScheduler_With(Distributed|Locker_WithEventListeners)$",
		Files: files,
	}.Test(t)
	adaptertest.Row{Module: pkg, Ran: results.Ran, Passed: results.Passed}.Check(t)
}

// TestReadme: the program in the README is the example, and it runs.
func TestReadme(t *testing.T) {
	adaptertest.Readme(t, "example/main.go")
	out, err := exec.CommandContext(t.Context(), "go", "run", "./example", t.TempDir()).CombinedOutput()
	if want := "the report is written under token "; err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("it prints %q, %v; want %q", out, err, want)
	}
}
