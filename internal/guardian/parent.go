//go:build linux || darwin

package guardian

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
)

// A Process is a command under a guardian. It is safe for concurrent use.
type Process struct {
	guardian int
	control  *os.File
	reports  <-chan report
	grace    time.Duration
	spared   map[int]bool // children of this process that are none of reports
	tty      *terminal    // nil: there is none

	moved   chan struct{} // the deadline is another
	started chan struct{}
	done    chan struct{}
	status  Status // once done
	err     error  // once done: why there was no start

	mu       sync.Mutex
	command  int // pid and process group, once started
	deadline time.Duration
	stopped  bool // Stop was called
	over     bool // the command's pid is about to be reaped
}

// Start starts the command and returns when it runs. The error is a
// [*CommandError] if the command cannot be run, and [ErrTooLate] if the
// deadline had passed before.
//
// A process may have one Process at a time, and until it has ended should have
// no other children that it started later: if the guardian is killed, the
// command's descendants can only be told by their being new.
func Start(o Options) (*Process, error) {
	if len(o.Argv) == 0 {
		return nil, errors.New("no command given")
	}
	if err := adopt(); err != nil {
		return nil, err
	}
	before, err := children()
	if err != nil {
		return nil, err
	}
	p := &Process{
		grace: o.Grace, deadline: o.Deadline, spared: map[int]bool{}, tty: openTerminal(),
		moved: make(chan struct{}, 1), started: make(chan struct{}), done: make(chan struct{}),
	}
	for _, c := range before {
		p.spared[c.pid] = true
	}
	if err := p.launch(o); err != nil {
		p.tty.close()
		return nil, fmt.Errorf("cannot start the guardian: %w", err)
	}
	go p.watch()
	select {
	case <-p.started:
	case <-p.done: // a quick command has perhaps been started as well
		if p.err != nil {
			return nil, p.err
		}
	}
	return p, nil
}

// launch starts the guardian with one end of each pipe.
func (p *Process) launch(o Options) error {
	exe, err := executable()
	if err != nil {
		return err
	}
	theirControl, control, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = theirControl.Close() }()
	reports, theirReport, err := os.Pipe()
	if err != nil {
		_ = control.Close()
		return err
	}
	defer func() { _ = theirReport.Close() }()

	files := []uintptr{0, 1, 2}
	at := func(f *os.File) int {
		for inherited(len(files)) { // stays where it is
			files = append(files, uintptr(len(files)))
		}
		files = append(files, f.Fd())
		return len(files) - 1
	}
	arg, err := json.Marshal(plan{
		Control: at(theirControl), Report: at(theirReport),
		Deadline: o.Deadline, Grace: o.Grace, Foreground: p.tty.wanted(),
	})
	if err == nil {
		p.guardian, err = syscall.ForkExec(exe, append([]string{title, string(arg)}, o.Argv...), &syscall.ProcAttr{
			Env: (&exec.Cmd{Env: o.Env}).Environ(), Files: files, Sys: &syscall.SysProcAttr{Setpgid: true},
		})
	}
	if err != nil {
		_ = control.Close()
		_ = reports.Close()
		return err
	}
	p.control, p.reports = control, receive[report](reports)
	return nil
}

// inherited reports whether this process got the file descriptor from its own
// parent: what it opened itself is closed on exec.
func inherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}

// Extend moves the deadline on; an earlier one than it has is ignored.
func (p *Process) Extend(deadline time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || deadline <= p.deadline {
		return
	}
	p.deadline = deadline
	send(p.control, order{Deadline: deadline})
	p.wake()
}

// Stop ends the command: SIGTERM at once, SIGKILL after the grace, but not
// later than the deadline. It does not wait for that.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.stopped = true
	p.deadline = min(p.deadline, clock.Now()+p.grace)
	send(p.control, order{Stop: true})
	p.wake()
}

func (p *Process) wake() {
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// Signal sends sig to the command's process group. It returns
// [os.ErrProcessDone] when the command has ended.
func (p *Process) Signal(sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("cannot send signal %v", sig)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return os.ErrProcessDone
	}
	// No need to trouble the guardian: as long as this is not over, the
	// command's pid has not been reaped.
	return syscall.Kill(-p.command, s)
}

// Wait returns when nothing of the command runs any more.
func (p *Process) Wait() Status {
	<-p.done
	return p.status
}

// Done is closed when nothing of the command runs any more.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) watch() {
	defer close(p.done)
	defer p.tty.close()
	for nap := time.NewTimer(0); ; {
		select {
		case r, open := <-p.reports:
			switch {
			case !open:
				p.takeOver()
				return
			case r.Started != 0:
				p.mu.Lock()
				p.command = r.Started
				p.mu.Unlock()
				p.tty.given(r.Started)
				close(p.started)
			case r.Stopped != 0:
				p.tty.stopped(r.Stopped)
			default:
				p.finish(r)
				return
			}
		case <-p.moved:
		case <-nap.C:
		}
		left := p.left()
		if left <= 0 {
			p.takeOver()
			return
		}
		nap.Reset(min(time.Second, left))
	}
}

func (p *Process) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deadline - clock.Now()
}

// finish takes the guardian's last report, which left nothing to do.
func (p *Process) finish(r report) {
	p.dismiss()
	switch {
	case r.Ended != nil:
		// Where the system has made it this process's child.
		_, _ = syscall.Wait4(p.command, nil, syscall.WNOHANG, nil)
		p.status = statusOf(r.Ended.Wait, r.Ended.Expired)
	case r.TooLate:
		p.err = ErrTooLate
	case r.Failed != nil:
		p.err = r.Failed
	}
	p.tty.reclaim(p.status)
}

// takeOver does what the guardian has not done: it is gone, or it let the
// deadline pass. The guardian's death makes its children this process's own.
func (p *Process) takeOver() {
	expired := p.left() <= 0
	p.dismiss()
	rest := newTree(p.command, p.spared)
	for rest.sweep(syscall.SIGKILL) {
		time.Sleep(5 * time.Millisecond)
	}
	wait := syscall.WaitStatus(syscall.SIGKILL)
	if rest.wait != nil {
		wait = *rest.wait
	}
	p.status = statusOf(wait, expired || p.stopped)
	if p.command == 0 {
		p.err = errors.New("the guardian was killed before it had started the command")
		if expired {
			p.err = ErrTooLate
		}
	}
	p.tty.reclaim(p.status)
}

// dismiss kills the guardian, which reaps and signals nothing from then on.
func (p *Process) dismiss() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	_ = syscall.Kill(p.guardian, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(p.guardian, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	_ = p.control.Close()
	for range p.reports {
	}
}

func statusOf(w syscall.WaitStatus, expired bool) Status {
	if w.Signaled() {
		return Status{Code: 128 + int(w.Signal()), Signal: w.Signal(), Expired: expired}
	}
	return Status{Code: w.ExitStatus(), Expired: expired}
}
