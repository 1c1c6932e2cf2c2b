package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestBreakHolders: the slots of one holder are freed, and of no other; it says whose, and that the holder may work on.
func TestBreakHolders(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		take := func(holder string, weight int) (*semaphore.Semaphore, *leasehold.Lease) {
			sem, err := semaphore.New(st, "s", 3, &semaphore.Options{Holder: holder})
			if err != nil {
				t.Fatal(err)
			}
			lease, err := sem.Acquire(t.Context(), weight)
			if err != nil {
				t.Fatal(err)
			}
			return sem, lease
		}
		other, kept := take("other", 1)
		broken, lost := take("gone", 2)
		before, err := admin.Inspect(t.Context(), st, "s")
		if err != nil {
			t.Fatal(err)
		}
		p := target{name: "s", store: st, key: "s", url: "mem:///s", layout: layoutTable}
		free := func(output string, before admin.Entry) (out, said string, err error) {
			var stdout, stderr bytes.Buffer
			a := &app{stdout: &stdout, console: console{w: &stderr}}
			a.output = output
			err = a.freeSlots(t.Context(), p, before, lost.Token())
			return stdout.String(), stderr.String(), err
		}
		out, said, err := free("text", before)
		if want := fmt.Sprintf("mem:///s freed: gone had 2 slots, token %d\n", lost.Token()); err != nil || out != want {
			t.Errorf("it writes %q, %v, want %q", out, err, want)
		}
		if want := "leasehold: gone may work on until the next heartbeat of its session, a third of its TTL from now at most\n"; said != want {
			t.Errorf("it says %q, want %q", said, want)
		}
		after, err := admin.Inspect(t.Context(), st, "s")
		if err != nil || after.Taken() != 1 || !kept.Valid() {
			t.Errorf("%+v are left, %v", after.Info, err)
		}
		if _, _, err = free("text", after); codeOf(errors.Unwrap(err)) != exitHeld {
			t.Errorf("again it ends with %v", err)
		}
		time.Sleep(10 * time.Second) // it has sent a heartbeat since
		if err = lost.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("the former holder's release ends with %v", err)
		}
		if err = kept.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if out, said, err = free("json", admin.Entry{}); err != nil || said != "" || !strings.HasPrefix(out, "{\n  \"freed\": false,\n  \"lock\": \"mem:///s\",\n  \"state\": \"free\",\n") {
			t.Errorf("of free slots it writes %q, and says %q, %v", out, said, err)
		}
		if out, _, err = free("text", admin.Entry{}); err != nil || out != "mem:///s was free already\n" {
			t.Errorf("of free slots it writes %q, %v", out, err)
		}
		_ = broken.Close(t.Context()) // its session was ended
		if err = other.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A racedStore fails the first writes as if others were faster.
type racedStore struct {
	store.Store
	kind          error
	first, writes int
}

func (s *racedStore) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if s.writes++; s.writes <= s.first {
		return nil, &store.Error{Op: "put", Key: key, Kind: s.kind}
	}
	return s.Store.Put(ctx, key, body, only)
}

// TestBreakTriesAgain: a renewal that was faster does not keep a lock from being broken, unless it happens three times.
func TestBreakTriesAgain(t *testing.T) {
	t.Parallel()
	const held = `{"format":1,"token":7,"state":"held","holder":"me","address":"","ttl_ms":86400000,"write_id":"x.1","session":"","renewed_at":"2999-01-01T00:00:00Z"}`
	for _, kind := range []error{store.ErrConflict, store.ErrPrecondition, store.ErrDenied} {
		for first := range 4 {
			st := &racedStore{memstore.New(), kind, first, 0}
			if _, err := st.Store.Put(t.Context(), "l", []byte(held), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			lock, err := leasehold.NewLock(st, "l", &leasehold.LockOptions{Logger: silent})
			if err != nil {
				t.Fatal(err)
			}
			writes, most := min(first+1, 3), 2
			if errors.Is(kind, store.ErrDenied) {
				writes, most = 1, 0
			}
			info, err := breakThrough(t.Context(), lock, 7)
			if (err == nil) != (first <= most) || err == nil && (info.Held || info.Token != 7) || st.writes != writes {
				t.Errorf("after %d times %v: %+v, %v, and %d writes, want %d", first, kind, info, err, st.writes, writes)
			}
		}
	}
}

// TestHelpCompletes: the shell completes the commands of help.
func TestHelpCompletes(t *testing.T) {
	for args, want := range map[string]string{
		"help fe":       "fence\t", // and no other
		"help fence ge": "get\t",
		"help nosuch x": "",
		"help demo sh":  "", // it is hidden
	} {
		var out, said bytes.Buffer
		if code := exec(t.Context(), append([]string{"__complete"}, strings.Fields(args)...), &out, &said); code != 0 {
			t.Errorf("%s: %d, %s", args, code, &said)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := lines[len(lines)-1]; last != ":4" || want == "" && len(lines) != 1 || want != "" && (len(lines) != 2 || !strings.HasPrefix(lines[0], want)) {
			t.Errorf("%s: %q, want %q", args, &out, want)
		}
	}
}

// A busyStore has something happen before one of its reads.
type busyStore struct {
	*memstore.Store
	reads, at int
	happens   func()
}

func (s *busyStore) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if s.reads++; s.reads == s.at {
		s.happens()
	}
	return s.Store.Get(ctx, key, unless)
}

// TestBreakOfFreedLock: a lock that is freed while it is broken is free, whoever did it, and that is no failure.
func TestBreakOfFreedLock(t *testing.T) {
	t.Parallel()
	record := func(state string, token int) []byte {
		rest := ""
		if state == "resting" {
			state, rest = "free", fmt.Sprintf(`,"rest":{"ms":3600000,"write_id":"x.%d"}`, token)
		}
		return fmt.Appendf(nil, `{"format":1,"token":%d,"state":%q,"holder":"me","address":"","ttl_ms":86400000,"write_id":"x.%d","session":"","renewed_at":"2999-01-01T00:00:00Z"%s}`, token, state, token, rest)
	}
	for _, tt := range []struct {
		first, next string
		out         string
		code        int
	}{
		{"held", "free", "mem:///l was free already: token 8\n", 0},
		{"held", "held", "", exitHeld},
		{"held", "resting", "mem:///l was free already, and rests: token 8\n", 0},
		{"resting", "free", "mem:///l was free already: token 8\n", 0},
		{"resting", "held", "", exitHeld},
		{"resting", "resting", "mem:///l was free already, and rests: token 8\n", 0},
	} {
		st := &busyStore{Store: memstore.New(), at: 2}
		o, err := st.Put(t.Context(), "l", record(tt.first, 7), store.IfAbsent())
		if err != nil {
			t.Fatal(err)
		}
		st.happens = func() {
			if _, err = st.Put(t.Context(), "l", record(tt.next, 8), store.IfMatch(o.Version)); err != nil {
				t.Error(err)
			}
		}
		lock, err := leasehold.NewLock(st, "l", &leasehold.LockOptions{Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		var out, said bytes.Buffer
		a := &app{stdout: &out, console: console{w: &said}}
		err = a.free(t.Context(), target{name: "l", store: st, key: "l", url: "mem:///l", layout: leasehold.LayoutObject}, lock, 7)
		if out.String() != tt.out || said.String() != "" || (err == nil) != (tt.code == 0) || err != nil && codeOf(errors.Unwrap(err)) != tt.code {
			t.Errorf("%s, and %s meanwhile: it writes %q, says %q, and ends with %v", tt.first, tt.next, &out, &said, err)
		}
	}
}
