//go:build linux

package guardian

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The name of the process in ps is cut by the system: it has to be told whole.
func TestTitles(t *testing.T) {
	t.Parallel()
	for _, title := range []string{titleWatcher, titleGuardian} {
		if len(title) > 15 || strings.Contains(title, "leasehold") || strings.Contains("leasehold", title) {
			t.Errorf("%q is not a name to be told by", title)
		}
	}
	if strings.Contains(titleWatcher, titleGuardian) || strings.Contains(titleGuardian, titleWatcher) {
		t.Error("one name has the other in it")
	}
}

// start starts a process and returns when it is in one of the states.
func startProcess(t *testing.T, states string, argv ...string) int {
	t.Helper()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Sys: &unix.SysProcAttr{Setpgid: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
	})
	for end := time.Now().Add(20 * sec); ; time.Sleep(ms) {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/stat")
		if _, rest, _ := strings.Cut(string(stat), ") "); rest == "" || strings.Contains(states, rest[:1]) {
			return p.Pid
		}
		if time.Now().After(end) {
			t.Fatalf("%v is never in state %s", argv, states)
		}
	}
}

// What a sweep has reaped counts as left, what is kept for the parent does not, and
// what is spared is not touched.
func TestStrike(t *testing.T) {
	t.Parallel()
	dead, kept, spared := startProcess(t, "Z", "/bin/true"), startProcess(t, "Z", "/bin/true"), startProcess(t, "SR", "/bin/sleep", "1000")
	tree := newTree(0, nil, map[int]bool{spared: true})
	tree.kept = kept
	if !tree.strike([]proc{{dead, dead, true}}, unix.SIGKILL) {
		t.Error("a sweep that has reaped was the last")
	}
	if isChild(dead) {
		t.Error("what has died was not reaped")
	}
	if tree.strike([]proc{{kept, kept, true}, {spared, spared, false}}, unix.SIGKILL) {
		t.Error("what is kept or spared is waited for")
	}
	if !isChild(kept) || !isChild(spared) {
		t.Error("what is kept or spared was reaped")
	}
	if tree.strike(nil, unix.SIGKILL) {
		t.Error("there was nothing left to end")
	}
	tree.group = dead
	tree.strike([]proc{{kept, kept, false}}, unix.SIGKILL) // one that is kept, and lives, is ended
	running := startProcess(t, "SR", "/bin/sleep", "1000")
	if !tree.strike([]proc{{running, running, false}}, unix.SIGKILL) {
		t.Error("what was killed a moment ago is not waited for")
	}
	var info siginfo
	for end := time.Now().Add(20 * sec); info.pid == 0 && time.Now().Before(end); time.Sleep(ms) {
		info, _ = waitid(unix.P_PID, running, unix.WEXITED|unix.WNOWAIT)
	}
	if info.status != int32(unix.SIGKILL) {
		t.Errorf("the process ended with %+v, want SIGKILL", info)
	}
}
