//go:build linux || darwin

package guardian

import (
	"encoding/json"
	"os"
	"syscall"
	"time"
)

// title is the guardian's argv[0], by which Main knows its process.
const title = "leasehold-guardian"

// A plan is the guardian's argv[1]; the command follows it.
type plan struct {
	Control    int // file descriptor to read orders from
	Report     int // file descriptor to write reports to
	Deadline   time.Duration
	Grace      time.Duration
	Foreground bool
}

// An order goes from the parent to the guardian. The end of the orders means
// that the parent is gone.
type order struct {
	Deadline time.Duration `json:",omitempty"`
	Stop     bool          `json:",omitempty"`
}

// A report goes from the guardian to the parent; it has one of its fields. The
// end of the reports means that the guardian is gone.
type report struct {
	Started int            `json:",omitempty"` // the command's pid, which is its process group too
	Stopped syscall.Signal `json:",omitempty"` // the command was stopped by this
	Failed  *CommandError  `json:",omitempty"` // the command could not be started
	TooLate bool           `json:",omitempty"` // the command was not started
	Ended   *ended         `json:",omitempty"` // nothing of the command is left
}

type ended struct {
	Wait    syscall.WaitStatus
	Expired bool
}

// send writes one message without ever waiting long for a stopped reader. It
// may drop the message, but never a part of it: a pipe takes up to 4096 bytes
// whole or not at all. That is enough, because whatever does not get through
// errs on the early side: the reader knows an earlier deadline, or the writer
// has a deadline of its own.
func send(pipe *os.File, message any) {
	line, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	_ = pipe.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = pipe.Write(append(line, '\n'))
}

// receive returns what comes through the pipe, and closes the channel at its end.
func receive[T any](pipe *os.File) <-chan T {
	messages := make(chan T)
	go func() {
		defer close(messages)
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
