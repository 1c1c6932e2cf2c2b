package main

import (
	"bytes"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
)

// programVariable makes the test's binary the program, so that the tests run all of it
// as a user does, and its processes are processes.
const programVariable = "CONTENTION_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // they wait, most of the time
		panic(err)
	}
	os.Exit(m.Run())
}

// program is the program with arguments, not started yet.
func program(t *testing.T, env []string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Env = append(append(os.Environ(), programVariable+"=1"), env...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// TestCompete: in each layout, in one process and in several, the lines tell of one task
// at a time, and what they come to follows. LISTs are for the layouts with epochs, and
// DELETEs for markers.
func TestCompete(t *testing.T) {
	t.Parallel()
	for _, way := range leasetest.Ways {
		for _, processes := range []string{"1", "3"} {
			t.Run(way.String()+" "+processes, func(t *testing.T) {
				t.Parallel()
				layout, args := way.Layout, []string{}
				if way.NoIfMatch {
					args = []string{"--store", way.URL("file://" + filepath.ToSlash(t.TempDir()))}
				}
				cmd, stdout, stderr := program(t, nil, append(args, "--layout", string(layout), "--processes", processes, "--tasks", "6", "--acquisitions", "12", "--hold", "2ms")...)
				if err := cmd.Run(); err != nil || stderr.Len() > 0 {
					t.Fatalf("%v\n%s", err, stderr)
				}
				turns, figures, _ := strings.Cut(stdout.String(), "\n\n")
				lines := strings.Split(turns, "\n")
				acquired := regexp.MustCompile(`^acquired lock ([0-5])$`)
				for len(lines) >= 2 {
					m := acquired.FindStringSubmatch(lines[0])
					if m == nil || lines[1] != "releasing lock "+m[1] {
						t.Fatalf("not one turn after the other: %q", lines[:2])
					}
					lines = lines[2:]
				}
				if turns := strings.Count(turns, "\n") + 1; len(lines) > 0 || turns != 24 {
					t.Errorf("%d lines of turns, not 24", turns)
				}
				m := regexp.MustCompile(`^acquisitions: 12
tasks served: [1-6] of 6
in use: (?:100.0|[1-9]\d?\.\d|0\.[1-9]) % of the time
requests for each acquisition: \d+\.\d\d GET, (\d+)\.\d\d PUT, (\d+\.\d\d) LIST, (\d+\.\d\d) DELETE
$`).FindStringSubmatch(figures)
				if m == nil || m[1] == "0" || (m[2] != "0.00") != strings.HasPrefix(string(layout), "epochs") ||
					(m[3] != "0.00") != strings.HasPrefix(string(layout), "marker") {
					t.Errorf("figures %q", figures)
				}
			})
		}
	}
}

// TestTheCheckCanFail: on a server that ignores conditions two processes create the lock
// at the same time, and the program says so. The first write waits for the second, so
// both have seen that there was no lock.
func TestTheCheckCanFail(t *testing.T) {
	t.Parallel()
	srv := servers.Start(t, "gofakes3")
	both := make(chan struct{})
	release := sync.OnceFunc(func() { close(both) })
	t.Cleanup(release)
	proxy := servers.StartProxy(t, srv.Endpoint, &servers.ProxyOptions{DropConditions: true, Fault: func(r *http.Request, n int) servers.Fault {
		if r.Method == http.MethodPut {
			if n == 2 {
				release()
			}
			<-both
		}
		return servers.Pass
	}})
	cmd, stdout, stderr := program(t, srv.Env(), "--store", srv.URLAt(proxy.Endpoint, srv.Bucket(t)), "--processes", "2", "--tasks", "2", "--acquisitions", "1", "--hold", "5m", "--ttl", "10m")
	err := cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "it has the lock, and is not alone inside") {
		t.Errorf("%v, want exit code 1 and the reason\n%s%s", err, stdout, stderr)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, says string }{
		{"--layout maze", `no layout "maze": use one of [object epochs`},
		{"--processes 2 --store mem://x", "processes share no memory"},
		{"--processes 5 --tasks 4", "a task in each"},
		{"--processes 0", "one process at least"},
		{"--hold -1s", "the hold must not be negative"},
		{"--acquisitions 0", "one acquisition"},
		{"extra", `unexpected argument "extra"`},
		{"--tusks 3", "not defined: -tusks"},
	} {
		cmd, stdout, stderr := program(t, nil, strings.Fields(c.args)...)
		_ = cmd.Run() // its code tells
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(stderr.String(), c.says) || stdout.Len() > 0 {
			t.Errorf("%s: exit code %d, want 2, and stderr with %q, not\n%s", c.args, code, c.says, stderr)
		}
	}
}

// TestStoreThatIsNotThere: one process that fails ends all of them.
func TestStoreThatIsNotThere(t *testing.T) {
	t.Parallel()
	srv := servers.Start(t, "gofakes3")
	cmd, stdout, stderr := program(t, srv.Env(), "--store", srv.URL("no-such-bucket"), "--processes", "2", "--tasks", "4")
	_ = cmd.Run() // its code tells
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "bucket does not exist") || stdout.Len() > 0 {
		t.Errorf("exit code %d, want 1:\n%s%s", code, stdout, stderr)
	}
}
