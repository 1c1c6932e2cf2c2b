package main

import (
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/clitest"
)

// withoutMarker leaves out what needs a lease that is renewed.
func withoutMarker(t *testing.T) {
	t.Helper()
	if !clitest.UnderTest.Renews() {
		t.Skip("a marker without If-Match is not renewed, and says nothing of a takeover")
	}
}

// A run is ready when its command has begun, and not while it waits. One that does not get the lock tells of its end.
func TestRunNotifies(t *testing.T) {
	t.Parallel()
	withoutMarker(t)
	store := "file://" + t.TempDir()
	m := clitest.Manage(t, fmt.Sprintf("@leasehold-run-%d", os.Getpid()))
	holder := clitest.Command(t, store, "run", "--holder", "a", "l", "--", "sleep", "1000")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill() })
	clitest.AwaitHolder(t, store, "a")
	run := m.Start(store, []string{"WATCHDOG_USEC=200000", "WATCHDOG_PID=1"}, "run", "--holder", "b", "l", "--", "sleep", "1000")
	before := m.Hear(`STATUS=waiting for l, held by a(, token \d+)?`)
	if slices.Contains(before, "READY=1") {
		t.Errorf("it is ready, and waits: %q", before)
	}
	at := filepath.Join(t.TempDir(), "n")
	second := clitest.Manage(t, at)
	refused := second.Start(store, nil, "run", "--holder", "c", "--wait", "0", "l", "--", "true")
	_ = refused.Wait()
	end, err := (&net.Dialer{}).DialContext(t.Context(), "unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = end.Close() }()
	if _, err = end.Write([]byte("END=1")); err != nil {
		t.Fatal(err)
	}
	if said := second.Hear("END=1"); !slices.Contains(said, "STOPPING=1") {
		t.Errorf("a run that does not get the lock says %q before it ends", said)
	}
	_ = holder.Process.Signal(syscall.SIGTERM)
	_ = holder.Wait()
	m.Seen = append(m.Hear("READY=1"), m.Seen...) // it may have said that it holds the lock before
	before = append(before, m.Hear(`STATUS=holding l as b(, token \d+)?`)...)
	_ = run.Process.Signal(syscall.SIGTERM)
	rest := m.Hear("STOPPING=1")
	for _, line := range append(before, rest...) {
		if line == "WATCHDOG=1" {
			t.Error("it answers a watchdog that watches process 1")
		}
	}
	_ = run.Wait()
	if code := run.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
}

// A candidate tells its manager of its campaign, of the leader that it follows, of its own
// leadership, and of its end; and its command does not get to speak for it.
func TestElectNotifies(t *testing.T) {
	t.Parallel()
	withoutMarker(t)
	store := "file://" + t.TempDir()
	m := clitest.Manage(t, filepath.Join(t.TempDir(), "n"))
	out := filepath.Join(t.TempDir(), "env")
	leader := m.Start(store, []string{"WATCHDOG_USEC=200000"}, "elect", "--holder", "a", "l", "--", "sh", "-c", `env > "$0.new"; mv "$0.new" "$0"; exec sleep 1000`, out)
	m.Seen = append(m.Hear("READY=1"), m.Seen...)
	m.Hear(`STATUS=leading l as a(, token \d+)?`)
	m.Hear("WATCHDOG=1")
	var env []byte
	for end := time.Now().Add(3 * time.Minute); len(env) == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		env, _ = os.ReadFile(out)
	}
	if text := string(env); !strings.Contains(text, "LEASEHOLD_LOCK=") || strings.Contains(text, "NOTIFY_SOCKET") || strings.Contains(text, "WATCHDOG") {
		t.Errorf("the command has this environment:\n%s", text)
	}
	second := clitest.Manage(t, filepath.Join(t.TempDir(), "n"))
	follower := second.Start(store, []string{"WATCHDOG_USEC=200000"}, "elect", "--holder", "b", "l", "--", "sleep", "1000")
	// It may have seen the leader before it says that it is ready.
	second.Seen = append(second.Hear("READY=1"), second.Seen...)
	second.Hear(`STATUS=following in l, led by a(, token \d+)?`)
	second.Hear("WATCHDOG=1")
	// The end of a term is not that of the service.
	third := clitest.Manage(t, filepath.Join(t.TempDir(), "n"))
	ends := filepath.Join(t.TempDir(), "ends")
	resting := third.Start(store, nil, "elect", "--holder", "c", "other", "--", "sh", "-c", `until test -e "$0"; do sleep 0.1; done`, ends)
	third.Hear(`STATUS=leading other as c(, token \d+)?`)
	if err := os.WriteFile(ends, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if before := third.Hear("STATUS=candidate for other, no leader is known"); slices.Contains(before, "STOPPING=1") {
		t.Errorf("it stops with its command: %q", before)
	}
	for _, c := range []struct {
		m   *clitest.Manager
		cmd *osexec.Cmd
	}{{m, leader}, {second, follower}, {third, resting}} {
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		c.m.Hear("STOPPING=1")
	}
}

// A server tells systemd that it is ready when it answers.
func TestServeNotifies(t *testing.T) {
	t.Parallel()
	store := "file://" + t.TempDir()
	m := clitest.Manage(t, filepath.Join(t.TempDir(), "n"))
	at := filepath.Join(t.TempDir(), "s")
	server := m.Start(store, []string{"WATCHDOG_USEC=200000"}, "serve", "--http", "unix:"+at)
	m.Seen = append(m.Hear("READY=1"), m.Seen...)
	m.Hear("STATUS=serving the locks under " + store)
	m.Hear("WATCHDOG=1")
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", at); err != nil {
		t.Errorf("it is ready, and does not answer: %v", err)
	} else {
		_ = conn.Close()
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.Hear("STOPPING=1")
}
