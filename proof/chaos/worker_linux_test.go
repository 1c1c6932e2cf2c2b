package chaos_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// grace is what a job has from SIGTERM to SIGKILL.
const grace = 500 * time.Millisecond

// lasts is how long jobs do if they are left alone, those of run and those of elect:
// long enough to be found at work when another takes over.
var lasts = [2]time.Duration{3 * ttl, time.Hour}

// A worker is a supervisor that starts its process whenever that has ended, as an
// init system does: leasehold run or elect with a job, the bare job, or a tenant.
type worker struct {
	n    int
	argv []string
	env  []string
	link *link // nil: on the network of the test
	log  string

	mu   sync.Mutex
	proc *os.Process // nil when there is none
	ends map[int]int // how often, by exit code; -1: killed
}

// turns numbers the starts of bare jobs, and stands for their token.
var turns atomic.Int64

// live starts the process again and again until ctx ends.
func (w *worker) live(ctx context.Context) error {
	log, err := os.Create(w.log)
	if err != nil {
		return err
	}
	defer log.Close()
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, w.argv[0], w.argv[1:]...)
		cmd.Env = append(w.env, fmt.Sprintf("LEASEHOLD_TOKEN=%d", turns.Add(1)))
		cmd.Stdout, cmd.Stderr = log, log
		start := cmd.Start
		if w.link != nil {
			start = func() error { return w.link.inside(cmd.Start) }
		}
		if err := start(); err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		w.set(cmd.Process)
		_ = cmd.Wait() // its exit code tells
		w.set(nil)
		w.mu.Lock()
		w.ends[cmd.ProcessState.ExitCode()]++
		w.mu.Unlock()
		select { // or a store that is away would be asked without end
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

func (w *worker) set(p *os.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proc = p
}

// signal signals the process, but not its job, and reports whether there was one.
func (w *worker) signal(sig syscall.Signal) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proc != nil && w.proc.Signal(sig) == nil
}

// expected are the exit codes that what is done to a worker explains: the job's own,
// the store that is away, the lost lease, and the signals to leasehold or its job.
var expected = []int{0, refusedCode, 69, 76, 128 + int(syscall.SIGKILL), 128 + int(syscall.SIGTERM), -1}

// tooSlow is what a worker says that ends with 70, since all answers of the store came too late.
const (
	tooSlow     = "the store takes longer to answer than half a TTL"
	tooSlowCode = 70
)

// inquest fails the test for ends that nothing explains, with what the worker said.
func (w *worker) inquest(t *testing.T) {
	t.Helper()
	said, err := os.ReadFile(w.log)
	for code, n := range w.ends {
		if !slices.Contains(expected, code) && (code != tooSlowCode || n > strings.Count(string(said), tooSlow)) {
			t.Errorf("worker %d ended %d times with code %d", w.n, n, code)
		}
	}
	if t.Failed() {
		t.Logf("worker %d, %v:\n%.20000s", w.n, err, said)
	}
}

// A fleet is all workers, and the checker that their jobs talk to.
type fleet struct {
	checker
	workers []*worker
	tenants string // what the processes are called that hold locks themselves; empty: tenants
	summary string // the last to be said of it
}

// launch starts a worker on each link, nil for the network of the test, and stops them
// when the test ends. The arguments that argv gives for a worker come before its job.
// So many of them may hold the lock at a time.
func launch(t *testing.T, slots int, links []*link, env []string, argv func(n int) []string) *fleet {
	t.Helper()
	dir, f := t.TempDir(), &fleet{checker: checker{slots: slots}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "checker")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go f.serve(l)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var live sync.WaitGroup
	for n, link := range links {
		w := &worker{n: n, link: link, argv: append(argv(n), self), log: filepath.Join(dir, fmt.Sprint("log", n)), ends: map[int]int{}}
		w.env = slices.Concat(os.Environ(), env, []string{
			jobVariable + "=" + socket, workerVariable + "=" + fmt.Sprint(n), lastsVariable + "=" + lasts[n%len(lasts)].String(),
		})
		f.workers = append(f.workers, w)
		live.Go(func() {
			if err := w.live(ctx); err != nil {
				t.Errorf("start worker %d: %v", n, err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		live.Wait()
		l.Close()
		for _, w := range f.workers {
			w.inquest(t)
		}
		if f.summary != "" {
			t.Log(f.summary)
		}
	})
	return f
}
