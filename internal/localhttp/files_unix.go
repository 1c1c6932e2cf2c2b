//go:build unix

package localhttp

import (
	"math"
	"syscall"
)

// files is how many files this process may have open. The Go runtime has raised the soft limit to the hard one.
func files() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) //nolint:unconvert // it is an int64 on some systems
}
