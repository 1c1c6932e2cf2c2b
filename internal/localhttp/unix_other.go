//go:build !unix

package localhttp

import (
	"errors"
	"syscall"
)

// wsaRefused is WSAECONNREFUSED, which package syscall does not have.
const wsaRefused = syscall.Errno(10061)

// A directory cannot be locked here: two processes that begin at one moment are not kept apart.
func lockDirectory(string) (unlock func(), err error) { return func() {}, nil }

// A socket has the rights of its directory here.
func restrict(uintptr) {}

func refused(err error) bool { return errors.Is(err, wsaRefused) }
