package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A stuckStore does not delete what contains the text.
type stuckStore struct {
	*memstore.Store
	stuck string
}

func (s *stuckStore) Delete(ctx context.Context, key string) error {
	if strings.Contains(key, s.stuck) {
		return &store.Error{Op: "delete", Key: key, Kind: store.ErrDenied}
	}
	return s.Store.Delete(ctx, key)
}

// TestCollectGoesOn: what cannot be deleted keeps nothing else from being deleted. Each failure is told, the first at the end,
// with its exit code.
func TestCollectGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &stuckStore{memstore.New(), "/no"}
		for _, key := range []string{"jobs/a", "jobs/no-1", "jobs/no-2", "jobs/z"} {
			lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs, Holder: "me"})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				lease, err := lock.Acquire(t.Context())
				if err == nil {
					err = lease.Release(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(48 * time.Hour)
		// It stops if it cannot print a line, and leaves the remaining objects.
		full := &app{stdout: brokenWriter{}, console: console{w: &bytes.Buffer{}}}
		if err := full.collect(t.Context(), target{store: st, key: "jobs/"}, &admin.CollectOptions{Keep: 1, Age: leastAge}); err == nil || err.Error() != "exit code 70: cannot write to stdout: full" {
			t.Errorf("with a full stdout it ends with %v", err)
		}
		var out, said bytes.Buffer
		a := &app{stdout: &out, console: console{w: &said, least: levelNotice}}
		err := a.collect(t.Context(), target{store: st, key: "jobs/"}, &admin.CollectOptions{Keep: 1, Age: leastAge})
		if codeOf(err) != exitDenied || !strings.Contains(fmt.Sprint(err), "jobs/no-1/") {
			t.Errorf("it ends with %v", err)
		}
		if want := "jobs/z/0000000001.json  48h0m0s  past epoch\n"; out.String() != want {
			t.Errorf("it writes\n%s\nwant\n%s", &out, want)
		}
		if want := "leasehold: access denied (delete \"jobs/no-2/0000000001.json\")\nleasehold: 1 object deleted\n"; said.String() != want {
			t.Errorf("it says\n%s\nwant\n%s", &said, want)
		}
	})
}
