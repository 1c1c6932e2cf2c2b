package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const runInDirectory = "leasehold run LOCK -- true, in a directory"

// commands measures the command leasehold beside others that run a command under a lock.
func commands(ctx context.Context, b *bench) error {
	dir := b.host.TempDir()
	binary := filepath.Join(dir, "leasehold")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/leasehold")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the command: %w\n%s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	p := b.near()[0]
	type one struct {
		name string
		env  []string
		args []string
	}
	all := []one{
		{"true", nil, []string{"true"}},
		{"leasehold version", nil, []string{binary, "version"}},
		{runInDirectory, nil, []string{binary, "run", "-q", "--mkdir", "file://" + filepath.Join(dir, "locks") + "/lock", "--", "true"}},
		{"leasehold run LOCK -- true, " + p.name, p.server.Env(), []string{binary, "run", "-q", lockURL(p), "--", "true"}},
	}
	if path, err := exec.LookPath("flock"); err == nil {
		all = append(all, one{"flock FILE true", nil, []string{path, filepath.Join(dir, "flock"), "true"}})
	} else {
		b.note("flock: %v", err)
	}
	for name, args := range b.foreignCommands(ctx) {
		all = append(all, one{name, nil, args})
	}
	if err = os.MkdirAll(filepath.Join(dir, "locks"), 0o755); err != nil {
		return err
	}
	n := 20
	if b.short {
		n = 2
	}
	for round := range b.rounds {
		err := turns(all, func(x one) error {
			t, err := measure(n, func() error {
				cmd := exec.CommandContext(ctx, x.args[0], x.args[1:]...)
				cmd.Env = append(os.Environ(), x.env...)
				if out, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("%s: %w\n%s", x.name, err, out)
				}
				return nil
			})
			if err == nil {
				b.add("command", "this machine", x.name, "p50 µs", round, t.p50)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	s := b.section("The command")
	s.say("Wall time of a whole command that runs true under a lock that is free, by processes from the start to the end. The command leasehold has %.1f MB (stripped, static).", float64(info.Size())/1e6)
	rows := [][]string{{"", "ms", "over true"}}
	for _, x := range all {
		rows = append(rows, []string{x.name, b.ms("command", "this machine", x.name), b.ratio("command", "this machine", "p50 µs", x.name, "true").String()})
	}
	s.table(rows)
	return nil
}

func lockURL(p *place) string { return p.server.URL(p.bucket + "/command/lock") }

// foreignCommands are the lock commands of others that can be had, with their arguments.
func (b *bench) foreignCommands(ctx context.Context) map[string][]string {
	commands := map[string][]string{}
	if addr, err := etcdServer.addr(b.host); err != nil {
		b.note("etcdctl lock: %v", err)
	} else if path, err := program(ctx, "etcdctl", "", "etcd-client"); err != nil {
		b.note("etcdctl lock: %v", err)
	} else {
		commands["etcdctl lock NAME true"] = []string{"env", "ETCDCTL_API=3", path, "--endpoints", addr, "lock", "bench", "true"}
	}
	if path, err := exec.LookPath("consul"); err != nil {
		b.note("consul lock: %v", err)
	} else {
		b.note("consul lock: %s is here, and no server of it is started by this", path)
	}
	return commands
}
