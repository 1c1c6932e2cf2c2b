//go:build !unix

package localhttp

import (
	"errors"
	"syscall"
)

// wsaRefused is WSAECONNREFUSED, which package syscall does not have.
const wsaRefused = syscall.Errno(10061)

// lockDirectory does nothing, because a directory cannot be locked here: two processes may
// start at the same moment.
func lockDirectory(string) (unlock func(), err error) { return func() {}, nil }

// restrict does nothing, because a socket has the permissions of its directory here.
func restrict(uintptr) {}

func refused(err error) bool { return errors.Is(err, wsaRefused) }
