//go:build linux

package guardian_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/guardian"
)

// strays starts everything that a process can leave behind, none of which
// heeds SIGTERM, and then writes to the file strays.
const strays = `
	stray() { trap '' TERM; echo >> started; while :; do sleep 1000; done; }
	(stray) &                                         # in the group
	(trap '' TERM; setsid sh -c 'trap "" TERM; echo >> started; while :; do sleep 1000; done') & # in a session of its own
	(setsid sh -c 'trap "" TERM; (echo >> started; while :; do sleep 1000; done) & exit 0') &     # forked twice, its parent gone
	(setsid sh -c 'trap "" TERM; echo >> started; kill -STOP $$; sleep 1000') &                   # stopped
	while [ "$(cat started 2>/dev/null | wc -l)" -lt 4 ]; do sleep 0.01; done
	echo $$ > strays
`

const forever = `while :; do sleep 1000 & wait $!; done`

func TestExitStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script string
		code   int
		sig    syscall.Signal
	}{
		{"exit 0", 0, 0},
		{"exit 7", 7, 0},
		{"exit 255", 255, 0},
		{"kill -TERM $$", 143, syscall.SIGTERM},
		{"kill -KILL $$", 137, syscall.SIGKILL},
		{"ulimit -c 0; kill -QUIT $$", 131, syscall.SIGQUIT},
	} {
		t.Run(c.script, func(t *testing.T) {
			t.Parallel()
			script(t, never, time.Minute, c.script).ended(c.code, c.sig, false)
		})
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	f := script(t, time.Hour, 30*time.Minute, `trap 'echo >> terms' TERM`+strays+forever)
	f.says("strays", 1)
	f.silent("terms")
	f.passes(45 * time.Minute)
	f.says("terms", 1)
	f.order("extend 10h") // what was begun is finished
	looks()
	f.works(5)
	f.passes(2 * time.Hour)
	f.ended(137, syscall.SIGKILL, true)
	if n := len(f.lines("terms")); n != 1 {
		t.Errorf("the command had %d SIGTERM, want 1", n)
	}
}

func TestGraceIsUsed(t *testing.T) {
	t.Parallel()
	f := script(t, time.Hour, 30*time.Minute, `trap 'exit 3' TERM; echo > ready; `+forever)
	f.says("ready", 1)
	f.passes(45 * time.Minute)
	f.ended(3, 0, true) // and the deadline, which the test never reaches, was not waited for
}

func TestExtend(t *testing.T) {
	t.Parallel()
	f := script(t, time.Hour, 10*time.Minute, `trap 'echo >> terms; exit 3' TERM; echo > ready; `+forever)
	f.says("ready", 1)
	f.order("extend 3h")
	f.order("extend 1h") // it has a later one
	looks()
	f.passes(2 * time.Hour)
	looks()
	f.silent("terms")
	f.order("stop")
	f.ended(3, 0, true)
}

func TestStop(t *testing.T) {
	t.Parallel()
	f := script(t, never, 30*time.Minute, `trap 'echo >> terms' TERM`+strays+forever)
	f.says("strays", 1)
	f.order("stop")
	f.says("terms", 1)
	f.order("extend 2h") // what was begun is finished
	f.works(5)
	f.passes(45 * time.Minute)
	f.ended(137, syscall.SIGKILL, true)
}

func TestStopContinuesStopped(t *testing.T) {
	t.Parallel()
	f := script(t, never, time.Minute, `trap 'exit 3' TERM; echo $$ > me; kill -STOP $$; `+forever)
	me := f.me()
	eventually(t, func() (bool, string) { return state(me) == "T", "not stopped" })
	f.order("stop")
	f.ended(3, 0, true)
}

func TestParentKilled(t *testing.T) {
	t.Parallel()
	said := newFile(t, "stderr")
	f := script(t, never, 30*time.Minute, `trap 'echo >> terms' TERM`+strays+forever, func(c *exec.Cmd) { c.Stderr = said })
	f.says("strays", 1)
	kill(t, f.parent.Process.Pid, syscall.SIGKILL)
	f.says("terms", 1)
	f.works(5)
	f.passes(45 * time.Minute)
	f.gone()
	if text, _ := os.ReadFile(said.Name()); strings.Contains(string(text), "job-") { // the shell has its say too
		t.Errorf("the helpers said %q", text)
	}
}

func TestParentStopped(t *testing.T) {
	t.Parallel()
	f := script(t, time.Hour, 30*time.Minute, `trap 'echo >> terms' TERM`+strays+forever)
	f.says("strays", 1)
	kill(t, f.parent.Process.Pid, syscall.SIGSTOP)
	f.silent("terms")
	f.passes(45 * time.Minute)
	f.says("terms", 1)
	f.works(5)
	f.passes(2 * time.Hour)
	// The watcher waits for the parent to understand, the guardian too if it lives.
	f.gone(append(f.called("job-guardian"), f.parent.Process.Pid, f.watcher())...)
	if !guardian.Rests(f.watcher()) {
		t.Error("the watcher does not sleep while it waits for the parent")
	}
	kill(t, f.parent.Process.Pid, syscall.SIGCONT)
	f.ended(137, syscall.SIGKILL, true)
}

func TestGuardianKilled(t *testing.T) {
	t.Parallel()
	f := script(t, never, time.Minute, strays+forever)
	f.says("strays", 1)
	kill(t, f.guardian(), syscall.SIGKILL)
	f.ended(137, syscall.SIGKILL, false)
}

// While the parent cannot act, the guardian's death must be the command's own. As the
// parent may signal the command's group, nobody else may have its number meanwhile: the
// watcher reaps what the command leaves, and not the command.
func TestGuardianKilledParentStopped(t *testing.T) {
	t.Parallel()
	f := script(t, never, time.Minute, `sleep 1000 & echo $! > left; echo $$ > me; exec sleep 1000`)
	me := f.me()
	left, err := strconv.Atoi(f.says("left", 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	kill(t, f.parent.Process.Pid, syscall.SIGSTOP)
	kill(t, f.guardian(), syscall.SIGKILL)
	eventually(t, func() (bool, string) { return state(left) == "", "what the command has left is there" })
	if s := state(me); s != "Z" {
		t.Errorf("the command is in state %q, want a zombie", s)
	}
	kill(t, f.parent.Process.Pid, syscall.SIGCONT)
	f.ended(137, syscall.SIGKILL, false)
}

func TestGuardianStopped(t *testing.T) {
	t.Parallel()
	f := script(t, time.Hour, 10*time.Minute, strays+forever)
	f.says("strays", 1)
	kill(t, f.guardian(), syscall.SIGSTOP)
	f.passes(45 * time.Minute)
	looks()
	f.works(5)
	f.passes(2 * time.Hour)
	f.ended(137, syscall.SIGKILL, true)
}

func TestCommandLeavesProcesses(t *testing.T) {
	t.Parallel()
	f := script(t, never, 30*time.Minute, `
		(trap 'echo >> terms; exit' TERM; echo >> ready; `+forever+`) &
		(setsid sh -c "trap 'echo >> terms; exit' TERM; echo >> ready; while :; do sleep 1000 & wait \$!; done") &
		while [ "$(cat ready 2>/dev/null | wc -l)" -lt 2 ]; do sleep 0.01; done`+strays+`exit 5`)
	f.says("terms", 2)
	f.passes(45 * time.Minute)
	f.ended(5, 0, false)
	if n := len(f.lines("terms")); n != 2 {
		t.Errorf("%d of 2 processes had their SIGTERM, once each", n)
	}
}

// Many processes that each fork and leave, while they are being killed, and no
// cgroup that would kill them in one stroke.
func TestForksWhileDying(t *testing.T) {
	t.Parallel()
	f := command(t, plan{NoCgroup: true, Deadline: never, Grace: 100 * time.Millisecond, Argv: []string{"sh", "-c", `
		trap '' TERM
		spawn() { i=0; while [ $i -lt 100 ]; do (setsid sh -c 'sh -c "sleep 1000 & sleep 1000" & sleep 0.2' &) ; i=$((i+1)); echo >> spawned; done; }
		spawn & spawn & wait; ` + forever}})
	eventually(t, func() (bool, string) { // not by a look at /proc: on a busy machine it would come when thousands run
		lines, _ := os.ReadFile(filepath.Join(f.dir, "spawned"))
		return len(lines) > 20, "too few"
	})
	f.order("stop")
	f.ended(137, syscall.SIGKILL, true)
}

// Each shell has its child before it has a trap, and starts none after it is ready: a child that
// was just forked would take the signal for the shell, and live.
func TestSignalReachesGroup(t *testing.T) {
	t.Parallel()
	f := script(t, never, time.Minute, `
		sleep 1000 & child=$!
		(sleep 1000 & child=$!
			trap '' TERM; trap 'echo >> usr1; exit' USR1; echo >> ready
			while :; do wait $child; done) &
		trap 'echo >> usr1; exit 4' USR1; echo >> ready
		while :; do wait $child; done`)
	f.says("ready", 2)
	f.order("signal " + strconv.Itoa(int(syscall.SIGUSR1)))
	f.ended(4, 0, false)
	if n := len(f.lines("usr1")); n != 2 {
		t.Errorf("%d of 2 processes had the signal", n)
	}
}

// No signal but SIGKILL and SIGSTOP ends or stops the guardian or the watcher, and
// the command must not be deaf to any for that. SIGUSR1 used to end the guardian.
func TestGuardianHearsNoSignal(t *testing.T) {
	t.Parallel()
	said := newFile(t, "stderr")
	f := script(t, never, time.Minute, `trap 'exit 3' USR1; echo $$ > me; `+forever, func(c *exec.Cmd) { c.Stderr = said })
	me := f.me()
	if ignored := ignores(t, me); ignored != 0 {
		t.Errorf("the command ignores signals %b, want none", ignored)
	}
	if blocked := statusField(t, me, "SigBlk"); blocked != "0000000000000000" {
		t.Errorf("the command blocks signals %s, want none", blocked)
	}
	for _, pid := range []int{f.guardian(), f.watcher()} {
		eventually(t, func() (bool, string) { return state(pid) == "S", "it is busy" })
		for sig := syscall.Signal(1); sig <= 64; sig++ {
			if sig != syscall.SIGKILL && sig != syscall.SIGSTOP && (sig < 32 || sig > 34) { // C libraries' own, which Go leaves alone
				kill(t, pid, sig)
			}
		}
		eventually(t, func() (bool, string) {
			return statusField(t, pid, "ShdPnd") == "0000000000000000", "signals are pending"
		})
		if s := state(pid); s != "S" && s != "R" {
			t.Errorf("process %d is in state %s after all signals", pid, s)
		}
	}
	f.order("signal " + strconv.Itoa(int(syscall.SIGUSR1)))
	f.ended(3, 0, false)
	if text, err := os.ReadFile(said.Name()); err != nil || strings.Contains(string(text), "goroutine") {
		t.Errorf("a signal has ended one of them: %s, %v", text, err)
	}
}

// Under nohup the command must go on ignoring the hang-up.
func TestNohup(t *testing.T) {
	t.Parallel()
	f := script(t, never, time.Minute, "echo $$ > me; exec sleep 1000", func(c *exec.Cmd) {
		c.Args = []string{"sh", "-c", `trap '' HUP; exec "$0"`, c.Path}
		c.Path = "/bin/sh"
	})
	if ignored := ignores(t, f.me()); ignored != 1<<(syscall.SIGHUP-1) {
		t.Errorf("the command ignores signals %b, want SIGHUP alone", ignored)
	}
}

// The timers of a process stand still during suspend; the deadline does not.
func TestSuspend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		stop func(f *family) []int
	}{
		{"guardian acts", func(f *family) []int { return []int{f.parent.Process.Pid, f.watcher()} }},
		{"watcher acts", func(f *family) []int { return []int{f.parent.Process.Pid, f.guardian()} }},
		{"parent acts", func(f *family) []int { return []int{f.watcher(), f.guardian()} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := script(t, never, time.Minute, `echo $$ > me; `+forever)
			me := f.me()
			for _, pid := range c.stop(f) {
				kill(t, pid, syscall.SIGSTOP)
			}
			f.passes(2 * time.Hour)
			eventually(t, func() (bool, string) { return state(me) == "Z" || state(me) == "", "the command runs" })
			kill(t, f.parent.Process.Pid, syscall.SIGCONT)
			f.ended(137, syscall.SIGKILL, true)
		})
	}
}

// ignores is the set of signals, from 1 up in its bits, that a process ignores: of
// the standard ones, since the C library keeps those above for itself.
func ignores(t *testing.T, pid int) uint64 {
	t.Helper()
	set, err := strconv.ParseUint(statusField(t, pid, "SigIgn"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set & (1<<31 - 1)
}

func statusField(t *testing.T, pid int, field string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, field+":") })
	return strings.TrimSpace(strings.TrimPrefix(lines[i], field+":"))
}
