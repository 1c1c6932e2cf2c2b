package main

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clitest"
)

// fullPipe is one that takes nothing, until its reader reads.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) {
		for err == nil {
			_, err = unix.Write(int(fd), make([]byte, 4096))
		}
	}); e != nil || !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("cannot fill a pipe: %v, %v", e, err)
	}
	return r, w
}

// A stderr that nobody reads, or has ever read, neither ends a run or a candidate nor keeps it from its work. It used
// to be killed by SIGPIPE at the next message, with the lock held; or to wait for the reader, so that the lease ended.
func TestStderrWithoutReader(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"run", "-v", "l", "--"},
		{"run", "-v", "-o", "json", "l", "--"},
		{"elect", "-v", "--once", "l", "--"},
	} {
		for _, stderrIs := range []string{"full", "gone"} {
			t.Run(strings.Join(args[:len(args)-2], " ")+" "+stderrIs, func(t *testing.T) {
				t.Parallel()
				stderr, line := fullPipe(t)
				if stderrIs == "gone" {
					_ = stderr.Close()
				}
				store := "file://" + t.TempDir()
				cmd := clitest.Command(t, store, append(args, "sh", "-c", `exec 2>/dev/null; trap 'exec echo "got it"' TERM; echo ready; while :; do sleep 0.1; done`)...)
				cmd.Stderr = line
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err = cmd.Start(); err != nil {
					t.Fatal(err)
				}
				defer time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
				job := bufio.NewScanner(out)
				if !job.Scan() || job.Text() != "ready" {
					t.Fatalf("the command says %q first: %v, %v", job.Text(), job.Err(), cmd.Wait())
				}
				if err = cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				if !job.Scan() || job.Text() != "got it" {
					t.Errorf("the command says %q after SIGTERM: %v", job.Text(), job.Err())
				}
				if err = cmd.Wait(); err != nil {
					t.Errorf("leasehold: %v", err)
				}
				free := clitest.Command(t, store, "run", "--wait", "0", "l", "--", "true")
				if text, e := free.CombinedOutput(); e != nil {
					t.Errorf("the lock is not free: %v: %s", e, text)
				}
			})
		}
	}
}
