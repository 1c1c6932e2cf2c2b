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

// A watcher is the process between the parent and the guardian. It acts only if the guardian
// dies or lets the deadline pass: then it ends the guardian and all its descendants. When the
// guardian dies, these become the watcher's, or the parent's if the watcher has died too.
type watcher struct {
	plan
	orders   *inbox[order] // from the parent
	words    *inbox[word]  // from the guardian
	guardian int
	strike   func() // kills the guardian, once, because it may then be reaped
	present  bool   // the parent is alive
	guarded  bool   // the guardian is alive
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
	// Only the guardian may hold these, so that others notice its end.
	for _, fd := range []int{brief, w.GuardianFD, w.ReportFD} {
		_ = unix.Close(fd)
	}
	retire(w.guardian)
	w.orders = newInbox[order](w.WatcherFD)
	w.watch()
	w.Cgroup.remove()
	return nil
}

// start starts the guardian, which inherits its descriptors.
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

// retire gives this process a session of its own, out of reach of signals to a session or
// process group. (The guardian must stay, because of the terminal.) The leader of a process
// group cannot make a session, so this process first joins the guardian's group. It also lets
// go of the command's stdin and stdout.
func retire(guardian int) {
	_ = unix.Setpgid(0, guardian)
	_, _ = unix.Setsid()
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup2(null, 0)
		_ = unix.Dup2(null, 1)
		_ = unix.Close(null)
	}
}

// watch returns when nothing is left of the command or of those who could signal it.
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

// after returns the pause after a sweep that kills: short while something is left, because
// processes that fork meanwhile survive. Otherwise it waits for the parent, if alive, to
// finish.
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

// hear reads everything available before any decision.
func (w *watcher) hear() {
	orders, open := w.orders.take()
	w.obey(orders, open, clock.Now())
	w.present = open
	words, open := w.words.take()
	for _, said := range words {
		w.tree.group = said.Command
		if w.present {
			// A living parent may signal the group.
			w.tree.kept = said.Command
		}
	}
	w.guarded = open
}

// killNap is the pause between two sweeps that kill.
const killNap = 5 * time.Millisecond
