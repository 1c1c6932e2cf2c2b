//go:build unix

package peer_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestFewFiles: connections to a leader leave it the files that it needs for other
// things, such as its store. It used to be able to take them all.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `ulimit -n 80 && exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=few files")
	cmd.Stderr = os.Stderr
	stdin, stdout := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	address := strings.TrimSpace(must(out.ReadString('\n')))
	closed := make(chan struct{})
	for range 100 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = io.Copy(io.Discard, c)
			closed <- struct{}{}
		}()
	}
	for range 100 - 80*3/4 {
		<-closed
	}
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	if said, err := io.ReadAll(out); err != nil || string(said) != "enough\n" {
		t.Errorf("it said %q, %v", said, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
