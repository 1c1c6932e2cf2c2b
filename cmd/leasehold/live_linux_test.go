package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/watchview"
)

// withRecords is for locks that are there when nobody holds them.
func withRecords(t *testing.T) {
	t.Helper()
	if !clitest.UnderTest.Tokens() {
		t.Skip("a marker that is gone is free, and there is nothing to see")
	}
}

// All locks under a prefix, and a store that does not answer: what was known stays, with the
// reason. Without colours, since they were declined.
func TestWatchPrefixOnTerminal(t *testing.T) {
	t.Parallel()
	withRecords(t)
	dir := t.TempDir()
	at := filepath.Join(dir, "locks")
	store := "file://" + at
	for _, name := range []string{"jobs/a", "jobs/b", "other"} {
		if out, err := clitest.Command(t, store, "init", name).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	v := clitest.OnTerminal(t, store, 80, []string{"NO_COLOR=1"}, "watch", "--every", "1s", "jobs/")
	first := clitest.OnTerminal(t, store, 80, []string{"NO_COLOR=1"}, "watch", "--every", "1h", "--limit", "1", "jobs/")
	first.Shows(t, 0, `\x1b\[2Kjobs/\r?\n?\x1b[\s\S]*only the first 1 are shown`) // at once
	first.Press(t, "q")
	first.Ends(t, 0)
	v.Shows(t, 0, `jobs/a +free +- +`)
	seen := v.Shows(t, 0, `jobs/b +free +- +`)
	holder := clitest.Command(t, store, "run", "--holder", "me", "jobs/b", "--", "sh", "-c", "read line")
	release, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	v.Shows(t, seen, `jobs/b +held +me +`)
	_ = release.Close()
	_ = holder.Wait() // read fails at the end of its input
	if err := os.Rename(at, at+".away"); err != nil {
		t.Fatal(err)
	}
	seen = v.Shows(t, seen, `store    no such bucket or directory: [\s\S]* answered \d+s ago`)
	if err := os.Rename(at+".away", at); err != nil {
		t.Fatal(err)
	}
	v.Shows(t, seen, `store    answered 0s ago`)
	v.Press(t, "\x03")
	v.Ends(t, 130)
	if text := v.Text(); strings.Contains(text, "other") || regexp.MustCompile(`\x1b\[\d*m`).MatchString(text) {
		t.Errorf("another lock, or colours: %q", text)
	}
}

// TestFreeSemaphoreAppearsOnTerminal: a semaphore that appears ends the view of a lock that did not exist. A message that follows
// is shown below it.
func TestFreeSemaphoreAppearsOnTerminal(t *testing.T) {
	t.Parallel()
	if clitest.UnderTest != leasetest.Object {
		t.Skip("the same in every layout")
	}
	from, to := t.TempDir(), t.TempDir()
	if out, err := clitest.Command(t, "file://"+from, "run", "--slots", "2", "s", "--", "true").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	v := clitest.OnTerminal(t, "file://"+to, 80, []string{"NO_COLOR=1"}, "watch", "s")
	seen := v.Shows(t, 0, `state    absent`)
	if err := os.Rename(filepath.Join(from, "s"), filepath.Join(to, "s")); err != nil {
		t.Fatal(err)
	}
	v.Shows(t, seen, regexp.QuoteMeta(watchview.Leave)+`[\s\S]*leasehold: s is free: waiting for a holder`)
	v.Press(t, "\x03") // by the terminal's own driver
	_ = v.Cmd.Wait()
	if code := v.Cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, and %q", code, v.Text())
	}
}

// ^Z gives the terminal back until the process goes on; this one, which no shell could let go
// on, does so at once. A signal ends the view as it ends the
// lines. After another stop all is drawn anew. The terminal does not know how wide it is.
func TestWatchSuspended(t *testing.T) {
	t.Parallel()
	v := clitest.OnTerminal(t, "file://"+t.TempDir(), 0, nil, "watch", "l")
	seen := v.Shows(t, 0, `state `)
	v.Press(t, "\x1a")
	seen = v.Shows(t, seen, regexp.QuoteMeta(watchview.Leave+watchview.Enter)+`[\s\S]*state `)
	for _, sig := range []os.Signal{unix.SIGSTOP, unix.SIGCONT} {
		if err := v.Cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	v.Shows(t, seen, `\x1b\[H\x1b\[2J[\s\S]*state `)
	if err := v.Cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	v.Ends(t, 129)
}

// A terminal that cannot move its cursor gets lines, and so does every one with --output json.
func TestWatchLinesOnTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ variable, output string }{{"TERM=dumb", "text"}, {"TERM=xterm", "json"}} {
		v := clitest.OnTerminal(t, "file://"+t.TempDir(), 80, []string{tt.variable}, "watch", "-o", tt.output, "jobs/")
		v.Shows(t, 0, `watching jobs/: a refresh each 5s`)
		if v.Mode(t).Lflag != v.Before.Lflag {
			t.Errorf("%v: the terminal was taken over", tt)
		}
		v.Press(t, "\x03") // by the terminal's own driver
		_ = v.Cmd.Wait()
		if code := v.Cmd.ProcessState.ExitCode(); code != 130 || strings.Contains(v.Text(), "\x1b") {
			t.Errorf("%v: exit code %d, and %q", tt, code, v.Text())
		}
	}
}

// A lock on a terminal: what happens to it is shown, in whatever size the terminal has, and a
// key ends it.
func TestWatchOnTerminal(t *testing.T) {
	t.Parallel()
	withRecords(t)
	dir := filepath.Join(t.TempDir(), "locks")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store := "file://" + dir
	v := clitest.OnTerminal(t, store, 60, nil, "watch", "-v", "l")
	at := v.Shows(t, 0, `file:///.*state    .*absent`)
	args := []string{"run", "--holder", "first\x1b[2J", "l", "--", "sh", "-c", "read line"}
	if clitest.UnderTest == leasetest.Object {
		args = slices.Insert(args, 1, "--layout", "epochs") // which is found out when the lock appears
	}
	holder := clitest.Command(t, store, args...)
	release, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	v.Shows(t, at, `elected .*"first\\x1b\[2J"`)
	v.Shows(t, at, `state    .*held`)
	at = v.Shows(t, at, `lease    .*15s, ~?\d+s left`)
	v.Shows(t, at, `renewed `)
	v.Resize(t, 10, 30)
	at = v.Shows(t, at, `\x1b\[H\x1b\[2J\x1b\[1;1H\x1b\[2K[^\n]*file:///.{20,}…`)
	_ = release.Close()
	_ = holder.Wait() // read fails at the end of its input
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	at = v.Shows(t, at, `store    .*no such`)
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	v.Shows(t, at, `store    .*answered 0s ago`)
	v.Press(t, "q")
	v.Ends(t, 0)
}

// A semaphore that appears ends the view of a lock that did not exist. From then on its changes are lines.
func TestSemaphoreAppearsOnTerminal(t *testing.T) {
	t.Parallel()
	if clitest.UnderTest != leasetest.Object {
		t.Skip("the same in every layout")
	}
	store := "file://" + t.TempDir()
	v := clitest.OnTerminal(t, store, 80, nil, "watch", "s")
	at := v.Shows(t, 0, `state    .*absent`)
	holder := clitest.Command(t, store, "run", "--slots", "2", "--holder", "me", "s", "--", "sh", "-c", "read line")
	release, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	at = v.Shows(t, at, regexp.QuoteMeta(watchview.Leave)+`(?s:.*) elected +1 of 2 taken by me  token \d+\r\n`)
	if v.Mode(t).Lflag != v.Before.Lflag {
		t.Error("the terminal is not given back")
	}
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // read fails at the end of its input
	v.Shows(t, at, `resigned +0 of 2 taken  last token \d+\r\n`)
	v.Press(t, "\x03") // the terminal's driver makes a signal of it
	_ = v.Cmd.Wait()
	if code, after := v.Cmd.ProcessState.ExitCode(), v.Mode(t); code != 130 || *after != *v.Before {
		t.Errorf("exit code %d, and the terminal's mode is %+v, and was %+v", code, after, v.Before)
	}
}

// TestMessagesOfTerminalOnView: a view shows messages that would overwrite it. After it ends, they go to the terminal again.
func TestMessagesOfTerminalOnView(t *testing.T) {
	t.Parallel()
	screen, line := clitest.Terminal(t)
	defer func() { _ = line.Close() }()
	var shown []watchview.Event
	c := &console{w: line}
	back := c.divert(func(ev watchview.Event) { shown = append(shown, ev) })
	free := func() bool { // another message can follow
		free := c.mu.TryLock()
		if free {
			c.mu.Unlock()
		}
		return free
	}
	if !free() {
		t.Fatal("no message comes through to the view")
	}
	c.tell("on the view")
	if want := []watchview.Event{watchview.Said{Text: "on the view"}}; !slices.Equal(shown, want) {
		t.Errorf("the view shows %+v, want %+v", shown, want)
	}
	back()
	if !free() {
		t.Fatal("no message comes through after the view")
	}
	c.tell("on the terminal")
	got, err := bufio.NewReader(screen).ReadString('\n') // which a terminal may give in parts
	if err != nil || len(shown) != 1 || got != "leasehold: on the terminal\r\n" {
		t.Errorf("the terminal is sent %q, %v, and the view shows %+v", got, err, shown)
	}
}

// TestViewEndsWithItsTerminal: a view ends with the terminal that it is shown on or controlled by, even if SIGHUP is ignored.
func TestViewEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		keyboard bool // is gone; else the screen
		code     int
		says     string
	}{
		{true, 129, ""},
		{false, exitInternal, "leasehold: cannot write to stdout: input/output error\n"},
	} {
		keyboard, in := clitest.Terminal(t)
		screen, out := clitest.Terminal(t)
		cmd := clitest.Command(t, "file://"+t.TempDir(), "watch", "l")
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`}, cmd.Args...)
		cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1")
		var said bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
		var shown []byte
		for b := make([]byte, 4096); !bytes.Contains(shown, []byte("state    ")); {
			n, err := screen.Read(b)
			if err != nil {
				t.Fatalf("the terminal was sent %q, %v", shown, err)
			}
			shown = append(shown, b[:n]...)
		}
		if tt.keyboard {
			_ = keyboard.Close()
			go func() { _, _ = io.Copy(io.Discard, screen) }()
		} else {
			_ = screen.Close()
		}
		_ = cmd.Wait()
		late.Stop()
		if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(said.String(), tt.says) {
			t.Errorf("without its keyboard %v: it ends with %d, and says %q; want %d and %q", tt.keyboard, code, &said, tt.code, tt.says)
		}
		_ = in.Close()
		_ = out.Close()
	}
}
