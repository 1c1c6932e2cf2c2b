//go:build linux || darwin

package guardian

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The helpers are the two processes between this one and the command, and the command's cgroup.
type helpers struct {
	watcher  int        // a child of this process
	guardian int        // a child of the watcher; 0: not known yet
	orders   []*os.File // to the guardian, to the watcher
	cgroup   *cgroup    // nil: there is none
}

// launch starts the watcher, which starts the guardian. Each gets its ends of the pipes.
func (p *Process) launch(o Options) (err error) {
	exe, err := executable()
	if err != nil {
		return err
	}
	brief, err := nameless()
	if err != nil {
		return err
	}
	theirs := []*os.File{brief}
	var ours []*os.File
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(ours)
		}
	}()
	for range 4 {
		var r, w *os.File
		if r, w, err = os.Pipe(); err != nil {
			return err
		}
		theirs, ours = append(theirs, r), append(ours, w)
	}
	for _, i := range []int{2, 3} { // from them to us
		theirs[i+1], ours[i] = ours[i], theirs[i+1]
	}

	l := layout{files: []uintptr{0, 1, 2}}
	briefAt := l.at(brief.Fd())
	todo := plan{
		limit: limit{Deadline: o.Deadline, Grace: o.Grace}, Foreground: p.tty.wanted(),
		GuardianFD: l.at(theirs[1].Fd()), WatcherFD: l.at(theirs[2].Fd()),
		ReportFD: l.at(theirs[3].Fd()), LifeFD: l.at(theirs[4].Fd()),
		Cgroup: p.cgroup.hand(&l),
	}
	for _, arg := range o.Argv {
		todo.Argv = append(todo.Argv, []byte(arg))
	}
	if err = todo.write(brief); err != nil {
		return err
	}
	p.watcher, err = syscall.ForkExec(exe, []string{titleWatcher, strconv.Itoa(briefAt)}, &syscall.ProcAttr{
		Env: (&exec.Cmd{Env: o.Env}).Environ(), Files: l.files, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return err
	}
	p.orders, p.reports, p.life = ours[:2], receive[report](ours[2]), receive[order](ours[3])
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// A layout is the descriptors of a new process. Those inherited from this process's parent keep
// their numbers.
type layout struct{ files []uintptr }

func (l *layout) at(fd uintptr) int {
	for inherited(len(l.files)) {
		l.files = append(l.files, uintptr(len(l.files)))
	}
	l.files = append(l.files, fd)
	return len(l.files) - 1
}

// inherited reports whether this process inherited the file descriptor from its parent.
// Descriptors it opened itself are closed on exec.
func inherited(fd int) bool {
	flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0) // -1: it is not open
	return flags&unix.FD_CLOEXEC == 0
}

func (h *helpers) order(o order) {
	for _, pipe := range h.orders {
		send(pipe, o)
	}
}

// end kills the watcher. This makes the guardian, or what the guardian has left, a child of
// this process.
func (h *helpers) end() {
	_ = syscall.Kill(h.watcher, syscall.SIGKILL)
	reap(h.watcher)
	closeAll(h.orders)
}

// dismiss ends both helpers when they have nothing left to do.
func (h *helpers) dismiss() {
	h.end()
	if isChild(h.guardian) { // then no other process can have reaped it
		_ = syscall.Kill(h.guardian, syscall.SIGKILL)
		reap(h.guardian)
	}
}

func reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
