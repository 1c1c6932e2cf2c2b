package quorumstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// TestInit: wherever it is interrupted, nothing works before it is run again, and it goes on where it was. Run once
// more it changes nothing.
func TestInit(t *testing.T) {
	t.Parallel()
	for fails := 1; ; fails++ { // the write that fails
		var places []*place
		for i := range 3 {
			places = append(places, newPlace(fmt.Sprintf("mem://%d", i)))
		}
		var mu sync.Mutex
		writes := 0
		for _, p := range places {
			p.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, When: func(c faultstore.Call) bool {
				mu.Lock()
				defer mu.Unlock()
				if c.Op == "put" {
					writes++
				}
				return c.Op == "put" && writes == fails
			}})
		}
		err := open(t, places).Init(t.Context())
		if writes < fails {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if err == nil || !strings.HasPrefix(err.Error(), "mem://") {
			t.Fatalf("write %d: %v, which names no member", fails, err)
		}
		st := open(t, places)
		_, members, err := st.Status(t.Context())
		if err != nil || len(members) != 3 {
			t.Errorf("write %d: half made it has %+v, %v", fails, members, err)
		}
		if err := st.Init(t.Context()); err != nil {
			t.Fatalf("write %d: run again: %v", fails, err)
		}
		version := put(t, st, "lock", "1", store.IfAbsent())
		if err := open(t, places).Init(t.Context()); err != nil {
			t.Errorf("write %d: once more: %v", fails, err)
		}
		put(t, open(t, places), "lock", "2", store.IfMatch(version))
	}
}

// TestStatusWithoutMajority: the members are shown, each with its own fault, though nobody can tell the configuration.
func TestStatusWithoutMajority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testStatusWithoutMajority)
}

func testStatusWithoutMajority(t *testing.T) {
	t.Helper()
	defer time.Sleep(time.Minute) // until all requests have ended
	places, _ := newQuorum(t, 3)
	places[0].Partition(true)
	places[1].lose()
	_, members, err := open(t, places).Status(t.Context())
	if err != nil || len(members) != 3 {
		t.Fatalf("%+v, %v", members, err)
	}
	if !errors.Is(members[0].Err, store.ErrUnavailable) || !errors.Is(members[1].Err, quorumstore.ErrLost) ||
		!members[2].Whole {
		t.Errorf("%+v", members)
	}
	places[1].Partition(true)
	places[2].Partition(true)
	_, members, err = open(t, places).Status(t.Context())
	if err != nil || len(members) != 3 || members[2].Err == nil {
		t.Errorf("with all away: %+v, %v", members, err)
	}
	// Who knows the quorum does not wait again and again for a member that hangs.
	places, st := newQuorum(t, 3)
	put(t, st, "lock", "x", store.IfAbsent())
	synctest.Wait()
	places[1].Partition(true)
	places[2].Inject(faultstore.Fault{Kind: faultstore.Hang})
	began := time.Now()
	_, members, err = st.Status(t.Context())
	if took := time.Since(began); err != nil || !members[0].Whole || !errors.Is(members[2].Err, context.DeadlineExceeded) || took > 30*time.Second {
		t.Errorf("after %v: %+v, %v", took, members, err)
	}
}

// TestMarkerDeliveredTwice: a write of a member's marker is delivered once more, after the member was emptied. It is
// lost all the same, for those who have seen it whole and for others. It used to vote as if it had never had anything, and
// a write that two members had was forgotten.
func TestMarkerDeliveredTwice(t *testing.T) {
	t.Parallel()
	for _, replaced := range []bool{false, true} {
		for nth := 1; nth <= 3; nth++ {
			t.Run(fmt.Sprintf("replaced %v, write %d", replaced, nth), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					places := []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2")}
					twice := faultstore.Fault{Kind: faultstore.LateDuplicate, Op: "put", Key: "!leasehold-quorum", Nth: nth, Delay: time.Hour}
					if !replaced {
						places[1].Inject(twice)
					}
					first := open(t, places)
					if err := first.Init(t.Context()); err != nil {
						t.Fatal(err)
					}
					if replaced {
						places[1].lose()
						places[1].Inject(twice)
						if err := first.Replace(t.Context(), "mem://1", places[1]); err != nil {
							t.Fatal(err)
						}
					}
					version := put(t, first, "lock", "1", store.IfAbsent())
					time.Sleep(time.Minute)
					places[2].Partition(true)
					put(t, open(t, places), "lock", "2", store.IfMatch(version))
					time.Sleep(time.Minute)
					places[1].lose()
					places[2].Partition(false)
					time.Sleep(2 * time.Hour)
					if _, members, err := open(t, places).Status(t.Context()); err != nil || !errors.Is(members[1].Err, quorumstore.ErrLost) {
						t.Errorf("the emptied member is %+v, %v", members[1], err)
					}
					places[0].Partition(true)
					for name, st := range map[string]*quorumstore.Store{"one who has seen it whole": first, "another": open(t, places)} {
						if o, err := st.Get(t.Context(), "lock", ""); !errors.Is(err, quorumstore.ErrNoMajority) {
							t.Errorf("%s reads %v, %v with the others cut off", name, o, err)
						}
					}
					places[0].Partition(false)
					time.Sleep(time.Minute)
					reads(t, open(t, places), "lock", "2")
				})
			})
		}
	}
}

// TestOldListOneDown: who has the members of before a replacement finds those of now where one of these is down: what is left of
// the list is no majority of it, but tells who the others are.
func TestOldListOneDown(t *testing.T) {
	t.Parallel()
	for _, confirmed := range []bool{true, false} {
		t.Run(fmt.Sprintf("confirmed %v", confirmed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				places, st := newQuorum(t, 3)
				put(t, st, "lock", "x", store.IfAbsent())
				places[0].lose()
				by := newPlace("mem://new")
				if err := st.Replace(t.Context(), "mem://0", by); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				places[1].Partition(true)
				by.Partition(!confirmed)
				if confirmed {
					reads(t, open(t, places, by), "lock", "x")
				} else if _, err := open(t, places, by).Get(t.Context(), "lock", ""); !errors.Is(err, quorumstore.ErrNoMajority) {
					t.Errorf("with one of three that is a member: %v", err)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestForget: what deleted objects leave goes, and nothing else.
func TestForget(t *testing.T) {
	t.Parallel()
	places, st := newQuorum(t, 3)
	put(t, st, "trial/1", "x", store.IfAbsent())
	put(t, st, "trials", "x", store.IfAbsent())
	if err := st.Repair(t.Context()); err != nil { // every member has everything
		t.Fatal(err)
	}
	if err := st.Delete(t.Context(), "trial/1"); err != nil {
		t.Fatal(err)
	}
	if err := st.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := st.Forget(t.Context(), "trial/"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a prefix that is no key: %v", err)
	}
	if err := st.Forget(t.Context(), "trial/1"); err != nil {
		t.Error(err)
	}
	for _, p := range places {
		for e, err := range p.List(t.Context(), "t", "") {
			if err != nil || e.Key != "trials" {
				t.Errorf("%s has %s, %v", p.name, e.Key, err)
			}
		}
	}
	reads(t, st, "trials", "x")
}

// TestOneDenied: what keeps one of two members away is not what the whole says.
func TestOneDenied(t *testing.T) {
	t.Parallel()
	places, st := newQuorum(t, 3)
	put(t, st, "lock", "1", store.IfAbsent())
	places[0].Inject(faultstore.Fault{Kind: faultstore.Denied, When: func(faultstore.Call) bool { return true }})
	places[1].Partition(true)
	_, err := st.Get(t.Context(), "lock", "")
	if store.Final(err) || errors.Is(err, store.ErrDenied) || !errors.Is(err, store.ErrUnavailable) ||
		!errors.Is(err, quorumstore.ErrNoMajority) {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"mem://0: ", "access denied", "mem://1: ", "store unavailable"} { // the reason of each
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// alias is the same place under another name, as localhost is for 127.0.0.1, or a symbolic link for a directory.
func (p *place) alias(name string) *place {
	return &place{faultstore.Wrap(p.inner, nil), p.inner, name}
}

// TestInitOnOnePlace: two names for one place are no two members, however often somebody tries, and nothing is left.
func TestInitOnOnePlace(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mem://0-alias", "mem://a"} { // next in order, and last
		places := []*place{newPlace("mem://0"), newPlace("mem://1")}
		all := append(places, places[0].alias(name)) //nolint:gocritic // another slice
		for range 3 {
			err := open(t, all).Init(t.Context())
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "mem://0 and "+name+" are one place under two names") {
				t.Errorf("%v, want a refusal", err)
			}
		}
		for _, p := range places {
			for e, err := range p.List(t.Context(), "", "") {
				t.Errorf("%s has %s left, %v", p.name, e.Key, err)
			}
		}
		if err := open(t, append(places, newPlace("mem://2"))).Init(t.Context()); err != nil {
			t.Errorf("with a place of its own: %v", err)
		}
	}
	places, st := newQuorum(t, 3)
	put(t, st, "lock", "x", store.IfAbsent())
	if err := open(t, []*place{places[0], places[1], places[0].alias("mem://a")}).Init(t.Context()); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("over a quorum: %v, want a refusal", err)
	}
	reads(t, open(t, places), "lock", "x")
}

// TestInitAtOnce: several processes that name the members in different orders make one quorum.
func TestInitAtOnce(t *testing.T) {
	t.Parallel()
	for range 50 {
		places := []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2")}
		var all sync.WaitGroup
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			mine := open(t, []*place{places[order[0]], places[order[1]], places[order[2]]})
			all.Go(func() {
				if err := mine.Init(t.Context()); err != nil {
					t.Errorf("%v: %v", order, err)
				}
			})
		}
		all.Wait()
		_, members, err := open(t, places).Status(t.Context())
		for _, m := range members {
			if err != nil || m.Err != nil || !m.Whole {
				t.Errorf("%+v, %v", m, err)
			}
		}
	}
}

// TestReplaceByAlias: no member is written over because somebody calls it by another name.
func TestReplaceByAlias(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testReplaceByAlias)
}

func testReplaceByAlias(t *testing.T) {
	t.Helper()
	places, st := newQuorum(t, 3)
	version := put(t, st, "lock", "x", store.IfAbsent())
	for i, want := range []string{
		"mem://alias is mem://0 under another name, and has not lost its objects",
		"mem://alias is the member mem://1 under another name",
		"mem://alias is the member mem://2 under another name",
	} {
		by := places[i].alias("mem://alias")
		err := open(t, places, by).Replace(t.Context(), "mem://0", by)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	number, members, err := st.Status(t.Context())
	for _, m := range members {
		if err != nil || number != 0 || m.Err != nil || !m.Whole {
			t.Errorf("after that: configuration %d, %+v, %v", number, m, err)
		}
	}
	if got := reads(t, open(t, places), "lock", "x"); got != version {
		t.Errorf("version %s, want %s", got, version)
	}
	// One that was emptied may come back under another name.
	places[0].lose()
	by := places[0].alias("mem://alias")
	if err := open(t, places, by).Replace(t.Context(), "mem://0", by); err != nil {
		t.Error(err)
	}
}

// TestForeignMember: a member that has another quorum's objects is a member that fails, and keeps nobody from opening the
// quorum. The quorum is the one that most members are of, whatever those are of that do not answer.
func TestForeignMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testForeignMember)
}

func testForeignMember(t *testing.T) {
	t.Helper()
	places, st := newQuorum(t, 3)
	put(t, st, "lock", "x", store.IfAbsent())
	others, other := newQuorum(t, 3)
	put(t, other, "lock", "y", store.IfAbsent())
	for i := range places {
		mixed := append([]*place{}, places...)
		mixed[i] = others[i].alias(places[i].name)
		for range 5 { // whichever answers first
			reads(t, open(t, mixed), "lock", "x")
		}
		put(t, open(t, mixed), fmt.Sprint("new", i), "x", store.IfAbsent())
		_, members, err := open(t, mixed).Status(t.Context())
		if err != nil || !errors.Is(members[i].Err, quorumstore.ErrLost) {
			t.Errorf("%+v, %v; want %s lost", members, err, places[i].name)
		}
		next := mixed[(i+1)%3]
		next.Partition(true)
		if _, err = open(t, mixed).Get(t.Context(), "lock", ""); !errors.Is(err, quorumstore.ErrNoMajority) || store.Final(err) {
			t.Errorf("one of each: %v, want no majority", err)
		}
		next.Partition(false)
		next.lose()
		_, err = open(t, mixed).Get(t.Context(), "lock", "")
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "the members are of different quorums: mem://") {
			t.Errorf("one of each, and one emptied: %v", err)
		}
		if err := open(t, places).Replace(t.Context(), next.name, next); err != nil {
			t.Fatal(err)
		}
	}
	reads(t, open(t, others), "lock", "y")
}
