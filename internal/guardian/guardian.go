// Package guardian runs a command that must not outlive a lease.
//
// The process that holds the lease cannot guarantee that alone, because it may be killed or
// stopped. So [Start] puts two small processes, which run the same executable, between itself
// and the command. The parent starts the watcher, the watcher starts the guardian, and the
// guardian starts the command in a process group of its own. All three know the deadline, a
// reading of package clock, which the parent extends with each renewal. The guardian ends the
// command. If it fails to, the watcher and the parent do.
//
// # Guarantees on Linux
//
// As long as one of the three is running, no process of the command runs past the deadline last
// sent to that one. Each item below is a single failure and its effect. docs/crashes.md has a
// table of all combinations, which a test reads and tries.
//
//   - No extension arrives: SIGTERM at the deadline minus the grace, SIGKILL at the deadline.
//     After the SIGTERM, extensions are ignored.
//   - [Process.Stop] is called: SIGTERM at once, SIGKILL after the grace, but not later than
//     the deadline.
//   - The parent is killed: as for Stop, because nothing can renew any more.
//   - The parent is stopped: no extension arrives.
//   - The guardian is killed: the watcher and the parent, whichever is running, kill the
//     command at once.
//   - The guardian is stopped: they kill it and the command at the deadline.
//   - The watcher is killed or stopped: the command continues. If the watcher was killed, the
//     parent says so on stderr.
//   - The command ends and leaves processes behind: as for Stop, for these processes.
//     [Process.Wait] returns only when all of them have ended.
//
// SIGTERM goes to the process group, and to processes that have left the group and lost their
// parent. SIGKILL goes to the group and to every descendant, even a daemon: all three are
// subreapers, so a process whose parent died becomes a child of the nearest of them, which
// finds it. A stopped process is continued with its SIGTERM. If a cgroup can be made, the
// command starts in it, and SIGKILL goes to all processes in it, by cgroup.kill;
// [Process.Means] says whether there is one.
//
// No kill by name hits more than one of the three: ps shows the watcher and the guardian as
// job-watcher and job-guardian, and they get their instructions in a file without a name
// instead of arguments. The watcher has a session of its own.
//
// # Limits
//
//   - If none of the three is running, because each was killed or stopped, nothing ends the
//     command in time. If the guardian was killed, the command's first process dies with it.
//     The others run until a stopped one of the three continues, which kills them at once. With
//     a cgroup they also end at the next Start by a process in the same cgroup, if all three
//     have died.
//   - Processes started through another service (at, systemd-run, a container engine) are not
//     descendants.
//   - Processes of another user (sudo) that may not be signalled keep running unless there is a
//     cgroup. The guardian says so on stderr, and Wait does not return before they end.
//   - While the guardian is stopped, the end of the command is not noticed, and the command
//     gets no SIGTERM.
//   - After a suspend, it takes up to a second until the deadline is noticed. If the command
//     was frozen together with all three, it may run for a moment before that.
//   - No signal can recall a request that is already on its way.
//
// # Other platforms
//
// On macOS there are no subreapers and no cgroups. Processes that leave the process group
// escape. If the guardian is killed, only the process group identifies the command.
//
// On Windows there is no guardian and no process group, but a job object, which contains the
// command and all its descendants. The parent ends the job at the deadline, and the system ends
// it if the parent dies. A parent that is stopped, for example by a debugger, does not end it.
// There is no SIGTERM: the command gets a Ctrl-Break, and processes it leaves behind are killed
// at once.
//
// The code for macOS and Windows is compiled by the tests, but has never run. On other systems,
// Start fails.
//
// # Job control
//
// The command has a process group of its own. If stdin and stdout are terminals and the parent
// is in the foreground, the command's group takes its place there. Otherwise the command gets
// the terminal when it first asks for it. The parent takes the terminal back at the end. When
// the command is stopped, for example with ^Z, the parent stops too, so that the shell shows
// its prompt; when the parent is continued, it continues the command. The guardian does not
// stop: if the command is still stopped at its deadline, it is killed, because its lease was
// not renewed. In a pipeline, where the command does not have the terminal, ^Z stops only the
// parent.
package guardian

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Options say what to run, and until when. The command inherits stdin, stdout, stderr, the
// working directory and other descriptors from this process's parent, such as the files of a
// shell's <(…).
type Options struct {
	Argv     []string      // the command, looked up in PATH, and its arguments
	Env      []string      // its environment, as "key=value"; the last of a key counts; nil: this process's
	Deadline time.Duration // reading of package clock after which no process of it may run
	Grace    time.Duration // from SIGTERM to SIGKILL
	NoCgroup bool          // do not use a cgroup even if there could be one

	// Left is called for processes the command has left behind, before they are ended: for
	// eight of them at most. It is only called on Linux, by one goroutine at a time, and must
	// not block. It may be nil.
	Left func(Leftover)
}

// A Leftover is a process left behind by a command.
type Leftover struct {
	PID  int
	Name string // as ps shows it
}

// Status is how a command ended.
type Status struct {
	Code    int            // exit status as in a shell: the command's own, or 128 plus the signal
	Signal  syscall.Signal // what killed the command itself, or 0
	Expired bool           // the command was ended by its deadline or by Stop
}

// CommandError is the error of Start when the command cannot be run.
type CommandError struct {
	Command string
	Code    int // exit status as in a shell: 127 not found, 126 found but not executable
	Reason  string
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("cannot run %q: %s", e.Command, e.Reason)
}

// ErrTooLate is the error of Start if the deadline has already passed. The command was not
// started.
var ErrTooLate = errors.New("the deadline passed before the command was started")
