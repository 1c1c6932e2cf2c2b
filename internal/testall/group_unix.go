//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"time"
)

// runGroup runs cmd in a process group of its own, so that an interrupt reaches
// the test binaries below the go command as well: it passes none on.
func runGroup(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stopped := false
	cmd.Cancel = func() error {
		stopped = true
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	}
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	err := cmd.Wait()
	if stopped {
		// Ten seconds were enough for those who care about an interrupt.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return err
}
