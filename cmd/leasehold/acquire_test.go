package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestAcquireUsage: what cannot be is refused before the store is asked, with what to change, in the words of the flags.
func TestAcquireUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ttl    time.Duration
		layout leasehold.Layout
		file   leaseFile
		export bool
		code   int
		want   string // "": it can be
	}{
		{leasehold.MinTTL, leasehold.LayoutObject, "", false, 0, ""},
		{leasehold.MaxTTL, leasehold.LayoutEpochs, "", true, 255, ""},
		{time.Minute, leasehold.LayoutObject, leaseFile(t.TempDir() + "/lease"), false, 75, ""},
		{0, leasehold.LayoutObject, "", false, 75, "no --ttl given: "},
		{leasehold.MinTTL - 1, leasehold.LayoutObject, "", false, 75, "--ttl 999.999999ms is not between 1s and 24h0m0s"},
		{leasehold.MaxTTL + time.Second, leasehold.LayoutObject, "", false, 75, "--ttl 24h0m1s is not between 1s and 24h0m0s"},
		{time.Minute, leasehold.LayoutMarker, "", false, 75, "--layout marker has no tokens"},
		{time.Minute, leasehold.LayoutObject, "-", false, 75, "--file - is no file"},
		{time.Minute, leasehold.LayoutObject, "x", true, 75, "--file and --exec exclude each other"},
		{time.Minute, leasehold.LayoutObject, "", false, -1, "--conflict-exit-code -1 is not between 0 and 255"},
		{time.Minute, leasehold.LayoutObject, "", false, 256, "--conflict-exit-code 256 is not between 0 and 255"},
		{time.Minute, leasehold.LayoutObject, "/none/such/lease", false, 75, "--file /none/such/lease: "},
	} {
		h := &acquireCmd{file: tt.file, export: tt.export}
		h.opts.TTL, h.opts.Layout, h.heldCode = tt.ttl, tt.layout, tt.code
		if err := h.check(); (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), "exit code 64: "+tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// TestWaitsMinutely: acquire and run report their wait once a minute.
func TestWaitsMinutely(t *testing.T) {
	if clitest.UnderTest != leasetest.Object {
		t.Skip("the record is that of an object")
	}
	dir := t.TempDir()
	const held = `{"format":1,"token":7,"state":"held","holder":"me","address":"","ttl_ms":86400000,"write_id":"x.1","session":"","renewed_at":"2999-01-01T00:00:00Z"}`
	if err := os.WriteFile(filepath.Join(dir, "l"), []byte(held), 0o600); err != nil {
		t.Fatal(err)
	}
	first := make(chan os.Signal, 1) // it begins what must not begin in a bubble
	signal.Notify(first, os.Interrupt)
	signal.Stop(first)
	for _, command := range []string{"acquire --ttl 1m --wait 90s file://DIR/l", "run --wait 90s file://DIR/l -- true"} {
		leasetest.Bubble(t, func(t *testing.T) {
			defer testenv.Signals() // of those that a command has left no channel gets a signal outside the bubble
			defer signal.Reset(orders(false)...)
			var said bytes.Buffer
			code := exec(t.Context(), strings.Fields(strings.ReplaceAll(command, "DIR", dir)), io.Discard, &said)
			if minutes := "leasehold: waiting for file://" + dir + "/l, held by me, token 7\nleasehold: waiting for file://" + dir + "/l, held by me: 1m1s\n"; code != exitHeld || !strings.HasPrefix(said.String(), minutes) {
				t.Errorf("%s: exit code %d: %s", command, code, &said)
			}
		})
	}
}

// A lastLine calls itself when the line about a wait is erased, which is when the wait ends.
type lastLine func()

func (f lastLine) Write(text []byte) (int, error) {
	f()
	return len(text), nil
}

// TestEndsWithLock: if a signal arrives together with the lock, acquire releases it. If the lease is lost before it is written,
// acquire fails. It prints no lease in either case.
func TestEndsWithLock(t *testing.T) {
	for _, lost := range []bool{false, true} {
		leasetest.Bubble(t, func(t *testing.T) {
			st := memstore.New()
			lock, err := leasehold.NewLock(st, "l", &leasehold.LockOptions{Logger: silent})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			a := &app{stdout: &out}
			h := &acquireCmd{runCmd: runCmd{job: a.newJob(), wait: wait{forever: true}, contest: &lockContest{Lock: lock}}}
			h.target.name = "l"
			happens, want := func() { h.signals <- syscall.SIGTERM }, "exit code 143: terminated: gave up waiting for l"
			if lost {
				happens, want = func() {
					if gone := st.Delete(t.Context(), "l"); gone != nil {
						t.Error(gone)
					}
					time.Sleep(leasehold.DefaultTTL)
				}, "exit code 76: "
			}
			a.console = console{w: lastLine(happens), line: true, least: levelNotice}
			if err = h.take(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) || out.Len() > 0 {
				t.Errorf("it ends with %v, want %s, and writes %q", err, want, &out)
			}
			if info, err := lock.Inspect(t.Context()); err != nil || info.Held || info.Exists == lost {
				t.Errorf("it leaves %+v, %v", info, err)
			}
		})
	}
}

// TestLeaseFileInUse: only one process at a time uses the leases in a directory. Another one waits until its context ends.
func TestLeaseFileInUse(t *testing.T) {
	t.Parallel()
	file := leaseFile(filepath.Join(t.TempDir(), "lease"))
	unlock, err := file.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, taken := lockDir(filepath.Dir(string(file))); !taken {
		t.Skip("a system that does not lock directories")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, lock, _, err := (&app{}).useKept(over, keptLease{file: file}, "", 0); lock != nil || err == nil || !strings.HasPrefix(err.Error(), "exit code 69: another leasehold uses a lease in ") {
		t.Errorf("it uses %v, %v", lock, err)
	}
}

// A lostStdout takes nothing, and with the first bytes the store is gone too.
type lostStdout struct{ store string }

func (w lostStdout) Write([]byte) (int, error) {
	return 0, errors.Join(errors.New("full"), os.RemoveAll(w.store))
}

// TestLeaseThatIsNotWritten: a lease that cannot be written is released, and if that fails too, it is said for how long others
// have to wait.
func TestLeaseThatIsNotWritten(t *testing.T) {
	if !clitest.UnderTest.Tokens() {
		t.Skip("a lease without a token cannot be written")
	}
	dir := filepath.Join(t.TempDir(), "locks")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	code := exec(t.Context(), []string{"acquire", "--ttl", "90s", "--holder", "me", "file://" + dir + "/l"}, lostStdout{dir}, &said)
	first, second, _ := strings.Cut(said.String(), "\n")
	if code != exitInternal || !strings.HasPrefix(first, "leasehold: could not release file://"+dir+"/l: ") || !strings.HasSuffix(first, ": others may have to wait up to 1m30s longer") ||
		!strings.HasPrefix(second, "leasehold: cannot write to stdout: full\n") {
		t.Errorf("exit code %d: %s", code, &said)
	}
}

// TestReadableLeaseIsWarnedOf: a lease that goes to a file is warned of if others can read it, and nothing else is.
func TestReadableLeaseIsWarnedOf(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("access control lists say who can read a file")
	}
	for _, tt := range []struct {
		mode   os.FileMode
		closed bool
		warns  bool
	}{
		{0o600, false, false}, {0o644, false, true}, {0o604, false, true}, {0o640, false, true}, {0o622, false, false}, {0o644, true, false},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "lease"))
		if err == nil {
			err = f.Chmod(tt.mode)
		}
		if err != nil {
			t.Fatal(err)
		}
		if tt.closed {
			_ = f.Close()
		}
		var said bytes.Buffer
		a := &app{stdout: f, console: console{w: &said}}
		a.warnReadable()
		want := ""
		if tt.warns {
			want = "leasehold: others can read the file that stdout is, and with it use the lease: write it with --file, or after umask 077\n"
		}
		if said.String() != want {
			t.Errorf("%v, closed %v: %q", tt.mode, tt.closed, &said)
		}
		_ = f.Close()
	}
}

// TestLostLease: a lease is lost only if the store says so, and one that was released is told apart.
func TestLostLease(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("%w: late", leasehold.ErrLost)
	unanswered := &store.Error{Op: "get", Key: "l", Kind: store.ErrUnavailable, Cause: context.DeadlineExceeded}
	for _, tt := range []struct {
		released bool
		err      error
		want     string
	}{
		{false, lost, "exit code 76: " + lost.Error()},
		{true, lost, "exit code 76: the lease of l, token 7 was released already, or found to be lost"},
		{false, store.ErrDenied, "exit code 77: " + store.ErrDenied.Error()},
		{true, store.ErrDenied, "exit code 77: " + store.ErrDenied.Error()},
		{false, unanswered, fmt.Sprintf("exit code 69: the store did not answer for %v: %v", patience, unanswered)},
	} {
		if err := lostLease(&detached.Lease{Key: "l", Token: 7, Released: tt.released}, tt.err); err == nil || err.Error() != tt.want {
			t.Errorf("released %v, and %v: %v, want %s", tt.released, tt.err, err, tt.want)
		}
	}
}
