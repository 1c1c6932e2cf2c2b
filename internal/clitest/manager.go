package clitest

import (
	"bytes"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A Manager is the service manager of a command under test, on a real socket.
type Manager struct {
	t    *testing.T
	conn *net.UnixConn
	path string
	Seen []string
}

// Manage makes one that listens at path, which is abstract if it begins with @.
func Manage(t *testing.T, path string) *Manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &Manager{t: t, conn: conn, path: path}
}

// Start starts a command of this program as the manager does.
func (m *Manager) Start(store string, env []string, args ...string) *exec.Cmd {
	m.t.Helper()
	cmd := Command(m.t, store, args...)
	cmd.Env = append(append(cmd.Env, "NOTIFY_SOCKET="+m.path), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = cmd.Process.Kill() // when it has not ended
		_ = cmd.Wait()
		if m.t.Failed() {
			m.t.Logf("%s said %q", args[0], &said)
		}
	})
	return cmd
}

// Hear waits for a line that matches, and returns those that came before it.
func (m *Manager) Hear(pattern string) (before []string) {
	m.t.Helper()
	wanted := regexp.MustCompile("^" + pattern + "$")
	if err := m.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		m.t.Fatal(err)
	}
	for datagram := make([]byte, 4096); ; {
		for i, line := range m.Seen {
			if wanted.MatchString(line) {
				before, m.Seen = m.Seen[:i], m.Seen[i+1:]
				return before
			}
		}
		n, err := m.conn.Read(datagram)
		if err != nil {
			m.t.Fatalf("it never says %s, but %q: %v", pattern, m.Seen, err)
		}
		m.Seen = append(m.Seen, strings.Split(string(datagram[:n]), "\n")...)
	}
}
