package clitest

import (
	"bufio"
	"io"
	"os"
	osexec "os/exec"
	"strings"
	"testing"
)

// A Heard command is under way, and what it says is heard line by line.
type Heard struct {
	t     *testing.T
	cmd   *osexec.Cmd
	said  io.Reader
	lines *bufio.Scanner
}

// Listen starts a command, which is killed when the test ends.
func Listen(t *testing.T, cmd *osexec.Cmd) *Heard {
	t.Helper()
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // when it has not ended
	return &Heard{t, cmd, said, bufio.NewScanner(said)}
}

// Hear waits for a line with that part, and returns it.
func (h *Heard) Hear(part string) string {
	h.t.Helper()
	var before []string
	for h.lines.Scan() {
		line := h.lines.Text()
		if before = append(before, line); strings.Contains(line, part) {
			return line
		}
	}
	h.t.Fatalf("it never says %q, but %q", part, before)
	return ""
}

// Stop interrupts it, and returns its exit code.
func (h *Heard) Stop() int {
	h.t.Helper()
	if err := h.cmd.Process.Signal(os.Interrupt); err != nil {
		h.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, h.said)
	_ = h.cmd.Wait() // with an error if its exit code is not 0
	return h.cmd.ProcessState.ExitCode()
}
