//go:build unix

package tty

import (
	"errors"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// needsNoName: without a name nothing is known of the terminal.
const needsNoName = false

func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// sequences: every terminal here understands them.
func sequences(*os.File) (func() error, error) { return func() error { return nil }, nil }

// notify has Changed tell of a new size, and takes the terminal over again after the process
// was stopped from outside.
func (t *Terminal) notify() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGCONT)
	go func() {
		for sig := range signals { // until the program ends
			if sig == unix.SIGCONT {
				select {
				case t.goesOn <- struct{}{}:
				default:
				}
				t.continued()
			}
			t.changed()
		}
	}()
}

func (t *Terminal) continued() {
	t.mu.Lock()
	mine := t.before != nil
	t.mu.Unlock()
	if mine && foreground(t.in) {
		_ = t.Resume() // what is drawn next fails too if this does
	}
}

// stopping bounds the wait for the stop: it does not come where no shell could let the process
// go on again, and where the signal is ignored.
const stopping = 200 * time.Millisecond

// Suspend gives the terminal back, stops the process as ^Z does, and takes the terminal over
// when the process goes on. The stop may come a moment after the signal was sent: a terminal
// that was taken over at once would be left so to the shell.
func (t *Terminal) Suspend() error {
	if err := t.Close(); err != nil {
		return err
	}
	select {
	case <-t.goesOn: // of an earlier stop
	default:
	}
	err := unix.Kill(0, unix.SIGTSTP)
	limit := time.NewTimer(stopping)
	defer limit.Stop()
	select {
	case <-t.goesOn:
	case <-limit.C:
	}
	t.changed()
	return errors.Join(err, t.Resume())
}
