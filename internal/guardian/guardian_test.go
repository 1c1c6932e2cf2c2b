//go:build linux

package guardian_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/guardian"
	"github.com/leasehold/leasehold/internal/testenv"
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

// The environment of the processes of these tests.
const (
	planVar  = "GUARDIAN_TEST_PLAN"  // be a parent, and how
	markVar  = "GUARDIAN_TEST_MARK"  // the same for all processes of one family, to find them by
	sleepVar = "GUARDIAN_TEST_SLEEP" // a file: for how long the machine has been suspended
	bareVar  = "GUARDIAN_TEST_BARE"  // open no more descriptors
)

// hang bounds what would never come.
const hang = 3 * time.Minute

func TestMain(m *testing.M) {
	helper := strings.HasPrefix(os.Args[0], "job-")
	if os.Getenv(markVar) == "" && !helper {
		flag.Parse()
		if err := flag.Set("test.parallel", "8"); err != nil { // they wait for processes
			panic(err)
		}
		testenv.Signals()
		os.Exit(byThemselves(m)) // and no mutation of Main can end it
	}
	if file := os.Getenv(sleepVar); file != "" {
		feignSuspend(file)
	}
	if os.Getenv(bareVar) != "" {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{}); err != nil {
			panic(err)
		}
	}
	guardian.Main()
	plan := os.Getenv(planVar)
	if helper || plan == "" { // as a test it would start the same again, and so on for ever
		fmt.Fprintln(os.Stderr, "started as", os.Args[0], "and Main has not taken over")
		os.Exit(70)
	}
	parent(plan)
}

// byThemselves runs the tests in a cgroup of their own, where one can be made: the jobs of others
// that are tested at the same time would end what is left here.
func byThemselves(m *testing.M) (code int) {
	dir := guardian.CgroupByHand()
	if dir == "" {
		return m.Run()
	}
	enter := func(dir string) error { return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0) }
	if err := enter(dir); err != nil {
		_ = os.Remove(dir)
		return m.Run()
	}
	defer func() {
		if err := errors.Join(enter(filepath.Dir(dir)), removeByHand(dir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return m.Run()
}

// removeByHand ends all that runs in a cgroup that was made by hand, and removes it.
func removeByHand(dir string) error {
	killed := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	for limit := time.Now().Add(hang); ; time.Sleep(5 * time.Millisecond) {
		below, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
		for _, procs := range below {
			_ = os.Remove(filepath.Dir(procs)) // once nothing runs in it any more
		}
		err := os.Remove(dir)
		if err == nil || time.Now().After(limit) {
			return errors.Join(killed, err)
		}
	}
}

func feignSuspend(file string) {
	origin, started := clock.Now(), time.Now()
	clock.Set(func() time.Duration {
		text, _ := os.ReadFile(file)
		slept, _ := time.ParseDuration(string(text))
		return origin + time.Since(started) + slept
	})
}

// A family is a parent, its guardian, the command and its descendants, in a
// directory of their own, which is their mark too.
type family struct {
	t      *testing.T
	dir    string
	exe    string
	parent *exec.Cmd
	orders *os.File
	events *json.Decoder
	told   *os.File // what events reads
	clock  string   // a file: see passes
	first  event
}

// command starts a family; the test goes on when the command runs, or cannot.
func command(t *testing.T, p plan, alter ...func(*exec.Cmd)) *family {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	f := &family{t: t, dir: t.TempDir(), exe: exe, clock: filepath.Join(t.TempDir(), "clock"), parent: exec.CommandContext(context.WithoutCancel(t.Context()), exe)}
	f.parent.Dir, f.parent.Stderr = f.dir, os.Stderr
	f.parent.Env = append(os.Environ(), planVar+"="+string(text), markVar+"="+f.dir, sleepVar+"="+f.clock)
	for _, a := range alter {
		a(f.parent)
	}
	f.launch()
	return f
}

// script is command for a shell script.
//
//nolint:unparam // as for command
func script(t *testing.T, deadline, grace time.Duration, text string, alter ...func(*exec.Cmd)) *family {
	t.Helper()
	f := command(t, plan{Argv: []string{"sh", "-c", text}, Deadline: deadline, Grace: grace}, alter...)
	if !f.first.Started {
		t.Fatalf("the command did not start: %+v", f.first)
	}
	return f
}

func env(keyValue string) func(*exec.Cmd) {
	return func(c *exec.Cmd) { c.Env = append(c.Env, keyValue) }
}

func (f *family) launch() {
	f.t.Helper()
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		f.t.Fatal(err)
	}
	events, theirEvents, err := os.Pipe()
	if err != nil {
		f.t.Fatal(err)
	}
	f.orders, f.events, f.told = orders, json.NewDecoder(events), events
	if f.parent.ExtraFiles == nil {
		f.parent.ExtraFiles = make([]*os.File, 2)
	}
	f.parent.ExtraFiles = append(f.parent.ExtraFiles, theirOrders, theirEvents)
	if err := f.parent.Start(); err != nil {
		f.t.Fatal(err)
	}
	theirOrders.Close()
	theirEvents.Close()
	f.t.Cleanup(func() {
		_ = f.parent.Process.Kill()
		// A process that is killed may just have forked another one, so look until there is none left.
		for limit := time.Now().Add(hang); time.Now().Before(limit); time.Sleep(time.Millisecond) {
			left := f.living()
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			if len(left) == 0 && f.cgroupGone() {
				break
			}
		}
		_ = f.parent.Wait()
		orders.Close()
		events.Close()
	})
	f.first = f.event()
}

// passes sets the clock of the family on: so much time has passed since the start, at least.
func (f *family) passes(d time.Duration) {
	f.t.Helper()
	if err := os.WriteFile(f.clock+".new", []byte(d.String()), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.clock+".new", f.clock); err != nil {
		f.t.Fatal(err)
	}
}

// looks gives the family the time to look at its clock, which it does once a second. On a busy
// machine it may not have looked: then the test has seen less, and does not fail.
func looks() { time.Sleep(1200 * time.Millisecond) }

// works makes sure that so many processes run that heed no SIGTERM.
func (f *family) works(n int) {
	f.t.Helper()
	shells := slices.DeleteFunc(f.living(), func(pid int) bool {
		return !strings.HasPrefix(describe([]int{pid})[0], "sh ") // what sleeps for them may die
	})
	if len(shells) < n {
		f.t.Errorf("of the job there run %v, want %d processes", describe(shells), n)
	}
}

func (f *family) event() event {
	f.t.Helper()
	var e event
	_ = f.told.SetReadDeadline(time.Now().Add(hang))
	if err := f.events.Decode(&e); err != nil {
		f.t.Fatalf("no event from the parent: %v", err)
	}
	return e
}

func (f *family) order(text string) {
	f.t.Helper()
	if _, err := fmt.Fprintln(f.orders, text); err != nil {
		f.t.Fatal(err)
	}
}

// ended waits for the end, by when nothing of the family may run any more.
func (f *family) ended(code int, sig syscall.Signal, expired bool) {
	f.t.Helper()
	got := f.event()
	// The guardian was reaped before. The rest may be the parent, the shell that
	// the test started, and processes without arguments because they are exiting.
	left := slices.DeleteFunc(f.living(), func(pid int) bool {
		argv0, _, _ := strings.Cut(describe([]int{pid})[0], " ")
		return argv0 == f.exe || pid == f.parent.Process.Pid || strings.HasPrefix(argv0, "(")
	})
	if want := (event{Ended: true, Code: code, Signal: sig, Expired: expired}); got != want {
		f.t.Errorf("ended with %+v, want %+v", got, want)
	}
	if len(left) > 0 {
		f.t.Errorf("still running after the end: %v", describe(left))
	}
	if dir := f.cgroup(); dir != "" {
		if _, err := os.Stat(dir); err == nil {
			f.t.Errorf("%s is still there after the end", dir)
		}
	}
}

// cgroup is the directory of the command's cgroup, "" if it has none.
func (f *family) cgroup() string {
	_, dir, _ := strings.Cut(f.first.Means, ", in the cgroup ")
	return dir
}

// cgroupGone removes the family's cgroup, if it has one.
func (f *family) cgroupGone() bool {
	if f.cgroup() == "" {
		return true
	}
	err := os.Remove(f.cgroup())
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// needsCgroup skips the test where the command has no cgroup.
func (f *family) needsCgroup() string {
	f.t.Helper()
	if f.cgroup() == "" && guardian.Makeable() {
		f.t.Fatalf("the command has no cgroup where one can be made: %s", f.first.Means)
	}
	if f.cgroup() == "" {
		f.t.Skipf("no cgroup v2 of its own can be made here: %s", f.first.Means)
	}
	return f.cgroup()
}

// gone waits until nothing of the family runs, all its parents included.
func (f *family) gone(except ...int) {
	f.t.Helper()
	eventually(f.t, func() (bool, string) {
		left := slices.DeleteFunc(f.living(), func(pid int) bool { return slices.Contains(except, pid) })
		return len(left) == 0, "still running: " + fmt.Sprint(describe(left))
	})
}

// living lists the processes of the family that are not zombies.
func (f *family) living() []int { return slices.Clone(lookAround()[f.dir]) }

// A census is one look at all processes of the machine: those that are not zombies, by the families that they are of.
type census struct {
	once  sync.Once
	found map[string][]int
}

var (
	censusMu sync.Mutex // of nextCensus
	counting sync.Mutex
	// nextCensus is the one that has not begun, for all who have asked by then. What each test looked at by itself took
	// most of the time of all tests, and with several copies of them all the time there was.
	nextCensus *census
)

// lookAround gives a census that was begun after the call.
func lookAround() map[string][]int {
	censusMu.Lock()
	if nextCensus == nil {
		nextCensus = new(census)
	}
	c := nextCensus
	censusMu.Unlock()
	c.once.Do(func() {
		counting.Lock()
		defer counting.Unlock()
		censusMu.Lock()
		nextCensus = nil
		censusMu.Unlock()
		c.found = map[string][]int{}
		all, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range all {
			env, err := os.ReadFile(dir + "/environ")
			_, marked, is := strings.Cut("\x00"+string(env), "\x00"+markVar+"=")
			family, _, ended := strings.Cut(marked, "\x00")
			if err != nil || !is || !ended {
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(dir))
			if s := state(pid); s != "" && s != "Z" && s != "X" {
				c.found[family] = append(c.found[family], pid)
			}
		}
	})
	return c.found
}

// called lists the processes of the family that have this argv[0].
func (f *family) called(argv0 string) (pids []int) {
	for _, pid := range f.living() {
		if first, _, _ := strings.Cut(describe([]int{pid})[0], " "); first == argv0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// running is the pid of the process of the family that has this argv[0].
func (f *family) running(argv0 string) int {
	f.t.Helper()
	var pids []int
	eventually(f.t, func() (bool, string) { // in the moment of its exec a process has no name
		pids = f.called(argv0)
		return len(pids) > 0, "there is no " + argv0
	})
	return pids[0]
}

func (f *family) guardian() int {
	f.t.Helper()
	return f.running("job-guardian")
}

func (f *family) watcher() int {
	f.t.Helper()
	return f.running("job-watcher")
}

// lines is what the processes have written to a file, without a part of a line.
func (f *family) lines(file string) []string {
	text, _ := os.ReadFile(filepath.Join(f.dir, file))
	lines := strings.Split(string(text), "\n")
	return lines[:len(lines)-1]
}

// says waits until the file has n lines and returns them.
func (f *family) says(file string, n int) (lines []string) {
	f.t.Helper()
	eventually(f.t, func() (bool, string) {
		lines = f.lines(file)
		return len(lines) >= n, fmt.Sprintf("%s has %q, want %d lines", file, lines, n)
	})
	return lines
}

// me is the pid that a process of the family wrote to the file of that name.
func (f *family) me() int {
	f.t.Helper()
	pid, err := strconv.Atoi(f.says("me", 1)[0])
	if err != nil {
		f.t.Fatal(err)
	}
	return pid
}

func (f *family) silent(file string) {
	f.t.Helper()
	if lines := f.lines(file); len(lines) > 0 {
		f.t.Errorf("%s has %q, want nothing", file, lines)
	}
}

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("kill %d with %v: %v", pid, sig, err)
	}
	if sig == syscall.SIGSTOP { // on a busy machine a thread goes on for a while
		eventually(t, func() (bool, string) { return halted(pid), fmt.Sprintf("process %d goes on", pid) })
	}
}

// halted reports whether all threads of a process are stopped, or it is gone.
func halted(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		id, _ := strconv.Atoi(filepath.Base(task))
		if s := state(id); s != "T" && s != "Z" && s != "" {
			return false
		}
	}
	return true
}

// state is the state of a process as ps shows it, or "".
func state(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[0]
}

func describe(pids []int) (all []string) {
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		all = append(all, fmt.Sprintf("%s(%d, %s)", strings.ReplaceAll(string(line), "\x00", " "), pid, state(pid)))
	}
	return all
}

// eventually waits for a condition, for longer than any machine needs.
// The conditions read what /proc has of all processes of the machine, so the pauses grow with what that takes.
func eventually(t *testing.T, condition func() (bool, string)) {
	t.Helper()
	var took time.Duration
	for limit := time.Now().Add(hang); ; time.Sleep(max(5*time.Millisecond, 3*took)) {
		began := time.Now()
		ok, seen := condition()
		took = time.Since(began)
		if ok {
			return
		}
		if time.Now().After(limit) {
			t.Fatal(seen)
		}
	}
}
