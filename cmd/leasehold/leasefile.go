package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/detached"
)

// A leaseFile is the path of a file with a lease in it.
type leaseFile string

// maxLease is far more than a lease can have: its names have a kilobyte each at most, and a holder
// what fits into a record.
const maxLease = 256 << 10

// readLimited reads what may be anything.
func readLimited(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxLease+1))
	if err == nil && len(text) > maxLease {
		err = fmt.Errorf("%w: it has more than %d bytes", detached.ErrForeign, maxLease)
	}
	return text, err
}

// read reads the lease.
func (f leaseFile) read() (detached.Lease, error) {
	text, err := f.text()
	switch {
	case errors.Is(err, detached.ErrForeign):
		return detached.Lease{}, failed(fmt.Errorf("%s is %w", f, err))
	case errors.Is(err, fs.ErrNotExist):
		return detached.Lease{}, &exit{exitAbsent, fmt.Errorf("there is no lease: %w", err)}
	case err != nil: // by sysexits.h an input that cannot be read is like none, whatever the reason
		return detached.Lease{}, &exit{exitAbsent, fmt.Errorf("cannot read the lease: %w", err)}
	}
	d, err := detached.Parse(text)
	if err != nil {
		return d, failed(fmt.Errorf("%s is %w", f, err))
	}
	return d, nil
}

// text reads the file. It refuses a pipe: opening one waits for a writer, and the renewed lease could not replace it.
func (f leaseFile) text() ([]byte, error) {
	if info, err := os.Stat(string(f)); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: name one, or write - for a lease on stdin", f)
	}
	file, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readLimited(file)
}

// vacant reports that a lease may be written there: what lies there is of no use any more.
func (f leaseFile) vacant(now time.Time) error {
	if info, err := os.Stat(filepath.Dir(string(f))); err != nil || !info.IsDir() {
		return usage("--file %s: there is no directory for it", f)
	}
	_, err := os.Lstat(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return f.writable()
	}
	d, err := f.read()
	switch {
	case err != nil:
		return usage("--file %s: there is something else, which is left as it is: %w", f, errors.Unwrap(err))
	case !d.Released && now.Before(d.ExpiresAt):
		return usage("--file %s: it has a lease of %s%s, which lasts until %s: release that, or name another file", f, d.Key, withToken(d.Token), d.ExpiresAt.Local().Format(time.RFC3339))
	}
	return f.writable()
}

// writable finds out now whether the lease can be written. Found out once the lock is held, it would
// have to be freed.
func (f leaseFile) writable() error {
	temp, err := os.CreateTemp(filepath.Dir(string(f)), ".leasehold-*")
	if err != nil {
		return usage("--file %s: it cannot be written: %w", f, err)
	}
	_, err = temp.Write(make([]byte, roomFor)) // a full disk takes an empty file
	if err = errors.Join(err, temp.Sync(), temp.Close(), os.Remove(temp.Name())); err != nil {
		return usage("--file %s: it cannot be written: %w", f, err)
	}
	return nil
}

// roomFor is more than most leases have.
const roomFor = 8 << 10

// write replaces the file as a whole, by one that only its owner can read. When it returns, the
// lease outlasts a loss of power.
func (f leaseFile) write(d detached.Lease) (err error) {
	path := string(f)
	if real, e := filepath.EvalSymlinks(path); e == nil {
		path = real // the link stays
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".leasehold-*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = temp.Close()
			_ = os.Remove(temp.Name())
		}
	}()
	return durably(temp, toJSON(d), path, (*os.File).Sync, os.Rename, syncDir)
}

// durably writes a file and gives it its name. What it has must be on the disk before that: else, after a loss of power,
// the name may lead to an empty file.
func durably(temp *os.File, text, path string, sync func(*os.File) error, rename func(from, to string) error, syncDir func(string) error) error {
	if _, err := temp.WriteString(text); err != nil {
		return err
	}
	if err := sync(temp); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	if err := rename(temp.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// lock keeps other processes from using the file until unlock is called, where the system can. Two
// that renewed one file would each leave the record that the other does not name.
func (f leaseFile) lock(ctx context.Context) (unlock func(), err error) {
	dir := filepath.Dir(string(f))
	for {
		unlock, taken := lockDir(dir)
		if !taken {
			return unlock, nil
		}
		select {
		case <-ctx.Done():
			return nil, &exit{exitUnavailable, fmt.Errorf("another leasehold uses a lease in %s", dir)}
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// atMostOne is for commands with one argument that may be left out.
func atMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("%q is one argument too many: one lease is used at a time", args[1])
	}
	return nil
}
