package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/guardian"
)

// TestDemoServerSaysNothing: a client that is killed in the middle of an answer, as the demo kills one, is nothing to
// tell whoever looks at it.
func TestDemoServerSaysNothing(t *testing.T) {
	var said bytes.Buffer
	log.SetOutput(&said)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	s, err := startDemoServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	object := s.endpoint + "/" + demoBucket + "/large"
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, object, strings.NewReader(strings.Repeat("x", 16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(put)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	for range 3 {
		breakOff(t, s.endpoint)
	}
	if err = s.http.Shutdown(t.Context()); err != nil { // when all is answered
		t.Error(err)
	}
	if said.Len() > 0 {
		t.Errorf("stderr got %q", &said)
	}
	if get, put := s.get.Load(), s.puts.Load(); get != 3 || put != 1 {
		t.Errorf("%d GETs and %d PUTs are counted, want 3 and 1", get, put)
	}
}

// TestDemoUnderGuardian: the show has its own directory and environment, gets signals, and ends in time. Its exit code is the
// demo's.
func TestDemoUnderGuardian(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program is a script")
	}
	// A process that has started a guardian adopts orphans, and other tests wait until theirs have ended. So this test runs
	// in its own process.
	if os.Getenv("DEMO") == "" {
		cmd := osexec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDemoUnderGuardian$")
		cmd.Env = append(os.Environ(), "DEMO=alone")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	at := t.TempDir()
	self, told := filepath.Join(at, "program"), filepath.Join(at, "told")
	t.Setenv("TMPDIR", at)
	t.Setenv("AWS_PROFILE", "mine")
	t.Setenv("TOLD", told)
	t.Setenv("DEMO", strconv.Itoa(os.Getpid()))
	run := func(ends, page string, verbose bool, limit time.Duration) error {
		t.Helper()
		program := "#!/bin/sh\ntest -d \"$4\" && echo \"$1 $2 $3 $AWS_PROFILE$AWS_ACCESS_KEY_ID $5 $6\" > \"$TOLD\"\n" + ends + "\n"
		if err := os.WriteFile(self, []byte(program), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		a := &app{}
		a.verbose = verbose
		err := a.direct(self, page, limit)
		if left, e := filepath.Glob(filepath.Join(at, "leasehold-demo*")); e != nil || len(left) > 0 {
			t.Errorf("%s: it leaves %q, %v", ends, left, e)
		}
		return err
	}
	for _, tt := range []struct {
		ends, page string
		verbose    bool
		code       int // also of a signal
		told       string
	}{
		{"exit 0", "", false, 0, "--http= "},
		{"exit 70", "127.0.0.1:9", true, 70, "--http=127.0.0.1:9 --verbose"},
		{"exit 1", "", false, 1, "--http= "},
		{`trap "exit 130" INT; kill -INT $DEMO; while :; do sleep 0.01; done`, "", false, exitSignal + 2, "--http= "},
		{`trap "exit 0" TERM; kill -TERM $DEMO; while :; do sleep 0.01; done`, "", false, 0, "--http= "},
		{`kill -KILL $$`, "", false, exitSignal + 9, "--http= "},
	} {
		err := run(tt.ends, tt.page, tt.verbose, time.Hour)
		end, failed := errors.AsType[*exit](err)
		if failed != (tt.code != 0) || failed && (end.code != tt.code || end.err != nil) || !failed && err != nil {
			t.Errorf("%s: it ends with %v, want %d", tt.ends, err, tt.code)
		}
		if text, err := os.ReadFile(told); err != nil || string(text) != "demo show "+self+" demo "+tt.told+"\n" {
			t.Errorf("%s: it is told %q, %v", tt.ends, text, err)
		}
	}
	for limit := 100 * time.Millisecond; ; limit *= 2 {
		err := run("exec sleep 1000", "", false, limit)
		if end, failed := errors.AsType[*exit](err); failed && end.code == exitInternal && errors.Is(end.err, guardian.ErrTooLate) {
			continue // the machine is busy
		}
		if want := fmt.Sprintf("exit code %d: the demo was not over after %v, and was ended", exitInternal, limit); err == nil || err.Error() != want {
			t.Errorf("it ends with %v, want %s", err, want)
		}
		break
	}
	if limitOfDemo("") != time.Minute || limitOfDemo("127.0.0.1:9") != 24*time.Hour {
		t.Error("somebody who looks at the page has too little time")
	}
	none := filepath.Join(at, "none")
	if err := (&app{}).direct(none, "", time.Hour); err == nil || !strings.HasPrefix(err.Error(), "exit code 70: cannot run \""+none) {
		t.Errorf("without the program it ends with %v", err)
	}
	t.Setenv("TMPDIR", none)
	if err := (&app{}).direct(self, "", time.Hour); err == nil || !strings.Contains(err.Error(), none) || codeOf(errors.Unwrap(err)) != exitInternal {
		t.Errorf("without a place for its directory it ends with %v", err)
	}
}

// breakOff reads the beginning of the large object, and ends as the system ends the connection of a process that is killed.
func breakOff(t *testing.T, endpoint string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err = io.WriteString(conn, "GET /"+demoBucket+"/large HTTP/1.1\r\nHost: demo\r\n\r\n"); err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1024))
	}
	if tcp, is := conn.(*net.TCPConn); err == nil && is {
		err = tcp.SetLinger(0)
	}
	if err != nil {
		t.Error(err)
	}
}
