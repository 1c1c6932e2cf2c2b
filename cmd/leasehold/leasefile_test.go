package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/detached"
)

// TestVacantLeaseFile: acquire overwrites only a lease that has expired or was released, and reports a missing directory before it
// takes the lock.
func TestVacantLeaseFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	const lease = `{"format":1,"key":"l","layout":"object","token":7,"holder":"me","ttl_ms":60000,"acquired_at":"2026-01-02T03:04:05Z","expires_at":%q,"released":%v,"write_id":"x.1"}`
	for name, text := range map[string]string{
		"lease":    fmt.Sprintf(lease, now.Add(time.Second).Format(time.RFC3339Nano), false),
		"over":     fmt.Sprintf(lease, now.Format(time.RFC3339Nano), false),
		"released": fmt.Sprintf(lease, now.Add(time.Second).Format(time.RFC3339Nano), true),
		"garbage":  "garbage",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"none":      "",
		"over":      "",
		"released":  "",
		"lease":     "it has a lease of l, token 7, which lasts until ",
		"garbage":   "there is something else, which is left as it is: ",
		"garbage/x": "there is no directory for it",
		"no/such":   "there is no directory for it",
	} {
		f := leaseFile(filepath.Join(dir, name))
		err := f.vacant(now)
		if want != "" {
			want = "exit code 64: --file " + string(f) + ": " + want
		}
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestLeaseFileIsTried: acquire reports an unwritable place before it takes the lock.
func TestLeaseFileIsTried(t *testing.T) {
	t.Parallel()
	f := leaseFile(filepath.Join(t.TempDir(), "none", "lease"))
	if err := f.writable(); err == nil || !strings.HasPrefix(err.Error(), "exit code 64: --file "+string(f)+": it cannot be written: open ") {
		t.Error(err)
	}
}

// TestReadLease: which files are leases, and the errors for the others.
func TestReadLease(t *testing.T) {
	t.Parallel()
	const lease = `{"format":1,"key":"l","layout":"object","token":7,"ttl_ms":60000,"expires_at":"2026-01-02T03:04:05Z","write_id":"x.1"}`
	dir := t.TempDir()
	for name, text := range map[string]string{
		"lease": lease, "garbage": "garbage", "empty": "",
		"large": lease + strings.Repeat(" ", maxLease-len(lease)), "too-large": lease + strings.Repeat(" ", maxLease-len(lease)+1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"lease":     "",
		"large":     "",
		"too-large": "exit code 65: FILE is not a detached lease that this version understands: it has more than 262144 bytes",
		"garbage":   "exit code 65: FILE is not a detached lease that this version understands: ",
		"empty":     "exit code 65: FILE is not a detached lease that this version understands: ",
		"dir":       "exit code 66: cannot read the lease: FILE is not a regular file: name one, or write - for a lease on stdin",
		"none":      "exit code 66: there is no lease: open FILE: ",
	} {
		f := leaseFile(filepath.Join(dir, name))
		d, err := f.read()
		if want = strings.ReplaceAll(want, "FILE", string(f)); want == "" && (err != nil || d.Token != 7) || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %+v, %v; want %s", name, d, err, want)
		}
	}
	if err := leaseFile(filepath.Join(dir, "none", "lease")).write(detached.Lease{Key: "l"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where there is no directory it is written: %v", err)
	}
}

// TestLeaseFileThroughLink: a lease is written to a symlink's target, and the link stays.
func TestLeaseFileThroughLink(t *testing.T) {
	t.Parallel()
	at, link := filepath.Join(t.TempDir(), "lease"), filepath.Join(t.TempDir(), "link")
	if err := leaseFile(at).write(detached.Lease{Key: "old"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at, link); err != nil {
		t.Skip(err) // Windows lets not everybody make one
	}
	if err := leaseFile(link).write(detached.Lease{Key: "new"}); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != at {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if text, err := os.ReadFile(at); err != nil || !strings.Contains(string(text), "new") {
		t.Errorf("there is %q, %v", text, err)
	}
}
