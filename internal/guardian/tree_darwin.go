package guardian

import (
	"errors"
	"os"
	"syscall"
)

const harmfulHere = syscall.SIGEMT

// entitle does nothing, because ps shows the name of the file.
func entitle(string) {}

// adopt does nothing, because the system has no subreapers.
func adopt() error { return nil }

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func executable() (string, error) { return os.Executable() }

// nameless returns a file without a name.
func nameless() (*os.File, error) {
	f, err := os.CreateTemp("", "leasehold")
	if err == nil {
		err = os.Remove(f.Name())
	}
	return f, err
}

func pipe(ends []int) error {
	if err := syscall.Pipe(ends); err != nil {
		return err
	}
	syscall.CloseOnExec(ends[0])
	syscall.CloseOnExec(ends[1])
	return nil
}

// A tree is what must be ended: a process group. Its leader is reaped when it ends; then only
// the rest of the group keeps the number from being reused. Numbers are assigned in turn, so
// reuse between two sweeps is not a danger.
type tree struct {
	group int
	told  bool
	kept  int                 // unused: only the system reaps here
	wait  *syscall.WaitStatus // always nil here
	left  func(pid int)       // never called here
}

func nameOf(int) string { return "" }

func newTree(*cgroup, map[int]bool) *tree { return &tree{} }

func (t *tree) fell() {
	if t.group != 0 {
		_ = syscall.Kill(-t.group, syscall.SIGKILL)
	}
}

// sweep sends sig to what is left, but SIGTERM only once.
func (t *tree) sweep(sig syscall.Signal) (left bool) {
	if t.group == 0 || syscall.Kill(-t.group, 0) != nil {
		return false
	}
	if sig == syscall.SIGKILL || !t.told {
		_ = syscall.Kill(-t.group, sig)
	}
	if sig == syscall.SIGTERM && !t.told {
		t.told = true
		_ = syscall.Kill(-t.group, syscall.SIGCONT) // while it is stopped, it handles no signal
	}
	return true
}

type proc struct{ pid int }

func children() ([]proc, error) { return nil, nil }

// isChild always returns false. The guardian ends when its orders do.
func isChild(int) bool { return false }

// change reports each stop and the end of a child once.
func change(pid int) (status syscall.WaitStatus, changed bool) {
	got, err := syscall.Wait4(pid, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
	return status, err == nil && got == pid
}

func reapOrphans(int) {}

// A cgroup does not exist on this system.
type cgroup struct{ Dir string }

func newCgroup(bool) (*cgroup, error) { return nil, errors.New("the system has none") }

func (*cgroup) hand(*layout) *cgroup         { return nil }
func (*cgroup) admit(*syscall.SysProcAttr)   {}
func (*cgroup) dismiss(*syscall.SysProcAttr) {}
func (*cgroup) keep()                        {}
func (*cgroup) remove()                      {}
