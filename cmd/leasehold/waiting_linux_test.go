package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/clitest"
)

// On a terminal, one line says who is waited for and for how long; it is gone
// when the wait is over.
func TestWaitingOnTerminal(t *testing.T) {
	t.Parallel()
	store := "file://" + t.TempDir()
	holder := clitest.Command(t, store, "run", "--holder", "first", "l", "--", "sh", "-c", "echo; read line")
	release, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	started, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(started, make([]byte, 1)); err != nil {
		t.Fatalf("the holder did not get the lock: %v", err)
	}

	screen, line := clitest.Terminal(t)
	waiter := clitest.Command(t, store, "run", "l", "--", "true")
	waiter.Stderr = line
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	_ = line.Close()
	var seen bytes.Buffer
	shown := regexp.MustCompile(`\r\x1b\[Kleasehold: waiting for l, held by first: \d+s`)
	for b := make([]byte, 256); len(shown.FindAll(seen.Bytes(), -1)) < 3; {
		n, err := screen.Read(b)
		seen.Write(b[:n])
		if err != nil {
			t.Fatalf("the terminal shows %q, then %v", &seen, err)
		}
	}
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // read fails at the end of its input
	if err := waiter.Wait(); err != nil {
		t.Errorf("the waiter: %v", err)
	}
	_, _ = io.Copy(&seen, screen) // ends with an error: nobody is left at the other end
	text := clitest.Weakness.ReplaceAllString(seen.String(), "")
	text = regexp.MustCompile(`leasehold: releasing l: .*\r\n`).ReplaceAllString(text, "") // on a busy machine
	if !strings.HasSuffix(text, "\r\x1b[K") || strings.Contains(text, "\n") {
		t.Errorf("the terminal shows %q, want one line that is removed at the end", text)
	}
}
