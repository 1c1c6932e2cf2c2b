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

// The titles are the argv[0] of the watcher and of the guardian, by which Main
// knows them, and their names in ps. Neither has the name of the program in it, and
// none of the two the name of the other: a kill by one name (pkill, killall) hits
// one of the three processes at most. Only descriptors follow, so that a search for
// the command's words does not find them either (pkill -f).
const (
	titleWatcher  = "job-watcher"
	titleGuardian = "job-guardian"
)

// A plan is what the watcher and the guardian are to do, in a file without a name.
// A field whose name ends in FD is a descriptor.
type plan struct {
	limit
	Argv       [][]byte // as text it would have to be UTF-8
	Foreground bool
	WatcherFD  int // the watcher reads orders here
	GuardianFD int // the guardian reads orders here
	ReportFD   int // the guardian writes reports here
	LifeFD     int // the watcher holds it, so that its end is seen
	Cgroup     *cgroup
}

// write puts the plan into a file without a name.
func (p *plan) write(f *os.File) error {
	text, err := json.Marshal(p)
	if err == nil {
		_, err = f.WriteAt(text, 0)
	}
	return err
}

// read reads the plan from the descriptor that stands in an argument.
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

// An order goes from the parent to the guardian, and the same one to the
// watcher. The end of the orders means that the parent is gone.
type order struct {
	Deadline time.Duration `json:",omitempty"`
	Stop     bool          `json:",omitempty"`
}

// obey does what the orders say, and begins the ending if they have ended.
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

// A report goes from the guardian to the parent; it has one of its fields, and
// Alone perhaps besides. The end of the reports means that the guardian is gone.
type report struct {
	Started  int            `json:",omitempty"` // the command's pid, which is its process group too
	Guardian int            `json:",omitempty"` // with Started: the guardian's own
	Alone    string         `json:",omitempty"` // with Started: why the command is in no cgroup, though there is one
	Stopped  syscall.Signal `json:",omitempty"` // the command was stopped by this
	Left     *Leftover      `json:",omitempty"` // the command has ended and left this behind, which is being ended
	Failed   *CommandError  `json:",omitempty"` // the command could not be started
	Broken   string         `json:",omitempty"` // the guardian could not be started
	TooLate  bool           `json:",omitempty"` // the command was not started
	Ended    *ended         `json:",omitempty"` // nothing of the command is left
}

type ended struct {
	Wait    syscall.WaitStatus
	Expired bool
}

// A word goes from the guardian to the watcher. The end of the words means that
// the guardian is gone.
type word struct {
	Command int // its pid
}

// send writes one message without waiting for longer than patience for a stopped reader,
// and reports whether that is settled: it was written, or nobody is there to read it. It may
// drop the message, but never a part of it: a pipe takes up to 4096 bytes whole or not at all.
// That is enough for all but the last report, because a lost message errs on the early side:
// the reader knows an earlier deadline, or the writer has a deadline of its own.
func send(pipe *os.File, message any) (settled bool) { return sendWithin(patience, pipe, message) }

const patience = 100 * time.Millisecond

// sendWithin tries once at least, and once more after each wait, whatever the clock says:
// on a busy machine this process may stand still between a look at the clock and the next
// step, and a deadline of the runtime's would have been over before the first attempt.
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

// milliseconds are those of a nap, which is not to end before.
func milliseconds(nap time.Duration) int { return int((nap + time.Millisecond - 1) / time.Millisecond) }

// receive returns what comes through the pipe, and closes the channel at its end.
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

// An inbox is the end of a pipe that is read without waiting. A process that was
// stopped, or slept with the machine, must read all that came meanwhile before it
// judges by the clock: an extension may lie there.
type inbox[T any] struct {
	fd   int
	part []byte // of a message
}

func newInbox[T any](fd int) *inbox[T] {
	_ = syscall.SetNonblock(fd, true)
	return &inbox[T]{fd: fd}
}

// take returns what there is, and whether more can come.
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
			b.fd = -1 // which poll passes over
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

// await returns when one of the descriptors can be read or is at its end, or
// after the nap; a negative nap has no end.
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

// complain says what somebody at the machine has to know. The work matters more: so
// it does not wait for a reader of stderr that reads no more.
func complain(format string, args ...any) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		fmt.Fprintf(os.Stderr, "leasehold: "+format+"\n", args...)
	}()
	select {
	case <-said:
	case <-time.After(100 * time.Millisecond):
	}
}
