//go:build linux

package guardian_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A kill by a name, or by the words of a command line, hits one of the three at
// most. The guardian used to have the name of leasehold in its own, and the
// command's words on its command line.
func TestNames(t *testing.T) {
	t.Parallel()
	f := command(t, plan{Argv: []string{"sh", "-c", "echo > leasehold; sleep 1000"}, Deadline: never, Grace: time.Minute})
	f.says("leasehold", 1)
	for name, pid := range map[string]int{"job-guardian": f.guardian(), "job-watcher": f.watcher()} {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || string(comm) != name+"\n" {
			t.Errorf("%s is named %q, %v", name, comm, err)
		}
		words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || strings.Contains(string(words), "leasehold") || strings.Contains(string(words), "sleep") || strings.Contains(string(words), f.exe) {
			t.Errorf("%s has the command line %q, %v", name, words, err)
		}
	}
}

// The watcher is in a session of its own, the guardian in a group of its own: what
// is done to the session or the group of the parent leaves one of them, or both.
func TestSessions(t *testing.T) {
	t.Parallel()
	f := script(t, never, time.Minute, forever)
	session := func(pid int) (group, session int) {
		group, err := unix.Getpgid(pid)
		if err != nil {
			t.Fatal(err)
		}
		if session, err = unix.Getsid(pid); err != nil {
			t.Fatal(err)
		}
		return group, session
	}
	w, g := f.watcher(), f.guardian()
	eventually(t, func() (bool, string) {
		group, own := session(w)
		return group == w && own == w, fmt.Sprintf("the watcher %d is in group %d, session %d", w, group, own)
	})
	_, parents := session(f.parent.Process.Pid)
	if group, s := session(g); group != g || s != parents {
		t.Errorf("the guardian %d is in group %d, session %d, want one of its own in session %d", g, group, s, parents)
	}
}

// The watcher must not hold the output of the command open, nor its input, or a
// reader of the output would not see its end.
func TestWatcherHoldsNothingOpen(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	f := script(t, never, time.Minute, forever, func(c *exec.Cmd) { c.Stdin, c.Stdout = out, out })
	eventually(t, func() (bool, string) {
		var held []string
		for _, fd := range descriptors(f.watcher()) {
			to := readlink(fmt.Sprintf("/proc/%d/fd/%s", f.watcher(), fd))
			opened := to == os.DevNull && fd != "0" && fd != "1" && fd != "2" && readlink("/proc/self/fd/"+fd) != to
			if to == out.Name() || strings.Contains(to, "memfd") || opened {
				held = append(held, fd+" "+to)
			}
		}
		return len(held) == 0, fmt.Sprintf("the watcher holds %v", held)
	})
}

// The command goes on without the watcher, and somebody is told.
func TestWatcherKilled(t *testing.T) {
	t.Parallel()
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	f := script(t, never, time.Minute, `trap 'exit 3' TERM; echo > ready; `+forever, func(c *exec.Cmd) { c.Stderr = said })
	f.says("ready", 1)
	w := f.watcher()
	kill(t, w, syscall.SIGKILL)
	want := fmt.Sprintf("leasehold: the watcher of the command, process %d, has been killed: ", w)
	eventually(t, func() (bool, string) {
		text, _ := os.ReadFile(said.Name())
		return strings.HasPrefix(string(text), want), fmt.Sprintf("it said %q, want %q", text, want)
	})
	f.order("stop")
	f.ended(3, 0, true)
	if text, _ := os.ReadFile(said.Name()); strings.Count(string(text), "leasehold: ") != 1 { // the shell has its say too
		t.Errorf("it said %q, want one line of leasehold's", text)
	}
}

// At the normal end nothing is said of the watcher that ends too.
func TestQuietEnd(t *testing.T) {
	t.Parallel()
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	command(t, plan{Argv: []string{"true"}, Deadline: never, Grace: time.Minute}, func(c *exec.Cmd) { c.Stderr = said }).ended(0, 0, false)
	if text, _ := os.ReadFile(said.Name()); len(text) > 0 {
		t.Errorf("it said %q", text)
	}
}

// A process that was stopped while the deadline moved on learns of it before it
// looks at the clock. A guardian that went on used to end the command by the old
// deadline, or not, by chance.
func TestStoppedHearsFirst(t *testing.T) {
	t.Parallel()
	for name, whom := range map[string]func(s *struck) int{
		"guardian": func(s *struck) int { return s.guard },
		"watcher":  func(s *struck) int { return s.watcher },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStruck(t, true)
			pid := whom(s)
			kill(t, pid, syscall.SIGSTOP)
			for range 5 {
				s.order("extend 5h") // from now: an hour was left
				s.order("extend 6h")
			}
			eventually(t, func() (bool, string) { return unread(t, pid) > 0, "no order is under way" })
			s.passes(2 * time.Hour)
			kill(t, pid, syscall.SIGCONT)
			eventually(t, func() (bool, string) {
				return unread(t, pid) == 0 && strings.Contains("SX", state(pid)), "it has not read its orders"
			})
			s.works(5)
			s.silent("terms")
			s.order("stop")
			s.says("terms", 1)
			s.passes(3 * time.Hour)
			s.ended(137, syscall.SIGKILL, true)
		})
	}
}

// unread is how many bytes lie in the pipes that a process reads.
func unread(t *testing.T, pid int) (total int) {
	t.Helper()
	for _, fd := range descriptors(pid) {
		path := fmt.Sprintf("/proc/%d/fd/%s", pid, fd)
		if to, _ := os.Readlink(path); !strings.HasPrefix(to, "pipe:") {
			continue
		}
		pipe, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // the process is gone, or it is the end that it writes to
		}
		n, err := unix.IoctlGetInt(pipe, unix.TIOCINQ)
		if err == nil {
			total += n
		}
		_ = unix.Close(pipe)
	}
	return total
}

// Processes that a command leaves behind must not stay as zombies after their end,
// for as long as the command runs: they would use up all process IDs.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	f := script(t, never, time.Minute, `i=0; while [ $i -lt 50 ]; do (true &); i=$((i+1)); done; echo > forked; `+forever)
	f.says("forked", 1)
	g := f.guardian()
	eventually(t, func() (bool, string) {
		n := 0
		for _, pid := range childrenOf(g) {
			if state(pid) == "Z" {
				n++
			}
		}
		return n == 0, fmt.Sprintf("the guardian leaves %d zombies", n)
	})
	eventually(t, func() (bool, string) { return unread(t, g) == 0, "it looks again and again for what has ended" })
	f.order("stop")
	f.ended(143, syscall.SIGTERM, true)
}

func childrenOf(parent int) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if ppid, _ := strconv.Atoi(fields[1]); ppid == parent {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// A process that came into the command's cgroup from elsewhere is no descendant of
// anybody here. It ends with the command all the same.
func TestCgroupIsEmptied(t *testing.T) {
	t.Parallel()
	f := script(t, never, 30*time.Minute, `echo $$ > me; `+forever)
	dir, me := f.needsCgroup(), f.me()
	stray := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := stray.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(stray.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = stray.Wait() // it was killed
		close(ended)
	}()
	f.order("stop")
	eventually(t, func() (bool, string) {
		now := state(me)
		return now == "Z" || now == "", "the command is in state " + now
	})
	looks()
	if state(me) != "Z" {
		t.Fatal("the command was reaped while something was left in its cgroup")
	}
	f.passes(45 * time.Minute) // which is more than the grace
	f.ended(143, syscall.SIGTERM, true)
	select {
	case <-ended:
	case <-time.After(hang):
		t.Error("what came into the cgroup lives on")
		_ = stray.Process.Kill()
	}
}

// The last line: the next that starts ends the rest of a job whose three are gone.
func TestCgroupIsCollected(t *testing.T) {
	t.Parallel()
	s := newStruck(t, false)
	dir := s.needsCgroup()
	s.strike(blow{"killed", "killed", "killed", firstAlone})
	for end := time.Now().Add(hang); ; {
		command(t, plan{Argv: []string{"true"}, Deadline: never, Grace: time.Minute}).ended(0, 0, false)
		if _, err := os.Stat(dir); err != nil {
			break
		}
		// The lock of a process that is killed is given up when it is gone.
		if time.Now().After(end) {
			t.Fatal("the cgroup is still there after others have started")
		}
	}
	if left := slices.DeleteFunc(s.living(), func(pid int) bool { return state(pid) == "Z" }); len(left) > 0 {
		t.Errorf("still running: %v", describe(left))
	}
}
