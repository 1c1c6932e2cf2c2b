package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/leasehold/leasehold/internal/clock"
)

// Main does nothing here: there is no guardian.
func Main() {}

// A Process is a command in a job object. It is safe for concurrent use.
type Process struct {
	command *os.Process
	job     windows.Handle
	grace   time.Duration
	moved   chan struct{}
	done    chan struct{}
	status  Status // once done

	mu       sync.Mutex
	deadline time.Duration
	stopped  bool
	over     bool
}

// Start starts the command and returns when it runs. The error is a [*CommandError] if the
// command cannot be run, and [ErrTooLate] if the deadline had already passed.
func Start(o Options) (*Process, error) {
	if len(o.Argv) == 0 {
		return nil, errors.New("no command given")
	}
	path, err := exec.LookPath(o.Argv[0])
	if err != nil {
		return nil, refusal(o.Argv[0], err)
	}
	job, err := newJob()
	if err != nil {
		return nil, fmt.Errorf("cannot make a job object: %w", err)
	}
	if clock.Now() >= o.Deadline {
		_ = windows.CloseHandle(job)
		return nil, ErrTooLate
	}
	// It starts suspended, so that it cannot start other processes before it is in the job.
	command, err := os.StartProcess(path, o.Argv, &os.ProcAttr{
		Env:   (&exec.Cmd{Env: o.Env}).Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP},
	})
	if err != nil {
		_ = windows.CloseHandle(job)
		return nil, refusal(o.Argv[0], err)
	}
	if err := enter(job, command); err != nil {
		_ = command.Kill()
		_ = windows.CloseHandle(job)
		return nil, fmt.Errorf("cannot put the command into a job object: %w", err)
	}
	p := &Process{
		command: command, job: job, grace: o.Grace, deadline: o.Deadline,
		moved: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go p.watch()
	return p, nil
}

func refusal(command string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &CommandError{Command: command, Code: 127, Reason: "not found"}
	}
	return &CommandError{Command: command, Code: 126, Reason: err.Error()}
}

// newJob makes a job whose processes end when its last handle, the one of this process, is
// closed.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		_ = windows.CloseHandle(job)
		return 0, err
	}
	return job, nil
}

func enter(job windows.Handle, command *os.Process) error {
	var assigned error
	err := command.WithHandle(func(handle uintptr) {
		assigned = windows.AssignProcessToJobObject(job, windows.Handle(handle))
	})
	if err = errors.Join(err, assigned); err != nil {
		return err
	}
	return resume(uint32(command.Pid))
}

// resume continues the only thread of a process that was started suspended.
func resume(pid uint32) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(snapshot) }()
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		var thread windows.Handle
		if thread, err = windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID); err != nil {
			return err
		}
		defer func() { _ = windows.CloseHandle(thread) }()
		_, err = windows.ResumeThread(thread)
		return err
	}
	return err
}

// Means describes how the command is kept from outliving its deadline.
func (p *Process) Means() string {
	return "in a job object, which ends with this process"
}

// Extend moves the deadline later. It ignores an earlier one.
func (p *Process) Extend(deadline time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped && deadline > p.deadline {
		p.deadline = deadline
		p.wake()
	}
}

// Stop ends the command: Ctrl-Break at once, the end of its job after the grace, but not later
// than the deadline. It does not wait for the end.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || p.over {
		return
	}
	p.stopped = true
	p.deadline = min(p.deadline, clock.Now()+p.grace)
	_ = p.interrupt()
	p.wake()
}

func (p *Process) wake() {
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

func (p *Process) interrupt() error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.command.Pid))
}

// Signal sends a Ctrl-Break to the command, whatever sig is. It returns [os.ErrProcessDone]
// when the command has ended.
func (p *Process) Signal(os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return os.ErrProcessDone
	}
	return p.interrupt()
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
	ended := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := p.command.Wait()
		ended <- state
	}()
	for nap := time.NewTimer(0); ; {
		select {
		case state := <-ended:
			p.finish(state, false)
			return
		case <-p.moved:
		case <-nap.C:
		}
		p.mu.Lock()
		now := clock.Now()
		if p.deadline-p.grace <= now && !p.stopped {
			p.stopped = true
			_ = p.interrupt()
		}
		next, late := p.deadline-p.grace-now, p.deadline <= now
		if p.stopped {
			next = p.deadline - now
		}
		p.mu.Unlock()
		if late {
			_ = windows.TerminateJobObject(p.job, 128+uint32(windows.SIGKILL))
			p.finish(<-ended, true)
			return
		}
		nap.Reset(min(time.Second, next))
	}
}

// finish ends what the command has left behind, and waits until all of it has ended.
func (p *Process) finish(state *os.ProcessState, killed bool) {
	p.mu.Lock()
	p.over = true
	p.status = Status{Code: 1, Expired: p.stopped}
	p.mu.Unlock()
	if state != nil {
		p.status.Code = state.ExitCode()
	}
	if killed {
		p.status.Signal = windows.SIGKILL
	}
	for p.active() {
		_ = windows.TerminateJobObject(p.job, 128+uint32(windows.SIGKILL))
		time.Sleep(5 * time.Millisecond)
	}
	_ = windows.CloseHandle(p.job)
}

func (p *Process) active() bool {
	var accounting struct {
		_      [4]int64 // times
		_      [2]uint32
		active uint32
		_      uint32
	}
	err := windows.QueryInformationJobObject(p.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&accounting)), uint32(unsafe.Sizeof(accounting)), nil)
	return err == nil && accounting.active > 0
}
