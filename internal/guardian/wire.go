//go:build linux || darwin

package guardian

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
)

// The titles are argv[0] of the watcher and of the guardian, by which Main recognizes them, and
// their names in ps. Neither contains the other or the program's name, because of pkill and
// killall. Only descriptors follow as arguments, because of pkill -f.
const (
	titleWatcher  = "job-watcher"
	titleGuardian = "job-guardian"
)

// A plan has the instructions for the watcher and the guardian. It is passed in a file without
// a name. Fields whose names end in FD are descriptors.
type plan struct {
	limit
	Argv       [][]byte // bytes, because text in JSON must be UTF-8
	Foreground bool
	WatcherFD  int // the watcher reads orders here
	GuardianFD int // the guardian reads orders here
	ReportFD   int // the guardian writes reports here
	LifeFD     int // the watcher holds it, so that the parent notices its end
	Cgroup     *cgroup
}

func (p *plan) write(f *os.File) error {
	text, err := json.Marshal(p)
	if err == nil {
		_, err = f.WriteAt(text, 0)
	}
	return err
}

// read reads the plan from the descriptor in the argument.
func (p *plan) read(arg string) (fd int, err error) {
	fd, err = strconv.Atoi(arg)
	if err != nil {
		return 0, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err != nil {
		return 0, err
	}
	text := make([]byte, stat.Size)
	if _, err = unix.Pread(fd, text, 0); err != nil {
		return 0, err
	}
	return fd, json.Unmarshal(text, p)
}

// An order goes from the parent to both the guardian and the watcher. When the orders end, the
// parent has died.
type order struct {
	Deadline time.Duration `json:",omitempty"`
	Stop     bool          `json:",omitempty"`
}

// obey executes the orders, and begins the ending if there are no more. It reports whether it
// began the ending.
func (l *limit) obey(orders []order, open bool, now time.Duration) (ended bool) {
	for _, o := range orders {
		if o.Stop {
			ended = l.end(now) || ended
		} else {
			l.extend(o.Deadline)
		}
	}
	if !open {
		ended = l.end(now) || ended
	}
	return ended
}

// A report goes from the guardian to the parent. It has one of the fields, and those marked
// with Started beside it. When the reports end, the guardian has died.
type report struct {
	Started  int            `json:",omitempty"` // the command's pid, and its process group
	Guardian int            `json:",omitempty"` // with Started: the guardian's pid
	Alone    string         `json:",omitempty"` // with Started: why the command is not in the cgroup, if there is one
	Stopped  syscall.Signal `json:",omitempty"` // the signal that stopped the command
	Left     *Leftover      `json:",omitempty"` // the command has ended and left this process, which is being ended
	Failed   *CommandError  `json:",omitempty"` // the command could not be started
	Broken   string         `json:",omitempty"` // the guardian could not be started
	TooLate  bool           `json:",omitempty"` // the deadline passed, and the command was not started
	Ended    *ended         `json:",omitempty"` // no process of the command is left
}

type ended struct {
	Wait    syscall.WaitStatus
	Expired bool
}

// A word goes from the guardian to the watcher. When the words end, the guardian has died.
type word struct {
	Command int // its pid
}

// send writes one message, waiting at most patience for a stopped reader. It reports whether
// the message was written or nobody can read it. It may drop a message but never a part,
// because a pipe takes up to 4096 bytes whole or not at all. That is enough for all but the
// last report, because a lost message errs on the early side: the reader knows an earlier
// deadline, or the writer has its own.
func send(pipe *os.File, message any) (settled bool) { return sendWithin(patience, pipe, message) }

const patience = 100 * time.Millisecond

// sendWithin tries at least once, and again after each wait, whatever the clock says. On a busy
// machine, this process may be stalled after reading the clock, and a write deadline of the
// runtime could pass before the first attempt.
func sendWithin(patience time.Duration, pipe *os.File, message any) (settled bool) {
	line, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	line = append(line, '\n')
	raw, err := pipe.SyscallConn()
	if err != nil {
		return true
	}
	closed := raw.Control(func(fd uintptr) {
		for until := clock.Now() + patience; ; {
			_, err = unix.Write(int(fd), line)
			left := until - clock.Now()
			if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) || left <= 0 {
				return
			}
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, milliseconds(left))
		}
	})
	return closed != nil || !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
}

// milliseconds rounds a nap up, so that it does not end early.
func milliseconds(nap time.Duration) int { return int((nap + time.Millisecond - 1) / time.Millisecond) }

// receive returns the messages from the pipe, and closes the channel at the end.
func receive[T any](pipe *os.File) <-chan T {
	messages := make(chan T)
	go func() {
		defer close(messages)
		defer func() { _ = pipe.Close() }() // it was only read
		for in := json.NewDecoder(pipe); ; {
			var m T
			if in.Decode(&m) != nil {
				return
			}
			messages <- m
		}
	}()
	return messages
}

// An inbox is the end of a pipe that is read without waiting. A process that was stopped or
// suspended must read everything sent meanwhile before it acts on the clock, because there may
// be an extension.
type inbox[T any] struct {
	fd   int
	part []byte // of a message
}

func newInbox[T any](fd int) *inbox[T] {
	_ = syscall.SetNonblock(fd, true)
	return &inbox[T]{fd: fd}
}

// take returns the available messages, and whether more can come.
func (b *inbox[T]) take() (messages []T, open bool) {
	for buffer := make([]byte, 4096); b.fd >= 0; {
		n, err := unix.Read(b.fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return messages, true
		case n <= 0: // an error, or the end
			_ = unix.Close(b.fd)
			b.fd = -1 // which poll ignores
			return messages, false
		}
		b.part = append(b.part, buffer[:n]...)
		for {
			line, rest, whole := bytes.Cut(b.part, []byte("\n"))
			if !whole {
				break
			}
			var m T
			if json.Unmarshal(line, &m) == nil {
				messages = append(messages, m)
			}
			b.part = rest
		}
	}
	return messages, false
}

// await returns when one of the descriptors is readable or at its end, or after the nap. A
// negative nap never ends.
func await(nap time.Duration, fds ...int) {
	polled := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		polled[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	ms := -1
	if nap >= 0 {
		ms = milliseconds(nap)
	}
	_, _ = unix.Poll(polled, ms)
}

// complain writes a message to stderr for people. It waits at most 100 ms for a stuck reader, because
// the work is more important. A pipe that poll calls writable takes PIPE_BUF bytes without blocking,
// which is more than a message has.
func complain(format string, args ...any) {
	stderr := []unix.PollFd{{Fd: int32(syscall.Stderr), Events: unix.POLLOUT}}
	for until := time.Now().Add(100 * time.Millisecond); ; {
		n, err := unix.Poll(stderr, milliseconds(max(time.Until(until), 0)))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n > 0 {
			fmt.Fprintf(os.Stderr, "leasehold: "+format+"\n", args...)
		}
		return
	}
}
