//go:build unix

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/store"
)

// A file that cannot be flushed to the disk was not written. A pipe takes all bytes and cannot
// be flushed. No test noticed when a file was not.
func TestFileIsFlushed(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := fill(w, strings.NewReader("x")); err == nil {
		t.Error("a file that was not flushed was said to be written")
	}
}

// An error of a rename or an unlink says that nothing has happened only where the local system
// itself has refused it. No test noticed when any other was believed.
func TestErrorsOfARename(t *testing.T) {
	for err, unknown := range map[error]bool{
		nil:            false,
		syscall.EIO:    true,
		syscall.ESTALE: true,
		syscall.ENOENT: true, // on NFS the first request has happened, and the second says this
		syscall.EACCES: false,
		syscall.EPERM:  false,
		syscall.ENOSPC: false,
		syscall.EROFS:  false,
	} {
		var is error
		if err != nil {
			is = &fs.PathError{Op: "rename", Path: "k", Err: err}
		}
		if got := renamed(is); errors.Is(got, store.ErrUnknownOutcome) != unknown || !errors.Is(got, err) {
			t.Errorf("%v is %v, want that the outcome is unknown: %v", err, got, unknown)
		}
	}
}
