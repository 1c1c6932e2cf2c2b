//go:build linux

package guardian_test

import (
	"bufio"
	"encoding/json"
	"errors"
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

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/guardian"
)

// A plan is what the parent of a family does.
type plan struct {
	Argv     []string
	Deadline time.Duration // from its start
	Grace    time.Duration
	NoCgroup bool
	Child    bool // it has a child of its own before
	Long     bool // it gives an environment that is too long
}

const never = time.Hour // as a deadline: the test does not get there

// An event is what the parent tells the test.
type event struct {
	Means    string
	Started  bool
	Deadline time.Duration // with Started
	Error    string
	Code     int // of the error, or of the end
	TooLate  bool
	Ended    bool
	Signal   syscall.Signal
	Expired  bool
	Left     int  // at the end or without a start: children
	Held     int  // the same: descriptors more than before Start
	Alive    bool // at the end: the command may still be signalled
}

// parent reads orders from descriptor 5, one a line, and writes events to
// descriptor 6; 3 and 4, which the guardian would like, may be taken.
func parent(text string) {
	syscall.CloseOnExec(5)
	syscall.CloseOnExec(6)
	var todo plan
	if err := json.Unmarshal([]byte(text), &todo); err != nil {
		panic(err)
	}
	events := json.NewEncoder(os.NewFile(6, "events"))
	deadline := clock.Now() + todo.Deadline
	_ = os.Unsetenv(planVar)
	env := append(os.Environ(), "TWICE=1", "TWICE=2")
	if todo.Long {
		env = append(env, "LONG="+strings.Repeat("x", 1<<20))
	}
	if todo.Child {
		if err := (&exec.Cmd{Path: "/bin/sleep", Args: []string{"sleep", "1000"}, Env: []string{}, SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}).Start(); err != nil {
			panic(err)
		}
	}
	held := len(descriptors(os.Getpid()))
	p, err := guardian.Start(guardian.Options{Argv: todo.Argv, Env: env, Deadline: deadline, Grace: todo.Grace, NoCgroup: todo.NoCgroup})
	if err != nil {
		e := event{Error: err.Error(), TooLate: errors.Is(err, guardian.ErrTooLate), Held: len(descriptors(os.Getpid())) - held}
		if wrong, ok := errors.AsType[*guardian.CommandError](err); ok {
			e.Code = wrong.Code
		}
		_ = events.Encode(e)
		return
	}
	_ = events.Encode(event{Started: true, Deadline: deadline, Means: p.Means()})
	go func() {
		for in := bufio.NewScanner(os.NewFile(5, "orders")); in.Scan(); {
			obey(p, in.Text())
		}
	}()
	s := p.Wait()
	e := event{Ended: true, Code: s.Code, Signal: s.Signal, Expired: s.Expired, Left: len(childrenOf(os.Getpid())), Held: more(held)}
	e.Alive = !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
	_ = events.Encode(e)
}

// more is how many descriptors this process has more than before, as soon as what reads
// the pipes has seen their end.
func more(held int) int {
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if n := len(descriptors(os.Getpid())); n <= held || time.Now().After(limit) {
			return max(n-held, 0)
		}
	}
}

func obey(p *guardian.Process, order string) {
	verb, arg, _ := strings.Cut(order, " ")
	switch verb {
	case "stop":
		p.Stop()
	case "extend":
		d, _ := time.ParseDuration(arg)
		p.Extend(clock.Now() + d)
	case "signal":
		n, _ := strconv.Atoi(arg)
		_ = p.Signal(syscall.Signal(n))
	}
}

// A command that had ended before Start looked at how it began used to give
// neither a process nor an error.
func TestQuickCommand(t *testing.T) {
	t.Parallel()
	for range 10 {
		command(t, plan{Argv: []string{"true"}, Deadline: never, Grace: time.Minute}).ended(0, 0, false)
	}
}

func TestCannotRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		syscall.ForkLock.RLock() // a child forked now would keep the file open, and exec would fail with "text file busy"
		defer syscall.ForkLock.RUnlock()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, path string
		code       int
		reason     string
	}{
		{"not in PATH", "no-such-command-anywhere", 127, "not found"},
		{"no such file", filepath.Join(dir, "none"), 127, "not found"},
		{"no such interpreter", write("lost", "#!/no/such/interpreter\n", 0o755), 127, "not found"},
		{"not executable", write("data", "x", 0o644), 126, "permission denied"},
		{"a directory", dir, 126, "is a directory"},
		{"not a program", write("text", "x", 0o755), 126, "exec format error: it is no program for this machine; a script needs an interpreter in its first line, such as #!/bin/sh"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, noCgroup := range []bool{false, true} {
				f := command(t, plan{Argv: []string{c.path}, Deadline: never, Grace: time.Minute, NoCgroup: noCgroup})
				want := fmt.Sprintf("cannot run %q: %s", c.path, c.reason)
				if f.first.Code != c.code || f.first.Error != want {
					t.Errorf("got %d, %q, want %d, %q", f.first.Code, f.first.Error, c.code, want)
				}
				f.gone()
			}
		})
	}
}

func TestTooLate(t *testing.T) {
	t.Parallel()
	f := command(t, plan{Argv: []string{"sh", "-c", "echo > ran"}, Deadline: -time.Second, Grace: time.Minute})
	if !f.first.TooLate {
		t.Errorf("got %+v, want too late", f.first)
	}
	f.gone()
	f.silent("ran")
}

// The command must get its arguments and environment byte for byte.
func TestPassedUnchanged(t *testing.T) {
	t.Parallel()
	odd := "a b\n\xff\"'$(x)"
	f := command(t, plan{Argv: []string{"sh", "-c", `printf %s "$1$ODD$TWICE" > got`, "sh", "-x"}, Deadline: never, Grace: time.Minute}, env("ODD="+odd))
	f.ended(0, 0, false)
	if got, _ := os.ReadFile(filepath.Join(f.dir, "got")); string(got) != "-x"+odd+"2" {
		t.Errorf("got %q, want %q", got, "-x"+odd+"2")
	}
}

// The command must have the files that its parent's parent gave, and none of
// the pipes of the parent and the guardian.
func TestFiles(t *testing.T) {
	t.Parallel()
	given, err := os.Create(filepath.Join(t.TempDir(), "given"))
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	sleep := plan{Argv: []string{"sleep", "1000"}, Deadline: never, Grace: time.Minute}
	first := command(t, sleep)
	withMore := command(t, sleep, func(c *exec.Cmd) { c.ExtraFiles = []*os.File{given, nil} })
	// This process may itself have been given some.
	var inherited []string
	for _, fd := range descriptors(os.Getpid()) {
		n, _ := strconv.Atoi(fd)
		if flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			inherited = append(inherited, fd)
		}
	}
	for _, c := range []struct {
		f    *family
		more []string
	}{{first, nil}, {withMore, []string{"3"}}} {
		want := slices.Sorted(slices.Values(append(c.more, inherited...)))
		// Not at once: while it starts, the command has its libraries open.
		eventually(t, func() (bool, string) {
			got := descriptors(c.f.running("sleep"))
			return slices.Equal(got, want), fmt.Sprintf("the command has descriptors %s, want %s", got, want)
		})
	}
}

func descriptors(pid int) (fds []string) {
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range open {
		fds = append(fds, filepath.Base(fd))
	}
	return slices.Sorted(slices.Values(fds))
}

// Its output and its errors are two.
func TestOutputs(t *testing.T) {
	t.Parallel()
	out, errs := newFile(t, "out"), newFile(t, "err")
	f := command(t, plan{Argv: []string{"sh", "-c", "echo out; echo err >&2"}, Deadline: never, Grace: time.Minute}, func(c *exec.Cmd) { c.Stdout, c.Stderr = out, errs })
	f.ended(0, 0, false)
	for file, want := range map[string]string{out.Name(): "out\n", errs.Name(): "err\n"} {
		if got, _ := os.ReadFile(file); string(got) != want {
			t.Errorf("%s has %q, want %q", file, got, want)
		}
	}
}

func newFile(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// By hand neither of the two can be started, and it says so; nor does any other process
// become one of them.
func TestByHand(t *testing.T) {
	t.Parallel()
	const notTaken = 70 // Main has returned
	plan := newFile(t, "plan")
	if _, err := plan.WriteString("{}"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"job-watcher"}, notTaken, ""},
		{[]string{"job-guardian"}, notTaken, ""},
		{[]string{"leasehold", "3"}, notTaken, ""},
		{[]string{"job-watcher", "x"}, 1, "leasehold: job-watcher: bad plan: strconv.Atoi: parsing \"x\": invalid syntax: do not start it by hand\n"},
		{[]string{"job-watcher", "99"}, 1, "leasehold: job-watcher: bad plan: bad file descriptor: do not start it by hand\n"},
		{[]string{"job-guardian", "99", "3"}, 1, "leasehold: job-guardian: bad plan: bad file descriptor: do not start it by hand\n"},
		{[]string{"job-guardian", "3", "x"}, 1, "leasehold: job-guardian: bad plan: strconv.Atoi: parsing \"x\": invalid syntax: do not start it by hand\n"},
	} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Args, cmd.Env, cmd.ExtraFiles = c.args, append(os.Environ(), markVar+"="+t.Name()), []*os.File{plan}
		var said strings.Builder
		cmd.Stderr = &said
		_ = cmd.Run() // its code is looked at
		if code := cmd.ProcessState.ExitCode(); code != c.code || c.says != "" && said.String() != c.says {
			t.Errorf("%q: exit code %d, %q, want %d, %q", c.args, code, said.String(), c.code, c.says)
		}
	}
}

// Where the helpers cannot be started, Start says why and leaves no descriptor, of a
// cgroup, a terminal or a pipe.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	f := command(t, plan{Argv: []string{"true"}, Deadline: never, Long: true}, newTTY(t).login(`exec "$0"`))
	if want := (event{Error: "cannot start the guardian: argument list too long"}); f.first != want {
		t.Errorf("got %+v, want %+v", f.first, want)
	}
	f = command(t, plan{Deadline: never})
	if want := (event{Error: "no command given"}); f.first != want {
		t.Errorf("got %+v, want %+v", f.first, want)
	}
}

// A child that the parent had before is none of the command's: it is neither killed when
// the guardian is, nor waited for.
func TestOtherChild(t *testing.T) {
	t.Parallel()
	f := command(t, plan{Argv: []string{"sleep", "1000"}, Deadline: never, Grace: time.Minute, Child: true})
	kill(t, f.guardian(), syscall.SIGKILL)
	want := event{Ended: true, Code: 137, Signal: syscall.SIGKILL, Left: 1}
	if got := f.event(); got != want {
		t.Errorf("ended with %+v, want %+v", got, want)
	}
}

// Means names those that watch, and the cgroup, or why there is none.
func TestMeans(t *testing.T) {
	t.Parallel()
	for _, noCgroup := range []bool{true, false} {
		f := command(t, plan{Argv: []string{"sleep", "1000"}, Deadline: never, Grace: time.Minute, NoCgroup: noCgroup})
		want := fmt.Sprintf("watched by this process, its watcher (process %d) and its guardian (process %d), in no cgroup of its own: it is not wanted", f.watcher(), f.guardian())
		if !noCgroup {
			want = strings.TrimSuffix(want, "no cgroup of its own: it is not wanted") + "the cgroup " + f.needsCgroup()
		}
		if f.first.Means != want {
			t.Errorf("its means are %q, want %q", f.first.Means, want)
		}
	}
}

// write makes an empty file where the processes of the family are.
func (f *family) write(name string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), nil, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func readlink(path string) string {
	to, _ := os.Readlink(path)
	return to
}
