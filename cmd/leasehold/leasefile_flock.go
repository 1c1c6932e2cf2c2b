//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// readableByOthers reports that not only the owner can read a file.
func readableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o044 != 0 }

// syncDir makes a rename last, if the file system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return unlessUnsupported(d.Sync())
}

// unlessUnsupported drops the error of a file system that cannot sync directories.
func unlessUnsupported(err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// lockDir locks a directory for this process, unless another has it locked: the file itself is
// another with each renewal. A file system that knows no locks is gone on without.
func lockDir(dir string) (unlock func(), taken bool) {
	d, err := os.Open(dir)
	if err != nil {
		return func() {}, false // reading the lease will say so
	}
	if err = unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		_ = d.Close()
		return nil, true
	}
	return func() {
		// Closing is not enough: a process that is being started at this moment has the file open too.
		_ = unix.Flock(int(d.Fd()), unix.LOCK_UN)
		_ = d.Close()
	}, false
}
