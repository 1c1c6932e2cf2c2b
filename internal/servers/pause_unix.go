//go:build unix

package servers

import (
	"syscall"
	"testing"
)

// Pause freezes the server (SIGSTOP), and returns once it has stopped. Connections stay open,
// and requests are not answered. The server must be running.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	if s.memory != nil {
		s.memory.pause()
		return
	}
	s.signal(t, syscall.SIGSTOP)
	if err := stopped(s.proc.cmd.Process.Pid); err != nil {
		t.Fatalf("%s: wait until it has stopped: %v", s.Name, err)
	}
}

// Resume continues a paused server (SIGCONT), with the requests sent meanwhile.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	if s.memory != nil {
		s.memory.resume()
		return
	}
	s.signal(t, syscall.SIGCONT)
}

func (s *Server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.proc.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("%s: send %v: %v", s.Name, sig, err)
	}
}
