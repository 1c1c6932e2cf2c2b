//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
)

// A tfBucket is a bucket in which Terraform keeps a state, and locks it by an object (use_lockfile).
type tfBucket struct {
	t       *testing.T
	server  *servers.Server
	bucket  string
	dir     string
	command func(args ...string) *exec.Cmd
}

// tfLockKey is where Terraform's lock lies.
const tfLockKey = "prod/terraform.tfstate.tflock"

// inBuckets runs test in a bucket of each server, with a resource that is only made once there is a file "go".
func inBuckets(t *testing.T, test func(t *testing.T, b *tfBucket)) {
	t.Helper()
	if underTest != leasetest.Object {
		t.Skip("a lock names its layout here: the same in every layout")
	}
	path := servers.Terraform(t)
	for _, name := range servers.Names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &tfBucket{t: t, server: servers.Start(t, name)}
			b.bucket = b.server.Bucket(t)
			b.dir, b.command = servers.TerraformIn(t, path, fmt.Sprintf(`
terraform {
  backend "s3" {
    bucket                      = %q
    key                         = "prod/terraform.tfstate"
    region                      = "us-east-1"
    endpoints                   = { s3 = %q }
    use_path_style              = true
    use_lockfile                = true
    skip_credentials_validation = true
    skip_metadata_api_check     = true
    skip_region_validation      = true
    skip_requesting_account_id  = true
    skip_s3_checksum            = true
  }
}

resource "terraform_data" "slow" {
  provisioner "local-exec" {
    command = "touch at-work; while [ ! -e go ]; do sleep 0.05; done"
  }
}
`, b.bucket, b.server.Endpoint))
			if out, err := b.run("init"); err != nil {
				t.Fatalf("init: %v: %s", err, out)
			}
			test(t, b)
		})
	}
}

// cmd is a command of terraform that reaches the server.
func (b *tfBucket) cmd(args ...string) *exec.Cmd {
	cmd := b.command(args...)
	cmd.Env = append(cmd.Env, b.server.Env()...)
	return cmd
}

func (b *tfBucket) run(args ...string) (string, error) {
	out, err := b.cmd(args...).CombinedOutput()
	return strings.Join(strings.Fields(strings.NewReplacer("│", "", "╷", "", "╵", "").Replace(string(out))), " "), err
}

// url is that of the lock, for leasehold.
func (b *tfBucket) url() string { return b.server.URL(b.bucket + "/" + tfLockKey) }

// lock is what Terraform reads of its lock; false if there is none.
func (b *tfBucket) lock() (l struct{ ID, Who, Operation, Path string }, there bool) {
	b.t.Helper()
	key := tfLockKey
	obj, err := b.server.Client().GetObject(b.t.Context(), &s3.GetObjectInput{Bucket: &b.bucket, Key: &key})
	if err != nil {
		return l, false
	}
	defer obj.Body.Close()
	if err = json.NewDecoder(obj.Body).Decode(&l); err != nil {
		b.t.Fatal(err)
	}
	return l, true
}

func (b *tfBucket) wait(what string, is func() bool) {
	b.t.Helper()
	for begin := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			b.t.Fatalf("it is not so that: %s", what)
		}
	}
}

func (b *tfBucket) has(file string) bool {
	_, err := os.Stat(filepath.Join(b.dir, file))
	return err == nil
}

func (b *tfBucket) finish() {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// TestTerraformWaitsForAMarker: while leasehold holds the marker in the place of Terraform's lock, Terraform says who
// does, and waits with -lock-timeout; it goes on when the marker is released.
func TestTerraformWaitsForAMarker(t *testing.T) {
	t.Parallel()
	for _, way := range []leasetest.Way{leasetest.Marker, leasetest.MarkerNoIfMatch} {
		t.Run(way.String(), func(t *testing.T) {
			t.Parallel()
			inBuckets(t, func(t *testing.T, b *tfBucket) {
				b.finish()
				done := filepath.Join(b.dir, "done")
				holder := start(t, b.server.Env(), "run", "--layout", string(way.Layout), "--ttl", "1m", "--holder", "the backup", way.URL(b.url()), "--",
					"sh", "-c", "while [ ! -e "+done+" ]; do sleep 0.05; done")
				b.wait("leasehold holds the lock", func() bool { _, is := b.lock(); return is })
				ours, _ := b.lock()
				out, err := b.run("apply", "-auto-approve")
				if err == nil || !strings.Contains(out, "Who: the backup") || !strings.Contains(out, "ID: "+ours.ID) || !strings.Contains(out, "held by leasehold until") {
					t.Errorf("terraform does not say who holds the lock: %v: %s", err, out)
				}
				t.Logf("it says: %s", out)
				apply := b.cmd("apply", "-auto-approve", "-lock-timeout=2m")
				var said bytes.Buffer
				apply.Stdout, apply.Stderr = &said, &said
				apply.Env = append(apply.Env, "TF_LOG=DEBUG", "TF_LOG_PATH="+filepath.Join(b.dir, "log"))
				if err = apply.Start(); err != nil {
					t.Fatal(err)
				}
				b.wait("terraform has asked for the lock", func() bool {
					log, _ := os.ReadFile(filepath.Join(b.dir, "log"))
					return strings.Count(string(log), "PreconditionFailed") > 0
				})
				if b.has("at-work") {
					t.Error("terraform is at work under leasehold's lock")
				}
				if err = os.WriteFile(done, nil, 0o644); err != nil {
					t.Fatal(err)
				}
				if err = apply.Wait(); err != nil || !b.has("at-work") {
					t.Errorf("terraform: %v: %s", err, said.String())
				}
				if code := holder.code(t); code != 0 {
					t.Errorf("leasehold ended with %d: %s", code, holder.stderr.String())
				}
				if l, is := b.lock(); is {
					t.Errorf("the lock is held by %+v", l)
				}
			})
		})
	}
}

// TestAMarkerWaitsForTerraform: while Terraform holds its lock, leasehold says who does, and waits; it goes on when
// Terraform has unlocked.
func TestAMarkerWaitsForTerraform(t *testing.T) {
	t.Parallel()
	inBuckets(t, func(t *testing.T, b *tfBucket) {
		apply := b.cmd("apply", "-auto-approve")
		var said bytes.Buffer
		apply.Stdout, apply.Stderr = &said, &said
		if err := apply.Start(); err != nil {
			t.Fatal(err)
		}
		b.wait("terraform is at work", func() bool { return b.has("at-work") })
		theirs, is := b.lock()
		if !is || theirs.Operation != "OperationTypeApply" {
			t.Fatalf("terraform's lock is %+v", theirs)
		}
		refused := start(t, b.server.Env(), "run", "--layout", "marker", "--wait", "0", b.url(), "--", "true")
		if code := refused.code(t); code != 75 || !strings.Contains(refused.stderr.String(), theirs.Who+" (Terraform, lock ID "+theirs.ID+")") {
			t.Errorf("leasehold ended with %d and does not say who holds the lock: %s", code, refused.stderr.String())
		}
		t.Logf("it says: %s", refused.stderr.String())
		proxy := servers.StartProxy(t, b.server.Endpoint, nil)
		through := b.server.URLAt(proxy.Endpoint, b.bucket+"/"+tfLockKey)
		waits := start(t, b.server.Env(), "run", "--layout", "marker", "--wait", "2m", through, "--", "test", "-e", filepath.Join(b.dir, "go"))
		b.wait("leasehold has looked at the lock, and again", func() bool { return proxy.Counts()[http.MethodGet] > 3 })
		b.finish()
		if err := apply.Wait(); err != nil {
			t.Errorf("terraform: %v: %s", err, said.String())
		}
		if code := waits.code(t); code != 0 {
			t.Errorf("leasehold ended with %d: %s", code, waits.stderr.String())
		}
	})
}

// TestTerraformBreaksAMarker: force-unlock with the ID that Terraform shows ends a marker of leasehold's.
func TestTerraformBreaksAMarker(t *testing.T) {
	t.Parallel()
	inBuckets(t, func(t *testing.T, b *tfBucket) {
		holder := start(t, b.server.Env(), "run", "--layout", "marker", "--ttl", "6s", b.url(), "--", "sleep", "60")
		b.wait("leasehold holds the lock", func() bool { _, is := b.lock(); return is })
		ours, _ := b.lock()
		if out, err := b.run("force-unlock", "-force", "another"); err == nil {
			t.Errorf("another ID has unlocked it: %s", out)
		}
		if out, err := b.run("force-unlock", "-force", ours.ID); err != nil {
			t.Fatalf("force-unlock: %v: %s", err, out)
		}
		if code := holder.code(t); code != 76 {
			t.Errorf("leasehold ended with %d: %s", code, holder.stderr.String())
		}
	})
}
