//go:build linux || darwin

package guardian

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
)

// passedOn are the signals that end a command when its user means to.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// A watch is the guardian's side: one goroutine that starts the command, times
// it, signals it and reaps it. Being one goroutine makes it exact: no pid that
// it signals can have been reaped, and so reused, in between.
type watch struct {
	plan
	out     *os.File
	command int                 // pid and process group
	wait    *syscall.WaitStatus // how the command ended; nil while it runs
	ending  bool                // SIGTERM was sent; what was begun is finished
	expired bool                // the ending was not the command's own
	tree    *tree
}

// Main takes over if this process was started as a guardian, and then does not
// return. Every program that calls [Start] must call Main first of all.
func Main() {
	if len(os.Args) < 3 || os.Args[0] != title {
		return
	}
	// The command is killed when the thread that started it ends, not only the
	// process: this goroutine keeps its thread for good.
	runtime.LockOSThread()
	entitle()
	w := &watch{}
	if err := json.Unmarshal([]byte(os.Args[1]), &w.plan); err != nil {
		fmt.Fprintf(os.Stderr, "leasehold: guardian: bad plan: %v: do not start it by hand\n", err)
		os.Exit(1)
	}
	w.run(os.Args[2:])
	os.Exit(0)
}

func (w *watch) run(argv []string) {
	syscall.CloseOnExec(w.Control)
	syscall.CloseOnExec(w.Report)
	_ = syscall.SetNonblock(w.Report, true) // for the deadline of send
	w.out = os.NewFile(uintptr(w.Report), "report")
	orders := receive[order](os.NewFile(uintptr(w.Control), "control"))

	// Catch, not ignore: what is ignored here would be ignored by the command.
	// What already was ignored (nohup) is the command's to inherit.
	unheard := make(chan os.Signal, 1)
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(unheard, sig)
		}
	}
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGCHLD)

	if failure := w.start(argv); failure != nil {
		send(w.out, failure)
	} else {
		send(w.out, report{Started: w.command})
		w.guard(orders, changes)
		send(w.out, report{Ended: &ended{*w.wait, w.expired}})
	}
	// The command stays a zombie while the parent may still signal its group:
	// so its pid cannot be reused. The parent kills this process when it has
	// understood; if the parent is gone, the orders end.
	for range orders {
	}
}

func (w *watch) start(argv []string) *report {
	if err := adopt(); err != nil {
		return refusal(argv[0], err)
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return refusal(argv[0], err)
	}
	sys := attributes()
	if w.Foreground {
		sys.Foreground = true
		sys.Ctty, err = unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return refusal(argv[0], fmt.Errorf("/dev/tty: %w", err))
		}
		defer func() { _ = unix.Close(sys.Ctty) }()
	}
	if clock.Now() >= w.Deadline {
		return &report{TooLate: true}
	}
	w.command, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: sys,
	})
	if err != nil {
		return refusal(argv[0], err)
	}
	w.tree = newTree(w.command, map[int]bool{w.command: true})
	return nil
}

func refusal(command string, err error) *report {
	e := &CommandError{Command: command, Code: 126, Reason: err.Error()}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		e.Code, e.Reason = 127, "not found"
	} else if wrapped := (*exec.Error)(nil); errors.As(err, &wrapped) {
		e.Reason = wrapped.Err.Error()
	}
	return &report{Failed: e}
}

// guard returns when nothing of the command runs any more.
func (w *watch) guard(orders <-chan order, changes <-chan os.Signal) {
	nap := time.NewTimer(0)
	for {
		select {
		case o, open := <-orders:
			switch {
			case !open:
				orders = nil
				w.end()
			case o.Stop:
				w.end()
			case !w.ending:
				w.Deadline = max(w.Deadline, o.Deadline)
			}
		case <-changes:
		case <-nap.C:
		}
		w.observe()
		if w.enforce() {
			return
		}
		nap.Reset(w.nap())
	}
}

func (w *watch) observe() {
	if w.wait != nil {
		return
	}
	reapOrphans(w.command)
	for {
		status, changed := change(w.command)
		switch {
		case !changed:
			return
		case status.Stopped():
			send(w.out, report{Stopped: status.StopSignal()})
		default:
			w.wait = &status
			w.end()
			return
		}
	}
}

// end begins the ending: SIGTERM now, SIGKILL after the grace, but never after
// the deadline.
func (w *watch) end() {
	if !w.ending {
		w.ending = true
		w.expired = w.wait == nil
		w.Deadline = min(w.Deadline, clock.Now()+w.Grace)
	}
}

func (w *watch) enforce() (over bool) {
	now := clock.Now()
	if now >= w.Deadline-w.Grace {
		w.end()
	}
	if !w.ending {
		return false
	}
	sig := syscall.SIGTERM
	if now >= w.Deadline {
		sig = syscall.SIGKILL
	}
	left := w.tree.sweep(sig)
	return w.wait != nil && !left
}

// nap is how long nothing need be looked at. Timers stand still during suspend,
// so it is a second at most.
func (w *watch) nap() time.Duration {
	now := clock.Now()
	switch {
	case !w.ending:
		return min(time.Second, max(w.Deadline-w.Grace-now, 0))
	case now < w.Deadline:
		return min(100*time.Millisecond, w.Deadline-now)
	}
	return 100 * time.Millisecond
}
