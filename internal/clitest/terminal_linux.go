package clitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/watchview"
)

// Terminal gives both ends of a new one.
func Terminal(t *testing.T) (screen, line *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	raw, err := screen.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	refused := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err = errors.Join(refused, err); err != nil {
		t.Fatal(err)
	}
	line, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, line
}

// A Viewer is a leasehold on a terminal of its own.
type Viewer struct {
	Cmd    *exec.Cmd
	screen *os.File
	line   *os.File // the other end
	Before *unix.Termios

	mu   sync.Mutex
	seen bytes.Buffer
	read chan struct{} // closed when the terminal has no writer any more
}

// OnTerminal starts leasehold in the foreground of a new terminal with 24 rows.
func OnTerminal(t *testing.T, store string, columns uint16, variables []string, args ...string) *Viewer {
	t.Helper()
	v := &Viewer{read: make(chan struct{})}
	v.screen, v.line = Terminal(t)
	t.Cleanup(func() { _ = v.line.Close() })
	v.Resize(t, 24, columns)
	v.Before = v.Mode(t)
	v.Cmd = Command(t, store, args...)
	v.Cmd.Env = append(append(v.Cmd.Env, "TERM=xterm", "NO_COLOR="), variables...)
	v.Cmd.Stdin, v.Cmd.Stdout, v.Cmd.Stderr = v.line, v.line, v.line
	v.Cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := v.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Cmd.Process.Kill() })
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

// Resize gives the terminal another size.
func (v *Viewer) Resize(t *testing.T, rows, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(v.line.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		t.Fatal(err)
	}
}

// Press types keys.
func (v *Viewer) Press(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(v.screen, keys); err != nil {
		t.Fatal(err)
	}
}

// Text is all that was written so far.
func (v *Viewer) Text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen.String()
}

// Shows waits until what was sent to the terminal, from the offset on, matches; it gives the
// offset of the end.
func (v *Viewer) Shows(t *testing.T, from int, pattern string) int {
	t.Helper()
	want := regexp.MustCompile(pattern)
	for limit := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if at := want.FindStringIndex(v.Text()[from:]); at != nil {
			return from + at[1]
		}
		if time.Now().After(limit) {
			t.Fatalf("the terminal was not sent %q, but %q", pattern, v.Text()[from:])
		}
	}
}

// Ends waits for the end, checks the exit code, and that the terminal is what it was.
func (v *Viewer) Ends(t *testing.T, code int) {
	t.Helper()
	_ = v.Cmd.Wait()
	if got := v.Cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	if after := v.Mode(t); *after != *v.Before {
		t.Errorf("the terminal's mode is %+v, and was %+v", after, v.Before)
	}
	_ = v.line.Close()
	<-v.read
	text := v.Text()
	if strings.Count(text, watchview.Enter) != strings.Count(text, watchview.Leave) || !strings.HasSuffix(text, watchview.Leave) {
		t.Errorf("the terminal is not left as it was: %q", text)
	}
}

// Mode gives the settings of the terminal.
func (v *Viewer) Mode(t *testing.T) *unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(v.line.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return mode
}
