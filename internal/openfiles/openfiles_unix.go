//go:build unix

// Package openfiles tells how many files this process may have open, so that a server leaves some for its store.
package openfiles

import (
	"math"
	"syscall"
)

// Limit is how many files this process may have open, connections included. The Go runtime has raised the soft limit
// to the hard one.
func Limit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) //nolint:unconvert // it is an int64 on some systems
}
