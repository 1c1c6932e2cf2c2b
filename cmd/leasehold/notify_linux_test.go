package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
)

// A manager is the service manager of a command under test, on a real socket.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	path string
	seen []string
}

// manage makes one that listens at path, which is abstract if it begins with @.
func manage(t *testing.T, path string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &manager{t: t, conn: conn, path: path}
}

// start starts a command of this program as the manager does.
func (m *manager) start(store string, env []string, args ...string) *osexec.Cmd {
	m.t.Helper()
	cmd := leaseholdCommand(m.t, store, args...)
	cmd.Env = append(append(cmd.Env, "NOTIFY_SOCKET="+m.path), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = cmd.Process.Kill() // when it has not ended
		_ = cmd.Wait()
		if m.t.Failed() {
			m.t.Logf("%s said %q", args[0], &said)
		}
	})
	return cmd
}

// hear waits for a line that matches, and returns those that came before it.
func (m *manager) hear(pattern string) (before []string) {
	m.t.Helper()
	wanted := regexp.MustCompile("^" + pattern + "$")
	if err := m.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		m.t.Fatal(err)
	}
	for datagram := make([]byte, 4096); ; {
		for i, line := range m.seen {
			if wanted.MatchString(line) {
				before, m.seen = m.seen[:i], m.seen[i+1:]
				return before
			}
		}
		n, err := m.conn.Read(datagram)
		if err != nil {
			m.t.Fatalf("it never says %s, but %q: %v", pattern, m.seen, err)
		}
		m.seen = append(m.seen, strings.Split(string(datagram[:n]), "\n")...)
	}
}

// withoutMarker leaves out what needs a lease that is renewed.
func withoutMarker(t *testing.T) {
	t.Helper()
	if underTest == leasehold.LayoutMarker {
		t.Skip("a plain marker is not renewed, and says nothing of a takeover")
	}
}

// A candidate tells its manager of its campaign, of the leader that it follows, of its own
// leadership, and of its end; and its command does not get to speak for it.
func TestElectNotifies(t *testing.T) {
	t.Parallel()
	withoutMarker(t)
	store := "file://" + t.TempDir()
	leader := leaseholdCommand(t, store, "elect", "--ttl", "2s", "--holder", "a", "l", "--", "sleep", "1000")
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = leader.Process.Kill() })
	awaitHolder(t, store, "a")

	m := manage(t, filepath.Join(t.TempDir(), "n"))
	out := filepath.Join(t.TempDir(), "env")
	candidate := m.start(store, []string{"WATCHDOG_USEC=200000"}, "elect", "--ttl", "2s", "--holder", "b", "l", "--", "sh", "-c", `env > "$0"; exec sleep 1000`, out)
	// It may have seen the leader before it says that it is ready.
	m.seen = append(m.hear("READY=1"), m.seen...)
	m.hear(`STATUS=following in l, led by a(, token \d+)?`)
	m.hear("WATCHDOG=1")
	_ = leader.Process.Kill()
	_ = leader.Wait()
	m.hear(`STATUS=leading l as b(, token \d+)?`)
	m.hear("WATCHDOG=1")
	var env []byte
	for end := time.Now().Add(time.Minute); len(env) == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		env, _ = os.ReadFile(out)
	}
	if text := string(env); !strings.Contains(text, "LEASEHOLD_LOCK=") || strings.Contains(text, "NOTIFY_SOCKET") || strings.Contains(text, "WATCHDOG") {
		t.Errorf("the command has this environment:\n%s", text)
	}
	if err := candidate.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.hear("STOPPING=1")
}

// A run is ready when its command has begun, and not while it waits.
func TestRunNotifies(t *testing.T) {
	t.Parallel()
	withoutMarker(t)
	store := "file://" + t.TempDir()
	m := manage(t, fmt.Sprintf("@leasehold-run-%d", os.Getpid()))
	holder := leaseholdCommand(t, store, "run", "--ttl", "2s", "--holder", "a", "l", "--", "sleep", "1000")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill() })
	awaitHolder(t, store, "a")
	run := m.start(store, []string{"WATCHDOG_USEC=200000", "WATCHDOG_PID=1"}, "run", "--ttl", "2s", "--holder", "b", "l", "--", "sleep", "1000")
	before := m.hear(`STATUS=waiting for l, held by a(, token \d+)?`)
	if slices.Contains(before, "READY=1") {
		t.Errorf("it is ready, and waits: %q", before)
	}
	_ = holder.Process.Signal(syscall.SIGTERM)
	_ = holder.Wait()
	before = append(before, m.hear("READY=1")...)
	m.hear(`STATUS=holding l as b(, token \d+)?`)
	_ = run.Process.Signal(syscall.SIGTERM)
	rest := m.hear("STOPPING=1")
	for _, line := range append(before, rest...) {
		if line == "WATCHDOG=1" {
			t.Error("it answers a watchdog that watches process 1")
		}
	}
	_ = run.Wait()
	if code := run.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
}

// A candidate whose store fails for longer than a TTL is unfit, and says so where it is asked; it
// is fit again as soon as the store works.
func TestElectUnfit(t *testing.T) {
	t.Parallel()
	if underTest != leasehold.LayoutObject {
		t.Skip("its store has one object: the same in every layout")
	}
	var works atomic.Bool
	works.Store(true)
	st := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && works.Load():
			w.Header().Set("ETag", `"1"`)
		case works.Load():
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "<Error><Code>NoSuchKey</Code></Error>")
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "<Error><Code>SlowDown</Code></Error>")
		}
	}))
	defer st.Close()
	m := manage(t, filepath.Join(t.TempDir(), "n"))
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	m.start("", []string{"WATCHDOG_USEC=100000", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s", "AWS_EC2_METADATA_DISABLED=true"},
		"elect", "--ttl", "1s", "--http", address, "s3://bucket/l?endpoint="+st.URL, "--", "sleep", "1000")
	m.hear("STATUS=leading .*")
	m.hear("WATCHDOG=1")
	works.Store(false)
	awaitAnswer(t, address, "/healthz", 503, `the store has failed for \d+s, which is longer than the TTL of 1s`)
	awaitAnswer(t, address, "/readyz", 503, `the store has failed .*`)
	awaitAnswer(t, address, "/leader", 200, `{"name":"","leading":false,.*}`)
	awaitAnswer(t, address, "/metrics", 200, `(?s).*leasehold_losses_total{[^}]*} 1\n.*leasehold_healthy{[^}]*} 0\n.*leasehold_store_trouble{[^}]*} 1\n.*`)
	m.hear("STATUS=candidate for .*, no leader is known; the store has failed since .*")
	works.Store(true)
	awaitAnswer(t, address, "/healthz", 200, "ok")
	m.hear("WATCHDOG=1")
}

// awaitAnswer waits for an answer with a code and a body.
func awaitAnswer(t *testing.T, address, path string, code int, body string) {
	t.Helper()
	wanted := regexp.MustCompile("^" + body + "$")
	var got fetched
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got, err = asked(t.Context(), http.MethodGet, address, path, ""); got.code == code && wanted.MatchString(strings.TrimSpace(got.body)) {
			return
		}
	}
	t.Errorf("%s is %+v, %v; want %d %s", path, got, err, code, body)
}

// awaitHolder waits until the lock l is held under a name.
func awaitHolder(t *testing.T, store, name string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if out, _ := leaseholdCommand(t, store, "status", "l").Output(); strings.Contains(string(out), "holder") && strings.Contains(string(out), " "+name+"\n") {
			return
		}
	}
	t.Fatalf("%s never holds it", name)
}
