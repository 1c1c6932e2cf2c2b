package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/probe"
	"github.com/leasehold/leasehold/store/storeurl"
)

// The exit codes. Where there is one, they are those of sysexits.h.
const (
	exitUsage       = 64
	exitForeign     = 65
	exitAbsent      = 66
	exitUnavailable = 69
	exitInternal    = 70
	exitFenced      = 73
	exitHeld        = 75
	exitLost        = 76
	exitDenied      = 77
	exitUnsafe      = 78
	exitSignal      = 128 // plus the number of the signal
)

// exitHelp is the part of run's help that scripts are written by.
const exitHelp = `Exit codes:
  0-255  the command's own exit code
  128+n  signal n ended the command, or the wait for the lock
  64     usage: a flag, variable, URL or name is invalid
  65     this version does not understand the lock's object, or the object has
         another layout or semaphore size; nothing was changed
  66     the directory of a file:// URL does not exist (see --mkdir), or with
         --existing the lock does not exist
  69     the store permanently refused the request, or with --wait the store was
         unavailable until the wait ended
  70     something else failed before the command ran
  73     a --claim resource has a larger token: see leasehold fence --help
  75     the lock is held, and --wait has passed (see --conflict-exit-code)
  76     the lease was lost while the command ran (see --lost-exit-code)
  77     the store denied access
  78     with --proof: the store was not found safe
  126    the command cannot be executed
  127    the command was not found`

// An exit ends the program: with a code, and with a message unless err is nil.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }
func (e *exit) Unwrap() error { return e.err }

// stopped is the exit because of a signal.
func stopped(sig os.Signal, err error) *exit { return &exit{exitSignal + int(number(sig)), err} }

// number is that of a signal: all that listen asks for have one.
func number(sig os.Signal) syscall.Signal {
	n, _ := sig.(syscall.Signal)
	return n
}

func usage(format string, args ...any) error {
	return &exit{exitUsage, fmt.Errorf(format, args...)}
}

// failed chooses the exit code for an error, unless it has one.
func failed(err error) error {
	if _, ok := errors.AsType[*exit](err); ok {
		return err
	}
	return &exit{codeOf(err), err}
}

func codeOf(err error) int {
	is := func(kinds ...error) bool {
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				return true
			}
		}
		return false
	}
	switch {
	case is(probe.ErrUnproven):
		return exitUnsafe
	case is(fence.ErrFenced):
		return exitFenced
	case is(leasehold.ErrLost):
		return exitLost
	case is(storeurl.ErrURL, store.ErrInvalid, fence.ErrNoToken):
		return exitUsage
	case is(leasehold.ErrForeignObject, leasehold.ErrTokenTooLarge, detached.ErrForeign, semaphore.ErrSize, fence.ErrForeign, admin.ErrAmbiguous, admin.ErrOccupied, admin.ErrMovedElsewhere):
		return exitForeign
	case is(leasehold.ErrHeld, admin.ErrTokenChanged):
		return exitHeld
	case is(store.ErrDenied):
		return exitDenied
	case is(store.ErrNotExist), is(store.ErrNoBucket) && is(fs.ErrNotExist): // no directory
		return exitAbsent
	case is(semaphore.ErrFull, leasehold.ErrSessionOver, store.ErrUnavailable, store.ErrRefused, store.ErrNoBucket, store.ErrThrottled, store.ErrUnknownOutcome, context.DeadlineExceeded), unreached(err):
		return exitUnavailable
	}
	return exitInternal
}

// unreached reports that another process could not be reached. That an error is a net.Error does not say so: every
// errno is one, of a full disk and of a missing file, too.
func unreached(err error) bool {
	_, connection := errors.AsType[*net.OpError](err)
	request, asked := errors.AsType[*url.Error](err)
	return connection || asked && request.Op != "parse"
}

// explained is the address of what the documentation says of an exit; "" if the message says it all: of a flag that
// cannot be, of what only one command ends with, and where another holds the lock, which is no error.
func explained(e *exit) string {
	code := codeOf(e.err)
	switch {
	case e.code == exitLost: // whatever the reason was
		code = exitLost
	case code == exitHeld, code != e.code && code != exitLost: // for which there is --lost-exit-code
		return ""
	}
	at := "main"
	if v := thisBuild().Version; strings.HasPrefix(v, "v") && !strings.ContainsAny(v, "-+") {
		at = v // the page of this version, if it is one that was released
	}
	return fmt.Sprintf("https://github.com/leasehold/leasehold/blob/%s/docs/trouble.md#code-%d", at, code)
}

// oneLine is the message of an error for a terminal and for a log: what it is
// made of may have several lines.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "; ")
}
