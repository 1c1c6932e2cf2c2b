//go:build linux

package guardian_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A tty is a terminal with nobody but the test at its keyboard.
type tty struct {
	t        *testing.T
	keyboard *os.File
	line     *os.File
}

func newTTY(t *testing.T) *tty {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	number := 0
	raw, err := keyboard.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	refused := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err = errors.Join(refused, err); err != nil {
		t.Fatal(err)
	}
	line, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	go func() { // its screen
		for b := make([]byte, 1024); ; {
			if _, err := keyboard.Read(b); err != nil {
				return
			}
		}
	}()
	return &tty{t, keyboard, line}
}

func (y *tty) types(keys string) {
	y.t.Helper()
	if _, err := y.keyboard.WriteString(keys); err != nil {
		y.t.Fatal(err)
	}
}

// login makes a shell script the leader of a session on the terminal. $0 in it
// is the parent of a family.
func (y *tty) login(script string) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		c.Args = []string{"bash", "-c", script, c.Path}
		c.Path = "/bin/bash"
		c.Stdin, c.Stdout, c.Stderr = y.line, y.line, y.line
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
}

// foreground reports whether the process is in the foreground of its terminal.
func foreground(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return fields[2] == fields[5]
}

func inState(t *testing.T, pid int, states string) {
	t.Helper()
	eventually(t, func() (bool, string) {
		s := state(pid)
		return strings.Contains(states, s), fmt.Sprintf("process %d is in state %q, want one of %q", pid, s, states)
	})
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := script(t, never, time.Minute, `trap 'exit 4' INT; test -t 0 && test -t 1 && test -t 2; echo $? > tty; echo $$ > me; `+forever,
		y.login(`"$0"; read line; echo "$line" > after`))
	if f.says("tty", 1)[0] != "0" {
		t.Error("the command has no terminal")
	}
	if !foreground(t, f.me()) {
		t.Error("the command is not in the foreground")
	}
	y.types("\x03")
	f.ended(4, 0, false)
	y.types("mine again\n")
	if got := f.says("after", 1)[0]; got != "mine again" {
		t.Errorf("after the command the shell read %q", got)
	}
}

// A command that could not be started was in the foreground for a moment.
func TestTerminalCannotRun(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := command(t, plan{Argv: []string{"/"}, Deadline: never, Grace: time.Minute}, y.login(`"$0"; read line; echo "$line" > after`))
	if f.first.Code != 126 {
		t.Errorf("got %+v, want code 126", f.first)
	}
	y.types("mine again\n")
	f.says("after", 1)
}

// A command with job control of its own leaves a group of its own in the
// foreground when it is killed.
func TestTerminalNested(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := command(t, plan{Argv: []string{"bash", "-c", `set -m; sh -c 'echo $$ > me; exec sleep 1000'; exit`}, Deadline: never, Grace: time.Minute},
		y.login(`"$0"; read line; echo "$line" > after`))
	me := f.me()
	eventually(t, func() (bool, string) { return foreground(t, me), "not in the foreground" })
	f.order("stop")
	f.ended(143, syscall.SIGTERM, true)
	y.types("mine again\n")
	if got := f.says("after", 1)[0]; got != "mine again" {
		t.Errorf("after the command the shell read %q", got)
	}
}

// A command that was killed cannot put the terminal's modes back.
// One that ends by itself leaves them as it likes: it may be stty.
func TestTerminalModes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		end  string
		code int
		sig  syscall.Signal
		raw  bool
	}{
		{"kill -KILL $$", 137, syscall.SIGKILL, false},
		{"exit 0", 0, 0, true},
	} {
		y := newTTY(t)
		f := script(t, never, time.Minute, `stty raw -echo; `+c.end, y.login(`"$0"; echo > after; read line`))
		f.ended(c.code, c.sig, false)
		f.says("after", 1)
		if raw := !y.echoes(); raw != c.raw {
			t.Errorf("%s: the terminal was left raw: %v, want %v", c.end, raw, c.raw)
		}
	}
}

// echoes reports whether the terminal is not raw.
func (y *tty) echoes() bool {
	y.t.Helper()
	modes, err := unix.IoctlGetTermios(int(y.line.Fd()), unix.TCGETS)
	if err != nil {
		y.t.Fatal(err)
	}
	const cooked = unix.ECHO | unix.ICANON
	return modes.Lflag&cooked == cooked
}

func TestHangUp(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := script(t, never, time.Minute, `echo $$ > me; exec sleep 1000`, y.login(`"$0"; exit`))
	f.me()
	y.keyboard.Close()
	f.ended(129, syscall.SIGHUP, false)
}

func TestStopAndContinue(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := script(t, never, time.Minute, `trap 'exit 4' INT; echo $$ > me; `+forever, y.login(`
		set -m
		"$0"; echo $? > stopped
		read line
		fg; echo $? > ended`))
	me := f.me()
	y.types("\x1a")
	if got := f.says("stopped", 1)[0]; got != "148" { // 128 + SIGTSTP
		t.Errorf("the shell saw %s, want 148", got)
	}
	inState(t, me, "T")
	y.types("go on\n")
	inState(t, me, "SR")
	eventually(t, func() (bool, string) { return foreground(t, me), "not in the foreground again" })
	y.types("\x03")
	f.ended(4, 0, false)
	f.says("ended", 1)
}

// Without a shell that could continue it, ^Z must not stop a command for good.
func TestStopWithoutShell(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := script(t, never, time.Minute, `trap 'exit 4' INT; trap 'echo >> conts' CONT; echo $$ > me; `+forever, y.login(`exec "$0"`))
	me := f.me()
	y.types("\x1a")
	f.says("conts", 1)
	eventually(t, func() (bool, string) { return foreground(t, me), "not in the foreground again" })
	y.types("\x03")
	f.ended(4, 0, false)
}

func TestStoppedPastDeadline(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := script(t, time.Hour, 30*time.Minute, `echo $$ > me; `+forever, y.login(`
		set -m
		"$0"; echo $? > stopped
		read line
		fg; echo > ended`))
	me := f.me()
	y.types("\x1a")
	f.says("stopped", 1)
	f.passes(45 * time.Minute)
	inState(t, me, "Z")
	y.types("go on\n")
	f.ended(143, syscall.SIGTERM, true)
}

// A job that the shell has put in the background must leave the terminal alone.
func TestBackground(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := script(t, never, time.Minute, `echo $$ > me; `+forever, y.login(`
		set -m
		"$0"; echo $? > stopped
		bg; stty -echo; echo > going
		read line; echo "$line" > first
		read line`))
	me := f.me()
	y.types("\x1a")
	f.says("going", 1)
	inState(t, me, "SR")
	if foreground(t, me) {
		t.Error("the command took the terminal from the shell")
	}
	y.types("one\n")
	f.says("first", 1)
	job := f.running(f.exe)
	f.order("stop")
	f.ended(143, syscall.SIGTERM, true)
	eventually(t, func() (bool, string) { return strings.Contains("Z", state(job)), "the parent runs" })
	if !foreground(t, f.parent.Process.Pid) {
		t.Error("the shell has lost the terminal")
	}
	if y.echoes() {
		t.Error("the modes that the shell has given it are lost")
	}
}

// In a pipeline, or with another input, the command is in the background until it asks for
// the terminal, by reading or by setting its modes. A shell with job control must not
// notice: it would take the job for stopped.
func TestTerminalOnDemand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ how, asks string }{
		{`"$0" | env -i cat`, `read line; echo "$line" > got`},
		{`"$0" < /dev/null`, `read line < /dev/tty; echo "$line" > got`},
		{`"$0" | env -i cat`, `stty -echo; read line; echo "$line" > got`},
	} {
		t.Run(c.how+" "+c.asks, func(t *testing.T) {
			t.Parallel()
			y := newTTY(t)
			f := script(t, never, time.Minute, `echo $$ > me; `+onceTold+c.asks+"; "+forever,
				y.login(`set -m; `+c.how+`; read line; echo "$line" > after`))
			me := f.me()
			if foreground(t, me) {
				t.Error("it is in the foreground, and has not asked for that")
			}
			f.write("go")
			eventually(t, func() (bool, string) { return foreground(t, me), "not in the foreground" })
			y.types("hello\n")
			if got := f.says("got", 1)[0]; got != "hello" {
				t.Errorf("the command read %q", got)
			}
			f.order("stop")
			f.ended(143, syscall.SIGTERM, true)
			y.types("mine again\n")
			f.says("after", 1)
		})
	}
}

// Where the shell has put the job in the background, a command that asks for the terminal
// stops the job, as it would without a guardian, and gets the terminal with it.
func TestBackgroundAsks(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := script(t, never, time.Minute, `echo $$ > me; `+onceTold+`read line; echo "$line" > got; `+forever, y.login(`
		set -m
		"$0" & wait $!; echo $? > stopped
		read line; echo "$line" > first
		fg; echo > ended`))
	me := f.me()
	f.write("go")
	if got := f.says("stopped", 1)[0]; got != "148" { // 128 + SIGTSTP
		t.Errorf("the shell saw %s, want 148", got)
	}
	y.types("one\n")
	f.says("first", 1)
	eventually(t, func() (bool, string) { return foreground(t, me), "not in the foreground" })
	y.types("two\n")
	if got := f.says("got", 1)[0]; got != "two" {
		t.Errorf("the command read %q", got)
	}
	f.order("stop")
	f.ended(143, syscall.SIGTERM, true)
}

// onceTold lets a script wait for a file. A job that stops leasehold at once could do so before
// that has told the test that the command was started.
const onceTold = "while ! test -e go; do sleep 0.01; done; "

// A command that is stopped while the terminal is not its own stops the job all the same.
func TestStopWithoutTerminal(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := script(t, never, time.Minute, onceTold+`kill -STOP $$; exit 4`, y.login(`set -m; "$0" < /dev/null; echo $? > stopped; fg; echo $? > ended`))
	f.write("go")
	if got := f.says("stopped", 1)[0]; got != "148" { // 128 + SIGTSTP
		t.Errorf("the shell saw %s, want 148", got)
	}
	f.ended(4, 0, false)
	f.says("ended", 1)
}

// The terminal of a job is the one that it can be stopped from, whatever its input is.
func TestTerminalOtherInput(t *testing.T) {
	t.Parallel()
	y, other := newTTY(t), newTTY(t)
	f := script(t, never, time.Minute, `trap 'exit 4' INT; echo $$ > me; `+forever, y.login(`"$0" < `+other.line.Name()))
	eventually(t, func() (bool, string) { return foreground(t, f.me()), "not in the foreground" })
	y.types("\x03")
	f.ended(4, 0, false)
}

// A terminal that is not the process's own is only a file.
func TestForeignTerminal(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := script(t, never, time.Minute, `test -t 0 && test -t 1; echo $? > tty; exit 4`, func(c *exec.Cmd) {
		c.Stdin, c.Stdout = y.line, y.line
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	})
	if f.says("tty", 1)[0] != "0" {
		t.Error("the command has no terminal")
	}
	f.ended(4, 0, false)
}

// The terminal is taken back too where the guardian was killed, with its modes; and while
// the guardian lives, it holds no terminal open but what the command has.
func TestTerminalGuardianKilled(t *testing.T) {
	t.Parallel()
	y := newTTY(t)
	f := script(t, never, time.Minute, `stty raw -echo; echo > ready; `+forever, y.login(`"$0"; read line; echo "$line" > after`))
	f.says("ready", 1)
	g := f.guardian()
	for _, fd := range descriptors(g) {
		if to := readlink(fmt.Sprintf("/proc/%d/fd/%s", g, fd)); to == "/dev/tty" {
			t.Errorf("the guardian holds %s open", to)
		}
	}
	kill(t, g, syscall.SIGKILL)
	f.ended(137, syscall.SIGKILL, false)
	if !y.echoes() {
		t.Error("the terminal was left raw")
	}
	y.types("mine again\n")
	f.says("after", 1)
}
