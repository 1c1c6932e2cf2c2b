//go:build unix

package sdnotify_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/sdnotify"
)

// manager listens as a service manager does.
func manager(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func socket(t *testing.T, path string) sdnotify.Socket {
	t.Helper()
	s, err := sdnotify.FromEnvironment(func(name string) string { return map[string]string{"NOTIFY_SOCKET": path}[name] }, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// All messages of one call are one datagram, to a socket in the file system and to an abstract one.
func TestSend(t *testing.T) {
	t.Parallel()
	paths := []string{filepath.Join(t.TempDir(), "n")}
	if runtime.GOOS == "linux" {
		paths = append(paths, fmt.Sprintf("@leasehold-test-%d", os.Getpid()))
	}
	for _, path := range paths {
		listens := manager(t, path)
		if err := socket(t, path).Send(t.Context(), sdnotify.Ready, sdnotify.Status("x")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 100)
		n, err := listens.Read(got)
		if err != nil || string(got[:n]) != "READY=1\nSTATUS=x" {
			t.Errorf("%s: got %q, %v", path, got[:n], err)
		}
	}
}

// A manager that does not read keeps nobody for longer than a second or two.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "n")
	manager(t, path)
	s := socket(t, path)
	var err error
	began := time.Now()
	for n := 0; err == nil; n++ {
		if n > 100_000 {
			t.Fatal("the queue never fills up")
		}
		began = time.Now()
		err = s.Send(t.Context(), sdnotify.Status("again"))
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v to give up: %v", took, err)
	}
}

// A manager that is gone is an error.
func TestGone(t *testing.T) {
	t.Parallel()
	if err := socket(t, filepath.Join(t.TempDir(), "n")).Send(t.Context(), sdnotify.Ready); err == nil {
		t.Error("sent to nobody")
	}
}
