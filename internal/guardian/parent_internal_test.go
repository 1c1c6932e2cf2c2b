//go:build linux

package guardian

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
)

// newProcess is one whose helpers are a process that does nothing, and the test.
func newProcess(t *testing.T) (p *Process, reports chan report, life chan order) {
	t.Helper()
	reports, life = make(chan report), make(chan order)
	p = &Process{
		reports: reports, life: life, sooner: make(chan struct{}), started: make(chan struct{}), done: make(chan struct{}),
		spared: map[int]bool{}, limit: limit{Deadline: clock.Now() + time.Hour},
	}
	others, err := children()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range others {
		p.spared[c.pid] = true
	}
	p.watcher = startProcess(t, "SR", "/bin/sleep", "1000")
	return p, reports, life
}

// The last of the three hears of the earlier deadline that Stop makes, and does not first
// sleep for a second; it is done when all reports are read. This test is not parallel:
// children of all tests are this process's.
func TestWatchStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, reports, _ := newProcess(t)
		go p.watch()
		synctest.Wait()
		began := time.Now()
		p.Stop() // with no grace
		for isChild(p.watcher) && time.Since(began) == 0 {
			synctest.Wait()
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it looked at the deadline %v after Stop", took)
		}
		synctest.Wait()
		select {
		case <-p.done:
			t.Error("it was done before the last report")
		default:
		}
		reports <- report{}
		close(reports)
		p.Stop()
		if got := p.Wait(); got != (Status{Code: 137, Signal: syscall.SIGKILL, Expired: true}) || !errors.Is(p.err, ErrTooLate) {
			t.Errorf("it ended with %+v, %v", got, p.err)
		}
	})
}

// While the grace lasts, Stop does not keep it busy.
func TestWatchStopWithGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, reports, _ := newProcess(t)
		p.limit.Grace = time.Minute
		go p.watch()
		p.Stop()
		time.Sleep(10 * time.Second)
		if !isChild(p.watcher) {
			t.Error("it did not wait for the grace")
		}
		close(reports)
		if got, want := p.Wait(), (Status{Code: 137, Signal: syscall.SIGKILL, Expired: true}); got != want {
			t.Errorf("it ended with %+v, want %+v", got, want)
		}
	})
}

// The end of the watcher is told once, and only where the command has started.
func TestWatcherGone(t *testing.T) {
	for _, started := range []bool{false, true} {
		said := stderrOf(t, func() {
			synctest.Test(t, func(t *testing.T) {
				p, reports, life := newProcess(t)
				if started {
					close(p.started)
				}
				go p.watch()
				close(life)
				time.Sleep(time.Minute)
				close(reports)
				got, want := p.Wait(), Status{Code: 137, Signal: syscall.SIGKILL}
				if got != want || p.err == nil || p.err.Error() != "the guardian was killed before it had started the command" {
					t.Errorf("it ended with %+v, %v, want %+v", got, p.err, want)
				}
			})
		})
		if n := strings.Count(said, "leasehold: the watcher of the command, process "); n != strings.Count(said, "\n") || (n == 1) != started || n > 1 {
			t.Errorf("started %v: it said %q", started, said)
		}
	}
}

// The last report says what became of the command.
func TestFinish(t *testing.T) {
	for _, c := range []struct {
		last report
		want Status
		err  string
	}{
		{report{Ended: &ended{Wait: 3 << 8}}, Status{Code: 3}, ""},
		{report{Ended: &ended{Wait: syscall.WaitStatus(unix.SIGTERM), Expired: true}}, Status{Code: 143, Signal: syscall.SIGTERM, Expired: true}, ""},
		{report{TooLate: true}, Status{}, ErrTooLate.Error()},
		{report{Failed: &CommandError{"x", 127, "not found"}}, Status{}, `cannot run "x": not found`},
		{report{Broken: "no pipe"}, Status{}, "cannot start the guardian: no pipe"},
	} {
		p, reports, _ := newProcess(t)
		p.guardian = startProcess(t, "SR", "/bin/sleep", "1000") // which has been stopped, say, and does not end by itself
		close(reports)
		p.finish(c.last)
		if isChild(p.watcher) || isChild(p.guardian) {
			t.Error("a helper was not ended and reaped")
		}
		said := ""
		if p.err != nil {
			said = p.err.Error()
		}
		if p.status != c.want || said != c.err {
			t.Errorf("%+v: %+v, %q, want %+v, %q", c.last, p.status, said, c.want, c.err)
		}
	}
}

type noSignal struct{}

func (noSignal) String() string { return "none" }
func (noSignal) Signal()        {}

func TestSignal(t *testing.T) {
	t.Parallel()
	if err := new(Process).Signal(noSignal{}); err == nil || errors.Is(err, os.ErrProcessDone) {
		t.Errorf("sent what is no signal of the system: %v", err)
	}
	if err := (&Process{over: true}).Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signalled what has ended: %v", err)
	}
}

// A terminal is had where /dev/tty is.
func TestOpenTerminal(t *testing.T) {
	t.Parallel()
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	got := openTerminal()
	defer got.close()
	if (got != nil) != (err == nil) {
		t.Errorf("the terminal is %+v, and /dev/tty gives %v", got, err)
	}
}
