package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const harmfulHere = syscall.SIGSTKFLT

// entitle sets the name of the process in ps, top and pkill, which would be the "exe" of
// /proc/self/exe.
func entitle(title string) { _ = os.WriteFile("/proc/self/comm", []byte(title), 0) } // cut to 15 bytes

// adopt makes descendants that lose their parent children of this process, so that daemons
// cannot escape.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become a subreaper: %w", err)
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return fmt.Errorf("cannot find descendants, is /proc mounted?: %w", err)
	}
	return nil
}

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// executable returns a path to the running program, even if its file was replaced.
func executable() (string, error) { return "/proc/self/exe", nil }

// nameless returns a file without a name.
func nameless() (*os.File, error) {
	fd, err := unix.MemfdCreate("", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), "plan"), nil
}

func pipe(ends []int) error { return unix.Pipe2(ends, unix.O_CLOEXEC) }

// A tree is what must be ended: a process group, a cgroup, and all direct children of this
// process except spared ones. Only direct children are signalled by pid, because no other
// process can reap them and so free the pid. When they die, their children become direct ones,
// so sweeping until nothing is left reaches every descendant.
type tree struct {
	group  int // 0: unknown, or its leader was reaped
	cgroup *cgroup
	spared map[int]bool
	kept   int                 // is not reaped, and no longer counts once it is dead
	told   map[int]bool        // pids, and -group, already sent SIGTERM
	denied map[int]bool        // pids, and -group, that may not be signalled
	wait   *syscall.WaitStatus // how the leader of the group ended, once reaped
	left   func(pid int)       // called before a process gets its first signal; may be nil
}

// fell kills the group and the cgroup, each with one call.
func (t *tree) fell() {
	if t.group != 0 {
		t.signal(-t.group, syscall.SIGKILL)
	}
	t.cgroup.kill()
}

// sweep sends sig to what is left, but SIGTERM only once, and reaps dead children.
func (t *tree) sweep(sig syscall.Signal) (left bool) {
	if sig == syscall.SIGKILL {
		t.fell()
	} else if t.group != 0 {
		t.signal(-t.group, sig)
	}
	populated := t.cgroup.populated()
	procs, err := children()
	// The error may be a lack of file descriptors. The next sweep sees more.
	return t.strike(procs, sig) || populated || err != nil
}

// strike sends sig to children and reaps dead ones. These still count as left, because their
// children may have been skipped as not yet direct.
func (t *tree) strike(procs []proc, sig syscall.Signal) (left bool) {
	for _, p := range procs {
		if t.spared[p.pid] || p.zombie && p.pid == t.kept {
			continue
		}
		if t.left != nil && !p.zombie {
			t.left(p.pid)
		}
		left = true
		switch {
		case p.zombie:
			t.reap(p.pid)
		case sig == syscall.SIGKILL || p.group != t.group:
			t.signal(p.pid, sig)
		}
	}
	return left
}

func (t *tree) signal(pid int, sig syscall.Signal) {
	if sig == syscall.SIGTERM && t.told[pid] {
		return
	}
	err := syscall.Kill(pid, sig)
	if sig == syscall.SIGTERM {
		t.told[pid] = true
		_ = syscall.Kill(pid, syscall.SIGCONT) // while it is stopped, it handles no signal
	}
	if errors.Is(err, syscall.EPERM) && !t.denied[pid] {
		t.denied[pid] = true
		complain("cannot end process %d: %v: it may outlive the lease; end it by hand", pid, err)
	}
}

func (t *tree) reap(pid int) {
	var status syscall.WaitStatus
	if got, _ := syscall.Wait4(pid, &status, syscall.WNOHANG, nil); got != pid {
		return
	}
	delete(t.told, pid)
	delete(t.denied, pid)
	if pid == t.group {
		t.wait, t.group = &status, 0
	}
}

func newTree(c *cgroup, spared map[int]bool) *tree {
	return &tree{cgroup: c, spared: spared, told: map[int]bool{}, denied: map[int]bool{}}
}

type proc struct {
	pid, group int
	zombie     bool
}

func children() ([]proc, error) {
	if _, err := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT); errors.Is(err, unix.ECHILD) {
		return nil, nil // this saves reading all processes of the machine
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // it was only read
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var procs []proc
	self := strconv.Itoa(os.Getpid())
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has been reaped, so it is not left here
		}
		if err != nil {
			return nil, err
		}
		// After the name, which can contain anything: state, parent, group.
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 3 || fields[1] != self {
			continue
		}
		group, _ := strconv.Atoi(fields[2])
		procs = append(procs, proc{pid, group, fields[0] == "Z" || fields[0] == "X"})
	}
	return procs, nil
}

func nameOf(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSuffix(string(name), "\n")
}

// isChild reports whether pid is an unreaped child of this process. Then no other process can
// reap it.
func isChild(pid int) bool {
	_, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	return err == nil
}

// change reports each stop of a child once, and its end every time, because it does not reap
// the child.
func change(pid int) (syscall.WaitStatus, bool) {
	if info, _ := waitid(unix.P_PID, pid, unix.WSTOPPED); info.pid == int32(pid) {
		return syscall.WaitStatus(info.status<<8 | 0x7f), true
	}
	info, _ := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	switch {
	case info.pid != int32(pid):
		return 0, false
	case info.code == cldExited:
		return syscall.WaitStatus(info.status << 8), true
	}
	return syscall.WaitStatus(info.status), true
}

// reapOrphans reaps dead children until it meets the command.
func reapOrphans(command int) {
	for {
		info, _ := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
		pid := int(info.pid)
		if pid == 0 || pid == command {
			return
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}
