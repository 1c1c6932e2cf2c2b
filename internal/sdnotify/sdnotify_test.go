package sdnotify_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/sdnotify"
)

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		what                string
		socket, micros, pid string
		open                bool
		interval            time.Duration
		err                 string
	}{
		{what: "no manager"},
		{what: "no manager, a watchdog", micros: "1000000"},
		{what: "a path", socket: "/run/notify", open: true},
		{what: "an abstract socket", socket: "@notify", open: true},
		{what: "a watchdog", socket: "/n", micros: "3000000", open: true, interval: 3 * time.Second},
		{what: "a watchdog for us", socket: "/n", micros: "3000000", pid: "42", open: true, interval: 3 * time.Second},
		{what: "a watchdog for another", socket: "/n", micros: "3000000", pid: "43", open: true},
		{what: "another's watchdog that is no number", socket: "/n", micros: "x", pid: "43", open: true},
		{what: "a relative path", socket: "notify", err: "neither the path"},
		{what: "a virtual machine's", socket: "vsock:2:1234", err: "neither the path"},
		{what: "nothing but a slash", socket: "/", err: "neither the path"},
		{what: "no number", socket: "/n", micros: "3s", open: true, err: `WATCHDOG_USEC="3s"`},
		{what: "no time", socket: "/n", micros: "0", open: true, err: `WATCHDOG_USEC="0"`},
		{what: "less than none", socket: "/n", micros: "-1", open: true, err: `WATCHDOG_USEC="-1"`},
		{what: "an overflow", socket: "/n", micros: "9223372036854775807", open: true, err: "WATCHDOG_USEC"},
	} {
		env := map[string]string{"NOTIFY_SOCKET": tc.socket, "WATCHDOG_USEC": tc.micros, "WATCHDOG_PID": tc.pid}
		s, err := sdnotify.FromEnvironment(func(name string) string { return env[name] }, 42)
		if s.Open() != tc.open || s.Interval() != tc.interval || (err == nil) != (tc.err == "") {
			t.Errorf("%s: open %v, interval %v, %v", tc.what, s.Open(), s.Interval(), err)
		}
		if err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, want %q", tc.what, err, tc.err)
		}
	}
}

// A holder's name is in the status, and may be anything: it must not become a message of its own.
func TestStatus(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"leading l":                   "STATUS=leading l",
		"held by a\nSTOPPING=1\r\x00": "STATUS=held by a STOPPING=1  ",
		"held by \xff":                "STATUS=held by \uFFFD",
		"größer":                      "STATUS=größer",
	} {
		if got := sdnotify.Status(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	long := sdnotify.Status(strings.Repeat("ö", 40_000))
	if len(long) > 1100 || !strings.HasSuffix(long, "ö…") {
		t.Errorf("a long text became one of %d bytes that ends with %q", len(long), long[len(long)-8:])
	}
}

func TestWithout(t *testing.T) {
	t.Parallel()
	got := sdnotify.Without([]string{"A=1", "NOTIFY_SOCKET=/n", "WATCHDOG_USEC=1", "B=NOTIFY_SOCKET=2", "WATCHDOG_PID=3", "NOTIFY_SOCKETS=4"})
	if want := []string{"A=1", "B=NOTIFY_SOCKET=2", "NOTIFY_SOCKETS=4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Without a manager nothing is sent, and that is no error.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	if err := (sdnotify.Socket{}).Send(t.Context(), sdnotify.Ready); err != nil {
		t.Error(err)
	}
}
