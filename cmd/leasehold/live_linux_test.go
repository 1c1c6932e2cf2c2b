package main

import (
	"bytes"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/watchview"
)

// A viewer is a leasehold on a terminal of its own.
type viewer struct {
	cmd    *osexec.Cmd
	screen *os.File
	line   *os.File // the other end
	before *unix.Termios

	mu   sync.Mutex
	seen bytes.Buffer
	read chan struct{} // closed when the terminal has no writer any more
}

// onTerminal starts leasehold in the foreground of a new terminal with 24 rows.
func onTerminal(t *testing.T, store string, columns uint16, variables []string, args ...string) *viewer {
	t.Helper()
	v := &viewer{read: make(chan struct{})}
	v.screen, v.line = terminal(t)
	t.Cleanup(func() { _ = v.line.Close() })
	v.resize(t, 24, columns)
	v.before = v.mode(t)
	v.cmd = leaseholdCommand(t, store, args...)
	v.cmd.Env = append(append(v.cmd.Env, "TERM=xterm", "NO_COLOR="), variables...)
	v.cmd.Stdin, v.cmd.Stdout, v.cmd.Stderr = v.line, v.line, v.line
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.cmd.Process.Kill() })
	go func() {
		defer close(v.read)
		for b := make([]byte, 4096); ; {
			n, err := v.screen.Read(b)
			v.mu.Lock()
			v.seen.Write(b[:n])
			v.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return v
}

func (v *viewer) resize(t *testing.T, rows, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(v.line.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		t.Fatal(err)
	}
}

func (v *viewer) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(v.screen, keys); err != nil {
		t.Fatal(err)
	}
}

func (v *viewer) text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen.String()
}

// shows waits until what was sent to the terminal, from the offset on, matches; it gives the
// offset of the end.
func (v *viewer) shows(t *testing.T, from int, pattern string) int {
	t.Helper()
	want := regexp.MustCompile(pattern)
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if at := want.FindStringIndex(v.text()[from:]); at != nil {
			return from + at[1]
		}
		if time.Now().After(limit) {
			t.Fatalf("the terminal was not sent %q, but %q", pattern, v.text()[from:])
		}
	}
}

// ends waits for the end, checks the exit code, and that the terminal is what it was.
func (v *viewer) ends(t *testing.T, code int) {
	t.Helper()
	_ = v.cmd.Wait()
	if got := v.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	if after := v.mode(t); *after != *v.before {
		t.Errorf("the terminal's mode is %+v, and was %+v", after, v.before)
	}
	_ = v.line.Close()
	<-v.read
	text := v.text()
	if strings.Count(text, watchview.Enter) != strings.Count(text, watchview.Leave) || !strings.HasSuffix(text, watchview.Leave) {
		t.Errorf("the terminal is not left as it was: %q", text)
	}
}

func (v *viewer) mode(t *testing.T) *unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(v.line.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return mode
}

// withRecords is for locks that are there when nobody holds them.
func withRecords(t *testing.T) {
	t.Helper()
	if !underTest.Tokens() {
		t.Skip("a marker that is gone is free, and there is nothing to see")
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
	v := onTerminal(t, store, 60, nil, "watch", "l")
	at := v.shows(t, 0, `file:///.*state    .*absent`)
	holder := leaseholdCommand(t, store, "run", "--holder", "first\x1b[2J", "--ttl", "3s", "l", "--", "sh", "-c", "read line")
	release, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	v.shows(t, at, `elected .*"first\\x1b\[2J"`)
	v.shows(t, at, `state    .*held`)
	at = v.shows(t, at, `lease    .*3s, ~?[123]s left`)
	v.resize(t, 10, 30)
	at = v.shows(t, at, `\x1b\[H\x1b\[2J\x1b\[1;1H\x1b\[2K[^\n]*file:///.{20,}…`)
	_ = release.Close()
	_ = holder.Wait() // read fails at the end of its input
	at = v.shows(t, at, `state    .*free`)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	at = v.shows(t, at, `store    .*no such`)
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	v.shows(t, at, `store    .*answered 0s ago`)
	v.press(t, "q")
	v.ends(t, 0)
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
		if out, err := leaseholdCommand(t, store, "init", name).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	v := onTerminal(t, store, 80, []string{"NO_COLOR=1"}, "watch", "--every", "1s", "jobs/")
	v.shows(t, 0, `jobs/a +free +- +`)
	seen := v.shows(t, 0, `jobs/b +free +- +`)
	holder := leaseholdCommand(t, store, "run", "--holder", "me", "jobs/b", "--", "sh", "-c", "read line")
	release, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	v.shows(t, seen, `jobs/b +held +me +`)
	_ = release.Close()
	_ = holder.Wait() // read fails at the end of its input
	if err := os.Rename(at, at+".away"); err != nil {
		t.Fatal(err)
	}
	seen = v.shows(t, seen, `store    no such bucket or directory: [\s\S]* answered \d+s ago`)
	if err := os.Rename(at+".away", at); err != nil {
		t.Fatal(err)
	}
	v.shows(t, seen, `store    answered 0s ago`)
	v.press(t, "\x03")
	v.ends(t, 130)
	if text := v.text(); strings.Contains(text, "other") || regexp.MustCompile(`\x1b\[\d*m`).MatchString(text) {
		t.Errorf("another lock, or colours: %q", text)
	}
}

// ^Z gives the terminal back until the process goes on; this one, which no shell could let go
// on, does so at once. A signal ends the view as it ends the
// lines. After another stop all is drawn anew. The terminal does not know how wide it is.
func TestWatchSuspended(t *testing.T) {
	t.Parallel()
	v := onTerminal(t, "file://"+t.TempDir(), 0, nil, "watch", "l")
	seen := v.shows(t, 0, `state `)
	v.press(t, "\x1a")
	seen = v.shows(t, seen, regexp.QuoteMeta(watchview.Leave+watchview.Enter)+`[\s\S]*state `)
	for _, sig := range []os.Signal{unix.SIGSTOP, unix.SIGCONT} {
		if err := v.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	v.shows(t, seen, `\x1b\[H\x1b\[2J[\s\S]*state `)
	if err := v.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	v.ends(t, 143)
}

// A terminal that cannot move its cursor gets lines.
func TestWatchLinesOnTerminal(t *testing.T) {
	t.Parallel()
	v := onTerminal(t, "file://"+t.TempDir(), 80, []string{"TERM=dumb"}, "watch", "jobs/")
	v.shows(t, 0, `watching jobs/: a refresh each 5s`)
	if v.mode(t).Lflag != v.before.Lflag {
		t.Error("the terminal was taken over")
	}
	v.press(t, "\x03") // by the terminal's own driver
	_ = v.cmd.Wait()
	if code := v.cmd.ProcessState.ExitCode(); code != 130 || strings.Contains(v.text(), "\x1b") {
		t.Errorf("exit code %d, and %q", code, v.text())
	}
}

// A semaphore has no view: on a terminal too its changes are lines, also where there was none at first.
func TestLiveSemaphore(t *testing.T) {
	t.Parallel()
	if underTest != leasehold.LayoutObject {
		t.Skip("the same in every layout")
	}
	store := "file://" + t.TempDir()
	v := onTerminal(t, store, 80, []string{"LEASEHOLD_LAYOUT="}, "watch", "s") // whoever names one means a lock
	at := v.shows(t, 0, "absent")
	holder := leaseholdCommand(t, store, "run", "--slots", "2", "--holder", "me", "s", "--", "sh", "-c", "read line")
	release, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	at = v.shows(t, at, regexp.QuoteMeta(watchview.Leave)+`(?s:.*) elected +1 of 2 taken by me  token \d+\r\n`)
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // read fails at the end of its input
	v.shows(t, at, `resigned +0 of 2 taken  last token \d+\r\n`)
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = v.cmd.Wait()
	if code, after := v.cmd.ProcessState.ExitCode(), v.mode(t); code != 143 || *after != *v.before {
		t.Errorf("exit code %d, and the terminal's mode is %+v, and was %+v", code, after, v.before)
	}
}
