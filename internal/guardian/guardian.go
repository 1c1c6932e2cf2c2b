// Package guardian runs a command that must not outlive a lease.
//
// A process that holds a lease cannot promise by itself to end its command in
// time: it may be killed or stopped. So [Start] puts a second, small process
// between itself and the command. This guardian is the same executable again;
// it starts the command in a process group of its own and holds the deadline, a
// reading of package clock, which the parent moves on with each renewal. The
// parent holds the same deadline and watches the guardian.
//
// # What holds on Linux
//
// Each line is one thing that goes wrong, and what follows from it.
//
//   - No extension: SIGTERM at the deadline less the grace, SIGKILL at the
//     deadline. After the SIGTERM no extension is accepted any more.
//   - [Process.Stop]: SIGTERM at once, SIGKILL after the grace, but never later
//     than the deadline.
//   - The parent is killed: as for Stop, since nobody can renew any more.
//   - The parent is stopped: no extension comes.
//   - The guardian is killed: the parent kills the command at once.
//   - The guardian is stopped: the parent kills it and the command at the
//     deadline.
//   - The command ends and leaves processes behind: as for Stop, for what it
//     left; only when all are gone does [Process.Wait] return.
//
// SIGTERM goes to the process group, and to what has left the group and lost
// its parent. SIGKILL goes to the group and to every descendant, however far it
// has daemonised: guardian and parent are subreapers, so that a process whose
// parent died becomes the child of one of them and is found. A stopped process
// is continued with its SIGTERM.
//
// # What does not hold
//
//   - Processes that were started through another service (at, systemd-run, a
//     container engine) are nobody's descendants here.
//   - Processes of another user (sudo) that may not be signalled stay. The
//     guardian says so on stderr, and Wait does not return before they end.
//   - Where the guardian is killed, and the parent is killed with it or stopped,
//     the command itself dies at once; its descendants stay, until the parent
//     goes on. Where the guardian is stopped, and the parent is killed or
//     stopped too, nobody acts before one of them goes on.
//   - While the guardian is stopped, the command's own end is not noticed.
//   - After a suspend it takes up to a second until the deadline is noticed.
//   - A signal cannot recall a request that is already on its way.
//
// # Other platforms
//
// On macOS there is no subreaper: what leaves the process group escapes, and if
// the guardian is killed, the command is told by its process group alone.
//
// On Windows there is no guardian and no process group, but a job object, which
// the command and all its descendants belong to. The parent ends it at the
// deadline, and the system ends it when the parent is gone. A parent that is
// stopped, by a debugger for example, does not end it. There is no SIGTERM:
// the command gets a Ctrl-Break, and what it leaves behind is killed at once.
//
// The parts for macOS and Windows are compiled by the tests, but have never been
// run. Elsewhere Start fails.
//
// # Job control
//
// The command has a process group of its own. If stdin and stdout are terminals
// and the parent is in the foreground, the command's group is put there in its
// place; otherwise the command gets the terminal when it first asks for it. The
// parent takes the terminal back at the end. When the command is stopped, with
// ^Z for example, the parent stops as well, so that the shell gets its prompt,
// and continues the command when it is itself continued. The guardian does not
// stop: a command that stays stopped past its deadline is killed, because its
// lease was not renewed. In a pipeline, where the command does not have the
// terminal, ^Z stops the parent alone.
package guardian

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Options say what to run, and until when. Stdin, stdout, stderr, the working
// directory and whatever else the process was given by its own parent (the
// files of a shell's <(…), for example) are the command's too.
type Options struct {
	Argv     []string      // the command, looked up in PATH, and its arguments
	Env      []string      // its environment, as "key=value", the last of a key counts; nil: this process's
	Deadline time.Duration // the reading of package clock at which nothing of it may run any more
	Grace    time.Duration // from SIGTERM to SIGKILL
	NoCgroup bool          // do without a cgroup where there could be one
}

// Status is how a command ended.
type Status struct {
	Code    int            // as a shell gives it: the command's own, or 128 plus the signal
	Signal  syscall.Signal // what killed the command itself, or 0
	Expired bool           // the command was ended by its deadline or by Stop
}

// CommandError is the error of Start when the command cannot be run.
type CommandError struct {
	Command string
	Code    int // as a shell gives it: 127 not found, 126 found but not executable
	Reason  string
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("cannot run %q: %s", e.Command, e.Reason)
}

// ErrTooLate is the error of Start when the deadline has already passed; the
// command was not started.
var ErrTooLate = errors.New("the deadline passed before the command was started")
