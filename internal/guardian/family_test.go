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
		for _, pid := range f.living() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = f.parent.Wait()
		orders.Close()
		events.Close()
		for limit := time.Now().Add(hang); f.cgroup() != "" && time.Now().Before(limit); time.Sleep(time.Millisecond) {
			if err := os.Remove(f.cgroup()); err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
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
