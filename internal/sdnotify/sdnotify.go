// Package sdnotify tells a service manager about the service that this process is, by the
// protocol of sd_notify(3): each message is one datagram to the socket that the environment
// names.
package sdnotify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The variables by which the service manager says where it listens, and how often it wants to
// hear that the service is alive.
const (
	socketVariable   = "NOTIFY_SOCKET"
	intervalVariable = "WATCHDOG_USEC"
	pidVariable      = "WATCHDOG_PID"
)

// The messages that have no value of their own. A Status is another.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	Watchdog = "WATCHDOG=1"
)

// sendTimeout bounds a message: the queue of the manager's socket may be full.
const sendTimeout = time.Second

// longestStatus bounds the text of a status, in bytes: what is in it may be a stranger's, and a
// datagram that is too long is not sent at all.
const longestStatus = 1024

// A Socket is where a service manager listens. The zero value is that of a process that no
// manager listens to: it sends nothing. It is safe for concurrent use.
type Socket struct {
	path     string
	interval time.Duration
}

// FromEnvironment reads where to send to, and whether pid is what the manager's watchdog watches.
// If there is no manager it returns the zero Socket. A variable that cannot be used is an error:
// the Socket that is returned with it does without.
func FromEnvironment(getenv func(string) string, pid int) (Socket, error) {
	path := getenv(socketVariable)
	switch {
	case path == "":
		return Socket{}, nil
	case len(path) < 2 || path[0] != '/' && path[0] != '@':
		return Socket{}, fmt.Errorf("%s=%q is neither the path of a socket nor an abstract one, which begins with @", socketVariable, path)
	}
	s := Socket{path: path}
	text := getenv(intervalVariable)
	if watched := getenv(pidVariable); text == "" || watched != "" && watched != strconv.Itoa(pid) {
		return s, nil
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil || micros <= 0 || micros > int64(24*time.Hour*365/time.Microsecond) {
		return s, fmt.Errorf("%s=%q is not a number of microseconds: no message is sent to the watchdog", intervalVariable, text)
	}
	s.interval = time.Duration(micros) * time.Microsecond
	return s, nil
}

// Open reports whether a manager listens.
func (s Socket) Open() bool { return s.path != "" }

// Interval is how long the watchdog waits for a message before it ends the service; 0 if no
// watchdog watches this process. Send one in half of that.
func (s Socket) Interval() time.Duration { return s.interval }

// Send sends the messages as one. It takes a second at most, and returns an error if the manager
// did not get them; whether it has done anything with them nobody says.
func (s Socket) Send(ctx context.Context, messages ...string) error {
	if !s.Open() || len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	// A socket for each message: the manager may have been restarted since the last.
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", s.path)
	if err != nil {
		return fmt.Errorf("%s: %w", socketVariable, err)
	}
	limit, _ := ctx.Deadline()
	err = conn.SetWriteDeadline(limit)
	if err == nil {
		_, err = conn.Write([]byte(strings.Join(messages, "\n")))
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("%s: %w", socketVariable, err)
	}
	return nil
}

// Status is the message that shows text to people, as in systemctl status. The text may be a
// stranger's: a line end in it would begin another message, so it becomes a space, like all that
// cannot be printed. A longer text than 1 KiB is cut off.
func Status(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > longestStatus {
		text = strings.ToValidUTF8(text[:longestStatus], "") + "…"
	}
	return "STATUS=" + text
}

// Without returns environ without the manager's variables, for a child that is not to speak in
// the name of this process. It changes environ.
func Without(environ []string) []string {
	return slices.DeleteFunc(environ, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == socketVariable || name == intervalVariable || name == pidVariable
	})
}
