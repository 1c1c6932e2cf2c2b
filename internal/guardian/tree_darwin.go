package guardian

import (
	"errors"
	"os"
	"syscall"
)

const harmfulHere = syscall.SIGEMT

// entitle has nothing to do: the process goes by the name of its file.
func entitle(string) {}

// adopt has nothing to do here: the system has no subreaper.
func adopt() error { return nil }

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func executable() (string, error) { return os.Executable() }

// nameless makes a file that only descriptors lead to.
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

// A tree is what must go: a process group. Its leader is reaped when it ends,
// so that from then on only what is left of the group keeps the number from
// being reused. Numbers are given out in turn, so there is no danger within the
// moments between two sweeps.
type tree struct {
	group int
	told  bool
	kept  int                 // nothing is reaped here but by the system
	wait  *syscall.WaitStatus // not to be had here
	left  func(pid int)       // nor are they
}

func nameOf(int) string { return "" }

func newTree(*cgroup, map[int]bool) *tree { return &tree{} }

// fell kills the group.
func (t *tree) fell() {
	if t.group != 0 {
		_ = syscall.Kill(-t.group, syscall.SIGKILL)
	}
}

// sweep sends sig to what is left, SIGTERM once only.
func (t *tree) sweep(sig syscall.Signal) (left bool) {
	if t.group == 0 || syscall.Kill(-t.group, 0) != nil {
		return false
	}
	if sig == syscall.SIGKILL || !t.told {
		_ = syscall.Kill(-t.group, sig)
	}
	if sig == syscall.SIGTERM && !t.told {
		t.told = true
		_ = syscall.Kill(-t.group, syscall.SIGCONT) // it takes no signal while it is stopped
	}
	return true
}

type proc struct{ pid int }

func children() ([]proc, error) { return nil, nil }

// isChild is not to be known: the guardian ends when its orders do.
func isChild(int) bool { return false }

// change tells that a child was stopped or has ended, each once.
func change(pid int) (status syscall.WaitStatus, changed bool) {
	got, err := syscall.Wait4(pid, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
	return status, err == nil && got == pid
}

func reapOrphans(int) {}

// A cgroup is not to be had here.
type cgroup struct{ Dir string }

func newCgroup(bool) (*cgroup, error) { return nil, errors.New("the system has none") }

func (*cgroup) hand(*layout) *cgroup         { return nil }
func (*cgroup) admit(*syscall.SysProcAttr)   {}
func (*cgroup) dismiss(*syscall.SysProcAttr) {}
func (*cgroup) keep()                        {}
func (*cgroup) remove()                      {}
