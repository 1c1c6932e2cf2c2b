package main

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/servers"
)

// A store that goes away ends the lease and the command, but not the candidate:
// it leads again when the store is back.
func TestElectOutlivesOutage(t *testing.T) {
	t.Parallel()
	srv := servers.Start(t, "versitygw")
	base, query, _ := strings.Cut(srv.URL(srv.Bucket(t)), "?")
	candidate := leaseholdCommand(t, "", "elect", "--ttl", "1s", base+"/l?"+query, "--", "sh", "-c", "exec sleep 1000")
	candidate.Env = append(candidate.Env, srv.Env()...)
	said, err := candidate.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := candidate.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = candidate.Process.Kill() }) // when it has not ended
	lines := bufio.NewScanner(said)
	hear := func(part string) {
		t.Helper()
		var heard []string
		for lines.Scan() {
			heard = append(heard, lines.Text())
			if strings.Contains(lines.Text(), part) {
				return
			}
		}
		t.Fatalf("the candidate never says %q, but %q", part, heard)
	}
	hear("leading ")
	srv.Stop()
	hear("the lease was lost, and the command was ended")
	srv.Restart(t)
	hear("leading ")
	if err := candidate.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, said)
	_ = candidate.Wait() // with an error, since its exit code is not 0
	if code := candidate.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
