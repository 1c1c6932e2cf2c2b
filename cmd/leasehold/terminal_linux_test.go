package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold"
)

// terminal gives both ends of a new one.
func terminal(t *testing.T) (screen, line *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	raw, err := screen.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	refused := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err = errors.Join(refused, err); err != nil {
		t.Fatal(err)
	}
	line, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, line
}

// leaseholdCommand is this test binary as the program.
func leaseholdCommand(t *testing.T, store string, args ...string) *osexec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "leasehold")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.CommandContext(context.WithoutCancel(t.Context()), link, args...)
	// The command does not read variables for tests, and would say so.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LEASEHOLD_TEST_") })
	cmd.Env = append(cmd.Env, "LEASEHOLD_STORE="+store)
	if underTest == leasehold.LayoutMarker {
		cmd.Env = append(cmd.Env, "LEASEHOLD_SWEEP=true")
	}
	return cmd
}

// On a terminal, one line says who is waited for and for how long; it is gone
// when the wait is over.
func TestWaitingOnTerminal(t *testing.T) {
	t.Parallel()
	store := "file://" + t.TempDir()
	holder := leaseholdCommand(t, store, "run", "--holder", "first", "l", "--", "sh", "-c", "echo; read line")
	release, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	started, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(started, make([]byte, 1)); err != nil {
		t.Fatalf("the holder did not get the lock: %v", err)
	}

	screen, line := terminal(t)
	waiter := leaseholdCommand(t, store, "run", "l", "--", "true")
	waiter.Stderr = line
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	_ = line.Close()
	var seen bytes.Buffer
	shown := regexp.MustCompile(`\r\x1b\[Kleasehold: waiting for l, held by first: \d+s`)
	for b := make([]byte, 256); len(shown.FindAll(seen.Bytes(), -1)) < 3; {
		n, err := screen.Read(b)
		seen.Write(b[:n])
		if err != nil {
			t.Fatalf("the terminal shows %q, then %v", &seen, err)
		}
	}
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // read fails at the end of its input
	if err := waiter.Wait(); err != nil {
		t.Errorf("the waiter: %v", err)
	}
	_, _ = io.Copy(&seen, screen) // ends with an error: nobody is left at the other end
	if text := weakness.ReplaceAllString(seen.String(), ""); !strings.HasSuffix(text, "\r\x1b[K") || strings.Contains(text, "\n") {
		t.Errorf("the terminal shows %q, want one line that is removed at the end", text)
	}
}
