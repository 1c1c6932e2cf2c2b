package chaos_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// arenaVariable is set in an arena, and names the command to attack.
const arenaVariable = "CHAOS_ARENA"

// notPermitted is the exit code of an arena that could not be furnished.
const notPermitted = 77

// inArena runs test in this binary once more, as the first process of namespaces of
// its own for processes, mounts and the network. However it ends, the kernel ends all
// that was started there and removes all that was made, and nothing that goes over the
// network there can leave.
func inArena(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(arenaVariable) != "" {
		test(t)
		return
	}
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	deadline, ok := t.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Hour)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$",
		"-test.timeout", (time.Until(deadline) * 9 / 10).String(), "-long", long.String(), "-seed", fmt.Sprint(*seed))
	cmd.Env = append(os.Environ(), arenaVariable+"="+path, "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	// The signal comes when the thread is gone that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	said, err := cmd.CombinedOutput()
	if cmd.Process == nil || cmd.ProcessState.ExitCode() == notPermitted {
		denied(t, fmt.Errorf("namespaces are not permitted here: %w: %s", err, said))
	}
	t.Logf("%s", said)
	if err != nil {
		t.Fatalf("in the arena: %v", err)
	}
	if !strings.Contains(string(said), "--- PASS: "+t.Name()+" ") {
		t.Fatal("the test was not run in the arena")
	}
}

// denied skips the test where it cannot be run; in CI it must be.
func denied(t *testing.T, why error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// command is the path of the command, built once.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return "", err
	}
	built = filepath.Join(dir, "leasehold")
	out, err := exec.Command("go", "-C", "../..", "build", "-buildvcs=false", "-o", built, "./cmd/leasehold").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return built, nil
})

// furnish makes new namespaces fit to live in.
func furnish() error {
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("%w: install iproute2", err)
	}
	// Mounts of this test must not show outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return ip("link", "set", "lo", "up")
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil { //nolint:noctx // it ends by itself
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
