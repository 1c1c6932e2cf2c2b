//go:build unix

package localhttp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lockTimeout limits the wait for another process making its socket in the same directory.
const lockTimeout = 2 * time.Second

// lockDirectory keeps other processes from making a socket in the directory of path.
func lockDirectory(path string) (unlock func(), err error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			// Other errors come from file systems without locks. Continue without one.
			return func() { _ = dir.Close() }, nil
		}
		if time.Since(began) > lockTimeout {
			return nil, errors.Join(fmt.Errorf("the directory %s is locked by another process", filepath.Dir(path)), dir.Close())
		}
	}
}

// restrict sets the mode of a socket that has no name yet, so that others can never connect.
// Systems other than Linux ignore this, but a umask of 022 has the same effect there.
func restrict(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) }

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
