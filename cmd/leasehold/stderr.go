package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

const (
	// maxUnwritten bounds the messages that wait for stderr, in bytes.
	maxUnwritten = 64 << 10
	// writePatience is how long a message waits to be written, so that it usually stands before what happens next.
	writePatience = 100 * time.Millisecond
	// endPatience is how long the end of the program waits for what is unwritten.
	endPatience = 2 * time.Second
)

// A talk writes messages to stderr without ever waiting for its reader for long: a renewal may be what waits. If
// stderr is full, messages queue. If the queue is full too, or stderr is broken, they are dropped, and once stderr
// works again, a message says how many.
type talk struct {
	w      io.Writer
	notice func(dropped int) []byte // is the message that says so

	mu      sync.Mutex
	queue   [][]byte
	size    int           // of the queue, in bytes
	dropped int           // and not yet said so
	running bool          // the goroutine that writes
	stuck   bool          // a message has waited in vain, and no write has ended since
	written chan struct{} // closed when the queue is empty and nothing is being written
}

// Write takes a message, and returns no error.
func (t *talk) Write(text []byte) (int, error) {
	t.mu.Lock()
	if t.size+len(text) > maxUnwritten {
		t.dropped++
		t.mu.Unlock()
		return len(text), nil
	}
	t.queue = append(t.queue, append([]byte(nil), text...))
	t.size += len(text)
	if !t.running {
		t.running, t.written = true, make(chan struct{})
		go t.work()
	}
	stuck := t.stuck
	t.mu.Unlock()
	if !stuck && !t.wait(writePatience) {
		t.mu.Lock()
		t.stuck = t.running
		t.mu.Unlock()
	}
	return len(text), nil
}

// work writes until the queue is empty.
func (t *talk) work() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) > 0 {
		text := t.queue[0]
		t.queue, t.size = t.queue[1:], t.size-len(t.queue[0])
		t.mu.Unlock()
		_, err := t.w.Write(text)
		t.mu.Lock()
		t.stuck = false
		if err != nil {
			t.dropped++
		} else if t.dropped > 0 && len(t.queue) == 0 {
			t.queue = append(t.queue, t.notice(t.dropped))
			t.size, t.dropped = len(t.queue[0]), 0
		}
	}
	t.running = false
	close(t.written)
}

// wait reports whether all was written in time.
func (t *talk) wait(patience time.Duration) bool {
	t.mu.Lock()
	written := t.written
	t.mu.Unlock()
	if written == nil {
		return true
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-written:
		return true
	case <-late.C:
		return false
	}
}

// isTerminal reports whether a person may see what is written.
func isTerminal(w io.Writer) bool {
	if t, ok := w.(*talk); ok {
		w = t.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// isStuck reports that what is written now would be read much later, if at all.
func isStuck(w io.Writer) bool {
	t, ok := w.(*talk)
	if !ok {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stuck
}

// survivePipes keeps the program alive when the reader of stderr or stdout goes away: by default the next write
// would kill it, and a lock would stay held. SIGPIPE is caught, not ignored, because a command inherits what is
// ignored.
func survivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// dieOfStdout ends the program as any other whose stdout has no reader, if err says so.
func dieOfStdout(err error) {
	if errors.Is(err, syscall.EPIPE) {
		signal.Reset(syscall.SIGPIPE)
		_, _ = os.Stdout.WriteString("\n") // which now kills it
	}
}
