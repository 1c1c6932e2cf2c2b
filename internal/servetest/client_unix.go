//go:build unix

package servetest

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// interpreters run the clients of examples/clients. A test of one that is not there is skipped.
var interpreters = map[string]struct{ program, file string }{
	"python": {"python3", "lock.py"}, "node": {"node", "lock.mjs"}, "shell": {"curl", "lock.sh"},
}

// Clients are the kinds that there are.
var Clients = slices.Sorted(maps.Keys(interpreters))

// Client prepares a command under a lock, by a client.
func Client(t *testing.T, kind, address string, env []string, key string, command ...string) *exec.Cmd {
	t.Helper()
	i := interpreters[kind]
	if _, err := exec.LookPath(i.program); err != nil {
		t.Skipf("there is no %s here", i.program)
	}
	_, here, _, _ := runtime.Caller(0)
	file := filepath.Join(filepath.Dir(here), "../../examples/clients", i.file)
	program := i.program
	if kind == "shell" {
		program = "sh"
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, append([]string{file, key}, command...)...)
	cmd.Env = append(append(os.Environ(), "LEASEHOLD_SERVE=http://"+address), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Minute
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	})
	return cmd
}

// EachClient runs a test with each.
func EachClient(t *testing.T, test func(t *testing.T, kind string)) {
	t.Helper()
	for _, kind := range Clients {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// Await waits until there is a file, for a few minutes at most.
func Await(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there is no %s", file)
		}
	}
}
