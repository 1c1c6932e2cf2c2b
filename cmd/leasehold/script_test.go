package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold/leasehold/internal/guardian"
	"github.com/leasehold/leasehold/internal/longtest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/peer"
)

func TestMain(m *testing.M) {
	guardian.Main()
	testscript.Main(patient{m}, map[string]func(){"leasehold": main})
}

// patient are tests of which more are run at a time than there are cores: they wait for
// processes, and these for leases to end.
type patient struct{ *testing.M }

func (p patient) Run() int {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	return p.M.Run()
}

func TestScripts(t *testing.T) {
	t.Parallel()
	scripts(t, "script", nil)
}

func TestScriptsWithServer(t *testing.T) {
	t.Parallel()
	longtest.Only(t)
	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, name)
			dirs := []string{"server", "s3"}
			if name == "versitygw" || name == "minio" { // they check signatures
				dirs = append(dirs, "s3-signed")
			}
			for _, dir := range dirs {
				// The scripts go on when this function has returned, so that the
				// server must be stopped by a test that waits for them.
				t.Run(dir, func(t *testing.T) {
					scripts(t, dir, func(env *testscript.Env) error {
						env.Vars = append(env.Vars, srv.Env()...)
						env.Setenv("BUCKET", srv.URL(srv.Bucket(t)))
						env.Setenv("NO_BUCKET", srv.URL("leasehold-no-such-bucket"))
						examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
						env.Setenv("EXAMPLES", examples)
						return err
					})
				})
			}
		})
	}
}

// TestScriptsWithClouds runs the same scripts on the emulators of other clouds, and some for each.
func TestScriptsWithClouds(t *testing.T) {
	t.Parallel()
	t.Run("gs", func(t *testing.T) {
		t.Parallel()
		srv := servers.StartGCS(t)
		unsafe := servers.StartProxy(t, srv.Endpoint, &servers.ProxyOptions{Alter: func(r *http.Request) {
			query := r.URL.Query()
			query.Del("ifGenerationMatch")
			r.URL.RawQuery = query.Encode()
		}})
		for _, dir := range []string{"server", "gs"} {
			t.Run(dir, func(t *testing.T) {
				scripts(t, dir, func(env *testscript.Env) error {
					env.Setenv("BUCKET", srv.GCSURL(srv.GCSBucket(t)))
					env.Setenv("NO_BUCKET", srv.GCSURL("leasehold-no-such-bucket"))
					env.Setenv("UNSAFE", servers.GCSURLAt(unsafe.Endpoint, srv.GCSBucket(t)))
					return nil
				})
			})
		}
	})
	t.Run("azblob", func(t *testing.T) {
		t.Parallel()
		srv := servers.StartAzurite(t)
		unsafe := servers.StartProxy(t, srv.Host(), &servers.ProxyOptions{DropIfMatch: true})
		for _, dir := range []string{"server", "azblob"} {
			t.Run(dir, func(t *testing.T) {
				scripts(t, dir, func(env *testscript.Env) error {
					env.Vars = append(env.Vars, srv.Env()...)
					container := srv.Container(t)
					env.Setenv("BUCKET", srv.URL(container))
					env.Setenv("NO_BUCKET", srv.URL("leasehold-no-such-container"))
					// With a SAS, conditions are no part of the signature.
					env.Setenv("UNSAFE", srv.URLAt(unsafe.Endpoint+"/"+srv.Account, container))
					env.Setenv("SAS", srv.SAS(t, container, time.Hour))
					env.Setenv("EXPIRED", srv.SAS(t, container, -time.Minute))
					if dir == "server" {
						return nil
					}
					return srv.Append(t.Context(), container, "appended")
				})
			})
		}
	})
}

func scripts(t *testing.T, dir string, setup func(*testscript.Env) error) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", dir),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("LEASEHOLD_STORE", "file://"+filepath.ToSlash(env.WorkDir)+"/locks")
			if err := os.Mkdir(filepath.Join(env.WorkDir, "locks"), 0o700); err != nil {
				return err
			}
			overLayout(env)
			late := time.AfterFunc(5*time.Minute, func() { abort(env) })
			env.Defer(func() {
				late.Stop()
				if script, ok := env.T().(interface{ Failed() bool }); ok && script.Failed() {
					abort(env)
				}
			})
			servers.NewAuthority(t).Write(t, env.WorkDir, "127.0.0.1", "localhost")
			if setup == nil {
				return nil
			}
			return setup(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "until": until, "oneline": oneLineOnly, "fill": fill, "lockurl": lockURL,
			"ask": ask, "silent": silent, "plant": plant, "objects": objects, "usurp": usurp, "dies": dies,
			"stub": stubStore, "requests": requests, "events": eventLines,
			"fetch": fetch, "addressfrom": addressFrom, "curls": curls,
		},
		Condition: condition,
	})
}

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
		failed, ok := errors.AsType[*osexec.ExitError](err)
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
	for limit := time.Now().Add(60 * time.Second); ; time.Sleep(pause) {
		pause = min(pause*3/2, 200*time.Millisecond) // each look is a process, and many scripts wait at a time
		err := ts.Exec(args[0], args[1:]...)
		if (err == nil) != neg {
			return
		}
		if time.Now().After(limit) {
			ts.Fatalf("not within a minute: %v", err)
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

// oneline checks that the last program wrote one line to stderr, from leasehold, but for where it is explained.
func oneLineOnly(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: oneline")
	}
	text := talkOf(ts)
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
