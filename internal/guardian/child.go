//go:build linux || darwin

package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
)

// Main takes over if this process was started as a guardian or as a watcher, and then does not
// return. Every program that calls [Start] must call Main before anything else, or import
// package early.
func Main() {
	if len(os.Args) < 2 {
		return
	}
	var work func(args []string) error
	switch os.Args[0] {
	case titleWatcher:
		work = (&watcher{}).main
	case titleGuardian:
		work = (&guard{}).main
	default:
		return
	}
	// The command is killed when the thread that started it ends, even if the process lives on.
	// So this goroutine keeps its thread forever.
	runtime.LockOSThread()
	entitle(os.Args[0])
	if err := work(os.Args[1:]); err != nil {
		complain("%s: bad plan: %v: do not start it by hand", os.Args[0], err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A guard is the guardian's side: one goroutine that starts the command, times it, signals it
// and reaps it. Because a single goroutine does all this, no pid can be reaped, and reused,
// before it is signalled.
type guard struct {
	plan
	words   *os.File // to the watcher; open while this process lives
	out     *os.File
	orders  *inbox[order]
	command int                 // pid and process group
	alone   string              // why the command is not in the cgroup, if there is one
	wait    *syscall.WaitStatus // how the command ended; nil while it runs
	expired bool                // the command did not end by itself
	tree    *tree
	named   map[int]bool // of the processes left behind
}

func (g *guard) main(args []string) error {
	brief, err := g.read(args[0])
	if err != nil {
		return err
	}
	tell, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	_ = unix.Close(brief)
	for _, fd := range []int{tell, g.GuardianFD, g.ReportFD} {
		syscall.CloseOnExec(fd)
	}
	g.Cgroup.keep()
	_ = syscall.SetNonblock(g.ReportFD, true) // for the deadline of send
	g.out = os.NewFile(uintptr(g.ReportFD), "report")
	g.orders = newInbox[order](g.GuardianFD)
	g.words = os.NewFile(uintptr(tell), "words")
	g.run()
	return g.words.Close()
}

func (g *guard) run() {
	deafen()
	changes, last := alarm(syscall.SIGCHLD), g.start()
	if last == nil {
		send(g.words, word{g.command}) // first, so that the watcher knows what the parent may signal
		send(g.out, report{Started: g.command, Guardian: os.Getpid(), Alone: g.alone})
		g.guard(changes)
		last = &report{Ended: &ended{*g.wait, g.expired}}
	}
	// This one must not be dropped: the parent would wait for it forever, holding the lock.
	for open := true; open && !send(g.out, last); {
		_, open = g.orders.take()
	}
	// The command stays a zombie while the parent may still signal its group, so that its pid
	// is not reused. The parent kills this process when it has read the report. If the parent
	// has died, the orders end.
	for _, open := g.orders.take(); open; _, open = g.orders.take() {
		await(-1, g.orders.fd)
	}
	g.Cgroup.remove()
}

// deafen keeps signals meant for the command, or for everyone, from ending or stopping this
// process: all but SIGKILL, SIGSTOP and those that C libraries reserve. It catches them,
// because the command would inherit ignored ones. A signal already ignored (nohup) stays so for
// the same reason.
func deafen() {
	unheard := make(chan os.Signal, 1)
	for _, sig := range harmful {
		if !signal.Ignored(sig) {
			signal.Notify(unheard, sig)
		}
	}
}

// harmful are the signals that end or stop a Go program by default: see package os/signal. The
// runtime catches all others and does nothing. Each Notify takes two thread switches, so for
// all signals it would take longer than starting the command.
var harmful = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM,
	syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGSYS, harmfulHere,
	syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV,
	syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
	syscall.SIGPIPE, // by a write to stdout or stderr
}

// alarm returns a descriptor that becomes readable after each of the signals. If no descriptors
// are left, the command cannot be started either.
func alarm(sig os.Signal) *inbox[struct{}] {
	var ends [2]int
	if pipe(ends[:]) != nil {
		return &inbox[struct{}]{fd: -1}
	}
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, sig)
	go func() {
		for range heard {
			_, _ = unix.Write(ends[1], []byte{0})
		}
	}()
	return newInbox[struct{}](ends[0])
}

func (g *guard) start() *report {
	argv := make([]string, len(g.Argv))
	for i, arg := range g.Argv {
		argv[i] = string(arg)
	}
	path, err := exec.LookPath(argv[0])
	if err == nil {
		err = adopt()
	}
	if err != nil {
		return refusal(argv[0], err)
	}
	sys := attributes()
	if g.Foreground {
		sys.Foreground = true
		sys.Ctty, _ = unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0) // if this fails, so does the start
		defer func() { _ = unix.Close(sys.Ctty) }()
	}
	if g.over(clock.Now()) {
		return &report{TooLate: true}
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: sys}
	if g.Cgroup != nil {
		g.Cgroup.admit(sys)
		if g.command, err = syscall.ForkExec(path, argv, attr); err != nil {
			// The cgroup may be the reason. Trying without it tells.
			g.alone = fmt.Sprintf("cannot start in %s: %v", g.Cgroup.Dir, err)
			g.Cgroup.dismiss(sys)
			g.Cgroup = nil
		}
	}
	if g.Cgroup == nil {
		if g.command, err = syscall.ForkExec(path, argv, attr); err != nil {
			return refusal(argv[0], err)
		}
	}
	g.tree = newTree(g.Cgroup, map[int]bool{g.command: true})
	g.tree.group = g.command
	return nil
}

func refusal(command string, err error) *report {
	e := &CommandError{Command: command, Code: 126, Reason: err.Error()}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		e.Code, e.Reason = 127, "not found"
	} else if errors.Is(err, syscall.ENOEXEC) {
		e.Reason = "exec format error: it is no program for this machine; a script needs an interpreter in its first line, such as #!/bin/sh"
	} else if wrapped := (*exec.Error)(nil); errors.As(err, &wrapped) {
		e.Reason = wrapped.Err.Error()
	}
	return &report{Failed: e}
}

// guard returns when no process of the command is left.
func (g *guard) guard(changes *inbox[struct{}]) {
	for {
		orders, open := g.orders.take()
		_, _ = changes.take()
		now := clock.Now()
		if g.obey(orders, open, now) {
			g.expired = g.wait == nil
		}
		g.observe()
		if g.enforce() {
			return
		}
		await(g.nap(clock.Now()), g.orders.fd, changes.fd)
	}
}

func (g *guard) observe() {
	reapOrphans(g.command)
	for {
		status, changed := change(g.command)
		switch {
		case !changed:
			return
		case status.Stopped():
			send(g.out, report{Stopped: status.StopSignal()})
		default:
			g.wait = &status
			g.end(clock.Now())
			return
		}
	}
}

// enforce sends SIGTERM once it is due, and SIGKILL from the deadline on.
func (g *guard) enforce() (over bool) {
	now := clock.Now()
	if !g.due(now) {
		return false
	}
	if g.end(now) {
		g.expired = g.wait == nil
	}
	sig := syscall.SIGTERM
	if g.over(now) {
		sig = syscall.SIGKILL
	}
	if g.wait != nil {
		g.tree.left = g.name
	}
	left := g.tree.sweep(sig)
	return g.wait != nil && !left
}

// mostNamed limits how many processes left behind are reported.
const mostNamed = 8

// name reports a process left behind to the parent, once.
func (g *guard) name(pid int) {
	if g.named[pid] || len(g.named) == mostNamed {
		return
	}
	if g.named == nil {
		g.named = map[int]bool{}
	}
	g.named[pid] = true
	send(g.out, report{Left: &Leftover{pid, nameOf(pid)}})
}
