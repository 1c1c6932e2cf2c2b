//go:build unix

package reread_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/internal/reread"
)

// A pipe, such as a shell's <(command), is read once, and then keeps what it had.
func TestPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err = w.WriteString("secret"); err != nil {
		t.Fatal(err)
	}
	if err = w.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := reread.Open(func(texts [][]byte) error {
		if string(texts[0]) != "secret" {
			return fmt.Errorf("it is %q", texts[0])
		}
		return nil
	}, reread.File{Flag: "--pipe", Name: fmt.Sprintf("/dev/fd/%d", r.Fd())})
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := s.Reload(); changed || err != nil {
		t.Errorf("%t, %v", changed, err)
	}
}

// TestFileBecomesAPipe: to open one without a writer used to hang, and no later change was seen.
func TestFileBecomesAPipe(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := reread.Open(func([][]byte) error { return nil }, reread.File{Flag: "--file", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(os.Remove(name), syscall.Mkfifo(name, 0o600)); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.Reload(); changed || err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%t, %v", changed, err)
	}
}
