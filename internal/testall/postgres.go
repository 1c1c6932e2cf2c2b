package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// installPostgres gets PostgreSQL from Debian, for the tests of package fencesql, where there
// is none and this user may. Elsewhere, and if it fails, those tests are skipped, or in
// CI fail.
func installPostgres(ctx context.Context, t *tally) {
	_, none := exec.LookPath("postgres")
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is right
	_, unable := exec.LookPath("apt-get")
	if none == nil || len(found) > 0 || unable != nil || runtime.GOOS != "linux" || os.Getuid() != 0 {
		return
	}
	t.printf("\n")
	begun := time.Now()
	for _, args := range [][]string{
		{"-qq", "update"},
		{"-qq", "install", "-y", "--no-install-recommends", "postgresql"},
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.printf("install postgresql: apt-get %v: %v\n%s", args, err, said)
			return
		}
	}
	t.step("install postgresql", time.Since(begun), nil)
}
