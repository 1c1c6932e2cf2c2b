package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// TestKindOf: the errors of several members have the kind that says what the caller can do: that of a permanent error
// only if all members have it.
func TestKindOf(t *testing.T) {
	t.Parallel()
	of := func(kind error) error {
		return fmt.Errorf("mem://0: %w", &store.Error{Op: "get", Key: "k", Kind: kind, Cause: errors.New("why")})
	}
	foreign := fmt.Errorf("mem://0: %w: why", register.ErrForeign)
	for _, tc := range []struct {
		errs []error
		want error
	}{
		{nil, store.ErrUnavailable},
		{[]error{errors.New("why")}, store.ErrUnavailable},
		{[]error{of(store.ErrDenied), of(store.ErrDenied)}, store.ErrDenied},
		{[]error{of(store.ErrNoBucket), of(store.ErrNoBucket)}, store.ErrNoBucket},
		{[]error{of(store.ErrRefused), of(store.ErrRefused)}, store.ErrRefused},
		{[]error{of(store.ErrInvalid), of(store.ErrInvalid)}, store.ErrInvalid},
		{[]error{of(store.ErrConflict), of(store.ErrConflict)}, store.ErrConflict},
		{[]error{of(store.ErrDenied), of(store.ErrUnavailable)}, store.ErrUnavailable},
		{[]error{of(store.ErrUnavailable), of(store.ErrDenied)}, store.ErrUnavailable},
		{[]error{of(store.ErrDenied), of(store.ErrNoBucket)}, store.ErrUnavailable},
		{[]error{of(store.ErrThrottled), of(store.ErrDenied)}, store.ErrThrottled},
		{[]error{of(store.ErrUnavailable), of(store.ErrThrottled)}, store.ErrThrottled},
		{[]error{register.ErrContended}, store.ErrConflict},
		{[]error{&store.Error{Kind: store.ErrDenied, Cause: of(store.ErrUnavailable)}}, store.ErrDenied},
		{[]error{foreign, of(store.ErrRefused)}, store.ErrRefused},
		{[]error{foreign, of(store.ErrUnavailable)}, store.ErrUnavailable},
		{[]error{register.ErrContended, of(store.ErrDenied)}, store.ErrUnavailable},
	} {
		err := errors.Join(append([]error{ErrNoMajority}, tc.errs...)...)
		got := failed(t.Context(), "get", "key", register.Failed, err)
		if !errors.Is(got, tc.want) || got.Error() != fmt.Sprintf("get %q: %v: %v", "key", tc.want, err) {
			t.Errorf("%v, want %v", got, tc.want)
		}
		if !errors.Is(got, ErrNoMajority) || errors.Is(got, ErrLost) || store.Final(got) != store.Final(tc.want) {
			t.Errorf("%v is another error too", got)
		}
		got = failed(t.Context(), "put", "key", register.Uncertain, err)
		if got.Error() != fmt.Sprintf("put %q: %v: %v", "key", store.ErrUnknownOutcome, err) {
			t.Errorf("a write of which that is said: %v", got)
		}
	}
}

// TestFailedWithContext: an error of a call whose context has ended tells so once.
func TestFailedWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	if err := failed(ctx, "get", "key", register.Failed, ErrNoMajority); errors.Is(err, context.Canceled) {
		t.Errorf("before the end: %v", err)
	}
	cancel()
	for _, err := range []error{ErrNoMajority, context.Canceled} {
		got := failed(ctx, "get", "key", register.Failed, err)
		want := `get "key": store unavailable: context canceled`
		if err == ErrNoMajority { //nolint:errorlint // it is that one
			want += "\n" + ErrNoMajority.Error()
		}
		if !errors.Is(got, context.Canceled) || !errors.Is(got, err) || got.Error() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestMakeRoom: however many keys are used, a view remembers a bounded number, and keeps those with a call under way.
func TestMakeRoom(t *testing.T) {
	t.Parallel()
	cfg := register.Configuration{Quorum: "q", Members: make([]register.Member, 3)}
	v := (&Store{}).newView(cfg, nil)
	busy := v.key("busy")
	busy.mu.Lock()
	busy.reg.Step(register.Call{ID: 1, Kind: register.Look}, 0) // nobody sends its requests, so it stays under way
	busy.mu.Unlock()
	for i := 1; i < maxKeys; i++ {
		v.key(strconv.Itoa(i))
	}
	if len(v.keys) != maxKeys {
		t.Fatalf("%d keys, want all %d", len(v.keys), maxKeys)
	}
	for range 2 {
		v.key("one more")
		if want := maxKeys - maxKeys/16 + 1; len(v.keys) != want {
			t.Fatalf("%d keys after one more, want %d", len(v.keys), want)
		}
	}
	for i := range maxKeys / 8 {
		v.key("more/" + strconv.Itoa(i))
	}
	if len(v.keys) > maxKeys || v.key("busy") != busy || busy.idle() || busy.idle() { // twice: it does not lock it for good
		t.Errorf("%d keys, want at most %d, and the busy one among them", len(v.keys), maxKeys)
	}
}

// TestTally: which quorum the markers of the members decide on, whatever the members that have not answered have, and what is said
// where they do not.
func TestTally(t *testing.T) {
	t.Parallel()
	const noMajority = "no majority of the members"
	lost := func(n int) string { return fmt.Sprintf("\n%d: this member has lost its objects", n) }
	for _, tc := range []struct {
		members int
		answers string // of each member: its quorum, - for none, ! for an error, ? for no answer yet
		most    string
		known   bool // more answers would change nothing for one that knows quorum q
		may     string
		err     string // where most is none
	}{
		{3, "???", "", false, "", noMajority},
		{3, "q??", "", false, "q", noMajority},
		{3, "qq?", "q", true, "", ""},
		{3, "qqq", "q", true, "", ""},
		{3, "qqr", "q", true, "", ""},
		{3, "rrq", "r", false, "", ""},
		{3, "qr?", "", false, "", noMajority + "\nthe members are of different quorums: 0 is of q, 1 is of r"},
		{3, "rq!", "", false, "", noMajority + "\nbroken\nthe members are of different quorums: 0 is of r, 1 is of q"},
		{3, "qr-", "", false, "", `open "": invalid argument: the members are of different quorums: 0 is of q, 1 is of r`},
		{3, "qrs", "", false, "", `open "": invalid argument: the members are of different quorums: 0 is of q, 1 is of r, 2 is of s`},
		{3, "q--", "q", false, "", ""},
		{3, "q-?", "", false, "q", noMajority + lost(1)},
		{3, "---", "", false, "", noMajority + lost(0) + lost(1) + lost(2)},
		{3, "!!q", "", false, "q", noMajority + "\nbroken\nbroken"},
		{5, "qq???", "", false, "q", noMajority},
		{5, "qqq??", "q", true, "", ""},
		{5, "qqr!-", "", false, "", noMajority + "\nbroken" + lost(4) + "\nthe members are of different quorums: 0 is of q, 1 is of q, 2 is of r"},
		{5, "qqr--", "q", false, "", ""},
		{5, "qqrr-", "", false, "", `open "": invalid argument: the members are of different quorums: 0 is of q, 1 is of q, 2 is of r, 3 is of r`},
		{5, "qqrrr", "r", false, "", ""},
	} {
		for range 5 { // in any order of the quorums
			votes := tally{of: map[string][]shown{}, silent: tc.members, errs: []error{ErrNoMajority}}
			for i, c := range tc.answers {
				a := shown{place: strconv.Itoa(i)}
				switch c {
				case '?':
					continue
				case '!':
					a.err = errors.New("broken")
				case '-':
				default:
					a.marker = &register.Marker{Known: register.Configuration{Quorum: string(c)}}
				}
				votes.add(a)
			}
			if got := votes.most(); got != tc.most || votes.enough("", tc.members) != (got != "") || votes.enough("q", tc.members) != tc.known {
				t.Errorf("%s: %q, enough %t and %t, want %q, %t", tc.answers, got, votes.enough("", tc.members), votes.enough("q", tc.members), tc.most, tc.known)
			}
			if tc.most != "" {
				continue
			}
			if may, err := votes.undecided(); may != tc.may || err == nil || err.Error() != tc.err {
				t.Errorf("%s: %q, %v, want %q, %s", tc.answers, may, err, tc.may, tc.err)
			}
		}
	}
}

// TestFateOf: only what a store refused for its condition is known not to land, and only what it may not have seen can be sent
// again at once.
func TestFateOf(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]register.Fate{
		nil:                      register.Landed,
		store.ErrUnknownOutcome:  register.Unknown,
		store.ErrConflict:        register.Unknown,
		store.ErrPrecondition:    register.Refused,
		store.ErrNotExist:        register.Refused,
		store.ErrUnavailable:     register.Unsent,
		store.ErrDenied:          register.Unsent,
		context.DeadlineExceeded: register.Unsent,
		errors.New("why"):        register.Unsent,
	} {
		if got := fateOf(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// TestWaitingIsForgotten: a call that has ended is not kept, however many there are of one key.
func TestWaitingIsForgotten(t *testing.T) {
	t.Parallel()
	cfg := register.Configuration{Quorum: "q", Members: make([]register.Member, 3)}
	v := (&Store{}).newView(cfg, nil)
	k := v.key("key")
	k.reg.Step(register.Call{ID: -1, Kind: register.Look}, 0) // nobody sends its requests, so the others wait for it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		if a := k.call(ctx, register.Call{Kind: register.Look}); !errors.Is(a.Err, context.Canceled) {
			t.Errorf("%+v", a)
		}
	}
	if len(k.waiting) > 0 {
		t.Errorf("%d calls are kept", len(k.waiting))
	}
}
