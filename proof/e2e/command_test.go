//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/servers"
)

// command is the path of the command, built once.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "leasehold")
	if err != nil {
		return "", err
	}
	built = filepath.Join(dir, "leasehold")
	out, err := exec.Command("go", "-C", "../..", "build", "-o", built, "./cmd/leasehold").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return built, nil
})

// A run is one process of the command.
type run struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	done           chan struct{} // closed when it has ended
}

func start(t *testing.T, env []string, args ...string) *run {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	return startAs(t, path, env, args...)
}

// startAs starts a command of another build.
func startAs(t *testing.T, path string, env []string, args ...string) *run {
	t.Helper()
	// It ends in the clean-up, which comes after the test's context has ended.
	r := &run{Cmd: exec.CommandContext(context.WithoutCancel(t.Context()), path, underTest.Args(args)...), done: make(chan struct{})}
	r.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LEASEHOLD_TEST_") }), env...)
	r.Env = append(r.Env, "LEASEHOLD_LAYOUT="+string(underTest.Layout))
	if !renewals() {
		r.Env = append(r.Env, "LEASEHOLD_SWEEP=true")
	}
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.Process.Signal(syscall.SIGCONT)
		_ = r.Process.Kill()
		<-r.done
	})
	return r
}

// code waits for the end and returns the exit code.
func (r *run) code(t *testing.T) int {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%v does not end; stderr: %s", r.Args, r.stderr.String())
	}
	return r.ProcessState.ExitCode()
}

// A site is a place that processes can reach: the URL of a lock and what they
// need in their environment.
type site struct {
	name, url string
	env       []string
	unhashed  bool // its versions are no hashes of what the objects have
}

// sites runs test over a directory, each server of S3, and the emulators of other clouds.
func sites(t *testing.T, test func(t *testing.T, direct site)) {
	t.Helper()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		test(t, site{name: "file", url: "file://" + t.TempDir() + "/lock"})
	})
	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.Start(t, name)
			test(t, site{name: name, url: lockURL(server.URL(server.Bucket(t))), env: server.Env()})
		})
	}
	t.Run(servers.GCS, func(t *testing.T) {
		t.Parallel()
		server := servers.StartGCS(t)
		test(t, site{name: servers.GCS, url: lockURL(server.GCSURL(server.GCSBucket(t))), unhashed: true})
	})
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		server := servers.StartAzurite(t)
		test(t, site{name: "azurite", url: lockURL(server.URL(server.Container(t))), env: server.Env(), unhashed: true})
	})
}

// lockURL makes the URL of a lock of the URL of a bucket.
func lockURL(bucket string) string {
	head, query, _ := strings.Cut(bucket, "?")
	return head + "/jobs/lock?" + query
}

// proxied is the same lock of one server, seen directly and through a proxy.
func proxied(t *testing.T, name string, opts *servers.ProxyOptions) (direct, through site, proxy *servers.Proxy) {
	t.Helper()
	server := servers.Start(t, name)
	proxy = servers.StartProxy(t, server.Endpoint, opts)
	bucket := server.Bucket(t)
	direct = site{name: name, url: lockURL(server.URL(bucket)), env: server.Env()}
	through = site{name: name, url: lockURL(server.URLAt(proxy.Endpoint, bucket)), env: server.Env()}
	return direct, through, proxy
}

// TestTwoCopiesNeverRunAtOnce: 32 processes want one lock; each gets it once, no two
// overlap, and the tokens grow.
func TestTwoCopiesNeverRunAtOnce(t *testing.T) {
	t.Parallel()
	copies := 32
	if testing.Short() {
		copies = 8
	}
	sites(t, func(t *testing.T, at site) {
		log := filepath.Join(t.TempDir(), "log")
		job := fmt.Sprintf(`echo "begin ${LEASEHOLD_TOKEN-none} $$" >>%q; sleep 0.01; echo "end ${LEASEHOLD_TOKEN-none} $$" >>%q`, log, log)
		var runs []*run
		for range copies {
			runs = append(runs, start(t, at.env, "run", "--wait", "forever", at.url, "--", "sh", "-c", job))
		}
		for _, r := range runs {
			if code := r.code(t); code != 0 || r.stdout.Len() != 0 {
				t.Errorf("exit code %d, stdout %q, stderr %s", code, &r.stdout, &r.stderr)
			}
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(lines) != 2*copies {
			t.Fatalf("%d lines of %d processes:\n%s", len(lines), copies, text)
		}
		last := leasehold.NoToken
		for i := 0; i < len(lines); i += 2 {
			begin, end := strings.Fields(lines[i]), strings.Fields(lines[i+1])
			token := parseToken(t, begin[1])
			if begin[0] != "begin" || end[0] != "end" || !slices.Equal(begin[1:], end[1:]) || !later(token, last) {
				t.Fatalf("line %d: %q, %q after token %v", i, lines[i], lines[i+1], last)
			}
			last = token
		}
	})
}

// parseToken reads what a job wrote of its token.
func parseToken(t *testing.T, word string) leasehold.Token {
	t.Helper()
	if word == leasehold.NoToken.String() {
		return leasehold.NoToken
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 1 {
		t.Fatalf("the token of a job was %q", word)
	}
	return leasehold.Token(n)
}

// TestLostAnswers: the first write of each attempt lands and its answer is lost, and
// in another round every write's. The holder must not take itself for a rival.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for what, every := range map[string]int{"every second answer": 2, "every answer": 1} {
		for _, name := range serverNames() {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				puts := 0
				direct, through, proxy := proxied(t, name, &servers.ProxyOptions{
					Fault: func(r *http.Request, _ int) servers.Fault {
						mu.Lock()
						defer mu.Unlock()
						if r.Method != http.MethodPut {
							return servers.Pass
						}
						if puts++; puts%every == 0 || puts == 1 {
							return servers.DropAnswer
						}
						return servers.Pass
					},
				})
				ttl, least := "3s", 4
				if !renewals() {
					ttl, least = "20s", 1
				}
				r := start(t, through.env, "run", "-v", "--ttl", ttl, "--grace", "500ms", through.url, "--", "sleep", "4")
				if code := r.code(t); code != 0 {
					t.Errorf("exit code %d: %s", code, &r.stderr)
				}
				for _, word := range []string{"held by", "lost", "waiting"} {
					if strings.Contains(r.stderr.String(), word) {
						t.Errorf("it took its own lock for another's: %s", &r.stderr)
					}
				}
				if n := proxy.Counts()[http.MethodPut]; n < least {
					t.Errorf("only %d PUTs, want %d at least: no renewal was tested", n, least)
				}
				if free := start(t, direct.env, "run", "--wait", "0", direct.url, "--", "true"); free.code(t) != 0 {
					t.Errorf("the lock was not released: %s", &free.stderr)
				}
			})
		}
	}
}

// A held lock: the process that holds it, and its job, which has a child of its own.
type holder struct {
	*run
	job, child int // process IDs
}

// hold starts a job that ignores SIGTERM, as does its child, and waits until both run.
func hold(t *testing.T, at site, ttl string) *holder {
	t.Helper()
	pids := filepath.Join(t.TempDir(), "pids")
	job := fmt.Sprintf(`trap "" TERM; (while :; do sleep 1; done) & echo $$ $! >%q.new; mv %q.new %q; while :; do sleep 1; done`, pids, pids, pids)
	h := &holder{run: start(t, at.env, "run", "--ttl", ttl, "--grace", "500ms", at.url, "--", "sh", "-c", job)}
	until(t, "the job runs", func() bool {
		text, err := os.ReadFile(pids)
		if err != nil {
			return false
		}
		_, err = fmt.Sscan(string(text), &h.job, &h.child)
		return err == nil
	})
	t.Cleanup(func() {
		_ = syscall.Kill(h.job, syscall.SIGKILL)
		_ = syscall.Kill(h.child, syscall.SIGKILL)
	})
	return h
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it never happened that %s", what)
		}
	}
}

// gone reports that a process runs no more.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return os.IsNotExist(err) && pathExists("/proc/self/stat")
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

func pathExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// succeed starts a second run, which waits for the lock, and whose job looks
// whether anything of the first one's is alive when it begins.
func succeed(t *testing.T, at site, h *holder) {
	t.Helper()
	alive := fmt.Sprintf(`for p in %d %d; do
		if [ -r /proc/$p/stat ]; then s=$(sed 's/.*) //; s/ .*//' /proc/$p/stat 2>/dev/null); else s=; kill -0 $p 2>/dev/null && s=R; fi
		case "$s" in ""|Z) ;; *) echo "process $p is alive: $s";; esac
	done; echo "token $LEASEHOLD_TOKEN"`, h.job, h.child)
	next := start(t, at.env, "run", "--wait", "1m", at.url, "--", "sh", "-c", alive)
	if code := next.code(t); code != 0 {
		t.Fatalf("the second run: exit code %d: %s", code, &next.stderr)
	}
	out := bufio.NewScanner(&next.stdout)
	for out.Scan() {
		if line := out.Text(); !strings.HasPrefix(line, "token ") {
			t.Errorf("when the second holder began, %s", line)
		}
	}
}

// TestStoreGoesAway: the store is cut off while the job runs. The job is gone before
// the lease ends, which is before anybody else can hold the lock.
func TestStoreGoesAway(t *testing.T) {
	t.Parallel()
	for how, cut := range map[string]func(*testing.T, *servers.Proxy, *holder){
		"hangs":   func(_ *testing.T, p *servers.Proxy, _ *holder) { p.Hang() },
		"refuses": func(_ *testing.T, p *servers.Proxy, _ *holder) { p.Refuse() },
		"refuses, guardian stopped": func(t *testing.T, p *servers.Proxy, h *holder) {
			_ = syscall.Kill(guardian(t, h), syscall.SIGSTOP)
			p.Refuse()
		},
		"refuses, guardian and watcher stopped": func(t *testing.T, p *servers.Proxy, h *holder) {
			_ = syscall.Kill(watcher(t, h), syscall.SIGSTOP)
			_ = syscall.Kill(guardian(t, h), syscall.SIGSTOP)
			p.Refuse()
		},
	} {
		for _, name := range serverNames() {
			t.Run(how+"/"+name, func(t *testing.T) {
				t.Parallel()
				direct, through, proxy := proxied(t, name, nil)
				h := hold(t, through, "3s")
				cut(t, proxy, h)
				succeed(t, direct, h)
				if code := h.code(t); code != 76 {
					t.Errorf("exit code %d, want 76: %s", code, &h.stderr)
				}
				if !strings.Contains(h.stderr.String(), "lost") {
					t.Errorf("it did not say that the lease was lost: %q", &h.stderr)
				}
			})
		}
	}
}

// TestHolderDies: the command itself, its watcher or its guardian is killed or stopped, or
// two of the three at one moment. A SIGKILL for all that goes by the name of the command
// used to hit its guardian too, and the job's child worked on beside the next holder.
func TestHolderDies(t *testing.T) {
	t.Parallel()
	three := func(t *testing.T, h *holder) []int {
		t.Helper()
		return []int{h.Process.Pid, guardian(t, h), watcher(t, h)}
	}
	pair := func(sig syscall.Signal, one, other int) func(t *testing.T, h *holder) {
		return func(t *testing.T, h *holder) {
			t.Helper()
			all := three(t, h)
			t.Cleanup(func() { // one that stays stopped keeps stderr open, which is waited for
				_, _ = syscall.Kill(all[one], syscall.SIGCONT), syscall.Kill(all[other], syscall.SIGCONT)
			})
			_, _ = syscall.Kill(all[one], sig), syscall.Kill(all[other], sig)
		}
	}
	for how, strike := range map[string]func(t *testing.T, h *holder){
		"SIGKILL":                         func(_ *testing.T, h *holder) { _ = h.Process.Kill() },
		"SIGSTOP":                         func(_ *testing.T, h *holder) { _ = h.Process.Signal(syscall.SIGSTOP) },
		"SIGKILL, guardian":               func(t *testing.T, h *holder) { _ = syscall.Kill(guardian(t, h), syscall.SIGKILL) },
		"SIGKILL, leasehold and guardian": pair(syscall.SIGKILL, 0, 1),
		"SIGKILL, leasehold and watcher":  pair(syscall.SIGKILL, 0, 2),
		"SIGKILL, guardian and watcher":   pair(syscall.SIGKILL, 1, 2),
		"SIGSTOP, leasehold and guardian": pair(syscall.SIGSTOP, 0, 1),
		"SIGSTOP, leasehold and watcher":  pair(syscall.SIGSTOP, 0, 2),
		"SIGKILL, by name": func(t *testing.T, h *holder) {
			byName(t, three(t, h), func(dir string) (string, error) {
				text, err := os.ReadFile(dir + "/comm")
				return string(text), err
			})
		},
		"SIGKILL, by command line": func(t *testing.T, h *holder) {
			byName(t, three(t, h), func(dir string) (string, error) {
				text, err := os.ReadFile(dir + "/cmdline")
				return string(text), err
			})
		},
		"SIGKILL, whole job": func(_ *testing.T, h *holder) { _ = syscall.Kill(-h.job, syscall.SIGKILL) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			sites(t, func(t *testing.T, at site) {
				h := hold(t, at, "3s")
				strike(t, h)
				succeed(t, at, h)
			})
		})
	}
}

// byName kills those processes that pkill -9 leasehold would, at one moment: those whose
// name in /proc has the command's in it.
func byName(t *testing.T, pids []int, name func(dir string) (string, error)) {
	t.Helper()
	var hit []int
	for _, pid := range pids {
		text, err := name(fmt.Sprintf("/proc/%d", pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "leasehold") {
			hit = append(hit, pid)
		}
	}
	if len(hit) == 0 {
		t.Fatal("nothing goes by the name of the command")
	}
	for _, pid := range hit {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// guardian finds the process that started the job.
func guardian(t *testing.T, h *holder) int {
	t.Helper()
	if !pathExists("/proc/self/stat") {
		t.Skip("no /proc to find the guardian in")
	}
	return parent(t, h.job)
}

// watcher finds the process between the command and the guardian.
func watcher(t *testing.T, h *holder) int {
	t.Helper()
	w := parent(t, guardian(t, h))
	if parent(t, w) != h.Process.Pid {
		t.Fatalf("the guardian's parent %d is no child of the command %d", w, h.Process.Pid)
	}
	return w
}

// parent is the process that started another.
func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	ppid, _ := strconv.Atoi(strings.Fields(rest)[1])
	return ppid
}

// TestStoppedHolderWakesUp: stopped for longer than the TTL and continued, the
// former holder notices at once, says so, and writes nothing over the new one.
func TestStoppedHolderWakesUp(t *testing.T) {
	t.Parallel()
	sites(t, func(t *testing.T, at site) {
		h := hold(t, at, "2s")
		h.stop(t, at)
		next := hold(t, at, "1h") // no renewal of its own will change the record
		before := record(t, at)
		if err := h.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if code := h.code(t); code != 76 || !strings.Contains(h.stderr.String(), "lost") {
			t.Errorf("exit code %d, want 76: %q", code, &h.stderr)
		}
		if after := record(t, at); after != before {
			t.Errorf("the new holder's record was %s and is %s", before, after)
		}
		if gone(next.job) {
			t.Error("the new holder's job is gone")
		}
		_ = next.Process.Signal(syscall.SIGTERM)
		_ = syscall.Kill(-next.job, syscall.SIGKILL)
	})
}

// stop stops the command between two writes. In a directory one that is stopped in the midst of a write keeps all
// others from writing until it goes on, as package filestore says.
func (h *holder) stop(t *testing.T, at site) {
	t.Helper()
	dir, inDirectory := strings.CutPrefix(path.Dir(at.url), "file://")
	until(t, "the command is stopped between two writes", func() bool {
		if err := h.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if !inDirectory {
			return true
		}
		l := flock.New(filepath.Join(dir, ".leasehold.lock"))
		defer l.Close()
		free, err := l.TryLock()
		if err == nil && !free {
			err = h.Process.Signal(syscall.SIGCONT)
		}
		if err != nil {
			t.Fatal(err)
		}
		return free
	})
}

// record is what status says of the lock, but for the age.
func record(t *testing.T, at site) string {
	t.Helper()
	r := start(t, at.env, "status", "--output", "json", at.url)
	if code := r.code(t); code != 0 {
		t.Fatalf("status: %s", &r.stderr)
	}
	var kept []string
	for field := range strings.SplitSeq(r.stdout.String(), ",") {
		if !strings.Contains(field, "age") {
			kept = append(kept, field)
		}
	}
	return strings.Join(kept, ",")
}
