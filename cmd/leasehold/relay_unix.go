//go:build unix

package main

import (
	"os"
	"syscall"
)

// relayable are the signals that are passed on to a command and mean nothing to leasehold itself.
var relayable = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT}
