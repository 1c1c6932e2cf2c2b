//go:build linux

package guardian_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/guardian"
)

// A promise is a cell of the table in docs/crashes.md: what becomes of a job
// after something was done to the three that watch it.
type promise string

const (
	goesOn       promise = "the job keeps running"
	killedAtOnce promise = "SIGKILL at once"
	killedLate   promise = "SIGKILL at the deadline"
	killedGrace  promise = "SIGKILL after `--grace`"
	endedAtOnce  promise = "SIGTERM at once, SIGKILL after `--grace`"
	endedLate    promise = "SIGTERM `--grace` before the deadline, SIGKILL at the deadline"
	firstAlone   promise = "**SIGKILL for the job's first process alone**"
	nothing      promise = "**nothing**"
)

// A blow is what is done to the three, and what is promised then.
type blow struct {
	leasehold, guardian, watcher string // "runs", "killed", "stopped"
	promise
}

func (b blow) String() string {
	return fmt.Sprintf("leasehold %s, guardian %s, watcher %s", b.leasehold, b.guardian, b.watcher)
}

// documented reads the table, which must be about every combination.
func documented(t *testing.T) (blows []blow) {
	t.Helper()
	text, err := os.ReadFile("../../docs/crashes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| `leasehold` | guardian | while the watcher runs | the watcher is killed or stopped too |\n|---|---|---|---|\n")
	if !found {
		t.Fatal("docs/crashes.md has no table of what is done to the three")
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 {
			break
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		blows = append(blows, blow{cells[1], cells[2], "runs", promise(cells[3])})
		for _, w := range []string{"killed", "stopped"} {
			blows = append(blows, blow{cells[1], cells[2], w, promise(cells[4])})
		}
	}
	states := []string{"runs", "killed", "stopped"}
	for _, l := range states {
		for _, g := range states {
			for _, w := range states {
				if !slices.ContainsFunc(blows, func(b blow) bool { return b.leasehold == l && b.guardian == g && b.watcher == w }) {
					t.Errorf("the table does not say what happens with leasehold %s, guardian %s, watcher %s", l, g, w)
				}
			}
		}
	}
	if len(blows) != 27 {
		t.Errorf("the table is about %d combinations, want 27", len(blows))
	}
	return blows
}

// Whatever is done to the three at one moment, the job and each process that it can
// leave behind fare as the documentation says. A kill of the parent and the
// guardian together used to leave all of those but the first.
func TestBlows(t *testing.T) {
	t.Parallel()
	for _, without := range []bool{true, false} {
		for _, b := range documented(t) {
			t.Run(fmt.Sprintf("%v, cgroup %v", b, !without), func(t *testing.T) {
				t.Parallel()
				s := newStruck(t, without, apart(t))
				s.strike(b)
				s.check(b.promise)
			})
		}
	}
}

// apart has leasehold run in a cgroup of its own, where one can be made. Below the one that all
// tests are in, the next of their jobs would end what a table's row leaves.
func apart(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	dir := guardian.CgroupByHand()
	if dir == "" {
		return func(*exec.Cmd) {}
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Close(fd)
		if err := removeByHand(dir); err != nil {
			t.Error(err)
		}
	})
	return func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	}
}

// A struck is a family whose clock the test sets on. Its deadline is an hour
// away and its grace is half of one, so that only the test gets there.
type struck struct {
	*family
	leasehold, guard, watcher int
	first                     int      // the job's first process
	stopped                   []int    // of the three
	state                     []string // of all three
	held                      int      // descriptors of the watcher
}

func newStruck(t *testing.T, noCgroup bool, alter ...func(*exec.Cmd)) *struck {
	t.Helper()
	text := `trap 'echo >> terms' TERM` + strays + forever
	f := command(t, plan{Argv: []string{"sh", "-c", text}, Deadline: time.Hour, Grace: 30 * time.Minute, NoCgroup: noCgroup}, alter...)
	s := &struck{family: f, leasehold: f.parent.Process.Pid, guard: f.guardian(), watcher: f.watcher()}
	if _, err := fmt.Sscan(f.says("strays", 1)[0], &s.first); err != nil {
		t.Fatal(err)
	}
	// On a busy machine the command can be at work before the watcher is: it has to
	// have its own session and no more descriptors than it keeps.
	eventually(t, func() (bool, string) {
		own, _ := unix.Getsid(s.watcher)
		return own == s.watcher && state(s.watcher) == "S", "the watcher has no session of its own"
	})
	return s
}

// strike does it at one moment: all are stopped before the first is killed, so
// that none has the time to answer for another.
func (s *struck) strike(b blow) {
	s.t.Helper()
	s.held = len(descriptors(s.watcher))
	s.state = []string{b.leasehold, b.guardian, b.watcher}
	three := []int{s.leasehold, s.guard, s.watcher}
	for i, pid := range three {
		if s.state[i] != "runs" {
			kill(s.t, pid, syscall.SIGSTOP)
		}
	}
	for i, pid := range three {
		switch s.state[i] {
		case "killed": // perhaps already by one that runs, as the answer to the first
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				s.t.Fatal(err)
			}
			// In this order: where leasehold is the last of a stopped guardian's parents
			// to die, the system continues the guardian, and less goes wrong.
			eventually(s.t, func() (bool, string) { return strings.Contains("ZX", state(pid)), "it survives SIGKILL" })
		case "stopped":
			s.stopped = append(s.stopped, pid)
		}
	}
}

func (s *struck) jobEnds() {
	s.t.Helper()
	s.gone(s.leasehold, s.guard, s.watcher)
}

func (s *struck) check(p promise) {
	s.t.Helper()
	const inGrace, past = 45 * time.Minute, 2 * time.Hour
	if p != killedAtOnce && p != firstAlone {
		s.works(5)
	}
	switch p {
	case goesOn:
		s.silent("terms")
		s.order("stop")
		s.says("terms", 1)
		s.works(5)
		s.passes(inGrace)
		s.jobEnds()
	case killedAtOnce:
		s.jobEnds()
		s.silent("terms")
	case killedLate:
		s.passes(inGrace)
		s.works(5)
		s.passes(past)
		s.jobEnds()
		s.silent("terms")
	case killedGrace:
		// The grace counts from when the watcher sees the end of its orders.
		eventually(s.t, func() (bool, string) { return len(descriptors(s.watcher)) < s.held, "the watcher waits for orders" })
		s.silent("terms")
		s.passes(inGrace)
		s.jobEnds()
		s.silent("terms")
	case endedAtOnce:
		s.says("terms", 1)
		s.works(5)
		s.passes(inGrace)
		s.jobEnds()
	case endedLate:
		s.passes(inGrace)
		s.says("terms", 1)
		s.works(5)
		s.passes(past)
		s.jobEnds()
	case firstAlone:
		eventually(s.t, func() (bool, string) { return strings.Contains("ZX", state(s.first)), "the job's first process runs" })
		s.passes(past)
		s.works(4)
	case nothing:
		s.passes(past)
		s.works(5)
	default:
		s.t.Fatalf("the documentation promises %q, and no test knows what that is", p)
	}
	s.settle()
}

// settle lets one go on that was stopped, which must end what is left, and then
// all of them.
func (s *struck) settle() {
	s.t.Helper()
	if len(s.stopped) > 0 {
		_ = syscall.Kill(s.stopped[0], syscall.SIGCONT) // it may have been killed by another
		s.jobEnds()
	}
	for _, pid := range s.stopped {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	if s.state[0] != "killed" {
		if e := s.event(); !e.Ended || e.Code != 137 {
			s.t.Errorf("leasehold reports %+v, want the end by SIGKILL", e)
		}
	}
	if len(s.stopped) > 0 || slices.Contains(s.state, "runs") {
		s.gone()
		if dir := s.cgroup(); dir != "" {
			if _, err := os.Stat(dir); err == nil {
				s.t.Errorf("%s is still there after the last of the three has gone", dir)
			}
		}
	}
}
