//go:build linux

package guardian

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
)

// A lone is a guardian or a watcher by itself, with the test in the place of the others.
type lone struct {
	t       *testing.T
	cmd     *exec.Cmd
	orders  []*os.File // to the guardian, to the watcher
	reports *os.File
	words   *os.File // from the guardian to the watcher
	full    func()   // fills the pipe of the reports
}

// startAlone starts one; name is its title.
func startAlone(t *testing.T, name string, todo plan, alter ...func(*exec.Cmd)) *lone {
	t.Helper()
	l := &lone{t: t, cmd: exec.CommandContext(t.Context(), "/proc/self/exe")}
	l.cmd.Args = []string{name, "3"}
	if name == titleGuardian {
		l.cmd.Args = append(l.cmd.Args, "7")
	}
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	l.files(&todo)
	for _, a := range alter {
		a(l.cmd)
	}
	// Another description of the pipe: whether writing to it waits is for the guardian to say. It is opened before the
	// guardian is there, since Fd makes writing to the one that the guardian gets wait.
	full, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(l.cmd.ExtraFiles[3].Fd())), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(full) })
	if err = l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		_, _ = l.cmd.Process.Wait()
	})
	l.full = func() {
		for err = nil; err == nil; {
			_, err = unix.Write(full, []byte("\n"))
		}
	}
	closeAll(l.cmd.ExtraFiles)
	return l
}

// files makes what it is given from descriptor 3 on: the plan, orders to both, reports,
// words, its life, and the cgroup if it has one.
func (l *lone) files(todo *plan) {
	l.t.Helper()
	brief, err := nameless()
	if err != nil {
		l.t.Fatal(err)
	}
	l.cmd.ExtraFiles = []*os.File{brief}
	ours := make([]*os.File, 5)
	for i := range ours {
		r, w, failed := os.Pipe()
		if failed != nil {
			l.t.Fatal(failed)
		}
		if i < 2 {
			r, w = w, r
		}
		ours[i] = r
		l.cmd.ExtraFiles = append(l.cmd.ExtraFiles, w)
	}
	l.t.Cleanup(func() { closeAll(ours) })
	l.orders, l.reports, l.words = ours[:2], ours[2], ours[3]
	todo.GuardianFD, todo.WatcherFD, todo.ReportFD, todo.LifeFD = 4, 5, 6, 8
	if todo.Cgroup != nil {
		dir, failed := os.Open(todo.Cgroup.Dir)
		if failed != nil {
			l.t.Fatal(failed)
		}
		todo.Cgroup.FD = 9
		l.cmd.ExtraFiles = append(l.cmd.ExtraFiles, dir)
	}
	if err = todo.write(brief); err != nil {
		l.t.Fatal(err)
	}
}

func next[T any](t *testing.T, messages <-chan T) (m T) {
	t.Helper()
	select {
	case m = <-messages:
	case <-time.After(hang):
		t.Fatal("no message has come")
	}
	return m
}

// exits lets the orders end, and waits for the end of the process.
func (l *lone) exits() {
	l.t.Helper()
	closeAll(l.orders)
	ended := make(chan error, 1)
	go func() { ended <- l.cmd.Wait() }()
	if err := next(l.t, ended); err != nil {
		l.t.Errorf("it ended with %v, want 0", err)
	}
}

// The guardian tells the watcher and the parent of the command, and then of its end;
// which it leaves unreaped, and waits itself for the end of the orders.
func TestGuardianAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := startAlone(t, titleGuardian, plan{
		limit: limit{Deadline: clock.Now() + time.Hour, Grace: time.Minute}, Cgroup: &cgroup{Dir: dir},
		Argv: [][]byte{[]byte("sleep"), []byte("1000")},
	})
	reports := receive[report](l.reports)
	started := next(t, reports)
	if started.Started == 0 || started.Guardian != l.cmd.Process.Pid || !strings.HasPrefix(started.Alone, "cannot start in "+dir+": ") {
		t.Errorf("the parent was told %+v", started)
	}
	if said := next(t, receive[word](l.words)); said.Command != started.Started {
		t.Errorf("the watcher was told %+v, the parent %+v", said, started)
	}
	send(l.orders[0], order{Stop: true})
	want := report{Ended: &ended{syscall.WaitStatus(unix.SIGTERM), true}}
	if got := next(t, reports); got.Ended == nil || *got.Ended != *want.Ended {
		t.Errorf("the parent was told %+v of the end, want %+v", got, want)
	}
	if !waitState(started.Started, "Z") {
		t.Error("the command is not left to be signalled by the parent")
	}
	if !Rests(l.cmd.Process.Pid) {
		t.Error("the guardian does not sleep while it waits for the parent")
	}
	l.exits()
}

// Rests waits for all threads of a process to sleep for some time.
func Rests(pid int) bool {
	asleep := 0
	for end := time.Now().Add(hang); asleep < 30 && time.Now().Before(end); time.Sleep(ms) {
		asleep++
		threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
		for _, thread := range threads {
			stat, _ := os.ReadFile(thread)
			if !strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " S") {
				asleep = 0
			}
		}
	}
	return asleep >= 30
}

// waitState waits for a process to be in a state.
func waitState(pid int, state string) bool {
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(ms) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if errors.Is(err, os.ErrNotExist) {
			return false
		}
		if strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " "+state) {
			return true
		}
	}
	return false
}

// A parent that reads no reports does not keep the guardian from its work.
func TestGuardianReportsToNobody(t *testing.T) {
	t.Parallel()
	l := startAlone(t, titleGuardian, plan{limit: limit{Deadline: clock.Now() + time.Hour, Grace: time.Minute}, Argv: [][]byte{[]byte("sleep"), []byte("1000")}})
	next(t, receive[word](l.words)) // and so it is at work
	l.full()
	send(l.orders[0], order{Stop: true})
	l.exits()
}

// The last report is not dropped where others would be: a parent that reads again hears of the end.
func TestGuardianReportsTheEnd(t *testing.T) {
	t.Parallel()
	l := startAlone(t, titleGuardian, plan{limit: limit{Deadline: clock.Now() + time.Hour, Grace: time.Minute}, Argv: [][]byte{[]byte("sleep"), []byte("1000")}})
	command := next(t, receive[word](l.words)).Command
	l.full()
	send(l.orders[0], order{Stop: true})
	if !waitState(command, "Z") {
		t.Fatal("the command has not ended")
	}
	time.Sleep(3 * patience) // for longer than a message that may be dropped is tried for
	reports := receive[report](l.reports)
	if got := next(t, reports); got.Started != command {
		t.Errorf("the parent was told %+v at first", got)
	}
	if got := next(t, reports); got.Ended == nil {
		t.Errorf("the parent was told %+v, want of the end", got)
	}
	l.exits()
}

// The watcher starts the guardian, which starts the command, and ends when both have.
func TestWatcherAlone(t *testing.T) {
	t.Parallel()
	l := startAlone(t, titleWatcher, plan{limit: limit{Deadline: clock.Now() + time.Hour, Grace: time.Minute}, Argv: [][]byte{[]byte("sleep"), []byte("1000")}})
	reports := receive[report](l.reports)
	if got := next(t, reports); got.Started == 0 || got.Guardian == 0 || got.Guardian == l.cmd.Process.Pid {
		t.Errorf("the parent was told %+v", got)
	}
	l.exits()
	if got := next(t, reports); got.Ended == nil || !got.Ended.Expired {
		t.Errorf("the parent was told %+v, want of the end", got)
	}
}

// A watcher that cannot start the guardian says why, and ends.
func TestWatcherCannotStart(t *testing.T) {
	t.Parallel()
	l := startAlone(t, titleWatcher, plan{limit: limit{Deadline: clock.Now() + time.Hour}, Argv: [][]byte{[]byte("true")}}, func(c *exec.Cmd) {
		c.Env = append(os.Environ(), "GUARDIAN_TEST_BARE=yes")
	})
	if got, want := next(t, receive[report](l.reports)), (report{Broken: "too many open files"}); got != want {
		t.Errorf("the parent was told %+v, want %+v", got, want)
	}
	l.exits()
}

// A complaint to a closed stderr ends no guardian, and one to a full pipe does not keep it.
func TestClosedStderr(t *testing.T) {
	t.Parallel()
	const complainer = "GUARDIAN_TEST_COMPLAINS"
	if os.Getenv(complainer) != "" {
		deafen()
		complain("nobody hears this")
		os.Exit(3)
	}
	heard, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	heard.Close()
	defer stderr.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClosedStderr$") //nolint:gosec // this test
	cmd.Env, cmd.Stderr = append(os.Environ(), complainer+"=1"), stderr
	if err = cmd.Run(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v", err)
	}

	unread, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	defer full.Close()
	_ = full.SetWriteDeadline(time.Now().Add(time.Second)) // a pipe has one
	if _, err = full.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a pipe took a megabyte: %v", err)
	}
	cmd = exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClosedStderr$") //nolint:gosec // this test
	cmd.Env, cmd.Stderr = append(os.Environ(), complainer+"=1"), full
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("with a full pipe it ended with %v", err)
	}
}

// An alarm can be read after a signal, and not before.
func TestAlarm(t *testing.T) {
	t.Parallel()
	a := alarm(syscall.SIGWINCH)
	if got, open := a.take(); len(got) > 0 || !open {
		t.Errorf("took %v, open %v before the signal", got, open)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(hang); ; {
		await(sec, a.fd) // a signal can cut it short
		n, err := unix.IoctlGetInt(a.fd, unix.TIOCINQ)
		if n > 0 {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("there are %d bytes after the signal, %v", n, err)
		}
	}
}
