package guardian

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A cgroup is the cgroup that the command starts in. It contains all descendants of the
// command, including processes of other users. Nothing that forks can outrun it, and one write
// kills all of it. All methods do nothing on a nil cgroup: there is none if this process may
// not make one below its own, or if the kernel is older than 5.14.
//
// The three processes that watch the command lock its directory, so if it is unlocked, all
// three have died.
type cgroup struct {
	Dir string
	FD  int // of Dir
}

// cgroupPrefix is the prefix of the names of all such cgroups.
const cgroupPrefix = "leasehold-job-"

// newCgroup makes a cgroup below this process's own, after cleaning up cgroups there whose
// three processes have died. The error is why there is none.
func newCgroup(unwanted bool) (*cgroup, error) {
	if unwanted {
		return nil, errors.New("it is not wanted")
	}
	own, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	collect(own)
	return makeCgroup(own)
}

// makeCgroup makes a cgroup in a directory, if that is itself a cgroup and the kernel is new
// enough.
func makeCgroup(own string) (*cgroup, error) {
	dir, err := os.MkdirTemp(own, cgroupPrefix)
	if err != nil {
		return nil, err
	}
	c := &cgroup{Dir: dir}
	if err = c.open(unix.LOCK_SH); err == nil {
		err = unix.Faccessat(c.FD, "cgroup.kill", unix.W_OK, 0)
	}
	if err != nil {
		c.remove()
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return c, nil
}

func (c *cgroup) open(lock int) (err error) {
	c.FD, err = unix.Open(c.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Flock(c.FD, lock|unix.LOCK_NB)
}

// ownCgroup returns the directory of this process's cgroup.
func ownCgroup() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return findCgroup(string(text), string(mounts))
}

// findCgroup returns the directory, given the contents of /proc/PID/cgroup and
// /proc/PID/mountinfo.
func findCgroup(cgroups, mounts string) (string, error) {
	var path string
	for line := range strings.Lines(cgroups) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if ok && !strings.HasPrefix(rest, "/..") { // which is outside of what is visible here
			path = rest
		}
	}
	for line := range strings.Lines(mounts) {
		head, tail, _ := strings.Cut(line, " - ")
		fields := strings.Fields(head)
		if len(fields) < 5 || !strings.HasPrefix(tail, "cgroup2 ") {
			continue
		}
		below, err := filepath.Rel(fields[3], path) // fields[3] is what is mounted at fields[4]; an error: there is no path
		if err == nil && below != ".." && !strings.HasPrefix(below, "../") {
			return filepath.Join(fields[4], below), nil
		}
	}
	return "", errors.New("no cgroup v2 of this process is mounted")
}

// hand passes the cgroup to another process, at a descriptor of its own.
func (c *cgroup) hand(l *layout) *cgroup {
	if c == nil {
		return nil
	}
	return &cgroup{c.Dir, l.at(uintptr(c.FD))}
}

// keep hides the cgroup's descriptor from children of this process.
func (c *cgroup) keep() {
	if c != nil {
		unix.CloseOnExec(c.FD)
	}
}

// admit makes a process start in the cgroup, and dismiss outside of it.
func (c *cgroup) admit(sys *syscall.SysProcAttr)   { sys.UseCgroupFD, sys.CgroupFD = true, c.FD }
func (c *cgroup) dismiss(sys *syscall.SysProcAttr) { sys.UseCgroupFD = false }

func (c *cgroup) kill() {
	if c == nil {
		return
	}
	fd, err := unix.Openat(c.FD, "cgroup.kill", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, _ = unix.Write(fd, []byte("1"))
		_ = unix.Close(fd)
	}
}

// populated reports whether any process runs in the cgroup or below.
func (c *cgroup) populated() bool {
	if c == nil {
		return false
	}
	text, _ := os.ReadFile(filepath.Join(c.Dir, "cgroup.events"))
	return bytes.Contains(text, []byte("populated 1\n"))
}

// remove removes the cgroup and those made in it, unless processes run there.
func (c *cgroup) remove() {
	if c == nil {
		return
	}
	if unix.Rmdir(c.Dir) != nil {
		var below []string
		_ = filepath.WalkDir(c.Dir, func(path string, _ fs.DirEntry, _ error) error {
			below = append(below, path)
			return nil
		})
		for _, path := range slices.Backward(below) {
			_ = unix.Rmdir(path) // its files go with it
		}
	}
	c.close()
}

func (c *cgroup) close() {
	_ = unix.Close(c.FD)
	c.FD = -1
}

// collect ends what is left of jobs whose three processes have died, and removes their cgroups.
// It leaves new cgroups without processes, because their makers may not have locked them yet.
func collect(own string) {
	entries, _ := os.ReadDir(own)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), cgroupPrefix) {
			continue
		}
		c := &cgroup{Dir: filepath.Join(own, e.Name()), FD: -1}
		if (c.old() || c.populated()) && c.open(unix.LOCK_EX) == nil {
			c.clear()
		}
		c.close()
	}
}

func (c *cgroup) old() bool {
	info, err := os.Stat(c.Dir)
	return err == nil && time.Since(info.ModTime()) > time.Minute
}

// clear kills all processes in the cgroup and removes it.
func (c *cgroup) clear() {
	const patience = 2 * time.Second // SIGKILL is immediate, except for a process waiting for a disk
	for range patience / killNap {
		if c.kill(); !c.populated() {
			c.remove()
			return
		}
		time.Sleep(killNap)
	}
	complain("what a job has left in %s does not end, though it was killed: it may still be at work", c.Dir)
}
