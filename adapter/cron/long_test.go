package leasecron_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/store"
)

// TestEverywhere: of two processes one makes a run that is due on both at once, on each store.
func TestEverywhere(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		var runs atomic.Int32
		var all [2]*process
		var both sync.WaitGroup
		for i := range all {
			all[i] = start(t, p.Open(t), time.Hour, nil)
			defer all[i].end()
			both.Go(all[i].job("report", counts(&runs)).Run)
		}
		both.Wait()
		skips, err := all[0].log.told()
		more, other := all[1].log.told()
		if runs.Load() != 1 || skips+more != 1 || err != nil || other != nil {
			t.Errorf("%d runs, %d left out, %v, %v", runs.Load(), skips+more, err, other)
		}
	})
}

// TestRounds: the work of a holder that is cut off has ended before another's begins.
func TestRounds(t *testing.T) {
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
		p := start(t, st, -1, &leasehold.LockOptions{TTL: adaptertest.TTL, Holder: name})
		job := p.job("contended", func(ctx context.Context, _ *leasehold.Lease) error {
			work(ctx)
			return nil
		})
		p.Schedule(late{every: 100 * time.Millisecond}, cron.NewChain(cron.SkipIfStillRunning(cron.DiscardLogger)).Then(job))
		return p.end
	})
}

// TestRow runs cron's own tests of chains, in which each chain has a wrapper of ours and SkipIfStillRunning is ours, and
// writes down what became of them.
func TestRow(t *testing.T) {
	const pkg, dir = "github.com/robfig/cron/v3", "testdata/upstream"
	theirs := string(must(os.ReadFile(adaptertest.Outside(t, dir, pkg, "chain_test.go", "appendingJob", "appendingWrapper", "TestChain", "TestChainRecover",
		"countJob", "countJob.Run", "countJob.Started", "countJob.Done", "TestChainDelayIfStillRunning", "TestChainSkipIfStillRunning"))))
	theirs = strings.NewReplacer("NewChain(", "chained(", "SkipIfStillRunning(DiscardLogger)", "skipIfRunning()",
		"time.Millisecond", "tick").Replace(theirs)
	changed := t.TempDir() + "/chain_test.go"
	if err := os.WriteFile(changed, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	results := adaptertest.Upstream{
		Package: pkg, Dir: dir, Run: "^TestChain",
		Files: map[string]string{"chain_test.go": changed, "ours_test.go": dir + "/ours_test.go"},
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
