//go:build unix

package localhttp_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/internal/localhttp"
)

// leftOver makes the socket of a process that was killed.
func leftOver(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

// A socket is for this user alone, also under a umask that keeps nothing from anybody, and is
// removed at the end.
func TestSocket(t *testing.T) { //nolint:paralleltest // the umask is that of the process
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "s")
	leftOver(t, path)
	s := listen(t, "unix:"+path, localhttp.Token{})
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("at the end: %v", err)
	}
}

// Neither a socket that somebody listens on nor a file is replaced.
func TestSocketTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	live, file := filepath.Join(dir, "live"), filepath.Join(dir, "file")
	s := serve(t, "unix:"+live, localhttp.Token{}, hello)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		live: "another process listens there", file: "which is no socket", filepath.Join(dir, "no/s"): "no such file",
	} {
		if _, err := localhttp.Listen(t.Context(), parsed(t, "unix:"+path), localhttp.Token{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if got := ask(t, s, nil); got.code != 200 {
		t.Errorf("the socket that was there: %+v", got)
	}
}

// At the end a socket is left that is another's by now.
func TestSocketReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	s := listen(t, "unix:"+path, localhttp.Token{})
	if err := os.Rename(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	leftOver(t, path)
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another's socket: %v", err)
	}
}

// Of many that find one left-over socket at one moment, one gets it, and keeps it: a second that
// had looked before it used to be able to remove it.
func TestSocketRaces(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	for range 20 {
		leftOver(t, path)
		address := parsed(t, "unix:"+path)
		got := make([]*localhttp.Server, 8)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { got[i], _ = localhttp.Listen(t.Context(), address, localhttp.Token{}) })
		}
		all.Wait()
		servers := 0
		for _, s := range got {
			if s == nil {
				continue
			}
			servers++
			c, err := net.Dial("unix", path) //nolint:noctx // it does not wait
			if err != nil {
				t.Errorf("the one that got it cannot be reached: %v", err)
			} else {
				_ = c.Close()
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if servers != 1 {
			t.Fatalf("%d servers listen on one socket", servers)
		}
	}
}
