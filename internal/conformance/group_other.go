//go:build !unix

package conformance

import (
	"errors"
	"os/exec"
)

// canStop says whether processes can be stopped and continued here.
const canStop = false

func ownGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func (s *subject) stop() error { return errors.ErrUnsupported }

func (s *subject) goOn() error { return errors.ErrUnsupported }
