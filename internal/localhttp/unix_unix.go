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

// lockTimeout is how long another may take to make its socket in the same directory.
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
			// A file system without locks: it is as good as it can be.
			return func() { _ = dir.Close() }, nil
		}
		if time.Since(began) > lockTimeout {
			return nil, errors.Join(fmt.Errorf("the directory %s is locked by another process", filepath.Dir(path)), dir.Close())
		}
	}
}

// restrict is for a socket that has no name yet, so that there is no moment in which others may
// connect. Systems other than Linux do not know that, but there a umask of 022 does the same.
func restrict(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) }

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
