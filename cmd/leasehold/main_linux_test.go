package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store/filestore"
)

// TestFullStdout: no command takes what it could not print for printed. Help used to end with 0, and the scripts of shells
// with 64.
func TestFullStdout(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	if clitest.UnderTest != leasetest.Object {
		t.Skip("the lock with a history has the layout object")
	}
	dir := t.TempDir()
	lease := filepath.Join(dir, "lease.json")
	at := "file://" + dir
	if code, says := outcome(t, nil, "acquire", "--ttl", "10m", "--file", lease, at+"/held"); code != 0 {
		t.Fatalf("exit code %d, %s", code, says)
	}
	text, err := os.ReadFile(lease)
	if err != nil {
		t.Fatal(err)
	}
	st, err := filestore.New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := leasehold.NewLock(st, "was", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err = os.MkdirAll(filepath.Join(dir, "work", "shards"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(filepath.Join(dir, "work", "shards", "00"), []byte("garbage"), 0o600); err != nil { // which is shown too
		t.Fatal(err)
	}
	lines := []string{
		"", "help", "help run", "--version", "version", "version -o json", "events", "__complete run", "completion bash", "completion zsh", "completion fish", "completion powershell",
		"status " + at + "/held", "status -o json " + at + "/held", "watch " + at + "/held", "watch -o json " + at + "/held", "watch " + at + "/", "watch -o json " + at + "/",
		"list " + at, "list -o json " + at, "history " + at + "/was", "history -o json " + at + "/was",
		"shards " + at + "/work", "shards -o json " + at + "/work",
		"cost", "cost -o json", "init " + at + "/new", "acquire --ttl 1m " + at + "/other", "acquire --exec --ttl 1m " + at + "/another", "renew -",
	}
	var helps []string
	var help func(c *cobra.Command)
	help = func(c *cobra.Command) {
		helps = append(helps, strings.TrimPrefix(c.CommandPath()+" --help", "leasehold "))
		for _, sub := range c.Commands() {
			help(sub)
		}
	}
	help((&app{stdout: os.Stdout}).root())
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, line := range lines {
		cmd := clitest.Command(t, "", strings.Fields(line)...)
		var says strings.Builder
		cmd.Stdout, cmd.Stderr, cmd.Stdin = full, &says, strings.NewReader(string(text))
		if _ = cmd.Run(); cmd.ProcessState.ExitCode() != exitInternal || !strings.Contains(says.String(), "no space left on device") {
			t.Errorf("%s: exit code %d, %s", line, cmd.ProcessState.ExitCode(), says.String())
		}
	}
	for _, line := range helps { // it needs no process to be printed
		var says strings.Builder
		if code := exec(t.Context(), strings.Fields(line), full, &says); code != exitInternal || !strings.Contains(says.String(), "no space left on device") {
			t.Errorf("%s: exit code %d, %s", line, code, says.String())
		}
	}
}

// TestStdoutWithoutReader: a command whose reader has gone ends as any other does, as in "leasehold list | head -n 1": by
// SIGPIPE, and without a word.
func TestStdoutWithoutReader(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"version", "version -o json", "events", "run --help", "completion bash"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		cmd := clitest.Command(t, "", strings.Fields(line)...)
		var says strings.Builder
		cmd.Stdout, cmd.Stderr = w, &says
		_ = cmd.Run() // killed
		_ = w.Close()
		if status, is := cmd.ProcessState.Sys().(syscall.WaitStatus); !is || status.Signal() != syscall.SIGPIPE || says.Len() > 0 {
			t.Errorf("%s: %v, and it says %q", line, cmd.ProcessState, says.String())
		}
	}
}
