//go:build !unix

package main

import (
	"os/exec"
	"time"
)

// runGroup runs cmd. An interrupt ends the go command only; the test binaries
// below it have the console's own interrupt.
func runGroup(cmd *exec.Cmd) error {
	cmd.WaitDelay = 10 * time.Second
	return cmd.Run()
}
