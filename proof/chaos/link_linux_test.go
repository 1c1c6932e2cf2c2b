package chaos_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A link joins a network namespace of one worker to that of the store.
type link struct {
	namespace         *os.File
	near, far         string // the addresses of the store's end and of the worker's
	nearName, farName string // their devices
}

func newLink(t *testing.T, n int) *link {
	t.Helper()
	l := &link{
		near: fmt.Sprintf("10.77.%d.1", n), nearName: fmt.Sprintf("store%d", n),
		far: fmt.Sprintf("10.77.%d.2", n), farName: fmt.Sprintf("worker%d", n),
	}
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			l.namespace, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { l.namespace.Close() })
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), l.namespace.Fd())
	err = errors.Join(
		ip("link", "add", l.nearName, "type", "veth", "peer", "name", l.farName),
		ip("link", "set", l.farName, "netns", path),
		ip("address", "add", l.near+"/30", "dev", l.nearName),
		ip("link", "set", l.nearName, "up"),
		l.inside(func() error {
			return errors.Join(
				ip("address", "add", l.far+"/30", "dev", l.farName),
				ip("link", "set", l.farName, "up"),
				ip("link", "set", "lo", "up"))
		}))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// inside calls f on a thread that is in the worker's namespace; so are the processes that f
// starts.
func (l *link) inside(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(l.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// onThread calls f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the runtime lets no other goroutine have the thread
		result <- f()
	}()
	return <-result
}

// nobody is the hardware address of no device: what is sent there vanishes.
const nobody = "02:00:00:00:00:01"

// loseRequests cuts the way from the worker to the store, and loseAnswers the way
// back. Neither end is told.
func (l *link) loseRequests() error {
	return l.inside(func() error {
		return ip("neighbour", "replace", l.near, "lladdr", nobody, "nud", "permanent", "dev", l.farName)
	})
}

func (l *link) loseAnswers() error {
	return ip("neighbour", "replace", l.far, "lladdr", nobody, "nud", "permanent", "dev", l.nearName)
}

func (l *link) loseBoth() error { return errors.Join(l.loseRequests(), l.loseAnswers()) }

// heal undoes all of these: both ends ask for each other's addresses again.
func (l *link) heal() error {
	return errors.Join(
		ip("neighbour", "flush", "dev", l.nearName, "nud", "permanent"),
		l.inside(func() error { return ip("neighbour", "flush", "dev", l.farName, "nud", "permanent") }))
}

// relay passes connections from the links on to an address on the loopback device, and
// returns its port.
func relay(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", ":0") //nolint:noctx // it does not block
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go splice(conn, to)
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// splice joins two connections until one of them ends.
func splice(from net.Conn, to string) {
	defer from.Close()
	onward, err := net.Dial("tcp", to) //nolint:noctx // on the loopback device it is decided at once
	if err != nil {
		return
	}
	go func() {
		defer onward.Close()
		_, _ = io.Copy(onward, from)
	}()
	_, _ = io.Copy(from, onward)
}

// TestLink: a cut way carries nothing, the other way is as it was, and a healed way
// carries again. Nothing overtakes on the way, so the first arrival tells.
func TestLink(t *testing.T) {
	t.Parallel()
	inArena(t, func(t *testing.T) {
		l := newLink(t, 0)
		near := listen(t, l.near, func(f func() error) error { return f() })
		far := listen(t, l.far, l.inside)
		for what, c := range map[string]struct {
			lose                          func() error
			requestArrives, answerArrives bool
		}{
			"requests": {l.loseRequests, false, true},
			"answers":  {l.loseAnswers, true, false},
			"both":     {l.loseBoth, false, false},
		} {
			if err := c.lose(); err != nil {
				t.Fatal(err)
			}
			send(t, far, near, what+" lost")
			send(t, near, far, what+" lost")
			if err := l.heal(); err != nil {
				t.Fatal(err)
			}
			arrives(t, far, near, what+" lost", c.requestArrives)
			arrives(t, near, far, what+" lost", c.answerArrives)
		}
	})
}

func listen(t *testing.T, address string, inside func(func() error) error) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	err := inside(func() (err error) {
		conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, from, to *net.UDPConn, text string) {
	t.Helper()
	if _, err := from.WriteTo([]byte(text), to.LocalAddr()); err != nil {
		t.Fatal(err)
	}
}

// arrives reads up to the word that all was healed, which is sent until it comes: the first
// may be lost while the neighbours find each other again.
func arrives(t *testing.T, from, at *net.UDPConn, text string, want bool) {
	t.Helper()
	healed := "healed after " + text
	got, buf := false, make([]byte, 64)
	for end := time.Now().Add(time.Minute); ; {
		send(t, from, at, healed)
		if err := at.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := at.Read(buf)
		for err == nil && string(buf[:n]) != healed {
			got = got || string(buf[:n]) == text
			n, err = at.Read(buf)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if got != want {
		t.Errorf("%s: %v arrived: %v", text, at.LocalAddr(), got)
	}
}
