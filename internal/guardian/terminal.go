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

// A terminal is the parent's controlling terminal. All methods do nothing on a nil terminal.
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

// stopped handles a stop of the command by sig.
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

// suspend stops this process group, because a shell expects a whole job to stop with one of its
// processes, and returns when the group is continued. Without a shell to continue it, the
// kernel discards the signal; then suspend returns after a timeout.
//
// The signal is SIGTSTP because this process has never caught it: once package signal has
// caught or ignored a stop signal, it cannot restore the default.
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

// reclaim takes the terminal back at the end. It restores the modes if the command was killed,
// and so could not.
func (t *terminal) reclaim(s Status) {
	if t != nil && t.takeBack() && s.Signal != 0 && t.modes != nil {
		_ = term.Restore(t.fd, t.modes)
	}
}

// takeBack makes this process's group the foreground group, if that is now the command's or no
// longer exists. If it is another one, the shell has put the job in the background, and this
// process must not take the terminal.
func (t *terminal) takeBack() bool {
	group := t.foreground()
	if group != t.group && !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) {
		return false
	}
	// In the background, this raises SIGTTOU, which would stop this process. The signal stays
	// ignored because the default cannot be restored: see suspend.
	signal.Ignore(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own) == nil
}
