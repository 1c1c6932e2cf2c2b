//go:build !linux

package main

import (
	"fmt"
	"os/exec"
)

// tie cannot tie the life of a process to ours here.
func tie(_ *exec.Cmd, account string) error {
	if account != "" {
		return fmt.Errorf("%w: it refuses to run as root", errMissing)
	}
	return nil
}
