package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
)

// TestMoveMeanwhile: a move that waits for the lock succeeds if another run completes it. A lock that is deleted meanwhile was
// not moved, and is not recreated.
func TestMoveMeanwhile(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		does func(ctx context.Context, st store.Store, from, to *leasehold.Lock, lease *leasehold.Lease) error
		code int
		out  string
		says string
	}{
		"it is done": {func(ctx context.Context, _ store.Store, from, to *leasehold.Lock, lease *leasehold.Lease) error {
			_, err := admin.Move(ctx, from, to, &admin.MoveOptions{Acquire: func(context.Context) (*leasehold.Lease, error) { return lease, nil }})
			return err
		}, 0, "AT/from is at AT/to now: free, token N\n", "held by me"},
		"it vanishes": {func(ctx context.Context, st store.Store, _, _ *leasehold.Lock, _ *leasehold.Lease) error {
			return st.Delete(ctx, "from")
		}, exitAbsent, "", "AT/from is as it was, and AT/to stays closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			st, err := filestore.New(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			lock := func(key string) *leasehold.Lock {
				l, wrong := leasehold.NewLock(st, key, &leasehold.LockOptions{Layout: leasehold.LayoutObject, Holder: "me", Logger: silent})
				if wrong != nil {
					t.Fatal(wrong)
				}
				return l
			}
			from, to := lock("from"), lock("to")
			lease, err := from.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lease.Release(context.Background()) }) // or it writes while its directory is removed
			var out bytes.Buffer
			var said leasetest.Log
			ended := make(chan int, 1)
			at := "file://" + dir
			go func() {
				ended <- exec(t.Context(), []string{"move", "--layout", "object", at + "/from", at + "/to"}, &out, &said)
			}()
			for !strings.Contains(said.String(), "held by me") {
				if time.Sleep(time.Millisecond); len(ended) > 0 {
					t.Fatalf("it ends with %d: %s", <-ended, said.String())
				}
			}
			if err = tt.does(t.Context(), st, from, to, lease); err != nil {
				t.Fatal(err)
			}
			code := <-ended
			anonymous := func(text string) string {
				return regexp.MustCompile(`token \d+\n$`).ReplaceAllString(strings.ReplaceAll(text, at, "AT"), "token N\n")
			}
			if code != tt.code || anonymous(out.String()) != tt.out || !strings.Contains(anonymous(said.String()), tt.says) {
				t.Errorf("it ends with %d, writes %q and says %q; want %d, %q, %q", code, &out, said.String(), tt.code, tt.out, tt.says)
			}
			if _, err = st.Get(t.Context(), "from", ""); tt.code != 0 && !errors.Is(err, store.ErrNotExist) {
				t.Errorf("the lock is there again: %v", err)
			}
		})
	}
}

// TestMoveTake: the reason why a move does not get the lock decides its exit code, unless another run has sealed the lock: then
// the move continues, and a later error decides.
func TestMoveTake(t *testing.T) {
	t.Parallel()
	held := &leasehold.HeldError{Info: leasehold.Info{Holder: "a"}}
	for _, tt := range []struct {
		why    error
		code   int
		silent bool
		want   error
	}{
		{held, 4, false, held},
		{held, 4, true, leasehold.ErrHeld},
		{&store.Error{Op: "get", Key: "l", Kind: store.ErrDenied}, exitDenied, false, store.ErrDenied},
		{fmt.Errorf("l: %w", leasehold.ErrMoved), 0, false, leasehold.ErrMoved},
	} {
		j, _ := newWaiter()
		h := &moveCmd{runCmd: runCmd{job: *j, heldCode: 4, contest: &tried{held: tt.why}}}
		h.quiet = tt.silent
		lease, err := h.take(t.Context())
		if lease != nil || !errors.Is(err, tt.want) || h.code != tt.code || h.silent != tt.silent {
			t.Errorf("%v: it gets %v, %v, the code %d, silent %v; want %d, %v", tt.why, lease, err, h.code, h.silent, tt.code, tt.silent)
		}
	}
}

// TestMoveTTL: move checks the bounds of --ttl before it sends anything.
func TestMoveTTL(t *testing.T) {
	t.Parallel()
	at := "file://" + t.TempDir()
	for ttl, says := range map[string]string{
		"999ms": "--ttl 999ms is not between 1s and 24h0m0s", "1s": "there is no lock to move", "24h": "there is no lock to move", "24h1ns": "--ttl 24h0m0.000000001s is not between 1s and 24h0m0s",
	} {
		var said bytes.Buffer
		code := exec(t.Context(), []string{"move", "--layout", "object", "--ttl", ttl, at + "/a", at + "/b"}, io.Discard, &said)
		if want := map[bool]int{true: exitAbsent, false: exitUsage}[strings.Contains(says, "no lock")]; code != want || !strings.Contains(said.String(), says) {
			t.Errorf("--ttl %s: it ends with %d and says %q, want %d, %q", ttl, code, &said, want, says)
		}
	}
}
