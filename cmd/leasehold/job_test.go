package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/memstore"
)

// A sham is a lease that ends when its channel is closed, though its deadline is far away.
type sham struct {
	held
	ends     chan struct{}
	released int
}

func (*sham) Holder() string          { return "sham" }
func (*sham) Token() leasehold.Token  { return 7 }
func (s *sham) Done() <-chan struct{} { return s.ends }
func (*sham) Deadline() time.Time     { return time.Now().Add(24 * time.Hour) }
func (s *sham) Release(context.Context) error {
	s.released++
	return nil
}

// endsEarly runs a command under a lease that is lost as soon as the command runs. It is a program of its own, since it
// has to be the parent of the command.
func endsEarly() {
	j := (&app{console: console{w: io.Discard}}).newJob()
	j.argv, j.grace = os.Args[1:], 24*time.Hour
	lease := &sham{ends: make(chan struct{})}
	close(lease.ends)
	status, err := j.supervise(lease)
	if err != nil || !status.Expired || status.Signal != syscall.SIGTERM {
		os.Exit(1)
	}
}

// A signal that comes together with the lock frees it.
func TestSignalWithTheLock(t *testing.T) {
	t.Parallel()
	j, _ := newWaiter()
	lease := &sham{}
	j.signals <- syscall.SIGTERM
	got, err := j.await(t.Context(), func(ctx context.Context) (held, error) {
		<-ctx.Done() // and the lock is there all the same
		return lease, nil
	})
	end, ok := errors.AsType[*exit](err)
	if got != nil || !ok || end.code != exitSignal+15 {
		t.Errorf("%v, %v; want an exit with code 143", got, err)
	}
	if lease.released != 1 {
		t.Errorf("the lease was released %d times, want once", lease.released)
	}
}

// A lease file gets its name when all of it is on the disk, and only then.
func TestLeaseFileIsDurable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	temp, err := os.Create(filepath.Join(dir, "temp"))
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	for _, fails := range []string{"", "sync", "rename"} {
		var did []string
		do := func(what string) error {
			did = append(did, what)
			if what == fails {
				return full
			}
			return nil
		}
		err = durably(temp, filepath.Join(dir, "lease"),
			func(*os.File) error { return do("sync") }, func(string, string) error { return do("rename") }, func(string) error { return do("syncDir") })
		want := []string{"sync", "rename", "syncDir"}
		if fails != "" {
			want = want[:slices.Index(want, fails)+1]
		}
		if !slices.Equal(did, want) || (err != nil) != (fails != "") {
			t.Errorf("if %q fails: %v, %v; want %v", fails, did, err, want)
		}
		if temp, err = os.Create(filepath.Join(dir, "temp")); err != nil {
			t.Fatal(err)
		}
	}
	_ = temp.Close()
}

// TestProve: --proof of run, elect and serve reads a report, and says what is wrong with one.
func TestProve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good":    `{"format": 1, "store": "s3://b", "verdicts": [{"use": "object", "safe": true}]}`,
		"garbage": "garbage",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"": "", "good": "", "none": "--proof: open " + filepath.Join(dir, "none"), "garbage": "--proof " + filepath.Join(dir, "garbage") + ": no report of a probe",
	} {
		file := name
		if name != "" {
			file = filepath.Join(dir, name)
		}
		j := &job{app: &app{}, proof: file, target: target{store: memstore.New()}}
		c := &serveCmd{app: j.app, proof: file, target: target{store: memstore.New()}, states: states{prefix: "s3://b/tf", target: target{store: memstore.New()}}}
		for what, err := range map[string]error{"run": j.prove(), "serve": c.prove()} {
			if end, is := errors.AsType[*exit](err); is != (want != "") || is && (end.code != exitUsage || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s with %q: %v, want %q", what, name, err, want)
			}
		}
		if proves := name == "good"; (j.opts.Proof != nil) != proves || (c.opts.Proof != nil) != proves || j.target.store == nil || c.target.store == nil || c.states.target.store == nil {
			t.Errorf("with %q: %v, %v", name, j.opts.Proof, c.opts.Proof)
		}
	}
}
