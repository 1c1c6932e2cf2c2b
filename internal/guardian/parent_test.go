//go:build linux

package guardian_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/guardian"
)

// A plan is what the parent of a family does.
type plan struct {
	Argv     []string
	Deadline time.Duration // from its start
	Grace    time.Duration
	NoCgroup bool
	Child    bool // it has a child of its own before
	Long     bool // it gives an environment that is too long
}

const never = time.Hour // as a deadline: the test does not get there

// An event is what the parent tells the test.
type event struct {
	Means    string
	Started  bool
	Deadline time.Duration // with Started
	Error    string
	Code     int // of the error, or of the end
	TooLate  bool
	Ended    bool
	Signal   syscall.Signal
	Expired  bool
	Left     int  // at the end or without a start: children
	Held     int  // the same: descriptors more than before Start
	Alive    bool // at the end: the command may still be signalled
}

// parent reads orders from descriptor 5, one a line, and writes events to
// descriptor 6; 3 and 4, which the guardian would like, may be taken.
func parent(text string) {
	syscall.CloseOnExec(5)
	syscall.CloseOnExec(6)
	var todo plan
	if err := json.Unmarshal([]byte(text), &todo); err != nil {
		panic(err)
	}
	events := json.NewEncoder(os.NewFile(6, "events"))
	deadline := clock.Now() + todo.Deadline
	_ = os.Unsetenv(planVar)
	env := append(os.Environ(), "TWICE=1", "TWICE=2")
	if todo.Long {
		env = append(env, "LONG="+strings.Repeat("x", 1<<20))
	}
	if todo.Child {
		if err := (&exec.Cmd{Path: "/bin/sleep", Args: []string{"sleep", "1000"}, Env: []string{}, SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}).Start(); err != nil {
			panic(err)
		}
	}
	held := len(descriptors(os.Getpid()))
	p, err := guardian.Start(guardian.Options{Argv: todo.Argv, Env: env, Deadline: deadline, Grace: todo.Grace, NoCgroup: todo.NoCgroup})
	if err != nil {
		e := event{Error: err.Error(), TooLate: errors.Is(err, guardian.ErrTooLate), Held: len(descriptors(os.Getpid())) - held}
		if wrong, ok := errors.AsType[*guardian.CommandError](err); ok {
			e.Code = wrong.Code
		}
		_ = events.Encode(e)
		return
	}
	_ = events.Encode(event{Started: true, Deadline: deadline, Means: p.Means()})
	go func() {
		for in := bufio.NewScanner(os.NewFile(5, "orders")); in.Scan(); {
			obey(p, in.Text())
		}
	}()
	s := p.Wait()
	e := event{Ended: true, Code: s.Code, Signal: s.Signal, Expired: s.Expired, Left: len(childrenOf(os.Getpid())), Held: more(held)}
	e.Alive = !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
	_ = events.Encode(e)
}

// more is how many descriptors this process has more than before, as soon as what reads
// the pipes has seen their end.
func more(held int) int {
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if n := len(descriptors(os.Getpid())); n <= held || time.Now().After(limit) {
			return max(n-held, 0)
		}
	}
}

func obey(p *guardian.Process, order string) {
	verb, arg, _ := strings.Cut(order, " ")
	switch verb {
	case "stop":
		p.Stop()
	case "extend":
		d, _ := time.ParseDuration(arg)
		p.Extend(clock.Now() + d)
	case "signal":
		n, _ := strconv.Atoi(arg)
		_ = p.Signal(syscall.Signal(n))
	}
}
