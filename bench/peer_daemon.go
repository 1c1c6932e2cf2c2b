package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A daemon is a server that a peer needs: a process of its own, as it is where it is used,
// so that nothing of what it does is taken for the client's.
type daemon struct {
	// command is the program and its arguments.
	command func(context.Context, site) ([]string, error)
	// answers gives nil when the server does.
	answers func(ctx context.Context, addr string) error
	// noRoot: it refuses to run as root.
	noRoot bool

	mu    sync.Mutex
	addrs map[*host]func() (string, error)
}

// A site is where a server runs.
type site struct {
	dir     string // empty
	port    string // on the loopback address
	account string // that it runs as, or "" for ours
}

// addr is where the server of this run is, which starts when it is first asked for.
func (d *daemon) addr(h *host) (string, error) {
	d.mu.Lock()
	addr := d.addrs[h]
	if addr == nil {
		addr = sync.OnceValues(func() (string, error) { return d.start(h) })
		if d.addrs == nil {
			d.addrs = map[*host]func() (string, error){}
		}
		d.addrs[h] = addr
	}
	d.mu.Unlock()
	return addr()
}

// start tries some ports: between the choice of one and its use anybody may take it.
func (d *daemon) start(h *host) (addr string, err error) {
	for range 5 {
		var taken bool
		if addr, taken, err = d.startOnce(h); !taken {
			return addr, err
		}
	}
	return "", err
}

// startOnce starts the server on a free port. It is taken if the server ends at once.
func (d *daemon) startOnce(h *host) (addr string, taken bool, err error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	if err != nil {
		return "", false, err
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := site{dir: dir}
	if d.noRoot && os.Getuid() == 0 {
		if at.account, err = giveAway(dir); err != nil {
			return "", false, err
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", false, err
	}
	addr = free.Addr().String()
	_ = free.Close()
	_, at.port, _ = net.SplitHostPort(addr)
	args, err := d.command(h.ctx, at)
	if err != nil {
		return "", false, err
	}
	cmd := exec.Command(args[0], args[1:]...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
	ended, err := startTied(cmd, at.account)
	if err != nil {
		return "", false, err
	}
	h.Cleanup(func() { stop(cmd, ended) })
	ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
	defer cancel()
	for {
		err = d.answers(ctx, addr)
		select {
		case <-ended: // even if there was an answer: it was not ours
			return "", true, fmt.Errorf("%s: %v\n%s", filepath.Base(args[0]), cmd.ProcessState, &said)
		case <-ctx.Done():
			stop(cmd, ended)
			return "", false, fmt.Errorf("%s does not answer: %w\n%s", filepath.Base(args[0]), err, &said)
		case <-time.After(10 * time.Millisecond):
		}
		if err == nil {
			return addr, false, nil
		}
	}
}

// startTied starts a process, as the account unless that is "". From its thread nothing
// else runs until it has ended: on Linux the kernel ends the process with that thread.
func startTied(cmd *exec.Cmd, account string) (ended <-chan struct{}, err error) {
	if err = tie(cmd, account); err != nil {
		return nil, err
	}
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(done)
		}
	}()
	return done, <-started
}

// runAs runs a program to its end, as the account of the site.
func runAs(at site, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = at.dir, &said, &said
	ended, err := startTied(cmd, at.account)
	if err != nil {
		return err
	}
	if <-ended; !cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %v\n%s", filepath.Base(args[0]), cmd.ProcessState, &said)
	}
	return nil
}

// stop ends a process, in good order if it can.
func stop(cmd *exec.Cmd, ended <-chan struct{}) {
	if cmd.Process.Signal(os.Interrupt) == nil {
		select {
		case <-ended:
			return
		case <-time.After(10 * time.Second):
		}
	}
	_ = cmd.Process.Kill() // an error means that it is gone
	<-ended
}

// giveAway gives a directory to an account that is not root's, and names that.
func giveAway(dir string) (string, error) {
	who, err := user.Lookup("postgres")
	if err != nil {
		who, err = user.Lookup("nobody")
	}
	if err != nil {
		return "", fmt.Errorf("find an account for a server that refuses to run as root: %w", err)
	}
	var uid, gid int
	if _, err = fmt.Sscan(who.Uid, &uid); err == nil {
		_, err = fmt.Sscan(who.Gid, &gid)
	}
	return who.Username, errors.Join(err, os.Chown(dir, uid, gid))
}

// installing is held by whoever runs apt-get, which fails where another runs.
var installing sync.Mutex

// program finds a program of a Debian package, on PATH or by a pattern, and installs the
// package where that can be done.
func program(ctx context.Context, name, pattern, debian string) (string, error) {
	find := func() string {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		found, _ := filepath.Glob(pattern) // the patterns are right
		if len(found) == 0 {
			return ""
		}
		return slices.Max(found)
	}
	installing.Lock()
	defer installing.Unlock()
	if path := find(); path != "" {
		return path, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || runtime.GOOS != "linux" || os.Getuid() != 0 {
		return "", fmt.Errorf("%w: there is no %s (Debian: apt-get install %s)", errMissing, name, debian)
	}
	for _, args := range [][]string{{"-qq", "update"}, {"-qq", "install", "-y", "--no-install-recommends", debian}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		// At this run level no service is started by its installation.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if said, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: there is no %s, and apt-get %v: %w: %.200s", errMissing, name, args, err, said)
		}
	}
	if path := find(); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("%w: there is no %s after the installation of %s", errMissing, name, debian)
}
