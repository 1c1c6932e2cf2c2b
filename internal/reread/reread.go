// Package reread keeps a process up to date with files that are replaced while it runs: tokens, certificates with their
// keys, and the certificates of authorities.
package reread

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Every is how often [Set.Follow] reads the files.
const Every = 10 * time.Second

// most bounds a file, in bytes.
const most = 1 << 20

// A File is one of a [Set].
type File struct {
	Flag   string // errors begin with it
	Name   string // empty: there is none, and its text is nil
	Secret bool   // only its owner and group may read or write it
}

// A Set is a number of files that are used together, such as a certificate and its key. It is safe for concurrent use.
type Set struct {
	files []File
	use   func(texts [][]byte) error

	mu    sync.Mutex
	texts [][]byte // in use
	pipes []bool   // which files can be read only once
}

// Open reads the files and calls use with what is in them, in the same order. It fails if a file cannot be read, if others
// may read or write one that is secret, and if use fails. Whenever a file has changed, use is called again, by one
// goroutine at a time. It must change nothing if it returns an error.
func Open(use func(texts [][]byte) error, files ...File) (*Set, error) {
	s := &Set{files: files, use: use, pipes: make([]bool, len(files))}
	if _, err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the files again, and reports whether anything has changed. If one of them cannot be read or used, what was
// in all of them before stays in use. A pipe keeps the text that it had at first.
func (s *Set) Reload() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := make([][]byte, len(s.files))
	for i, f := range s.files {
		switch {
		case f.Name == "":
		case s.pipes[i]:
			texts[i] = s.texts[i]
		case s.texts != nil && !regular(f.Name): // to open it may be to wait for a writer
			return false, fmt.Errorf("%s: %s was replaced by something that is not a regular file", f.Flag, f.Name)
		default:
			if texts[i], s.pipes[i], err = read(f.Name, f.Secret); err != nil {
				return false, fmt.Errorf("%s: %w", f.Flag, err)
			}
		}
	}
	if s.texts != nil && slices.EqualFunc(texts, s.texts, bytes.Equal) {
		return false, nil
	}
	if err = s.use(texts); err != nil {
		return false, err
	}
	s.texts = texts
	return true, nil
}

// Follow calls [Set.Reload] each [Every], and whenever something comes from now, until ctx ends. It tells of each change
// (nil), and once of each reason why the files cannot be used. A reason that came up by itself is told if it has lasted
// until the next reading, since a certificate and its key are not replaced at one moment.
func (s *Set) Follow(ctx context.Context, now <-chan os.Signal, tell func(error)) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	var before, told string
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-now:
			asked = true
		case <-tick.C:
		}
		changed, err := s.Reload()
		switch {
		case err == nil:
			before, told = "", ""
			if changed || asked {
				tell(nil)
			}
		case asked, err.Error() == before && err.Error() != told:
			told = err.Error()
			tell(err)
		}
		if err != nil {
			before = err.Error()
		}
	}
}

// regular reports whether that is a file, or nothing.
func regular(name string) bool {
	info, err := os.Stat(name)
	return err != nil || info.Mode().IsRegular()
}

// Secret reads a file that only its owner and group may read or write.
func Secret(name string) ([]byte, error) {
	text, _, err := read(name, true)
	return text, err
}

// read also reports whether the file is one that cannot be read again, such as a pipe.
func read(name string, secret bool) (text []byte, pipe bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	// A mode on Windows says nothing about others.
	if others := info.Mode().Perm() & 0o006; secret && others != 0 && runtime.GOOS != "windows" {
		return nil, false, fmt.Errorf("%s is open to all users of this machine (mode %04o): chmod o= %[1]s", name, info.Mode().Perm())
	}
	text, err = io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return text, info.Mode()&os.ModeNamedPipe != 0, err
}
