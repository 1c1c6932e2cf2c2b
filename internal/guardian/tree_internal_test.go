//go:build linux

package guardian

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The name of the process in ps is cut by the system: it has to be told whole.
func TestTitles(t *testing.T) {
	t.Parallel()
	for _, title := range []string{titleWatcher, titleGuardian} {
		if len(title) > 15 || strings.Contains(title, "leasehold") || strings.Contains("leasehold", title) {
			t.Errorf("%q is not a name to be told by", title)
		}
	}
	if strings.Contains(titleWatcher, titleGuardian) || strings.Contains(titleGuardian, titleWatcher) {
		t.Error("one name has the other in it")
	}
}

// start starts a process and returns when it is in one of the states.
func startProcess(t *testing.T, states string, argv ...string) int {
	t.Helper()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Sys: &unix.SysProcAttr{Setpgid: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
	})
	for end := time.Now().Add(hang); ; time.Sleep(ms) {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/stat")
		rest := strings.TrimSpace(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if rest == "" || strings.Contains(states, rest[:1]) {
			return p.Pid
		}
		if time.Now().After(end) {
			t.Fatalf("%v is never in state %s", argv, states)
		}
	}
}

// A process that a sweep has reaped counts as left, one that is kept for the parent
// does not, and a spared one is not touched.
func TestStrike(t *testing.T) {
	t.Parallel()
	dead, kept, spared := startProcess(t, "Z", "/bin/true"), startProcess(t, "Z", "/bin/true"), startProcess(t, "SR", "/bin/sleep", "1000")
	tree := newTree(nil, map[int]bool{spared: true})
	tree.kept = kept
	if !tree.strike([]proc{{dead, dead, true}}, unix.SIGKILL) {
		t.Error("a sweep that has reaped was the last")
	}
	if isChild(dead) {
		t.Error("what has died was not reaped")
	}
	if tree.strike([]proc{{kept, kept, true}, {spared, spared, false}}, unix.SIGKILL) {
		t.Error("what is kept or spared is waited for")
	}
	if !isChild(kept) || !isChild(spared) {
		t.Error("what is kept or spared was reaped")
	}
	if tree.strike(nil, unix.SIGKILL) {
		t.Error("there was nothing left to end")
	}
	tree.group = dead
	if !tree.strike([]proc{{kept, kept, false}}, unix.SIGKILL) { // it is for the parent when it has died
		t.Error("what is kept is not ended")
	}
	running := startProcess(t, "SR", "/bin/sleep", "1000")
	if !tree.strike([]proc{{running, running, false}}, unix.SIGKILL) {
		t.Error("what was killed a moment ago is not waited for")
	}
	var info siginfo
	for end := time.Now().Add(hang); info.pid == 0 && time.Now().Before(end); time.Sleep(ms) {
		info, _ = waitid(unix.P_PID, running, unix.WEXITED|unix.WNOWAIT)
	}
	if info.status != int32(unix.SIGKILL) {
		t.Errorf("the process ended with %+v, want SIGKILL", info)
	}
}

// SIGTERM goes to each once: to the members of the group with the group.
func TestStrikeTerm(t *testing.T) {
	t.Parallel()
	member, other := startProcess(t, "SR", "/bin/sleep", "1000"), startProcess(t, "SR", "/bin/sleep", "1000")
	tree := newTree(nil, nil)
	tree.group = member
	if !tree.strike([]proc{{member, member, false}, {other, other, false}}, unix.SIGTERM) {
		t.Error("nothing is left")
	}
	if tree.told[member] || !tree.told[other] {
		t.Errorf("of %d in the group and %d outside, told are %v", member, other, tree.told)
	}
}

// A process is forgotten when it is reaped, since another may get its number, and not
// before.
func TestReap(t *testing.T) {
	t.Parallel()
	running, leader, other := startProcess(t, "SR", "/bin/sleep", "1000"), startProcess(t, "Z", "/bin/false"), startProcess(t, "Z", "/bin/true")
	tree := newTree(nil, nil)
	tree.group = leader
	for _, pid := range []int{running, leader, other} {
		tree.told[pid], tree.denied[pid] = true, true
	}
	tree.reap(other)
	if tree.group != leader || tree.wait != nil {
		t.Errorf("the end of another is taken for the leader's: %+v", tree)
	}
	tree.reap(leader)
	if tree.group != 0 || tree.wait == nil || tree.wait.ExitStatus() != 1 {
		t.Errorf("the end of the leader is not known: %+v", tree)
	}
	tree.group, tree.wait = running, nil
	tree.reap(running)
	if tree.group != running || tree.wait != nil {
		t.Errorf("what runs has ended: %+v", tree)
	}
	for _, known := range []map[int]bool{tree.told, tree.denied} {
		if len(known) != 1 || !known[running] {
			t.Errorf("%v are known, want %d alone", known, running)
		}
	}
}

// Of a process that may not be signalled somebody is told, once. This test is not
// parallel, as it has the stderr of all.
func TestSignalDenied(t *testing.T) {
	denied := 1
	if os.Getuid() == 0 { // which may signal all, and the one that does not is somebody else
		denied = startProcess(t, "SR", "/bin/sleep", "1000")
	}
	said := stderrOf(t, func() {
		done := make(chan struct{})
		go func() { // its thread ends with it
			defer close(done)
			runtime.LockOSThread()
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 && os.Getuid() == 0 {
				t.Error(errno)
			}
			tree := newTree(nil, nil)
			for range 2 {
				tree.signal(denied, 0)
			}
		}()
		<-done
	})
	if want := fmt.Sprintf("leasehold: cannot end process %d: operation not permitted: it may outlive the lease; end it by hand\n", denied); said != want {
		t.Errorf("it said %q, want %q", said, want)
	}
}

// Children are listed whatever their names are, which /proc gives in the midst of the rest.
func TestChildren(t *testing.T) {
	t.Parallel()
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "a) Z 1 b ")
	syscall.ForkLock.RLock() // a child forked now would keep the file open, and exec would fail with "text file busy"
	err = os.WriteFile(odd, sleep, 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	pid := startProcess(t, "SR", odd, "1000")
	procs, err := children()
	if err != nil || !slices.Contains(procs, proc{pid, pid, false}) {
		t.Errorf("%v, %v; want %d among them, which leads its group and is no zombie", procs, err, pid)
	}
}

// Without a descriptor nobody knows who is left: so somebody is. Each look gives back what
// it has opened. This test is not parallel: the limit is that of all.
func TestSweepWithoutDescriptors(t *testing.T) {
	spared := startProcess(t, "SR", "/bin/sleep", "1000")
	procs, err := children()
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]bool{}
	for _, p := range procs {
		all[p.pid] = true
	}
	if !all[spared] {
		t.Fatalf("%d is not among the children %v", spared, procs)
	}
	free := lowestFree(t, 2)
	var usual unix.Rlimit
	if err = unix.Getrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	left := map[int]bool{}
	for more, limit := range []int{free[0], free[0] + 1, free[1] + 1} {
		fewer := unix.Rlimit{Cur: uint64(limit), Max: usual.Max}
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &fewer)
		left[more] = newTree(nil, all).sweep(0)
		if err = errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &usual)); err != nil {
			t.Fatal(err)
		}
	}
	if !left[0] || !left[1] || left[2] {
		t.Errorf("with so many descriptors, something is left: %v, want so with none and with one", left)
	}
	for range 20 {
		_, _ = children()
	}
	if again := lowestFree(t, 2); !slices.Equal(free, again) {
		t.Errorf("the next descriptors are %v, were %v", again, free)
	}
}

// lowestFree is the n lowest descriptors that are free.
func lowestFree(t *testing.T, n int) (free []int) {
	t.Helper()
	for range n {
		fd, err := unix.Dup(0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		free = append(free, fd)
	}
	return free
}

// It is told that a child was stopped, and how it has ended, as wait4 would tell it.
func TestChange(t *testing.T) {
	t.Parallel()
	stopped := startProcess(t, "T", "/bin/sh", "-c", "kill -STOP $$; exit 3")
	if got, changed := change(stopped); !changed || !got.Stopped() || got.StopSignal() != unix.SIGSTOP {
		t.Errorf("it was stopped: %x, %v", got, changed)
	}
	if got, changed := change(stopped); changed {
		t.Errorf("it was stopped once more: %x", got)
	}
	_ = unix.Kill(stopped, unix.SIGCONT)
	for pid, want := range map[int]syscall.WaitStatus{
		stopped: 3 << 8,
		startProcess(t, "Z", "/bin/sh", "-c", "kill -TERM $$"): syscall.WaitStatus(unix.SIGTERM),
	} {
		if !waitState(pid, "Z") {
			t.Fatalf("process %d does not end", pid)
		}
		for range 2 { // again and again
			if got, changed := change(pid); !changed || got != want {
				t.Errorf("it has ended: %x, %v, want %x", got, changed, want)
			}
		}
	}
}
