// Package guardian runs a command that must not outlive a lease.
//
// A process that holds a lease cannot promise by itself to end its command in
// time: it may be killed or stopped. So [Start] puts two small processes between
// itself and the command, both the same executable again. The parent starts the
// watcher, the watcher starts the guardian, and the guardian starts the command in
// a process group of its own. All three hold the deadline, a reading of package
// clock, which the parent moves on with each renewal. The guardian ends the
// command; the watcher and the parent step in where it does not.
//
// # What holds on Linux
//
// As long as one of the three goes on, nothing of the command runs past the
// deadline that this one was last told. Each line is one thing that goes wrong,
// and what follows from it; docs/crashes.md has a table of all combinations,
// which a test reads and goes through.
//
//   - No extension: SIGTERM at the deadline less the grace, SIGKILL at the
//     deadline. After the SIGTERM no extension is accepted any more.
//   - [Process.Stop]: SIGTERM at once, SIGKILL after the grace, but never later
//     than the deadline.
//   - The parent is killed: as for Stop, since nobody can renew any more.
//   - The parent is stopped: no extension comes.
//   - The guardian is killed: the watcher and the parent, whichever goes on, kill
//     the command at once.
//   - The guardian is stopped: they kill it and the command at the deadline.
//   - The watcher is killed or stopped: the command goes on, and the parent says on
//     stderr that the watcher was killed.
//   - The command ends and leaves processes behind: as for Stop, for what it
//     left; only when all are gone does [Process.Wait] return.
//
// SIGTERM goes to the process group, and to processes that have left the group and
// lost their parent. SIGKILL goes to the group and to every descendant, however far
// it has daemonised: all three are subreapers, so that a process whose parent died
// becomes the child of the nearest of them that lives and is found. A stopped
// process is continued with its SIGTERM. Where a cgroup can be made, the command
// starts in it, and SIGKILL goes to all that is in it, by cgroup.kill;
// [Process.Means] says whether there is one.
//
// No kill by name hits more than one of the three: the watcher and the guardian
// have names of their own, in ps as job-watcher and job-guardian, and get what
// they need to know through a file without a name instead of by arguments. The
// watcher is in a session of its own.
//
// # What does not hold
//
//   - Where none of the three goes on, because each was killed or stopped, nobody
//     ends the command in time. If the guardian was killed, the command's first
//     process dies with it. The rest runs until one that is stopped goes on, which
//     kills it at once, or, with a cgroup, until the next Start in a process of the
//     same cgroup finds that all three are gone.
//   - Processes that were started through another service (at, systemd-run, a
//     container engine) are nobody's descendants here.
//   - Processes of another user (sudo) that may not be signalled stay, unless there
//     is a cgroup. The guardian says so on stderr, and Wait does not return before
//     they end.
//   - While the guardian is stopped, the command's own end is not noticed, and the
//     command gets no SIGTERM.
//   - After a suspend it takes up to a second until the deadline is noticed. A
//     command that was frozen together with all three runs for a moment before.
//   - A signal cannot recall a request that is already on its way.
//
// # Other platforms
//
// On macOS there is no subreaper and no cgroup: what leaves the process group
// escapes, and if the guardian is killed, the command is told by its process group
// alone.
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

	// Left is told of what the command has left behind when it ended, before that is ended too: of eight processes at
	// most. It is only called on Linux, by one goroutine at a time, and must not block. nil: nobody is told.
	Left func(Leftover)
}

// A Leftover is a process that a command has left behind.
type Leftover struct {
	PID  int
	Name string // as ps shows it
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
