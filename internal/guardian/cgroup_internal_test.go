//go:build linux

package guardian

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
)

func TestFindCgroup(t *testing.T) {
	t.Parallel()
	const (
		unified = "25 1 0:22 / /proc rw,nosuid - proc proc rw\n30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid  = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		bound   = "31 24 0:27 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	)
	for _, c := range []struct{ what, cgroups, mounts, want string }{
		{"a service", "0::/system.slice/x.service\n", unified, "/sys/fs/cgroup/system.slice/x.service"},
		{"the root", "0::/\n", unified, "/sys/fs/cgroup"},
		{"beside version 1", "4:memory:/a\n0::/b\n1:cpu:/c\n", hybrid, "/sys/fs/cgroup/unified/b"},
		{"version 1 alone", "4:memory:/a\n", hybrid, ""},
		{"not mounted", "0::/b\n", "25 1 0:22 / /proc rw - proc proc rw\n", ""},
		{"a part of it is mounted", "0::/docker/abc/job\n", bound, "/sys/fs/cgroup/job"},
		{"that very part", "0::/docker/abc\n", bound, "/sys/fs/cgroup"},
		{"another part is mounted", "0::/docker/abcd\n", bound, ""},
		{"above the part that is mounted", "0::/docker\n", bound, ""},
		{"outside of the namespace", "0::/../other\n", unified, ""},
		{"a short line", "0::/b\n", "30 24 - cgroup2 cgroup2 rw\n" + unified, "/sys/fs/cgroup/b"},
		{"no options", "0::/b\n", "30 24 0:26 / /sys/fs/cgroup - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/b"},
		{"nothing", "", "", ""},
	} {
		got, err := findCgroup(c.cgroups, c.mounts)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.what, got, err, c.want)
		}
	}
}

func testCgroup(t *testing.T) *cgroup {
	t.Helper()
	c, err := newCgroup(false)
	if err != nil && Makeable() {
		t.Fatalf("made no cgroup where one can be made: %v", err)
	}
	if err != nil {
		t.Skipf("no cgroup v2 of its own can be made here: %v", err)
	}
	t.Cleanup(func() {
		c.kill()
		for end := time.Now().Add(hang); c.populated() && time.Now().Before(end); time.Sleep(ms) {
		}
		c.remove()
	})
	return c
}

// Makeable reports whether a cgroup with a cgroup.kill can be made, by hand and with
// nothing of what is tested.
func Makeable() bool {
	dir := CgroupByHand()
	return dir != "" && os.Remove(dir) == nil
}

// CgroupByHand makes a cgroup in the one of the tests, in the same way, and returns its directory:
// none if it cannot.
func CgroupByHand() (dir string) {
	cgroups, _ := os.ReadFile("/proc/self/cgroup")
	_, own, _ := strings.Cut("\n"+string(cgroups), "\n0::/")
	own, _, _ = strings.Cut(own, "\n")
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if fields[2] != "cgroup2" {
			continue
		}
		dir, err := os.MkdirTemp(filepath.Join(fields[1], own), "by-hand-")
		if err != nil {
			return ""
		}
		if unix.Access(filepath.Join(dir, "cgroup.kill"), unix.W_OK) != nil {
			_ = os.Remove(dir) // it is of no use
			return ""
		}
		return dir
	}
	return ""
}

// member is a process in the cgroup, which no watcher knows of.
func member(t *testing.T, dir string) *os.Process {
	t.Helper()
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return !errors.Is(err, fs.ErrNotExist)
}

func TestCgroup(t *testing.T) {
	t.Parallel()
	c := testCgroup(t)
	if c.populated() {
		t.Error("a new cgroup is populated")
	}
	inner := filepath.Join(c.Dir, "inner", "most")
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	p := member(t, inner)
	if !c.populated() {
		t.Error("a cgroup with a process below is not populated")
	}
	c.kill()
	state, err := p.Wait()
	if err != nil || state.String() != "signal: killed" {
		t.Errorf("the process ended with %v, %v", state, err)
	}
	for c.populated() {
		time.Sleep(ms)
	}
	c.remove()
	if exists(c.Dir) {
		t.Error("the cgroup was not removed, with those that were made in it")
	}
	if c.FD >= 0 {
		t.Error("its descriptor may be closed once more, when it is another's")
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, c.Dir) {
			t.Errorf("%s was left open", to)
		}
	}
}

// Where no cgroup can be made, there is an error, and nothing is left: below a directory
// that is no cgroup's, a new one has no cgroup.kill, as with an old kernel.
func TestMakeNoCgroup(t *testing.T) {
	t.Parallel()
	own := t.TempDir()
	if c, err := makeCgroup(own); c != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made %v, %v, want none for want of cgroup.kill", c, err)
	}
	if left, err := os.ReadDir(own); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left", left, err)
	}
	if c, err := makeCgroup(filepath.Join(own, "none")); c != nil || err == nil {
		t.Errorf("made %v, %v in no directory", c, err)
	}
	if (&cgroup{Dir: filepath.Join(own, "none")}).old() {
		t.Error("what has gone is old")
	}
}

// A process that does not end is killed again for a while, and then stderr says so. An empty
// cgroup is left at once. This test is not parallel, since it takes the stderr of all.
func TestClear(t *testing.T) {
	for _, c := range []struct {
		events string
		took   time.Duration
		said   string
	}{
		{"populated 1\n", 2 * sec, "leasehold: what a job has left in %s does not end, though it was killed: it may still be at work\n"},
		{"populated 0\n", 0, ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.events"), []byte(c.events), 0o600); err != nil {
			t.Fatal(err)
		}
		var took time.Duration
		said := stderrOf(t, func() {
			synctest.Test(t, func(*testing.T) {
				began := time.Now()
				(&cgroup{Dir: dir, FD: -1}).clear()
				took = time.Since(began)
			})
		})
		if took != c.took {
			t.Errorf("%q: it was tried for %v, want %v", c.events, took, c.took)
		}
		if want := strings.ReplaceAll(c.said, "%s", dir); said != want {
			t.Errorf("%q: it said %q, want %q", c.events, said, want)
		}
	}
}

// stderrOf returns what is written to stderr meanwhile, in a file.
func stderrOf(t *testing.T, do func()) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	os.Stderr = file
	do()
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A command that cannot be started in its cgroup is started without it, and it is told
// why there is none.
func TestStartOutsideOfCgroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	g := &guard{plan: plan{limit: limit{Deadline: clock.Now() + time.Hour}, Argv: [][]byte{[]byte("true")}, Cgroup: &cgroup{dir, fd}}}
	if r := g.start(); r != nil {
		t.Fatalf("reported %+v, want that it has started", r)
	}
	reap(g.command)
	if !strings.HasPrefix(g.alone, "cannot start in "+dir+": ") || g.Cgroup != nil {
		t.Errorf("told %q, and its cgroup is %v", g.alone, g.Cgroup)
	}
	p := &Process{started: make(chan struct{}), helpers: helpers{watcher: 3, cgroup: &cgroup{dir, -1}}}
	if !p.take(report{Started: 5, Guardian: 4, Alone: "because"}) {
		t.Error("nothing is to follow")
	}
	const want = "watched by this process, its watcher (process 3) and its guardian (process 4), in no cgroup of its own: because"
	if got := p.Means(); got != want {
		t.Errorf("its means are %q, want %q", got, want)
	}
	if exists(dir) {
		t.Error("the cgroup of nobody was not removed")
	}
}

// Every process in the cgroup counts as left, whichever process is its parent. This
// test is not parallel: the children of all tests are this process's.
func TestSweepPopulated(t *testing.T) {
	c := testCgroup(t)
	p := member(t, c.Dir)
	procs, err := children()
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]bool{p.Pid: true}
	for _, other := range procs {
		all[other.pid] = true
	}
	if !newTree(c, all).sweep(0) {
		t.Error("nothing is left")
	}
}

func TestNoCgroup(t *testing.T) {
	t.Parallel()
	if c, err := newCgroup(true); c != nil || err == nil {
		t.Errorf("made %v, %v, and it is not wanted", c, err)
	}
	var none *cgroup
	none.kill()
	none.keep()
	none.remove()
	if none.populated() || none.hand(nil) != nil {
		t.Error("there is something in no cgroup")
	}
}

// If the three processes are killed at one moment, the next that starts a job there
// ends the rest of theirs. It does not touch a cgroup that is watched or was just made.
func TestCollect(t *testing.T) {
	t.Parallel()
	orphaned, watched, fresh, old := testCgroup(t), testCgroup(t), testCgroup(t), testCgroup(t)
	left, kept := member(t, orphaned.Dir), member(t, watched.Dir)
	for _, c := range []*cgroup{orphaned, fresh, old} {
		c.close() // which gives up the lock
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old.Dir, past, past); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(filepath.Dir(old.Dir), "not-of-leasehold-"+filepath.Base(old.Dir))
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(other) })
	innocent := member(t, other)
	t.Cleanup(func() {
		_ = innocent.Kill()
		_, _ = innocent.Wait()
	})
	testCgroup(t)
	defer time.AfterFunc(time.Minute, func() { _ = left.Signal(unix.SIGTERM) }).Stop() // or it would be waited for without end
	if state, err := left.Wait(); err != nil || state.String() != "signal: killed" {
		t.Fatalf("what was left ended with %v, %v", state, err)
	}
	for dir, want := range map[string]bool{orphaned.Dir: false, old.Dir: false, watched.Dir: true, fresh.Dir: true, other: true} {
		// Another test that starts a job may be about to remove it.
		for end := time.Now().Add(hang); !want && exists(dir) && time.Now().Before(end); time.Sleep(ms) {
		}
		if exists(dir) != want {
			t.Errorf("%s is there: %v, want %v", dir, !want, want)
		}
	}
	for _, p := range []*os.Process{kept, innocent} {
		if err := p.Signal(unix.Signal(0)); err != nil {
			t.Errorf("a process that is not left by anybody has ended: %v", err)
		}
	}
	fresh.remove()
}

// A command whose deadline has come is not started, not even to be killed at once.
func TestStartTooLate(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	g := &guard{plan: plan{limit: limit{Deadline: clock.Now(), Grace: sec}, Argv: [][]byte{[]byte("touch"), []byte(ran)}}}
	if r := g.start(); r == nil || !r.TooLate || g.command != 0 {
		t.Errorf("reported %+v, started process %d, want that it is too late", r, g.command)
		_, _ = unix.Wait4(g.command, nil, 0, nil)
	}
	if exists(ran) {
		t.Error("the command ran")
	}
}
