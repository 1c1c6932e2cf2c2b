//go:build unix

package main

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
)

// TestNothingStaysHeld: whether the program comes to its end or is interrupted, it
// leaves a free lock behind. A claim used to be under way when its process ended, and
// the lock was held by nobody until its TTL had passed.
func TestNothingStaysHeld(t *testing.T) {
	t.Parallel()
	for _, way := range leasetest.Ways {
		t.Run(way.String(), func(t *testing.T) {
			t.Parallel()
			st, err := filestore.New(t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"--store", way.URL(st.String()), "--processes", "3", "--tasks", "9", "--layout", string(way.Layout)}
			cmd, _, stderr := program(t, nil, append(args, "--hold", "1ms", "--acquisitions", "3")...)
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			isFree(t, st, way)
			for range 5 {
				interrupt(t, append(args, "--hold", "1h")...)
				isFree(t, st, way)
			}
		})
	}
}

// interrupt runs the program until a task has the lock, and interrupts it then.
func interrupt(t *testing.T, args ...string) {
	t.Helper()
	cmd, _, stderr := program(t, nil, args...)
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "acquired lock ") {
		t.Fatalf("%q, %v\n%s", line, err, stderr)
	}
	if err = cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its code tells
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1\n%s", code, stderr)
	}
}

func isFree(t *testing.T, st store.Store, way leasetest.Way) {
	t.Helper()
	lock, err := leasehold.NewLock(st, "contention/"+string(way.Layout), way.Options())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := lock.Inspect(t.Context()); err != nil || !info.Exists || info.Held {
		t.Fatalf("%+v, %v; want a lock that is free", info, err)
	}
}
