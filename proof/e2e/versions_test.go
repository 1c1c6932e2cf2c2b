//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
)

// otherVersion builds the command of the base that tools/api/README.md tells of, outside of this clone, and gives its path
// and the name of the base.
func otherVersion(t *testing.T) (path, base string) {
	t.Helper()
	const root = "../.."
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	pinned, err := os.ReadFile(root + "/tools/api/base")
	if err != nil {
		t.Fatal(err)
	}
	base = strings.TrimSpace(string(pinned))
	if tag, untagged := git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"); untagged == nil {
		base = tag
	}
	commit, err := git("rev-parse", "--quiet", "--verify", base+"^{commit}")
	if err != nil {
		t.Skipf("the older version %s is not in this clone: git fetch --unshallow --tags", base)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "leasehold-test", "versions", commit) // tools/apicheck has it too
	if path = filepath.Join(dir, "leasehold"); !pathExists(path) {
		buildOther(t, commit, dir, path)
	}
	return path, base
}

// buildOther builds the command of a commit. The source and the binary come to their places when they are whole: others
// may be at the same.
func buildOther(t *testing.T, commit, dir, path string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	own, err := os.MkdirTemp(dir, "making-") //nolint:usetesting // beside where it is renamed to
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(own) })
	source := filepath.Join(dir, "source")
	do := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	if !pathExists(source) {
		do("git", "-C", "../..", "archive", "--prefix", "source/", "--output", filepath.Join(own, "tar"), commit)
		do("tar", "-xf", filepath.Join(own, "tar"), "-C", own)
		if err := os.Rename(filepath.Join(own, "source"), source); err != nil && !pathExists(source) {
			t.Fatal(err)
		}
	}
	do("go", "-C", source, "build", "-buildvcs=false", "-o", filepath.Join(own, "leasehold"), "./cmd/leasehold")
	if err := os.Rename(filepath.Join(own, "leasehold"), path); err != nil {
		t.Fatal(err)
	}
}

// A pair is two builds of the command that share what lies in a directory.
type pair struct {
	first, second string
	dir           string // of the locks
	url           string // of one
	files         string // of the test
}

// job is one for a shell that says that it runs, by a file with its token, and ends when another file is there.
func (p *pair) job(name string) string {
	return fmt.Sprintf(`echo "$LEASEHOLD_TOKEN" >%q; mv %q %q; while [ ! -e %q ]; do sleep 0.02; done`,
		p.file(name+".new"), p.file(name+".new"), p.file(name), p.file(name+".end"))
}

func (p *pair) file(name string) string { return filepath.Join(p.files, name) }

// runs waits until a job runs, and gives its token.
func (p *pair) runs(t *testing.T, name string, r *run) leasehold.Token {
	t.Helper()
	var text []byte
	until(t, "the job "+name+" runs", func() (ok bool) {
		select {
		case <-r.done:
			t.Fatalf("%v ended with %d: %s", r.Args, r.ProcessState.ExitCode(), &r.stderr)
		default:
		}
		var err error
		text, err = os.ReadFile(p.file(name))
		return err == nil
	})
	return parseToken(t, strings.TrimSpace(string(text)))
}

// ends lets a job end, and wants it to have ended well.
func (p *pair) ends(t *testing.T, name string, r *run) {
	t.Helper()
	if err := os.WriteFile(p.file(name+".end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wants(t, r, 0)
}

func wants(t *testing.T, r *run, code int) {
	t.Helper()
	if got := r.code(t); got != code {
		t.Errorf("%v ended with %d, want %d: %s", r.Args, got, code, &r.stderr)
	}
}

// TestOtherVersion: the command of an older version and this one share locks, each as the first and as the second. For
// what a version may change, see docs/stability.md.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	if underTest != leasetest.Object {
		t.Skip("the same in every layout")
	}
	now, err := command()
	if err != nil {
		t.Fatal(err)
	}
	older, base := otherVersion(t)
	t.Logf("the older version is %s", base)
	for order, builds := range map[string][2]string{"older first": {older, now}, "older second": {now, older}} {
		for name, test := range map[string]func(*testing.T, *pair){
			"holder": shareHolder, "waiter": shareWaiter, "takeover": shareTakeover, "detached": shareDetached, "elect": shareElection,
			"slots": shareSlots, "fair": shareFair, "rw": shareReaders, "session": shareSession, "rest": shareRest, "history": shareHistory,
		} {
			t.Run(order+"/"+name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				test(t, &pair{first: builds[0], second: builds[1], dir: dir, url: "file://" + dir + "/lock", files: t.TempDir()})
			})
		}
	}
}

// shareHolder: one holds, the other finds it held, sees by whom, and does not get it.
func shareHolder(t *testing.T, p *pair) {
	t.Helper()
	r := startAs(t, p.first, nil, "run", "--holder", "one", "--meta", "k=v", p.url, "--", "sh", "-c", p.job("a"))
	token := p.runs(t, "a", r)
	wants(t, startAs(t, p.second, nil, "run", "--wait", "0", p.url, "--", "true"), 75)
	status := startAs(t, p.second, nil, "status", "-o", "json", p.url)
	_ = status.code(t)
	for _, want := range []string{`"holder": "one"`, `"state": "held"`, fmt.Sprintf(`"token": %d`, token), `"k": "v"`} {
		if !strings.Contains(status.stdout.String(), want) {
			t.Errorf("status has no %s: %s%s", want, &status.stdout, &status.stderr)
		}
	}
	p.ends(t, "a", r)
}

// shareWaiter: one waits for the other, and has the larger token.
func shareWaiter(t *testing.T, p *pair) {
	t.Helper()
	a := startAs(t, p.first, nil, "run", p.url, "--", "sh", "-c", p.job("a"))
	first := p.runs(t, "a", a)
	b := startAs(t, p.second, nil, "run", p.url, "--", "sh", "-c", p.job("b"))
	p.ends(t, "a", a)
	if second := p.runs(t, "b", b); !later(second, first) {
		t.Errorf("the tokens are %v, then %v", first, second)
	}
	p.ends(t, "b", b)
}

// shareTakeover: one takes over from the other, which was killed.
func shareTakeover(t *testing.T, p *pair) {
	t.Helper()
	a := startAs(t, p.first, nil, "run", "--ttl", "2s", "--grace", "100ms", p.url, "--", "sh", "-c", p.job("a"))
	first := p.runs(t, "a", a)
	_ = a.Process.Signal(syscall.SIGKILL)
	b := startAs(t, p.second, nil, "run", "--ttl", "2s", p.url, "--", "sh", "-c", p.job("b"))
	if second := p.runs(t, "b", b); !later(second, first) {
		t.Errorf("the tokens are %v, then %v", first, second)
	}
	p.ends(t, "b", b)
}

// shareDetached: each goes on with a lease file of the other's.
func shareDetached(t *testing.T, p *pair) {
	t.Helper()
	file := p.file("lease.json")
	wants(t, startAs(t, p.first, nil, "acquire", "--ttl", "1m", "--file", file, p.url), 0)
	wants(t, startAs(t, p.second, nil, "renew", file), 0)
	wants(t, startAs(t, p.first, nil, "renew", file), 0)
	wants(t, startAs(t, p.second, nil, "release", file), 0)
	wants(t, startAs(t, p.first, nil, "run", "--wait", "0", p.url, "--", "true"), 0)
	wants(t, startAs(t, p.first, nil, "release", file), 76)
}

// shareElection: one leads, the other follows, and leads when the first resigns.
func shareElection(t *testing.T, p *pair) {
	t.Helper()
	a := startAs(t, p.first, nil, "elect", "--ttl", "2s", p.url, "--", "sh", "-c", "trap 'exit 0' TERM; "+p.job("a"))
	first := p.runs(t, "a", a)
	b := startAs(t, p.second, nil, "elect", "--once", "--ttl", "2s", p.url, "--", "sh", "-c", p.job("b"))
	_ = a.Process.Signal(syscall.SIGTERM)
	wants(t, a, 0)
	if second := p.runs(t, "b", b); !later(second, first) {
		t.Errorf("the tokens are %v, then %v", first, second)
	}
	p.ends(t, "b", b)
}

// shareSlots: both have a slot of two, each finds the third taken, and who waits gets it when one is free.
func shareSlots(t *testing.T, p *pair) {
	t.Helper()
	slot := func(path, name string) *run {
		return startAs(t, path, nil, "run", "--slots", "2", p.url, "--", "sh", "-c", p.job(name))
	}
	a := slot(p.first, "a")
	p.runs(t, "a", a)
	b := slot(p.second, "b")
	p.runs(t, "b", b)
	for _, path := range []string{p.first, p.second} {
		wants(t, startAs(t, path, nil, "run", "--slots", "2", "--wait", "0", p.url, "--", "true"), 75)
		wants(t, startAs(t, path, nil, "run", "--slots", "3", "--wait", "0", p.url, "--", "true"), 65)
	}
	c := slot(p.first, "c")
	p.ends(t, "b", b)
	p.runs(t, "c", c)
	p.ends(t, "a", a)
	p.ends(t, "c", c)
}

// shareFair: the lock goes from one to the other with a larger token.
func shareFair(t *testing.T, p *pair) {
	t.Helper()
	a := startAs(t, p.first, nil, "run", "--fair", p.url, "--", "sh", "-c", p.job("a"))
	first := p.runs(t, "a", a)
	b := startAs(t, p.second, nil, "run", "--fair", p.url, "--", "sh", "-c", p.job("b"))
	p.ends(t, "a", a)
	if second := p.runs(t, "b", b); !later(second, first) {
		t.Errorf("the tokens are %v, then %v", first, second)
	}
	p.ends(t, "b", b)
}

// shareReaders: both read at a time, and neither writes meanwhile.
func shareReaders(t *testing.T, p *pair) {
	t.Helper()
	a := startAs(t, p.first, nil, "run", "--shared", p.url, "--", "sh", "-c", p.job("a"))
	p.runs(t, "a", a)
	b := startAs(t, p.second, nil, "run", "--shared", p.url, "--", "sh", "-c", p.job("b"))
	p.runs(t, "b", b)
	for _, path := range []string{p.first, p.second} {
		wants(t, startAs(t, path, nil, "run", "--exclusive", "--wait", "0", p.url, "--", "true"), 75)
	}
	p.ends(t, "a", a)
	p.ends(t, "b", b)
	wants(t, startAs(t, p.second, nil, "run", "--exclusive", "--wait", "10s", p.url, "--", "true"), 0)
}

// shareSession: one serves locks under a session, and the other finds them held until the session's end.
func shareSession(t *testing.T, p *pair) {
	t.Helper()
	socket := p.file("s")
	server := startAs(t, p.first, nil, "serve", "--ttl", "2s", "--http", "unix:"+socket, "file://"+p.dir)
	c := &caller{client: overSocket(socket)}
	until(t, "a caller has the lock", func() bool { return c.ask(t.Context(), "/v1/locks/lock/acquire", `{"ttl":"1h"}`) })
	wants(t, startAs(t, p.second, nil, "run", "--wait", "0", p.url, "--", "true"), 75)
	b := startAs(t, p.second, nil, "run", p.url, "--", "sh", "-c", p.job("b"))
	_ = server.Process.Signal(syscall.SIGKILL)
	p.runs(t, "b", b)
	p.ends(t, "b", b)
}

// shareRest: one leaves a lock at rest, and the other does not take it meanwhile.
func shareRest(t *testing.T, p *pair) {
	t.Helper()
	wants(t, startAs(t, p.first, nil, "run", "--hold-at-least", "1m", p.url, "--", "true"), 0)
	wants(t, startAs(t, p.second, nil, "run", "--wait", "0", p.url, "--", "true"), 75)
}

// shareHistory: each tells of the leases of both.
func shareHistory(t *testing.T, p *pair) {
	t.Helper()
	wants(t, startAs(t, p.first, nil, "run", "--holder", "one", p.url, "--", "true"), 0)
	wants(t, startAs(t, p.second, nil, "run", "--holder", "two", p.url, "--", "true"), 0)
	wants(t, startAs(t, p.first, nil, "run", "--holder", "three", p.url, "--", "true"), 0)
	for _, path := range []string{p.first, p.second} {
		r := startAs(t, path, nil, "history", "-o", "json", p.url)
		wants(t, r, 0)
		if !json.Valid(firstLine(r.stdout.Bytes())) {
			t.Errorf("history is no JSON: %s", &r.stdout)
		}
		for _, want := range []string{`"one"`, `"two"`, `"three"`} {
			if !strings.Contains(r.stdout.String(), want) {
				t.Errorf("the history has no %s: %s", want, &r.stdout)
			}
		}
	}
}

// firstLine is a line, or all of a text that is one value over several.
func firstLine(text []byte) []byte {
	if line, _, ok := bytes.Cut(text, []byte("\n")); ok && json.Valid(line) {
		return line
	}
	return text
}
