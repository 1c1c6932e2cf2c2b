package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/plain"
)

// levelNotice is for the messages that a long-running command prints without -v.
const levelNotice = slog.LevelInfo + 2

// A console prints leasehold's own messages. They go to stderr, because stdout is for
// data, and in run belongs to the command.
type console struct {
	mu    sync.Mutex
	w     io.Writer
	json  bool
	lock  string     // the URL of the one that it is all about, if there is one
	least slog.Level // what is less is not said
	line  bool       // a line without an end is shown
	last  time.Time  // when a line was last said
}

// begin takes over what the flags say.
func (t *console) begin(f *flags) error {
	switch f.output {
	case "text", "json":
		t.json = f.output == "json"
	default:
		return usage("--output %q is neither text nor json", f.output)
	}
	t.least = levelNotice
	switch {
	case f.verbose && f.quiet:
		return usage("--verbose and --quiet exclude each other")
	case f.verbose:
		t.least = slog.LevelDebug
	case f.quiet:
		t.least = slog.LevelError
	}
	return nil
}

func (t *console) note(format string, args ...any) {
	t.say(slog.LevelInfo, fmt.Sprintf(format, args...))
}

func (t *console) tell(format string, args ...any) {
	t.say(levelNotice, fmt.Sprintf(format, args...))
}

func (t *console) warn(format string, args ...any) {
	t.say(slog.LevelWarn, fmt.Sprintf(format, args...))
}

func (t *console) say(level slog.Level, message string) {
	t.event(level, event{Event: eventMessage, Message: message})
}

// remark is for people, where events tell a program the same.
func (t *console) remark(format string, args ...any) {
	if !t.json {
		t.tell(format, args...)
	}
}

// about names the lock that the events from now on are about.
func (t *console) about(lock string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lock = lock
}

// event tells people an event's message, if its level is high enough, or a program all of it. A
// program needs to know what happened whatever people want to read, so -v makes no
// difference to it but for messages.
func (t *console) event(level slog.Level, e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := level
	if t.json && e.Event != eventMessage {
		counts = max(level, levelNotice)
	}
	if counts < t.least {
		return
	}
	t.last = time.Now()
	if t.line {
		fmt.Fprint(t.w, "\r\x1b[K")
		t.line = false
	}
	if e.Time.IsZero() {
		e.Time = t.last
	}
	if e.Lock == "" {
		e.Lock = t.lock
	}
	_, _ = t.w.Write(t.encode(level, e)) // there is nobody to tell
}

// encode is an event as a line for people or for a program.
func (t *console) encode(level slog.Level, e event) []byte {
	if !t.json {
		// A line of a stranger's must not look like one of leasehold's.
		return fmt.Appendf(nil, "leasehold: %s\n", strings.ReplaceAll(plain.Text(e.Message), "\n", "\n  "))
	}
	e.Time, e.Level = e.Time.UTC().Truncate(time.Millisecond), levelName(level)
	text, _ := json.Marshal(e) // it has nothing that cannot be
	return append(plain.JSON(text), '\n')
}

// dropped is the message that says how many could not be written.
func (t *console) dropped(n int) []byte {
	return t.encode(slog.LevelWarn, event{
		Time: time.Now(), Event: eventMessage,
		Message: fmt.Sprintf("messages dropped because stderr took none: %d", n),
	})
}

func levelName(level slog.Level) string {
	if level == levelNotice {
		level = slog.LevelInfo
	}
	return strings.ToLower(level.String())
}

// silence is how long nothing was said.
func (t *console) silence(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Sub(t.last)
}

// interactive reports whether somebody watches.
func (t *console) interactive() bool {
	return !t.json && t.least < slog.LevelError && isTerminal(t.w)
}

// show replaces the line that was last shown; "" removes it.
func (t *console) show(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text == "" && !t.line || isStuck(t.w) {
		return
	}
	fmt.Fprint(t.w, "\r\x1b[K"+plain.Text(text))
	t.line = text != ""
}

// logger is for the library.
func (t *console) logger() *slog.Logger { return slog.New(logHandler{t: t}) }

type logHandler struct {
	t     *console
	attrs []slog.Attr
}

func (h logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.t.least }

func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	write := func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	}
	for _, a := range h.attrs {
		write(a)
	}
	r.Attrs(write)
	h.t.say(r.Level, b.String())
	return nil
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.t, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

func (h logHandler) WithGroup(string) slog.Handler { return h }
