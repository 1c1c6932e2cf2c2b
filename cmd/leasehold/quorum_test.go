package main

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// TestQuorumStands: with which code quorum status ends and what it says, by how its members are. A script that watches a
// quorum must hear of a member that does not vote, and of a change that was broken off, before a majority is lost.
func TestQuorumStands(t *testing.T) {
	t.Parallel()
	votes, half := quorumstore.MemberStatus{Place: "a", Whole: true}, quorumstore.MemberStatus{Place: "b", Whole: true, Next: 4}
	began := quorumstore.MemberStatus{Place: "b", Whole: true, Next: 1}
	filled, fails := quorumstore.MemberStatus{Place: "c"}, quorumstore.MemberStatus{Place: "d", Whole: true, Err: &store.Error{Kind: store.ErrDenied}}
	lost := quorumstore.MemberStatus{Place: "e", Whole: true, Err: fmt.Errorf("x: %w", quorumstore.ErrLost)}
	for _, tt := range []struct {
		members []quorumstore.MemberStatus
		code    int
		says    string
	}{
		{[]quorumstore.MemberStatus{votes, votes, votes}, 0, ""},
		{[]quorumstore.MemberStatus{votes, filled, votes}, exitUnsafe, "quorum://m: 2 of 3 members vote: it goes on"},
		{[]quorumstore.MemberStatus{votes, votes, votes, fails, lost}, exitUnsafe, "quorum://m: 3 of 5 members vote: it goes on"},
		{[]quorumstore.MemberStatus{votes, votes, filled, fails, lost}, exitUnavailable, "quorum://m: 2 of 5 members vote, and it takes 3: nobody can acquire or renew until they are back"},
		{[]quorumstore.MemberStatus{votes, half, votes}, exitUnsafe, "quorum://m: a change of its members was broken off: leasehold quorum repair settles it"},
		{[]quorumstore.MemberStatus{votes, half, fails}, exitUnsafe, "quorum://m: a change of its members was broken off: leasehold quorum repair settles it"},
		{[]quorumstore.MemberStatus{votes, began, votes}, exitUnsafe, "quorum://m: a change of its members was broken off: leasehold quorum repair settles it"},
		{[]quorumstore.MemberStatus{filled, half, fails}, exitUnavailable, "quorum://m: 1 of 3 members vote, and it takes 2: nobody can acquire or renew until they are back"},
	} {
		err := quorumStands("quorum://m?secret", tt.members)
		end, is := errors.AsType[*exit](err)
		if is != (tt.code != 0) || is && (end.code != tt.code || end.err.Error() != tt.says) {
			t.Errorf("%+v: %v, want %d %s", tt.members, err, tt.code, tt.says)
		}
	}
	for _, tt := range []struct {
		member     quorumstore.MemberStatus
		state, why string
	}{
		{votes, "votes", "-"},
		{half, "votes", "it has accepted configuration 4, and no majority has: leasehold quorum repair settles it"},
		{began, "votes", "it has accepted configuration 1, and no majority has: leasehold quorum repair settles it"},
		{filled, "being filled", "leasehold quorum repair brings it what it lacks"},
		{fails, "fails", "access denied"},
		{lost, "lost", "it has not what it had: leasehold quorum replace puts a new member there"},
	} {
		if state, why := memberState(tt.member); state != tt.state || why != tt.why {
			t.Errorf("%+v: %q because %q, want %q because %q", tt.member, state, why, tt.state, tt.why)
		}
	}
}

// TestFaultsOfMembers: what is wrong with members is told without the names of objects that the quorum keeps for itself, each
// fact once.
func TestFaultsOfMembers(t *testing.T) {
	t.Parallel()
	failure := func(kind, why error) error {
		return &store.Error{Op: "get", Key: "!leasehold-quorum", Kind: kind, Cause: why}
	}
	down := failure(store.ErrUnavailable, errors.New("filestore: 503 SlowDown"))
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("filestore: the disk is gone\nfor good"), "the disk is gone; for good"},
		{fmt.Errorf("a: %w", quorumstore.ErrNoQuorum), "these stores are no quorum yet: leasehold quorum init makes one"},
		{down, "store unavailable: 503 SlowDown"},
		{fmt.Errorf("file:///a: %w", down), "file:///a: store unavailable: 503 SlowDown"},
		{failure(store.ErrDenied, nil), "access denied"},
		{failure(store.ErrInvalid, nil), "invalid argument"},
		{fmt.Errorf("file:///a: %w", failure(store.ErrInvalid, errors.New("a is no member; the members are b, c"))), "file:///a: a is no member; the members are b, c"},
		{errors.Join(fmt.Errorf("file:///a: %w", down), fmt.Errorf("file:///b: %w", failure(store.ErrDenied, nil))), "file:///a: store unavailable: 503 SlowDown; file:///b: access denied"},
		{fmt.Errorf("no majority: %w", down), "no majority: store unavailable: 503 SlowDown"},
	} {
		if got := faults(tt.err); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.err, got, tt.want)
		}
	}
	for err, code := range map[error]int{
		down:                          exitUnavailable,
		failure(store.ErrDenied, nil): exitDenied,
		errors.Join(quorumstore.ErrNoMajority, failure(store.ErrDenied, nil)): exitUnavailable,
	} {
		end, is := errors.AsType[*exit]((&app{}).quorumFailed("quorum://m?secret", err))
		if want := "quorum://m: " + faults(err); !is || end.code != code || end.err.Error() != want {
			t.Errorf("%v: %v, want %d %s", err, end, code, want)
		}
	}
}

// TestMembersAreTold: a command on a quorum goes on without a member that fails, and says so, and when it answers again.
func TestMembersAreTold(t *testing.T) {
	t.Parallel()
	var said leasetest.Log
	log := (&console{w: &said, least: levelNotice}).quorumLogger()
	if !log.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("what the console leaves out it decides itself")
	}
	log = log.With("x", 1).WithGroup("g")
	log.Warn("fails", "member", "file:///a", "error", &store.Error{Op: "get", Key: "!leasehold-quorum", Kind: store.ErrDenied})
	log.Warn("fails", "member", "file:///a", "error", fmt.Errorf("x: %w", quorumstore.ErrLost))
	log.Info("answers", "member", "file:///a", "after", 1_234_567*time.Microsecond)
	if want := "leasehold: the quorum's member file:///a fails, and the others go on: access denied\n" +
		"leasehold: the quorum's member file:///a fails, and the others go on: it has lost its objects: see leasehold quorum replace --help\n" +
		"leasehold: the quorum's member file:///a answers again, after 1.235s\n"; said.String() != want {
		t.Errorf("it says\n%swant\n%s", said.String(), want)
	}
}

// TestQuorumCollects: what a run of quorum collect has done is told even if it ends with an error, unless that is nothing.
func TestQuorumCollects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		gone, settled int
		dry           bool
		err           error
		says, ends    string
	}{
		{0, 0, false, nil, "leasehold: 0 deleted objects are gone; 0 were settled, and can go in a day; 5 were touched meanwhile\n", "<nil>"},
		{1, 2, true, nil, "leasehold: 1 deleted objects would be gone; 2 would be settled, and could go a day later; 5 were touched meanwhile\n", "<nil>"},
		{0, 0, false, store.ErrDenied, "", "exit code 77: quorum://m: access denied"},
		{1, 1, false, store.ErrDenied, "leasehold: 1 deleted objects are gone; 1 were settled, and can go in a day; 5 were touched meanwhile\n", "exit code 77: quorum://m: access denied"},
	} {
		var said leasetest.Log
		a := &app{console: console{w: &said, least: levelNotice}}
		err := a.quorumCollects("quorum://m", quorumstore.Collected{Gone: tt.gone, Settled: tt.settled, Left: 5}, tt.dry, tt.err)
		if fmt.Sprint(err) != tt.ends || said.String() != tt.says {
			t.Errorf("%+v: it says %q, and ends with %v", tt, said.String(), err)
		}
	}
}

// A named is a member with that name.
type named struct {
	store.Store
	name string
}

func (n named) String() string { return n.name }

// TestMemberToReplace: a member can be given as in the output of quorum status, even if it can no longer be opened, or by a URL
// of its store.
func TestMemberToReplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st, err := quorumstore.New([]store.Store{named{memstore.New(), "gone://a"}, named{memstore.New(), "file:///b"}, named{memstore.New(), "file://" + dir}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = st.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{"gone://a": "gone://a", "file://" + dir + "/": "file://" + dir, "gone://b": ""} {
		if got, wrong := (&app{}).placeOf(t.Context(), st, url); got != want || (wrong == nil) != (want != "") {
			t.Errorf("%s is %q, %v, want %q", url, got, wrong, want)
		}
	}
}

// TestQuorumMade: a quorum is there when nothing is left to be made, or nothing can be: not after it was interrupted, even in
// the last round, in which the members are told that they are whole.
func TestQuorumMade(t *testing.T) {
	t.Parallel()
	writes := 0
	for whole := false; !whole; writes++ {
		synctest.Test(t, func(t *testing.T) { whole = quorumMade(t, writes) })
	}
	if writes < 6 {
		t.Errorf("it takes %d writes, and was not interrupted between them", writes)
	}
}

// quorumMade interrupts the making of a quorum after so many writes, and reports that it was not interrupted.
func quorumMade(t *testing.T, allowed int) (whole bool) {
	t.Helper()
	puts := 0
	var places []*faultstore.Store
	var members []store.Store
	for _, name := range []string{"file:///a", "file:///b", "file:///c"} {
		place := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{
			Kind: faultstore.Denied, Op: "put", When: func(faultstore.Call) bool { puts++; return puts > allowed },
		}}})
		places, members = append(places, place), append(members, named{place, name})
	}
	there := func(when string, want bool, cut ...int) {
		t.Helper()
		for _, i := range cut {
			places[i].Partition(true)
			defer places[i].Partition(false)
		}
		st, err := quorumstore.New(members, nil) // another process, which does not know of it yet
		if err != nil {
			t.Fatal(err)
		}
		if got, err := made(t.Context(), st); got != want {
			t.Errorf("after %d writes, %s: it is there: %v, %v", allowed, when, got, err)
		}
	}
	st, err := quorumstore.New(members, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole = st.Init(t.Context()) == nil
	there("and no more", whole)
	there("and nobody answers", false, 0, 1, 2)
	for _, p := range places {
		p.Clear()
	}
	if err = st.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	there("and then the others", true)
	there("and then the others, and one does not answer", true, 0)
	there("and then the others, and one answers", true, 0, 1)
	return whole
}
