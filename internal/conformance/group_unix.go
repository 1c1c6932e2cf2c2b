//go:build unix

package conformance

import (
	"os/exec"
	"syscall"
)

// canStop says whether processes can be stopped and continued here.
const canStop = true

// ownGroup puts the process into a group of its own, so that what it starts is signalled with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func (s *subject) stop() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGSTOP) }

func (s *subject) goOn() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGCONT) }
