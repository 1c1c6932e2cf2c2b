//go:build linux || darwin

package guardian

import (
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
)

// A watcher is the process between the parent and the guardian. It does nothing
// as long as the guardian does its work: where the guardian is gone, or has let
// the deadline pass, the watcher ends the guardian and all that descends from it.
// The guardian's descendants become the watcher's own when the guardian dies, and
// the parent's if the watcher is gone too.
type watcher struct {
	plan
	orders   *inbox[order] // from the parent
	words    *inbox[word]  // from the guardian
	guardian int
	strike   func() // kills the guardian, once: from then on it may be reaped
	present  bool   // the parent is there
	guarded  bool   // the guardian is there
	tree     *tree
}

func (w *watcher) main(args []string) error {
	brief, err := w.read(args[0])
	if err != nil {
		return err
	}
	syscall.CloseOnExec(w.WatcherFD)
	syscall.CloseOnExec(w.LifeFD)
	deafen()
	if w.guardian, err = w.start(brief); err != nil {
		send(os.NewFile(uintptr(w.ReportFD), "report"), report{Broken: err.Error()})
		return nil
	}
	// Only the guardian may hold these, so that its end is seen.
	for _, fd := range []int{brief, w.GuardianFD, w.ReportFD} {
		_ = unix.Close(fd)
	}
	retire(w.guardian)
	w.orders = newInbox[order](w.WatcherFD)
	w.watch()
	w.Cgroup.remove()
	return nil
}

// start starts the guardian, which inherits what it is to have.
func (w *watcher) start(brief int) (guardian int, err error) {
	if err = adopt(); err != nil {
		return 0, err
	}
	exe, err := executable()
	if err != nil {
		return 0, err
	}
	var words [2]int
	if err = pipe(words[:]); err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(words[1]) }()
	if _, err = unix.FcntlInt(uintptr(words[1]), unix.F_SETFD, 0); err != nil {
		return 0, err
	}
	w.words = newInbox[word](words[0])
	return syscall.ForkExec(exe, []string{titleGuardian, strconv.Itoa(brief), strconv.Itoa(words[1])}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
}

// retire makes a session of this process's own, so that a signal to a whole session
// or process group does not reach it. The guardian has to stay, because of the
// terminal. The leader of a process group cannot make a session; so this process
// first joins the guardian's group. It keeps neither the input nor the output of
// the command open.
func retire(guardian int) {
	_ = unix.Setpgid(0, guardian)
	_, _ = unix.Setsid()
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup2(null, 0)
		_ = unix.Dup2(null, 1)
		_ = unix.Close(null)
	}
}

// watch returns when nothing of the command is left, and nobody who could
// signal it.
func (w *watcher) watch() {
	w.tree = newTree(w.Cgroup, nil)
	w.strike = sync.OnceFunc(func() { _ = syscall.Kill(w.guardian, syscall.SIGKILL) })
	for {
		w.hear()
		nap := w.rest(clock.Now())
		if !w.guarded || w.over(clock.Now()) {
			var done bool
			if nap, done = w.after(w.sweep()); done {
				return
			}
		}
		await(nap, w.orders.fd, w.words.fd)
	}
}

// after is the pause after a sweep that kills: short while something is left, since what forks
// while it is killed goes on. Then the parent has yet to understand, if it is there.
func (w *watcher) after(left bool) (nap time.Duration, done bool) {
	if left {
		return killNap, false
	}
	return -1, !w.present
}

func (w *watcher) sweep() (left bool) {
	w.strike()
	return w.tree.sweep(syscall.SIGKILL)
}

// hear takes all that there is before anything is judged by it.
func (w *watcher) hear() {
	orders, open := w.orders.take()
	w.obey(orders, open, clock.Now())
	w.present = open
	words, open := w.words.take()
	for _, said := range words {
		w.tree.group = said.Command
		if w.present {
			// The parent may signal the group for as long as it is there.
			w.tree.kept = said.Command
		}
	}
	w.guarded = open
}

// killNap is the pause between two sweeps that kill.
const killNap = 5 * time.Millisecond
