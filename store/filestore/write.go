package filestore

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	tempPrefix = reserved + ".tmp-"
	tempLife   = time.Hour // after this, a temporary file is considered left by a crashed writer
)

// writeTemp creates a temporary file in dir and flushes it to the disk. It returns its path and
// its time by the directory's clock.
func (s *Store) writeTemp(dir string, r io.Reader) (path string, written time.Time, err error) {
	f, err := s.createTemp(dir)
	if err != nil {
		return "", time.Time{}, err
	}
	if s.shares {
		shareObject(f, dir)
	}
	written, err = fill(f, r)
	if err = errors.Join(err, f.Close()); err != nil { // a close can report a failed write
		_ = os.Remove(f.Name())
		return "", time.Time{}, err
	}
	return f.Name(), written, nil
}

func tempName() string { return tempPrefix + rand.Text() }

func (s *Store) createTemp(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, tempName()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, s.fileMode)
}

// fill writes and flushes f and returns its time.
func fill(f *os.File, r io.Reader) (time.Time, error) {
	if _, err := io.Copy(f, r); err != nil {
		return time.Time{}, err
	}
	if err := f.Sync(); err != nil {
		return time.Time{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// sweep removes the temporary files of crashed writers, when the store first writes to dir and
// then once per tempLife. Both times are the directory's, because the clocks of two machines
// may be hours apart. A writer that was stopped for that long finds its file deleted, and its
// write fails.
func (s *Store) sweep(dir string, now time.Time) {
	p := s.place(dir)
	last := p.swept.Load()
	if last != nil && now.Sub(*last) < tempLife || !p.swept.CompareAndSwap(last, &now) {
		return
	}
	entries, _ := os.ReadDir(dir) // may return entries together with an error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > tempLife {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
