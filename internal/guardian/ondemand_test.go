//go:build linux

package guardian_test

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

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
