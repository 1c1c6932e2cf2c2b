//go:build unix

// Package terraform_test runs the released Terraform, or OpenTofu, on the backend of serve/terraform.
package terraform_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/serve/terraform"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
)

// A user is somebody with a working directory, who runs the released terraform there.
type user struct {
	t       *testing.T
	dir     string
	command func(args ...string) *exec.Cmd
}

// newUser makes one with a configuration whose output is the value, and with a resource that is only made once there is
// a file "go" in the directory. While it is being made there is a file "at-work". It was initialized.
func newUser(t *testing.T, path, url, value string) *user {
	t.Helper()
	u := &user{t: t}
	u.dir, u.command = servers.TerraformIn(t, path, fmt.Sprintf(`
terraform {
  backend "http" {
    address        = %[1]q
    lock_address   = %[1]q
    unlock_address = %[1]q
    retry_wait_min = 1
  }
}

resource "terraform_data" "value" {
  input = %[2]q
}

resource "terraform_data" "slow" {
  depends_on = [terraform_data.value]
  provisioner "local-exec" {
    command = "touch at-work; while [ ! -e go ]; do sleep 0.05; done"
  }
}

output "value" {
  value = terraform_data.value.output
}
`, url, value))
	u.ok("init")
	return u
}

// run runs a command to its end.
func (u *user) run(args ...string) (out string, err error) {
	b, err := u.command(args...).CombinedOutput()
	return string(b), err
}

// ok runs a command that is to succeed.
func (u *user) ok(args ...string) string {
	u.t.Helper()
	out, err := u.run(args...)
	if err != nil {
		u.t.Fatalf("%v in %s: %v\n%s", args, u.dir, err, out)
	}
	return out
}

// fails runs a command that is to fail, and returns what it says on one line.
func (u *user) fails(args ...string) string {
	u.t.Helper()
	out, err := u.run(args...)
	if err == nil {
		u.t.Fatalf("%v did not fail\n%s", args, out)
	}
	return oneLine(out)
}

// oneLine takes out how terraform breaks and frames its messages.
func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("│", "", "╷", "", "╵", "").Replace(s)), " ")
}

// A job is a command under way.
type job struct {
	u    *user
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan error
}

func (u *user) begin(args ...string) *job {
	u.t.Helper()
	j := &job{u: u, cmd: u.command(args...), done: make(chan error, 1)}
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	if err := j.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func() { j.done <- j.cmd.Wait() }()
	return j
}

// end waits for its end, and returns what it has said on one line.
func (j *job) end() (out string, err error) {
	j.u.t.Helper()
	select {
	case err = <-j.done:
		return oneLine(j.out.String()), err
	case <-time.After(10 * time.Minute):
		_ = j.cmd.Process.Kill()
		err = <-j.done
		j.u.t.Fatalf("%v does not end: %v\n%s", j.cmd.Args, err, j.out.String())
		return "", nil
	}
}

// apply begins an apply, and returns when its slow resource is being made.
func (u *user) apply() *job {
	u.t.Helper()
	j := u.begin("apply", "-auto-approve")
	u.wait("at-work", func() bool {
		_, err := os.Stat(filepath.Join(u.dir, "at-work"))
		return err == nil
	})
	return j
}

// wait waits for a condition.
func (u *user) wait(what string, is func() bool) {
	u.t.Helper()
	for begin := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 5*time.Minute {
			u.t.Fatalf("it is not so that: %s", what)
		}
	}
}

// lets its slow resource be made.
func (u *user) finish() {
	u.t.Helper()
	if err := os.WriteFile(filepath.Join(u.dir, "go"), nil, 0o644); err != nil {
		u.t.Fatal(err)
	}
}

func (u *user) has(file string) bool {
	_, err := os.Stat(filepath.Join(u.dir, file))
	return err == nil
}

// scene is a serving process with the states in a directory.
type scene struct {
	*process
	terraform string
	st        store.Store
	dir       string
	ttl       time.Duration
}

func newScene(t *testing.T, ttl time.Duration) *scene {
	t.Helper()
	s := &scene{terraform: servers.Terraform(t), dir: t.TempDir(), ttl: ttl}
	st, err := filestore.New(s.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.st = st
	s.process = startProcess(t, s.dir, "127.0.0.1:0", ttl)
	return s
}

// restart kills the serving process and starts it again.
func (s *scene) restart(t *testing.T) {
	t.Helper()
	s.kill()
	s.process = startProcess(t, s.dir, s.addr, s.ttl)
}

// value is the output in the state that is stored.
func (s *scene) value(t *testing.T) string {
	t.Helper()
	r, err := http.Get(s.url + "prod") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", r.Status, err, body)
	}
	var state struct {
		Outputs struct{ Value struct{ Value string } }
	}
	if err = json.Unmarshal(body, &state); err != nil {
		t.Fatal(err)
	}
	return state.Outputs.Value.Value
}

// id is that of the lock that is held.
func (s *scene) id(t *testing.T) string {
	t.Helper()
	r := leasetest.RecordIn(t, s.st, "locks/prod/_lock")
	if !r.Held {
		t.Fatal("the state is not locked")
	}
	return r.Meta["ID"]
}

func (s *scene) versions(t *testing.T) (all []terraform.Version) {
	t.Helper()
	r, err := http.Get(s.url + "prod?versions") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err = json.NewDecoder(r.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTerraformRuns: init, plan, apply, a change and destroy, and what they cost.
func TestTerraformRuns(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour)
	s.counts(t)
	a := newUser(t, s.terraform, s.url+"prod", "first")
	t.Logf("figures: init costs %+v", s.counts(t))
	a.finish()
	a.ok("plan")
	t.Logf("figures: plan costs %+v", s.counts(t))
	a.ok("apply", "-auto-approve")
	t.Logf("figures: apply costs %+v", s.counts(t))
	if got := s.value(t); got != "first" {
		t.Errorf("the state has %q", got)
	}
	if got := strings.TrimSpace(a.ok("output", "-raw", "value")); got != "first" {
		t.Errorf("the output is %q", got)
	}
	b := newUser(t, s.terraform, s.url+"prod", "second")
	s.counts(t)
	b.ok("apply", "-auto-approve")
	t.Logf("figures: another apply costs %+v", s.counts(t))
	if got := strings.TrimSpace(a.ok("output", "-raw", "value")); got != "second" {
		t.Errorf("the output is %q", got)
	}
	b.ok("apply", "-auto-approve", "-lock=false", "-replace=terraform_data.value")
	s.counts(t)
	b.ok("plan", "-detailed-exitcode") // there is nothing to change
	b.ok("destroy", "-auto-approve")
	all := s.versions(t)
	if len(all) < 4 || *all[0].Serial <= *all[1].Serial || !strings.Contains(all[0].Who, "@") || all[0].Operation != "OperationTypeApply" {
		t.Errorf("the versions are %+v", all)
	}
	t.Logf("figures: %d states were stored", all[0].Number)
	if r := leasetest.RecordIn(t, s.st, "locks/prod/_lock"); r.Held {
		t.Errorf("the state is locked: %+v", r)
	}
}

// TestTerraformsContend: of two applies the second one fails at once and says who holds the lock, or waits with
// -lock-timeout.
func TestTerraformsContend(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour)
	a, b := newUser(t, s.terraform, s.url+"prod", "first"), newUser(t, s.terraform, s.url+"prod", "second")
	first := a.apply()
	said := b.fails("apply", "-auto-approve")
	if id := s.id(t); !strings.Contains(said, "Error acquiring the state lock") || !strings.Contains(said, id) {
		t.Errorf("it does not say that %s holds the lock: %s", id, said)
	}
	t.Logf("it says: %s", said)
	s.counts(t)
	begin := time.Now()
	second := b.begin("apply", "-auto-approve", "-lock-timeout=10m")
	seen := s.requests()
	b.wait("the second one asks for the lock", func() bool { return s.requests() > seen+1 })
	if b.has("at-work") {
		t.Error("the second one is at work")
	}
	a.finish()
	if out, err := first.end(); err != nil {
		t.Errorf("the first one: %v: %s", err, out)
	}
	if out, err := second.end(); err != nil {
		t.Errorf("the second one: %v: %s", err, out)
	}
	t.Logf("figures: both cost %+v in %v", s.counts(t), time.Since(begin).Round(time.Second))
	if got := s.value(t); got != "second" {
		t.Errorf("the state has %q", got)
	}
}

// TestTerraformIsDisplaced: force-unlock in the middle of an apply, and another apply; the first one cannot store its
// state, and keeps it in errored.tfstate.
func TestTerraformIsDisplaced(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour)
	a, b := newUser(t, s.terraform, s.url+"prod", "first"), newUser(t, s.terraform, s.url+"prod", "second")
	first := a.apply()
	s.counts(t)
	b.ok("force-unlock", "-force", s.id(t))
	t.Logf("figures: force-unlock costs %+v", s.counts(t))
	b.finish()
	b.ok("apply", "-auto-approve")
	s.displaced(t, a, first)
}

// displaced lets the first apply go on, which is refused.
func (s *scene) displaced(t *testing.T, a *user, first *job) {
	t.Helper()
	stands := s.versions(t)
	a.finish()
	out, err := first.end()
	if err == nil || !strings.Contains(out, "HTTP error: 409") || strings.Contains(out, "releasing the state lock") {
		t.Errorf("the displaced apply: %v: %s", err, out)
	}
	t.Logf("it says: %s", out)
	if !a.has("errored.tfstate") {
		t.Error("there is no errored.tfstate")
	}
	if now := s.versions(t); len(now) != len(stands) || now[0].SHA256 != stands[0].SHA256 {
		t.Errorf("the states were %+v, and are %+v", stands, now)
	}
	if got := s.value(t); got != "second" {
		t.Errorf("the state has %q", got)
	}
	text, err := os.ReadFile(filepath.Join(a.dir, "errored.tfstate"))
	if err != nil || !strings.Contains(string(text), `"first"`) {
		t.Errorf("errored.tfstate: %v: %s", err, text)
	}
}

// TestServerIsKilled: it is killed while it holds a lock, and starts again. After the TTL another apply goes on, and the
// first one cannot store its state.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Minute)
	a, b := newUser(t, s.terraform, s.url+"prod", "first"), newUser(t, s.terraform, s.url+"prod", "second")
	first := a.apply()
	s.restart(t)
	b.finish()
	begin := time.Now()
	if said := b.fails("apply", "-auto-approve"); !strings.Contains(said, s.id(t)) {
		t.Errorf("it does not say who held the lock: %s", said)
	}
	b.ok("apply", "-auto-approve", "-lock-timeout=10m")
	t.Logf("figures: with a TTL of %v the second one had ended after %v", s.ttl, time.Since(begin).Round(100*time.Millisecond))
	s.displaced(t, a, first)
}

// TestServerIsReplaced: the same, and nobody else has locked. Then the first one stores its state and unlocks.
func TestServerIsReplaced(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Minute)
	a := newUser(t, s.terraform, s.url+"prod", "first")
	first := a.apply()
	s.restart(t)
	a.finish()
	if out, err := first.end(); err != nil {
		t.Errorf("the apply: %v: %s", err, out)
	}
	if got := s.value(t); got != "first" || a.has("errored.tfstate") {
		t.Errorf("the state has %q, errored.tfstate %t", got, a.has("errored.tfstate"))
	}
	if r := leasetest.RecordIn(t, s.st, "locks/prod/_lock"); r.Held {
		t.Errorf("the state is locked: %+v", r)
	}
}

// requests are how many of LOCK were refused so far.
func (s *scene) requests() int { return strings.Count(s.log.String(), "method=LOCK") }
