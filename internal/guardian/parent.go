//go:build linux || darwin

package guardian

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
)

// A Process is a command under a guardian. It is safe for concurrent use.
type Process struct {
	helpers
	reports <-chan report
	life    <-chan order // ends when the watcher does; carries no orders
	spared  map[int]bool // children of this process that do not belong to the command
	tty     *terminal    // nil: no terminal
	lone    string       // why there is no cgroup
	left    func(Leftover)

	sooner  chan struct{} // closed by Stop, which may have moved the deadline earlier
	started chan struct{}
	done    chan struct{}
	status  Status // once done
	err     error  // once done: why the command was not started

	mu      sync.Mutex
	limit   limit
	command int  // pid and process group, once started
	over    bool // the command's pid is about to be reaped
}

// Start starts the command and returns when it runs. The error is a [*CommandError] if the
// command cannot be run, and [ErrTooLate] if the deadline had already passed.
//
// A process may have one Process at a time. It should not start other children until that one
// has ended: if the guardian is killed, the command's descendants are identified only by being
// new.
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
		limit: limit{Deadline: o.Deadline, Grace: o.Grace}, spared: map[int]bool{}, tty: openTerminal(), left: o.Left,
		sooner: make(chan struct{}), started: make(chan struct{}), done: make(chan struct{}),
	}
	for _, c := range before {
		p.spared[c.pid] = true
	}
	if p.cgroup, err = newCgroup(o.NoCgroup); err != nil {
		p.lone = err.Error()
	}
	if err := p.launch(o); err != nil {
		p.cgroup.remove()
		p.tty.close()
		return nil, fmt.Errorf("cannot start the guardian: %w", err)
	}
	go p.watch()
	select {
	case <-p.started:
	case <-p.done: // a quick command may have started as well
		if p.err != nil {
			return nil, p.err
		}
	}
	return p, nil
}

// Means describes how the command is kept from outliving its deadline.
func (p *Process) Means() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := fmt.Sprintf("watched by this process, its watcher (process %d) and its guardian (process %d)", p.watcher, p.guardian)
	if p.cgroup == nil {
		return text + ", in no cgroup of its own: " + p.lone
	}
	return text + ", in the cgroup " + p.cgroup.Dir
}

// Extend moves the deadline later. It ignores an earlier one.
func (p *Process) Extend(deadline time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit.extend(deadline) {
		p.order(order{Deadline: deadline})
	}
}

// Stop ends the command: SIGTERM at once, SIGKILL after the grace, but not later than the
// deadline. It does not wait for the end.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit.end(clock.Now()) {
		p.order(order{Stop: true})
		close(p.sooner)
	}
}

// Signal sends sig to the command's process group. It returns [os.ErrProcessDone] when the
// command has ended.
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
	// This needs no help from the guardian: until over is set, the command's pid has not been
	// reaped.
	return syscall.Kill(-p.command, s)
}

// Wait returns when no process of the command is left.
func (p *Process) Wait() Status {
	<-p.done
	return p.status
}

// Done returns a channel that is closed when no process of the command is left.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) watch() {
	defer close(p.done)
	defer p.tty.close()
	life, sooner := p.life, p.sooner
	for nap := time.NewTimer(0); ; {
		select {
		case r, open := <-p.reports:
			switch {
			case !open:
				p.takeOver()
				return
			case !p.take(r):
				p.finish(r)
				return
			}
		case <-life:
			life = nil
			if p.begun() {
				complain("the watcher of the command, process %d, has been killed: the command goes on, and ends in time while leasehold or its guardian lives", p.watcher)
			}
		case <-sooner:
			sooner = nil
		case <-nap.C:
		}
		p.mu.Lock()
		now := clock.Now()
		late, rest := p.limit.over(now), p.limit.rest(now)
		p.mu.Unlock()
		if late {
			p.takeOver()
			return
		}
		nap.Reset(rest)
	}
}

func (p *Process) begun() bool {
	select {
	case <-p.started:
		return true
	default:
		return false
	}
}

// take handles a report, and reports whether others can follow.
func (p *Process) take(r report) bool {
	switch {
	case r.Started != 0:
		p.mu.Lock()
		p.command, p.guardian = r.Started, r.Guardian
		if r.Alone != "" {
			p.cgroup.remove()
			p.cgroup, p.lone = nil, r.Alone
		}
		p.mu.Unlock()
		p.tty.given(r.Started)
		close(p.started)
	case r.Stopped != 0:
		p.tty.stopped(r.Stopped)
	case r.Left != nil:
		if p.left != nil {
			p.left(*r.Left)
		}
	default:
		return false
	}
	return true
}

// finish handles the guardian's last report, after which nothing is left to end.
func (p *Process) finish(r report) {
	p.settle()
	p.dismiss() // so that no other report can come
	switch {
	case r.Ended != nil:
		// The system may have made it a child of this process.
		_, _ = syscall.Wait4(p.command, nil, syscall.WNOHANG, nil)
		p.status = statusOf(r.Ended.Wait, r.Ended.Expired)
	case r.TooLate:
		p.err = ErrTooLate
	case r.Failed != nil:
		p.err = r.Failed
	case r.Broken != "":
		p.err = fmt.Errorf("cannot start the guardian: %s", r.Broken)
	}
	p.cgroup.remove()
	p.tty.reclaim(p.status)
}

// takeOver ends the command if the guardian has died or let the deadline pass. Once the watcher
// and the guardian have died, their children are children of this process.
func (p *Process) takeOver() {
	expired := p.settle()
	rest := newTree(p.cgroup, p.spared)
	rest.group = p.command
	// This comes before the end of the watcher, which would do it if this process were stopped
	// here. The command has not been reaped: see Signal.
	rest.fell()
	p.end()
	for rest.sweep(syscall.SIGKILL) {
		time.Sleep(killNap)
	}
	p.drain()
	wait := syscall.WaitStatus(syscall.SIGKILL)
	if rest.wait != nil {
		wait = *rest.wait
	}
	p.status = statusOf(wait, expired)
	if p.command == 0 {
		p.err = errors.New("the guardian was killed before it had started the command")
		if expired {
			p.err = ErrTooLate
		}
	}
	p.cgroup.remove()
	p.tty.reclaim(p.status)
}

// settle ends all signalling by [Process.Signal], and reports whether the deadline or Stop ends
// the command.
func (p *Process) settle() (expired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	return p.limit.ending || p.limit.over(clock.Now())
}

func (p *Process) drain() {
	for range p.reports {
	}
}

func statusOf(w syscall.WaitStatus, expired bool) Status {
	if w.Signaled() {
		return Status{Code: 128 + int(w.Signal()), Signal: w.Signal(), Expired: expired}
	}
	return Status{Code: w.ExitStatus(), Expired: expired}
}
