package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
)

// programVariable makes the test's binary the program, so that the tests run all of it
// as a user does, and its processes are processes.
const programVariable = "CONTENTION_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
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

// contend runs the program with --json and gives what it printed, one after the other.
func contend(t *testing.T, env []string, args ...string) []figures {
	t.Helper()
	cmd, stdout, stderr := program(t, env, append(args, "--json")...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, stderr)
	}
	var all []figures
	for lines := json.NewDecoder(stdout); lines.More(); {
		var f figures
		if err := lines.Decode(&f); err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// TestCompare: the figures of both protocols come from one run.
func TestCompare(t *testing.T) {
	t.Parallel()
	all := contend(t, nil, "--compare", "--tasks", "10", "--hold", "20ms")
	if len(all) != 2 || all[1].Protocol != plainLoop {
		t.Fatalf("got %+v, want two", all)
	}
	for _, f := range all {
		f.check(t, 10, 20*time.Millisecond)
	}
	if all[1].Delete < 1 {
		t.Errorf("the plain loop releases by a DELETE, and made %v for each acquisition", all[1].Delete)
	}
}

// TestTheCheckCanFail: on a store that ignores conditions the plain loop lets several
// tasks in at once, and the program says so. They all begin within 0.5 to 1 s, so a
// hold of 2 s is longer than any two are apart.
func TestTheCheckCanFail(t *testing.T) {
	t.Parallel()
	srv := servers.Start(t, "gofakes3")
	proxy := servers.StartProxy(t, srv.Endpoint, &servers.ProxyOptions{DropConditions: true})
	for _, processes := range []string{"1", "2"} {
		t.Run(processes, func(t *testing.T) {
			t.Parallel()
			url := srv.URLAt(proxy.Endpoint, srv.Bucket(t))
			cmd, stdout, stderr := program(t, srv.Env(), "--store", url, "--processes", processes, "--plain-loop", "--tasks", "4", "--acquisitions", "2", "--hold", "2s", "--json")
			err := cmd.Run()
			if cmd.ProcessState.ExitCode() != exitFailed {
				t.Errorf("%v, want exit code %d", err, exitFailed)
			}
			for _, want := range []string{"came in while task", "a task was inside when another came in: "} {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("stderr does not say %q:\n%s", want, stderr)
				}
			}
			var f figures
			if err := json.Unmarshal(stdout.Bytes(), &f); err != nil || f.Overlaps == 0 {
				t.Errorf("%v, figures %+v, want overlaps", err, f)
			}
		})
	}
}

func TestEnter(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "inside")
	leave, overlap, err := enter(name, 1)
	if err != nil || overlap != "" {
		t.Fatalf("the first: %q, %v", overlap, err)
	}
	leaveToo, overlap, err := enter(name, 2)
	if err != nil || overlap != "task 1 is inside" {
		t.Errorf("the second: %q, %v", overlap, err)
	}
	if err = leaveToo(); err != nil {
		t.Error(err)
	}
	if _, overlap, err = enter(name, 3); err != nil || overlap != "task 1 is inside" {
		t.Errorf("the third, when the second has left: %q, %v", overlap, err)
	}
	if err = leave(); err != nil {
		t.Error(err)
	}
	if _, overlap, err = enter(name, 4); err != nil || overlap != "" {
		t.Errorf("the fourth, alone: %q, %v", overlap, err)
	}
}

// TestText: the lines tell of one task at a time, and a table follows.
func TestText(t *testing.T) {
	t.Parallel()
	cmd, stdout, stderr := program(t, nil, "--processes", "2", "--tasks", "4", "--acquisitions", "6", "--hold", "5ms")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	lines := strings.Split(stdout.String(), "\n")
	acquired := regexp.MustCompile(`^acquired lock ([0-3])$`)
	for i := range 6 {
		m := acquired.FindStringSubmatch(lines[2*i])
		if m == nil || lines[2*i+1] != "releasing lock "+m[1] {
			t.Fatalf("acquisition %d: %q", i+1, lines[2*i:2*i+2])
		}
	}
	row := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "object ") })
	if row < 12 || !strings.Contains(lines[row-1], "in use") || !regexp.MustCompile(`^ *object +2 +6 +\d of 4 +[\d.]+ %( +[\d.]+){6}$`).MatchString(strings.TrimRight(lines[row], " ")) {
		t.Errorf("no table with a row of object:\n%s", stdout)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, says string }{
		{"--layout maze", `no layout "maze": use one of object, epochs`},
		{"--processes 2 --store mem://x", "processes share no memory"},
		{"--processes 5 --tasks 4", "a task in each"},
		{"--processes 0", "one process at least"},
		{"--hold -1s", "the hold must not be negative"},
		{"--acquisitions -1", "one acquisition"},
		{"--compare --plain-loop", "leave out --plain-loop"},
		{"extra", `unexpected argument "extra"`},
		{"--tusks 3", "not defined: -tusks"},
	} {
		cmd, stdout, stderr := program(t, nil, strings.Fields(c.args)...)
		_ = cmd.Run() // its code tells
		if code := cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(stderr.String(), c.says) || stdout.Len() > 0 {
			t.Errorf("%s: exit code %d, want %d, and stderr with %q, not\n%s", c.args, code, exitUsage, c.says, stderr)
		}
	}
}

// TestStoreThatIsNotThere: one process that fails ends all of them.
func TestStoreThatIsNotThere(t *testing.T) {
	t.Parallel()
	srv := servers.Start(t, "gofakes3")
	for _, protocol := range []string{"--layout=object", "--plain-loop"} {
		cmd, _, stderr := program(t, srv.Env(), "--store", srv.URL("no-such-bucket"), "--processes", "2", "--tasks", "4", protocol)
		_ = cmd.Run() // its code tells
		if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(stderr.String(), "bucket does not exist") {
			t.Errorf("%s: exit code %d, want %d:\n%s", protocol, code, exitFailed, stderr)
		}
	}
}
