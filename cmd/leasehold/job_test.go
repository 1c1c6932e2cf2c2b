package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
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
