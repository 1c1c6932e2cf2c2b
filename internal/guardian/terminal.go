//go:build linux || darwin

package guardian

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A terminal is the parent's controlling terminal. All methods do nothing on a
// nil one.
type terminal struct {
	fd    int
	own   int // this process's group
	group int // the command's group
	modes *term.State
}

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	modes, _ := term.GetState(fd)
	return &terminal{fd: fd, own: unix.Getpgrp(), modes: modes}
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// wanted reports whether the command should have the terminal from the start.
func (t *terminal) wanted() bool {
	return t != nil && term.IsTerminal(0) && term.IsTerminal(1) && t.foreground() == t.own
}

func (t *terminal) foreground() int {
	group, _ := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return group
}

func (t *terminal) given(group int) {
	if t != nil {
		t.group = group
	}
}

// stopped is called when the command was stopped by sig.
func (t *terminal) stopped(sig syscall.Signal) {
	if t == nil {
		return
	}
	asks := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	if !asks || t.foreground() != t.own {
		t.takeBack()
		suspend()
	}
	if t.foreground() == t.own {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.group)
	}
	_ = syscall.Kill(-t.group, syscall.SIGCONT)
}

// suspend stops this process group, as the shell expects of a job of which one
// process was stopped, and returns when it was continued. The kernel discards
// the signal if there is no shell to continue the group; then the time-out
// takes the stop for undone, as it would have had no effect without a guardian.
//
// It is SIGTSTP because this process has never caught it: once package signal
// has caught or ignored a stop signal, it cannot restore the default.
func suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(100 * time.Millisecond):
	}
}

// reclaim takes the terminal back at the end. A command that was killed cannot
// have restored the terminal's modes.
func (t *terminal) reclaim(s Status) {
	if t != nil && t.takeBack() && s.Signal != 0 && t.modes != nil {
		_ = term.Restore(t.fd, t.modes)
	}
}

// takeBack makes this process group the foreground one again, if the command's
// is, or one that no longer exists. If another is, the shell has put the job in
// the background, and the terminal is not this process's to take.
func (t *terminal) takeBack() bool {
	group := t.foreground()
	if group != t.group && !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) {
		return false
	}
	// From the background this raises SIGTTOU, which would stop this process.
	// It stays ignored, for the reason given at suspend.
	signal.Ignore(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own) == nil
}
