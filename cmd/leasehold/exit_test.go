package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/probe"
	"github.com/leasehold/leasehold/store/storeurl"
)

// TestErrnoIsNoOutage: an errno has the methods of a net.Error, and a full disk, a missing file and too many open
// files ended with "the store could not be reached".
func TestErrnoIsNoOutage(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EMFILE, syscall.ENOENT, syscall.EDQUOT} {
		for _, err := range []error{
			errno,
			&fs.PathError{Op: "write", Path: "/lease", Err: errno},
			fmt.Errorf("cannot start the guardian: %w", os.NewSyscallError("pipe2", errno)),
		} {
			if code := codeOf(err); code != exitInternal {
				t.Errorf("%v ends with %d, want %d", err, code, exitInternal)
			}
		}
	}
	if code := codeOf(&url.Error{Op: "parse", URL: "%", Err: errors.New("invalid")}); code != exitInternal {
		t.Errorf("a URL that is none ends with %d", code)
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, err := range []error{refused, &url.Error{Op: "Get", URL: "http://host", Err: refused}, &url.Error{Op: "Get", URL: "http://host", Err: errors.New("EOF")}} {
		if code := codeOf(err); code != exitUnavailable {
			t.Errorf("%v ends with %d, want %d", err, code, exitUnavailable)
		}
	}
}

// TestCodes: the exit code of each kind of error.
func TestCodes(t *testing.T) {
	t.Parallel()
	for code, errs := range map[int][]error{
		exitUsage:       {storeurl.ErrURL, store.ErrInvalid, fence.ErrNoToken},
		exitForeign:     {leasehold.ErrForeignObject, leasehold.ErrTokenTooLarge, detached.ErrForeign, semaphore.ErrSize, fence.ErrForeign, admin.ErrAmbiguous, admin.ErrOccupied, admin.ErrMovedElsewhere},
		exitAbsent:      {store.ErrNotExist, fmt.Errorf("%w: %w", store.ErrNoBucket, fs.ErrNotExist)},
		exitUnavailable: {semaphore.ErrFull, leasehold.ErrSessionOver, store.ErrUnavailable, store.ErrRefused, store.ErrNoBucket, store.ErrThrottled, store.ErrUnknownOutcome, context.DeadlineExceeded},
		exitInternal:    {errors.New("no"), fs.ErrNotExist, context.Canceled},
		exitFenced:      {fence.ErrFenced, fmt.Errorf("%w: %w", fence.ErrFenced, leasehold.ErrLost)},
		exitHeld:        {leasehold.ErrHeld, admin.ErrTokenChanged},
		exitLost:        {leasehold.ErrLost},
		exitDenied:      {store.ErrDenied},
		exitUnsafe:      {probe.ErrUnproven},
	} {
		for _, err := range errs {
			if got := codeOf(fmt.Errorf("wrapped: %w", err)); got != code {
				t.Errorf("%v ends with %d, want %d", err, got, code)
			}
			if end, is := errors.AsType[*exit](failed(err)); !is || end.code != code {
				t.Errorf("%v fails with %v, want %d", err, end, code)
			}
		}
	}
	if end := failed(fmt.Errorf("it is %w", &exit{5, store.ErrDenied})); end.Error() != "it is exit code 5: access denied" {
		t.Errorf("an exit has become %v", end)
	}
	if end := stopped(syscall.SIGTERM, nil); end.code != 143 {
		t.Errorf("a signal ends with %v", end)
	}
}

// TestPageOfExit: a message names the page of the version that says more, unless the message says it all.
func TestPageOfExit(t *testing.T) {
	defer func(was string) { setVersion = was }(setVersion)
	const page = "https://github.com/leasehold/leasehold/blob/"
	for _, tt := range []struct {
		version string
		end     exit
		want    string
	}{
		{"1.2.3", exit{exitDenied, store.ErrDenied}, page + "v1.2.3/docs/trouble.md#code-77"},
		{"v1.2.3-rc.1", exit{exitDenied, store.ErrDenied}, page + "main/docs/trouble.md#code-77"},
		{"v1.2.3+local", exit{exitDenied, store.ErrDenied}, page + "main/docs/trouble.md#code-77"},
		{"", exit{exitInternal, errors.New("no")}, page + "main/docs/trouble.md#code-70"},
		{"", exit{exitLost, errors.New("no renewal came through in time")}, page + "main/docs/trouble.md#code-76"},
		{"", exit{5, fmt.Errorf("%w: late", leasehold.ErrLost)}, page + "main/docs/trouble.md#code-76"}, // --lost-exit-code 5
		{"", exit{exitHeld, leasehold.ErrHeld}, ""},
		{"", exit{5, leasehold.ErrHeld}, ""}, // --conflict-exit-code 5
		{"", exit{exitUsage, errors.New("--ttl 0s")}, ""},
	} {
		setVersion = tt.version
		if got := explained(&tt.end); got != tt.want {
			t.Errorf("version %q, %v: %q, want %q", tt.version, &tt.end, got, tt.want)
		}
	}
}

// TestFullDiskNeedsNoSettling: nothing has landed, so no claim is said to be under way.
func TestFullDiskNeedsNoSettling(t *testing.T) {
	full := &store.Error{Op: "put", Key: "k", Kind: store.ErrUnavailable, Cause: &fs.PathError{Op: "write", Path: "/dir/k", Err: syscall.ENOSPC}}
	if !fullDisk(full) || fullDisk(&store.Error{Op: "put", Key: "k", Kind: store.ErrUnavailable, Cause: errors.New("EOF")}) {
		t.Error("a full disk is not told from an outage")
	}
	for _, err := range []error{full, &store.Error{Op: "put", Key: "k", Kind: store.ErrUnknownOutcome, Cause: errors.New("EOF")}} {
		var said bytes.Buffer
		j := (&app{console: console{w: &said, least: slog.LevelInfo}}).newJob()
		claim := &openClaim{}
		j.opts.TTL, j.candidate = leasehold.DefaultTTL, claim
		if _, got := j.await(t.Context(), func(context.Context) (held, error) { return nil, err }); got != err { //nolint:errorlint // that very error
			t.Errorf("it returned %v", got)
		}
		if want := !errors.Is(err, full); claim.asked != want || strings.Contains(said.String(), "still under way") != want {
			t.Errorf("%v: it asked: %v, and said %q", err, claim.asked, &said)
		}
	}
}

// openClaim is a claim that cannot be settled.
type openClaim struct{ asked bool }

func (c *openClaim) Settle(context.Context) error {
	c.asked = true
	return errors.New("the store does not answer")
}

// TestOneLine: an error of several lines is one in a message.
func TestOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"a": "a", "a\n\n  b\r\n\tc \n": "a; b; c", " a": "a", "a\rb": "a; b"} {
		if got := oneLine(errors.New(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestTooManyOpenFiles names the limit.
func TestTooManyOpenFiles(t *testing.T) {
	if text := (&app{}).message(os.NewSyscallError("pipe2", syscall.EMFILE)); !strings.Contains(text, "ulimit -n") {
		t.Errorf("%q", text)
	}
}

// TestFileForALease: where one cannot be written, nothing is left behind, and that is found out before.
func TestFileForALease(t *testing.T) {
	dir := t.TempDir()
	if err := leaseFile(filepath.Join(dir, "lease")).writable(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left", left, err)
	}
}

// TestOthersLog: what net/http logs is a message like all others, in JSON where that is asked for, and only with -v.
func TestOthersLog(t *testing.T) {
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	log.SetFlags(log.LstdFlags) // as it is when a program begins
	const text = "Unsolicited response received on idle HTTP channel"
	for _, verbose := range []bool{false, true} {
		args := []string{"version", "-o", "json"}
		if verbose {
			args = append(args, "-v")
		}
		var said bytes.Buffer
		if code := exec(t.Context(), args, io.Discard, &said); code != 0 {
			t.Fatalf("%d: %s", code, &said)
		}
		said.Reset()
		log.Print(text)
		var e event
		if err := json.Unmarshal(said.Bytes(), &e); verbose != (err == nil) || verbose != (said.Len() > 0) || verbose != (e.Message == text) {
			t.Errorf("with -v %v: %q", verbose, &said)
		}
	}
}

// TestMessagesDropped: if stderr refuses a message, the command reports the loss with the next message.
func TestMessagesDropped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "l"), []byte("no lock"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &failsOnce{}
	if code := exec(t.Context(), []string{"status", "--layout", "object", "file://" + dir + "/l"}, io.Discard, s); code != exitForeign {
		t.Errorf("exit code %d", code)
	}
	if want := regexp.MustCompile(`^leasehold: see https://.*\nleasehold: messages dropped because stderr took none: 1\n$`); !want.Match(s.Bytes()) {
		t.Errorf("it says %q", s)
	}
}

// A failsOnce is a writer whose first write fails.
type failsOnce struct {
	failed bool
	bytes.Buffer
}

func (f *failsOnce) Write(text []byte) (int, error) {
	if !f.failed {
		f.failed = true
		return 0, errors.New("no space left on device")
	}
	return f.Buffer.Write(text)
}
