package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/probe"
)

// TestSlotRelease: a slot that cannot be given back in time is freed by the end of its session, so it does not keep
// others waiting when the process has ended.
func TestSlotRelease(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		open := func(st store.Store) *semaphore.Semaphore {
			s, err := semaphore.New(st, "slots", 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		first, second := open(st), open(inner)
		lease, err := first.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		st.Inject(faultstore.Fault{Kind: faultstore.Conflict, Op: "put", Key: "slots"})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err = (&slotLease{lease, first.Close}).Release(ctx); err != nil || ctx.Err() != nil {
			t.Errorf("released: %v, %v", err, ctx.Err())
		}
		began := time.Now()
		if lease, err = second.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the next had the slot after %v", took)
		}
		if err = (&slotLease{lease, second.Close}).Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSlotsOfTheGone: of those that hold slots or wait, one whose session is over or was deleted is found, wherever it is among
// them. A session that goes on, and one that cannot be read, say nothing.
func TestSlotsOfTheGone(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	const session = `{"format":1,"token":9,"state":%q,"holder":"h","address":"","ttl_ms":60000,"write_id":"x.1","session":"","layout":"session","renewed_at":"2999-01-01T00:00:00.000Z"}`
	for key, text := range map[string]string{"lives": fmt.Sprintf(session, "held"), "over": fmt.Sprintf(session, "free"), "broken": "no session"} {
		if _, err := st.Put(t.Context(), key, []byte(text), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	entries := func(sessions string) (all []leasehold.Entry) {
		for _, s := range strings.Fields(sessions) {
			all = append(all, leasehold.Entry{Holder: "of " + s, Token: 5, Weight: 1, Session: s})
		}
		return all
	}
	over := &gone{party{Holder: "of over", Token: 5}, "of over", time.Minute}
	c := &semaphoreContest{at: target{store: st}}
	for _, tt := range []struct {
		holders, waiters string
		want             *gone
	}{
		{"", "", nil},
		{"lives broken", "lives", nil},
		{"lives over", "", over},
		{"lives", "broken over", over},
		{"deleted", "broken lives", &gone{party{Holder: "of deleted", Token: 5}, "of deleted", 0}},
	} {
		for range 5 { // it begins at one of them that is drawn by lot
			got := c.gone(t.Context(), &leasehold.HeldError{Info: leasehold.Info{Holders: entries(tt.holders), Waiters: entries(tt.waiters)}})
			if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
				t.Errorf("%q hold slots, and %q wait: %+v, want %+v", tt.holders, tt.waiters, got, tt.want)
			}
		}
	}
	// It gives up after some of them, but others may have their turn the next time.
	many, found := &leasehold.HeldError{Info: leasehold.Info{Holders: entries(strings.Repeat("lives ", mostAsked)), Waiters: entries(strings.Repeat("over ", mostAsked))}}, false
	for range 100 {
		found = found || c.gone(t.Context(), many) != nil
	}
	if !found {
		t.Error("one that is behind many that live is never found")
	}
	counted := faultstore.Wrap(st, nil)
	(&semaphoreContest{at: target{store: counted}}).gone(t.Context(), &leasehold.HeldError{Info: leasehold.Info{Holders: entries(strings.Repeat("lives ", 2*mostAsked))}})
	if n := counted.Counts().Get; n != 32 {
		t.Errorf("of %d sessions it reads %d", 2*mostAsked, n)
	}
	if got := c.gone(t.Context(), store.ErrDenied); got != nil {
		t.Errorf("of no semaphore: %+v", got)
	}
}

// TestSlotReleaseFails: a slot is free if it was given back or its session was ended. A release that did neither fails, and
// so does one of a slot that was lost before.
func TestSlotReleaseFails(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		take := func() *slotLease {
			s, err := semaphore.New(st, "slots", 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			lease, err := s.Acquire(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			return &slotLease{lease, s.Close}
		}
		first := take()
		st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		if first.Release(t.Context()) == nil {
			t.Error("a store that denies has taken it")
		}
		st.Clear()
		time.Sleep(time.Hour) // the session is over
		second := take()
		st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		<-second.Done()
		st.Clear()
		if err := second.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("of a slot that was lost: %v", err)
		}
		third := take()
		third.Abandon(errors.New("it is fenced"))
		if err := third.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("of a slot that was lost under a session that goes on: %v", err)
		}
	})
}

// TestEnrollRefused: what a semaphore of any kind refuses is an error, with no contest beside it.
func TestEnrollRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"slots", "fair", "shared", "exclusive"} {
		s := &slotFlags{size: 2, weight: 1}
		if c, err := s.enroll(kind, target{store: memstore.New(), key: "l"}, &semaphore.Options{TTL: time.Nanosecond, Logger: silent}); c != nil || err == nil {
			t.Errorf("%s: %v, %v", kind, c, err)
		}
	}
}

// TestSemaphoreOptions: a slot is taken as a lock would be: for the same TTL, by the same holder, and so on.
func TestSemaphoreOptions(t *testing.T) {
	t.Parallel()
	proof, trace := &probe.Report{}, &locktrace.Trace{}
	h := &runCmd{job: job{app: &app{}, renewed: make(chan struct{}, 1)}}
	h.opts = leasehold.LockOptions{
		TTL: time.Minute, Holder: "me", Address: "a:1", Meta: map[string]string{"k": "v"}, Proof: proof, Existing: true, Logger: silent, Trace: trace,
	}
	o := h.semaphoreOptions()
	if o.TTL != time.Minute || o.Holder != "me" || o.Address != "a:1" || o.Meta["k"] != "v" || o.Proof != proof || !o.Existing || o.Logger != silent || o.Trace != trace {
		t.Errorf("the options are %+v", o)
	}
	if b := blockerOn(locktrace.Waiting{Held: &leasehold.HeldError{Info: leasehold.Info{Size: 2}}, Ahead: 2}); b.ahead == nil || *b.ahead != 2 {
		t.Errorf("it waits for %+v", b)
	}
}

// TestSlotFlags: the flags for semaphores, their bounds, and the flags that exclude them.
func TestSlotFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct{ kind, says string }{
		"":                          {"", ""},
		"--claim c":                 {"", ""},
		"--slots 1":                 {"slots", ""},
		"--slots 1073741824":        {"slots", ""},
		"--slots 1073741825":        {"slots", "--slots 1073741825 is not between 1 and 1073741824"},
		"--slots 0":                 {"slots", "--slots 0 is not between 1 and 1073741824"},
		"--slots 3 --weight 1":      {"slots", ""},
		"--slots 3 --weight 3":      {"slots", ""},
		"--slots 3 --weight 4":      {"slots", "--weight 4 is not between 1 and --slots 3"},
		"--slots 3 --weight 0":      {"slots", "--weight 0 is not between 1 and --slots 3"},
		"--weight 1":                {"", "--weight is for --slots, and there is none"},
		"--fair --weight 1":         {"fair", "--weight is for --slots, and there is none"},
		"--fair":                    {"fair", ""},
		"--shared":                  {"shared", ""},
		"--exclusive":               {"exclusive", ""},
		"--fair --exclusive":        {"", "--fair and --exclusive exclude each other"},
		"--slots 2 --shared":        {"", "--slots and --shared exclude each other"},
		"--slots 2 --layout epochs": {"slots", "--slots and --layout epochs exclude each other: a semaphore is one object"},
		"--fair --hold-at-least 1s": {"fair", "--fair and --hold-at-least exclude each other: whoever waits gets a slot as soon as it is free"},
		"--fair --hold-at-least 0":  {"fair", ""},
		"--fair --max-hold 1s":      {"fair", "--fair and --max-hold exclude each other: a slot is held for as long as the command takes; end the command with timeout(1)"},
		"--fair --claim c":          {"fair", ""},
		"--exclusive --claim c":     {"exclusive", ""},
		"--slots 2 --claim c":       {"slots", "--slots and --claim exclude each other: several work at one time, so the newest token must not keep the others out"},
		"--shared --claim c":        {"shared", "--shared and --claim exclude each other: several work at one time, so the newest token must not keep the others out"},
		"--shared=false --fair":     {"fair", ""},
	} {
		cmd := &cobra.Command{Use: "run"}
		h := &runCmd{job: job{app: &app{}}}
		h.flags(cmd.Flags())
		h.slots.flags(cmd.Flags())
		cmd.Flags().DurationVar(&h.maxHold, "max-hold", 0, "")
		cmd.Flags().DurationVar(&h.atLeast, "hold-at-least", 0, "")
		if err := cmd.ParseFlags(strings.Fields("--layout object " + args)); err != nil {
			t.Fatal(err)
		}
		kind, err := h.slots.check(cmd, h)
		if kind != want.kind || (err != nil) != (want.says != "") || err != nil && err.Error() != "exit code 64: "+want.says {
			t.Errorf("run %s: %q, %v, want %q, %q", args, kind, err, want.kind, want.says)
		}
	}
}

// TestSlotsInWords: what a run says of those it waits for, and of those because of whom it gives up.
func TestSlotsInWords(t *testing.T) {
	t.Parallel()
	const rw = semaphore.RWSize
	a, b := leasehold.Entry{Holder: "a", Token: 5, Weight: 1}, leasehold.Entry{Holder: "b", Token: 6, Weight: 2}
	writer := leasehold.Entry{Holder: "w", Token: 7, Weight: rw}
	all := func(s ...leasehold.Entry) []leasehold.Entry { return s }
	for _, tt := range []struct {
		info        leasehold.Info
		ahead       int
		waits, ends string
	}{
		{leasehold.Info{Size: 3}, 0, "waiting for l", "l is taken"},
		{leasehold.Info{Size: 3, Waiters: all(a)}, 0, "waiting for l", "l is taken, and 1 wait"},
		{leasehold.Info{Size: 1, Holders: all(a)}, 0, "waiting for l, held by a, token 5, next in the queue", "l is held by a (token 5)"},
		{leasehold.Info{Size: 1, Holders: all(a), Waiters: all(b, b)}, 2, "waiting for l, held by a, token 5, 2 before it", "l is held by a (token 5), and 2 wait"},
		{leasehold.Info{Size: 3, Holders: all(a, b)}, 0, "waiting for l, where 3 of 3 slots are taken, by a and 1 more, next in the queue", "3 of 3 slots of l are taken, by a and 1 more"},
		{leasehold.Info{Size: 3, Holders: all(b)}, 1, "waiting for l, where 2 of 3 slots are taken, by b, 1 before it", "2 of 3 slots of l are taken, by b"},
		{leasehold.Info{Size: 2, Holders: all(b)}, 0, "waiting for l, where 2 of 2 slots are taken, by b, token 6, next in the queue", "2 of 2 slots of l are taken, by b (token 6)"},
		{leasehold.Info{Size: 2 * rw, Holders: all(writer)}, 0, "waiting for l, where 1048576 of 2097152 slots are taken, by w, next in the queue", "1048576 of 2097152 slots of l are taken, by w"},
		{leasehold.Info{Size: rw, Holders: all(a)}, 0, "waiting for l, held for reading by a, next in the queue", "l is held for reading by a"},
		{leasehold.Info{Size: rw, Holders: all(writer)}, 0, "waiting for l, held for writing by w, token 7, next in the queue", "l is held for writing by w (token 7)"},
	} {
		blocked := semaphoreBlocker(tt.info, tt.ahead)
		if got := blocked.inFull("l"); got != tt.waits {
			t.Errorf("%+v: %q, want %q", tt.info, got, tt.waits)
		}
		if *blocked.ahead != tt.ahead {
			t.Errorf("%+v: %d are before it", tt.info, *blocked.ahead)
		}
		if first := append(tt.info.Holders, leasehold.Entry{})[0]; blocked.party != (party{Holder: first.Holder, Token: first.Token}) {
			t.Errorf("%+v: it waits for %+v", tt.info, blocked.party)
		}
		taken := &leasehold.HeldError{Info: tt.info}
		err := heldBy{target: target{name: "l"}, HeldError: taken}
		if err.Error() != tt.ends || !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("%+v: %q, want %q", tt.info, err, tt.ends)
		}
		line, _, _ := strings.Cut(tt.ends, ", and ") // which this process was in
		if strings.Contains(tt.ends, "more") {
			line = tt.ends
		}
		if err.wait.limit = time.Minute; err.Error() != line+", and --wait 1m0s ran out" {
			t.Errorf("%+v: after a minute %q", tt.info, err)
		}
	}
	for size, want := range map[int]string{
		1:  "a fair lock: leasehold run takes it with --fair",
		rw: "a reader/writer lock: leasehold run takes it with --shared or --exclusive",
		2:  "a semaphore with 2 slots: leasehold run takes them with --slots 2",
	} {
		if got := howToTake(size); got != want {
			t.Errorf("of size %d: %q, want %q", size, got, want)
		}
	}
}
