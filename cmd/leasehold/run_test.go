package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestWaitFlag: the values of --wait, and how it is shown.
func TestWaitFlag(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		wait
		shown, ranOut string
	}{
		"forever": {wait{forever: true}, "forever", ""},
		"0":       {wait{}, "0", ""},
		"0s":      {wait{}, "0", ""},
		"90s":     {wait{limit: 90 * time.Second}, "1m30s", ", and --wait 1m30s ran out"},
	} {
		for _, w := range []wait{{}, {forever: true}, {limit: time.Hour}} { // what it was counts no more
			if err := w.Set(text); err != nil || w != want.wait || w.String() != want.shown {
				t.Errorf("--wait %s is %+v, shown as %q, %v", text, w, w.String(), err)
			}
			if got := w.ranOut(); got != want.ranOut {
				t.Errorf("--wait %s ends with %q, want %q", text, got, want.ranOut)
			}
		}
	}
	for _, text := range []string{"", "soon", "-1s", "5"} {
		w := wait{limit: time.Hour}
		if err := w.Set(text); err == nil || w != (wait{limit: time.Hour}) {
			t.Errorf("--wait %q is %+v, %v", text, w, err)
		}
	}
}

// A tried is a lock whose holder looks to be gone.
type tried struct {
	settled
	held   error // what a try fails with; nil: it does not
	dead   *gone
	after  time.Duration // when it can be had
	limits []time.Duration
}

func (c *tried) try(context.Context) (held, error) {
	if c.held == nil {
		return heldLease{}, nil
	}
	return nil, c.held
}

func (c *tried) gone(context.Context, error) *gone { return c.dead }

func (c *tried) acquire(ctx context.Context) (held, error) {
	end, _ := ctx.Deadline()
	c.limits = append(c.limits, time.Until(end))
	select {
	case <-time.After(c.after):
		return heldLease{}, nil
	case <-ctx.Done():
		return nil, c.held
	}
}

// TestTryOfDeadHolder: a run that does not wait takes over from a holder that looks to be gone, and says for how long that is
// tried. If it was alive after all, the lock is held.
func TestTryOfDeadHolder(t *testing.T) {
	t.Parallel()
	busy := &leasehold.HeldError{Info: leasehold.Info{Key: "l", Held: true, Holder: "dead", Token: 5, TTL: 15 * time.Second, Abandoned: true}}
	dead := &gone{party{Holder: "dead", Token: 5}, "dead", 15 * time.Second}
	const says = "leasehold: dead looks to be gone: watching for up to 21s to take l over\n"
	for name, tt := range map[string]struct {
		contest *tried
		code    int
		took    time.Duration
		says    string
	}{
		"it was gone":      {&tried{held: busy, dead: dead, after: 17 * time.Second}, 0, 17 * time.Second, says},
		"it was alive":     {&tried{held: busy, dead: dead, after: time.Hour}, 75, 20750 * time.Millisecond, says},
		"it is free":       {&tried{}, 0, 0, ""},
		"it lives":         {&tried{held: busy}, 75, 0, ""},
		"the store denies": {&tried{held: &store.Error{Op: "get", Key: "l", Kind: store.ErrDenied}}, exitDenied, 0, ""},
	} {
		for _, output := range []string{"text", "json"} {
			synctest.Test(t, func(t *testing.T) {
				j, said := newWaiter()
				j.console.json = output == "json"
				h := &runCmd{job: *j, heldCode: 75, contest: tt.contest}
				h.candidate = tt.contest
				h.target.layout = layoutTable // nothing is looked at for another lock
				tt.contest.limits = nil
				began := time.Now()
				lease, err := h.obtain(t.Context())
				took, code := time.Since(began), 0
				if end, is := errors.AsType[*exit](err); is {
					code = end.code
				}
				if code != tt.code || (lease == nil) != (tt.code != 0) || took != tt.took {
					t.Errorf("%s: it gets %v, %v after %v, want %d after %v", name, lease, err, took, tt.code, tt.took)
				}
				if tt.code == 75 && err.Error() != "exit code 75: l is held by dead (token 5)" {
					t.Errorf("%s: %v", name, err)
				}
				if tt.says != "" && (len(tt.contest.limits) != 1 || tt.contest.limits[0] != 20750*time.Millisecond || !h.announced) {
					t.Errorf("%s: it waits for up to %v, and it is announced: %v", name, tt.contest.limits, h.announced)
				}
				if h.trying.Load() != (tt.says == "" && tt.code != 0) {
					t.Errorf("%s: trouble is not told: %v", name, h.trying.Load())
				}
				want := tt.says
				if output == "json" && want != "" {
					want = `{"time":"` + began.UTC().Format(time.RFC3339) + `","event":"waiting","level":"warn","message":"` + strings.TrimSuffix(strings.TrimPrefix(says, "leasehold: "), "\n") + `","holder":"dead","token":5}` + "\n"
				}
				if said.String() != want {
					t.Errorf("%s: it says %q, want %q", name, said, want)
				}
			})
		}
	}
}

// TestGoneHolder: a run that does not wait takes over only from a holder that looks to be gone, and not where its marker has
// to be deleted.
func TestGoneHolder(t *testing.T) {
	t.Parallel()
	info := leasehold.Info{Held: true, Holder: "dead", Address: "d:1", Token: 5, TTL: 15 * time.Second}
	abandoned := info
	abandoned.Abandoned = true
	for name, tt := range map[string]struct {
		err     error
		patient bool
		want    *gone
	}{
		"it is gone":         {&leasehold.HeldError{Info: abandoned}, false, &gone{party{Holder: "dead", Address: "d:1", Token: 5}, "dead", 15 * time.Second}},
		"it leaves a marker": {&leasehold.HeldError{Info: abandoned}, true, nil},
		"it lives":           {&leasehold.HeldError{Info: info}, false, nil},
		"the store fails":    {&store.Error{Op: "get", Key: "l", Kind: store.ErrUnavailable}, false, nil},
	} {
		got := (&lockContest{patient: tt.patient}).gone(t.Context(), tt.err)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		opts    leasehold.LockOptions
		patient bool
	}{
		{leasehold.LockOptions{Layout: leasehold.LayoutMarker, NoIfMatch: true}, true},
		{leasehold.LockOptions{Layout: leasehold.LayoutMarker, NoIfMatch: true, Sweep: true}, false},
		{leasehold.LockOptions{Layout: leasehold.LayoutMarker}, false},
		{leasehold.LockOptions{Layout: leasehold.LayoutEpochs, NoIfMatch: true}, false},
	} {
		h := &runCmd{job: job{opts: tt.opts, target: target{store: memstore.New(), key: "l"}}}
		h.opts.Logger = silent
		made, err := h.enroll()
		if lock, is := made.(*lockContest); err != nil || !is || lock.patient != tt.patient {
			t.Errorf("%+v: it gets %+v, %v, want one whose patience is %v", tt.opts, made, err, tt.patient)
		}
	}
}

// TestLineOfTheMoment: a line without an end, as it is shown on a terminal, is removed before the next message; and what the
// library logs is a message with its attributes.
func TestLineOfTheMoment(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	c := &console{w: &said, least: levelNotice}
	says := func(want string) {
		t.Helper()
		if got := said.String(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
		said.Reset()
	}
	c.show("")
	says("")
	c.show("waiting")
	says("\r\x1b[Kwaiting")
	c.tell("done %d", 5)
	says("\r\x1b[Kleasehold: done 5\n")
	c.tell("a\nb")
	says("leasehold: a\n  b\n")
	c.show("waiting")
	c.show("")
	says("\r\x1b[Kwaiting\r\x1b[K")
	c.show("")
	says("")
	c.logger().With("a", 1).WithGroup("g").With("b", "x y").Warn("it is so", "c", time.Second)
	says("leasehold: it is so a=1 b=x y c=1s\n")
	c.logger().Info("not told without -v")
	says("")
	c.quorumLogger().Info("a member answers", "member", "s3://a", "after", 1499600*time.Microsecond)
	says("leasehold: the quorum's member s3://a answers again, after 1.5s\n")
}

// TestHeldInWords: what a run that gives up says of the holder, of a rest, and of a marker that has to be deleted.
func TestHeldInWords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(time.Minute).Local().Format(time.DateTime)
		for _, tt := range []struct {
			unrenewed bool
			wait      wait
			cooling   time.Time
			uncounted error
			info      leasehold.Info
			want      string
		}{
			{false, wait{}, time.Time{}, nil, leasehold.Info{Held: true, Holder: "a", Token: 5}, "l is held by a (token 5)"},
			{false, wait{limit: time.Minute}, time.Time{}, nil, leasehold.Info{Held: true, Holder: "a"}, "l is held by a, and --wait 1m0s ran out"},
			{false, wait{}, time.Time{}, nil, leasehold.Info{Held: true, Holder: "a", Abandoned: true}, "l is held by a"},
			{
				true,
				wait{},
				time.Time{},
				nil,
				leasehold.Info{Held: true, Holder: "a", Abandoned: true},
				"l is held by a; it looks to be gone, and its marker has to be deleted: see --sweep and leasehold gc",
			},
			{true, wait{}, time.Time{}, nil, leasehold.Info{Held: true, Holder: "a"}, "l is held by a"},
			{false, wait{}, time.Time{}, nil, leasehold.Info{Held: true, Holder: "a", Age: -1}, "l is held by a"},
			{false, wait{}, time.Time{}, nil, leasehold.Info{Holder: "a", Token: 5, Rest: time.Minute}, "l rests until " + until + ", as a has asked (token 5)"},
			{
				false,
				wait{},
				now, nil,
				leasehold.Info{Holder: "a", Token: 5, Rest: time.Minute, Age: -1},
				"l rests until 2026-01-02 03:05:05, as a has asked (token 5); the store does not tell for how long it has rested, so this machine counts from 2026-01-02 03:04:05, when it first saw that",
			},
			{
				false,
				wait{},
				now, errors.New("the disk is full"),
				leasehold.Info{Holder: "a", Token: 5, Rest: time.Minute, Age: -1},
				"l rests until 2026-01-02 03:05:05, as a has asked (token 5); the store does not tell for how long it has rested, and this machine cannot count it: the disk is full: a longer --wait or leasehold break gets past it",
			},
		} {
			held := &leasehold.HeldError{Info: tt.info}
			err := heldBy{target{name: "l"}, tt.wait, tt.cooling, tt.uncounted, tt.unrenewed, held}
			if err.Error() != tt.want || !errors.Is(err, leasehold.ErrHeld) {
				t.Errorf("it says\n%v\nwant\n%s", err, tt.want)
			}
		}
	})
}

// TestTerms: the flags for a lease, and their bounds.
func TestTerms(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                     "",
		"--max-hold 1s --grace 0":              "",
		"--max-hold 999ms --grace 0":           "--max-hold 999ms is less than 1s",
		"--max-hold 0":                         "--max-hold 0s is less than 1s",
		"--max-hold 5s":                        "--max-hold 5s leaves the command no time before --grace 5s begins: use a longer one",
		"--max-hold 5001ms":                    "",
		"--hold-at-least 24h":                  "",
		"--hold-at-least 24h1ns":               "--hold-at-least 24h0m0.000000001s is not between 0 and 24h",
		"--hold-at-least -1ns":                 "--hold-at-least -1ns is not between 0 and 24h",
		"--hold-at-least 1m --max-hold 1m":     "",
		"--hold-at-least 1m1ns --max-hold 1m":  "--hold-at-least 1m0.000000001s is more than --max-hold 1m0s",
		"--hold-at-least 1m --layout marker":   "--hold-at-least and --layout marker exclude each other: a lock that is free has no marker that could say so",
		"--hold-at-least 0 --layout marker":    "",
		"--hold-at-least 1m --layout epochs":   "",
		"--max-hold 1m --layout marker":        "",
		"--hold-at-least 1ns --layout marker":  "--hold-at-least and --layout marker exclude each other: a lock that is free has no marker that could say so",
		"--max-hold 10s --hold-at-least 10s":   "",
		"--max-hold 10s --hold-at-least 9s":    "",
		"--hold-at-least 10s --grace 10s":      "",
		"--max-hold 10s --grace 9s":            "",
		"--max-hold 10s --grace 10s --ttl 30s": "--max-hold 10s leaves the command no time before --grace 10s begins: use a longer one",
	} {
		cmd := &cobra.Command{Use: "run"}
		h := &runCmd{job: job{app: &app{}}}
		h.flags(cmd.Flags())
		cmd.Flags().DurationVar(&h.maxHold, "max-hold", 0, "")
		cmd.Flags().DurationVar(&h.atLeast, "hold-at-least", 0, "")
		if err := cmd.ParseFlags(strings.Fields("--layout object " + args)); err != nil {
			t.Fatal(err)
		}
		if err := h.checkTerms(cmd); (err != nil) != (want != "") || err != nil && err.Error() != "exit code 64: "+want {
			t.Errorf("run %s: %v, want %q", args, err, want)
		}
	}
}

// TestRefused: the exit code of a run that does not get the lock, by reason. If the store has not answered by the end of --wait,
// the message says so.
func TestRefused(t *testing.T) {
	t.Parallel()
	failure := func(kind error) error { return &store.Error{Op: "get", Key: "l", Kind: kind} }
	late := func(why error) error { return fmt.Errorf("%w: %w", context.DeadlineExceeded, why) }
	busy := &leasehold.HeldError{Info: leasehold.Info{Held: true, Holder: "a", Token: 5}}
	for _, tt := range []struct {
		wait  wait
		quiet bool
		err   error
		want  string
	}{
		{wait{limit: time.Minute}, false, nil, "<nil>"},
		{wait{}, false, busy, "exit code 4: l is held by a (token 5)"},
		{wait{}, true, busy, "exit code 4: <nil>"},
		{wait{limit: time.Minute}, true, busy, "exit code 4: l is held by a (token 5), and --wait 1m0s ran out"},
		{wait{limit: time.Minute}, false, context.DeadlineExceeded, "exit code 69: the store of l did not answer; --wait 1m0s ran out"},
		{wait{limit: time.Minute}, false, late(failure(store.ErrUnavailable)), `exit code 69: store unavailable (get "l"); --wait 1m0s ran out`},
		{wait{limit: time.Minute}, false, late(failure(store.ErrDenied)), `exit code 77: context deadline exceeded: get "l": access denied`},
		{wait{limit: time.Minute}, false, failure(store.ErrUnavailable), `exit code 69: get "l": store unavailable`},
	} {
		j, _ := newWaiter()
		h := &runCmd{job: *j, heldCode: 4, wait: tt.wait}
		h.quiet = tt.quiet
		if err := h.refused(t.Context(), tt.err); fmt.Sprint(err) != tt.want {
			t.Errorf("%v: %v, want %s", tt.err, err, tt.want)
		}
	}
}
