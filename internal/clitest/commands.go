package clitest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold/leasehold/peer"
)

// patience bounds what would never come.
const patience = 3 * time.Minute

// abort ends what a script that has failed, or goes on and on, had put into the background:
// on its way through a shell to a file called pid, out of the reach of testscript, which
// would wait for it for ever.
func abort(env *testscript.Env) {
	text, _ := os.ReadFile(filepath.Join(env.WorkDir, "pid"))
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}

// exits CODE PROG ARG… runs a program and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROG ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		failed, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = failed.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// until PROG ARG… waits until the program succeeds.
func until(ts *testscript.TestScript, neg bool, args []string) {
	pause := 20 * time.Millisecond
	for limit := time.Now().Add(patience); ; time.Sleep(pause) {
		pause = min(pause*3/2, 200*time.Millisecond) // each look is a process, and many scripts wait at a time
		err := ts.Exec(args[0], args[1:]...)
		if (err == nil) != neg {
			return
		}
		if time.Now().After(limit) {
			ts.Fatalf("not within 3m: %v", err)
		}
	}
}

// dies FLAG… LOCK leaves a lock to a holder that was killed while its command ran. Where the
// lease was over before, which a busy machine can bring about whatever the TTL, there is
// another try: a script that waited for the command used to wait for ever.
func dies(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: dies FLAG… LOCK")
	}
	const once = `
		rm -f dies.*
		{ sh -c 'echo $$ > dies.pid; exec leasehold run "$@" -- sh -c "echo > dies.running; exec sleep 1000"' leasehold "$@"; echo $? > dies.code; } &
		until test -e dies.running || test -s dies.code; do sleep 0.1; done
		kill -KILL $(cat dies.pid)
		wait
		test -e dies.running && grep -q '^137$' dies.code`
	for range 20 {
		if ts.Exec("sh", append([]string{"-c", once, "dies"}, args...)...) == nil {
			return
		}
	}
	ts.Fatalf("no holder was alive for long enough to be killed, 20 times")
}

// delay is what a program says before that if the machine keeps it from its store for a while.
var delay = regexp.MustCompile(`(?m)^leasehold: .* has not answered for .*\n`)

// oneline checks that the last program wrote one line to stderr, from leasehold, but for where it is explained.
func (s *Scripts) oneLineOnly(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: oneline")
	}
	text := delay.ReplaceAllString(s.talkOf(ts), "")
	if said, page, found := strings.Cut(text, "leasehold: see https://"); found && strings.Count(page, "\n") == 1 {
		text = said
	}
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || !strings.HasPrefix(text, "leasehold: ") {
		ts.Fatalf("stderr is not one line of leasehold: %q", text)
	}
}

// fill FILE SIZE makes a file of so many bytes.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fill FILE SIZE")
	}
	size, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat("x", size)), 0o600))
}

// lockurl VAR STORE KEY sets a variable to the URL of a lock in a store.
func lockURL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: lockurl VAR STORE KEY")
	}
	base, query, _ := strings.Cut(args[1], "?")
	ts.Setenv(args[0], base+"/"+args[2]+"?"+query)
}

// ask ADDRESS-FILE ANSWER-FILE asks the peer whose address is in a file, with the
// certificate and the token of a candidate, and keeps the answer.
func ask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ask ADDRESS-FILE ANSWER-FILE")
	}
	cert, err := tls.LoadX509KeyPair(ts.MkAbs("me.pem"), ts.MkAbs("me.key"))
	ts.Check(err)
	pool, err := peer.ParseCAs([]byte(ts.ReadFile("ca.pem")))
	ts.Check(err)
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool}, DisableKeepAlives: true},
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+strings.TrimSpace(ts.ReadFile(args[0]))+peer.DefaultPath, nil)
	ts.Check(err)
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(ts.ReadFile("token")))
	answer, err := client.Do(request)
	ts.Check(err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), body, 0o600))
}
