package quorumstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/quorumstore"
)

const nextKeys = "!leasehold-quorum-next-*"

// counts are the requests to each member since the last call.
func counts(places []*place) (all []faultstore.Counts) {
	for _, p := range places {
		all = append(all, p.Counts())
		p.Reset()
	}
	return all
}

func count(t *testing.T, what string, places []*place, want ...faultstore.Counts) {
	t.Helper()
	for i, got := range counts(places) {
		if got != want[i] {
			t.Errorf("%s: %s gets %+v, want %+v", what, places[i].name, got, want[i])
		}
	}
}

// aliases are the same places as another process reaches them.
func aliases(places []*place) (all []*place) {
	for _, p := range places {
		all = append(all, p.alias(p.name))
	}
	return all
}

// TestInitWrites: Init writes nothing over a quorum that is whole, and only what is missing where it was interrupted or another process
// was faster.
func TestInitWrites(t *testing.T) {
	t.Parallel()
	places := []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2")}
	places[1].Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Nth: 2})
	if err := open(t, places).Init(t.Context()); err == nil {
		t.Fatal("it was not interrupted")
	}
	places[1].Clear()
	counts(places)
	for _, tc := range []struct {
		what string
		want []faultstore.Counts
	}{
		{"continued", []faultstore.Counts{{Get: 2, Put: 1}, {Get: 2, Put: 1}, {Get: 2, Put: 3, List: 1}}},
		{"over a quorum", []faultstore.Counts{{Get: 2}, {Get: 2}, {Get: 2}}},
	} {
		if err := open(t, places).Init(t.Context()); err != nil {
			t.Fatalf("%s: %v", tc.what, err)
		}
		count(t, tc.what, places, tc.want...)
	}

	places = []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2")}
	others := aliases(places)
	places[2].before("get", markerKey, 1, func() {
		if err := open(t, others).Init(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if err := open(t, places).Init(t.Context()); err != nil {
		t.Errorf("beside another process: %v", err)
	}
	count(t, "beside another process", places, faultstore.Counts{Get: 3, List: 1}, faultstore.Counts{Get: 3, List: 1}, faultstore.Counts{Get: 2})
}

// TestInitGivesUp: a member that lists a marker and does not show it is not asked forever.
func TestInitGivesUp(t *testing.T) {
	t.Parallel()
	places := []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2")}
	put(t, places[1].inner, markerKey, "", store.IfAbsent())
	st, err := quorumstore.New([]store.Store{places[0], hiding{places[1]}, places[2]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	says(t, st.Init(t.Context()), `mem://1: init "!leasehold-quorum": precondition failed`)
	count(t, "ten rounds", places, faultstore.Counts{Get: 10, List: 10}, faultstore.Counts{List: 10}, faultstore.Counts{})
}

// hiding does not show its marker.
type hiding struct{ *place }

func (h hiding) Get(_ context.Context, key string, _ store.Version) (*store.Object, error) {
	return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
}

// rivals are ways in which a process meets a change that another one makes a second after it has begun its own.
var rivals = []struct {
	name string
	slow func(mine []*place) // how it reaches the members
	cut  int                 // the member that the change does not reach, which is told of it by its marker; -1: none
}{
	{"the change is read", func(mine []*place) {
		for _, p := range mine {
			p.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: nextKeys, Delay: 5 * time.Second})
		}
	}, -1},
	{"a marker tells of it", func(mine []*place) {
		mine[1].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: nextKeys, Delay: 5 * time.Second})
		mine[2].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: nextKeys, Delay: 3 * time.Second, Nth: 1})
	}, 2},
}

// TestReplaceCameSecond: a change that another one came before is refused, and says which configuration is in force.
func TestReplaceCameSecond(t *testing.T) {
	t.Parallel()
	for _, tc := range rivals {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, st := newQuorum(t, 3)
				put(t, st, "lock", "x", store.IfAbsent())
				synctest.Wait()
				mine := aliases(places)
				tc.slow(mine)
				first, second := newPlace("mem://first"), newPlace("mem://second")
				if tc.cut >= 0 {
					places[tc.cut].Inject(faultstore.Fault{Kind: faultstore.LostRequest, Op: "put", Key: "!leasehold-quorum-next-1"})
				}
				go func() {
					time.Sleep(time.Second)
					if err := open(t, places, first).Replace(t.Context(), "mem://0", first); err != nil {
						t.Error(err)
					}
				}()
				says(t, open(t, mine, first, second).Replace(t.Context(), "mem://0", second),
					`replace "": invalid argument: another change came first: configuration 1; look at it, and try again`)
			})
		})
	}
}

// TestReplaceFails: a change whose proposal was refused, or after which the members cannot be read, ends with the members' errors.
func TestReplaceFails(t *testing.T) {
	t.Parallel()
	denied := `: access denied: no majority of the members`
	for _, tc := range []struct {
		name  string
		nth   int // put of the proposal, from which on there is
		fault faultstore.Fault
		want  string // the beginning
	}{
		{"not proposed", 1, faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: nextKeys}, `replace "!leasehold-quorum-next-"` + denied},
		{"not found again", 2, faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: markerKey}, "no majority of the members"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, st := newQuorum(t, 3)
				put(t, st, "lock", "x", store.IfAbsent())
				synctest.Wait()
				by := newPlace("mem://new")
				mine := aliases(places)
				for _, p := range mine {
					fault, puts := tc.fault, 0
					p.before("put", nextKeys, tc.nth, func() { puts = tc.nth })
					fault.When = func(faultstore.Call) bool { return puts == tc.nth }
					p.Inject(fault)
				}
				err := open(t, mine, by).Replace(t.Context(), "mem://0", by)
				if !strings.HasPrefix(errorText(err), tc.want) || !strings.Contains(errorText(err), "access denied: "+injected) {
					t.Errorf("error:\n%v\nwant:\n%s", err, tc.want)
				}
			})
		})
	}
}

// TestReplaceAgainAtItsConfiguration: a member of the last change is replaced again like any other one, unless the same change is asked for
// once more.
func TestReplaceAgainAtItsConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		by := newPlace("mem://new")
		// A member that has lost its marker alone is replaced in its place, with what is there.
		if err := places[0].inner.Delete(t.Context(), markerKey); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			says(t, open(t, places).Replace(t.Context(), "mem://0", places[0]), "")
		}
		alias := places[0].alias("mem://alias")
		says(t, open(t, places, alias).Replace(t.Context(), "mem://0", alias),
			`replace "": invalid argument: mem://alias is mem://0 under another name, and has not lost its objects: name another place`)
		full := newPlace("mem://full")
		put(t, full.inner, "x", "", store.IfAbsent())
		says(t, open(t, places, full).Replace(t.Context(), "mem://0", full),
			`init "": invalid argument: mem://full is not empty: it has "x"; a member has a bucket, prefix or directory of its own`)
		places[0].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: markerKey})
		says(t, open(t, places).Replace(t.Context(), "mem://0", places[0]), `mem://0: get "!leasehold-quorum": access denied: `+injected)
		places[0].Clear()
		says(t, open(t, places, by).Replace(t.Context(), "mem://0", by), "")
		number, members, err := open(t, places, by).Status(t.Context())
		if err != nil || number != 2 || members[0].Place != "mem://new" || members[0].Since != 2 || !members[0].Whole {
			t.Errorf("configuration %d, %+v, %v", number, members, err)
		}
	})
}

// TestReplaceInterrupted: the marker that an interrupted change has left is used again by the same change, whose configuration may still be
// chosen, and by no later one.
func TestReplaceInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		a, b := newPlace("mem://a"), newPlace("mem://b")
		interrupt := func(by *place) register.Marker {
			t.Helper()
			mine := aliases(places)
			for _, p := range mine {
				p.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: nextKeys})
			}
			if err := open(t, mine, by).Replace(t.Context(), "mem://0", by); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%v, want it interrupted", err)
			}
			return by.marker(t)
		}
		left := interrupt(a)
		if again := interrupt(a); again.Name != left.Name || left.Number != 1 || left.Known.Number != 0 || left.Whole {
			t.Errorf("the marker is %+v, and then %+v", left, again)
		}
		leftToo := interrupt(b)
		says(t, open(t, places, a, b).Replace(t.Context(), "mem://0", a), "")
		if m := a.marker(t); m.Name != left.Name || m.Name != m.Known.Members[0].Marker || m.Number != 1 || !m.Whole {
			t.Errorf("the marker is %+v, want the name %s", m, left.Name)
		}
		says(t, open(t, places, a, b).Replace(t.Context(), "mem://a", b), "")
		if m := b.marker(t); m.Name == leftToo.Name || m.Name != m.Known.Members[0].Marker || m.Number != 2 || !m.Whole {
			t.Errorf("the marker is %+v, want another name than %s", m, leftToo.Name)
		}
	})
}

// TestNoQuorum: what is asked of stores that are no quorum is refused, and says so.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	places := []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2")}
	st := open(t, places)
	for name, err := range map[string]error{
		"replace": st.Replace(t.Context(), "mem://0", newPlace("mem://new")),
		"repair":  st.Repair(t.Context()),
		"collect": second(st.Collect(t.Context(), nil)),
		"forget":  st.Forget(t.Context(), "x"),
		"members": second(st.Members(t.Context())),
		"put":     second(st.Put(t.Context(), "x", nil, store.IfAbsent())),
	} {
		if !errors.Is(err, quorumstore.ErrNoQuorum) {
			t.Errorf("%s: %v, want ErrNoQuorum", name, err)
		}
	}
	for i, n := range counts(places) {
		if n.Put+n.Delete > 0 {
			t.Errorf("%s is written to: %+v", places[i].name, n)
		}
	}
}

// TestRepairFollows: a change that comes into force while Repair settles the one before is repaired instead.
func TestRepairFollows(t *testing.T) {
	t.Parallel()
	for _, tc := range rivals {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, st := newQuorum(t, 3)
				put(t, st, "lock", "x", store.IfAbsent())
				synctest.Wait()
				mine, by := aliases(places), newPlace("mem://new")
				tc.slow(mine)
				if tc.cut >= 0 {
					places[tc.cut].Inject(faultstore.Fault{Kind: faultstore.LostRequest, Op: "put", Key: "!leasehold-quorum-next-1"})
				}
				go func() {
					time.Sleep(time.Second)
					if err := open(t, places, by).Replace(t.Context(), "mem://0", by); err != nil {
						t.Error(err)
					}
				}()
				says(t, open(t, mine, by).Repair(t.Context()), "")
				time.Sleep(time.Minute)
				number, members, err := open(t, places, by).Status(t.Context())
				if err != nil || number != 1 {
					t.Fatalf("configuration %d, %v", number, err)
				}
				for _, m := range members {
					if m.Err != nil || !m.Whole || m.Number != 1 || m.Next != 0 {
						t.Errorf("after the repair: %+v", m)
					}
				}
			})
		})
	}
}

// TestRepairTooFew: Repair counts no member whose marker is lost, another's, or not whole, and writes into none whose marker is another's.
func TestRepairTooFew(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, p *place)
	}{
		{"lost", func(t *testing.T, p *place) {
			t.Helper()
			if err := p.inner.Delete(t.Context(), markerKey); err != nil {
				t.Error(err)
			}
		}},
		{"another's", func(t *testing.T, p *place) {
			t.Helper()
			p.mark(t, func(m *register.Marker) { m.Name = "other" })
		}},
		{"not whole", func(t *testing.T, p *place) {
			t.Helper()
			p.mark(t, func(m *register.Marker) { m.Whole = false })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, st := newQuorum(t, 3)
				put(t, st, "lock", "x", store.IfAbsent())
				all(t, st) // no marker is needed to read the next configuration from here on
				synctest.Wait()
				tc.damage(t, places[0])
				tc.damage(t, places[1])
				for _, p := range places[:2] {
					p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: markerKey})
				}
				says(t, open(t, places).Repair(t.Context()), "no majority of the members: 1 of 3 members are there and whole")
			})
		})
	}
}

// TestRepairMarkers: Repair makes every member whole that has taken every object, and ends if it cannot write a marker.
func TestRepairMarkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 5)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		for _, p := range places[1:3] {
			p.mark(t, func(m *register.Marker) { m.Whole = false })
		}
		all(t, open(t, places))
		for _, p := range places {
			if m := p.marker(t); !m.Whole {
				t.Errorf("%s is not whole", p.name)
			}
		}
		by := newPlace("mem://new")
		places[3].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: markerKey})
		says(t, open(t, places, by).Replace(t.Context(), "mem://0", by), `mem://3: put "!leasehold-quorum": access denied: `+injected)
	})
}

// TestRepairIsOver: a member that hangs is asked once by a repair, however many objects there are, and is asked again after that, as after any
// other call.
func TestRepairIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		for i := range 40 {
			put(t, st, fmt.Sprintf("locks/%d", i), "x", store.IfAbsent())
		}
		synctest.Wait()
		var log bytes.Buffer
		st, err := quorumstore.New([]store.Store{places[0], places[1], places[2]}, &quorumstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		reads(t, st, "lock", "x")
		synctest.Wait()
		for i, slow := range []func(){
			func() { reads(t, st, "lock", "x") },
			func() { all(t, st) },
		} {
			log.Reset()
			began := time.Now()
			places[2].Inject(faultstore.Fault{Kind: faultstore.Hang, Key: "lock*"}, faultstore.Fault{Kind: faultstore.Hang, Key: "locks/*"})
			slow()
			if took := time.Since(began); took > quorumstore.DefaultTimeout+time.Second {
				t.Errorf("it took %v, with one member that hangs", took)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if strings.Count(log.String(), "fails") != 1 || strings.Contains(log.String(), "again") {
				t.Errorf("the log says: %s", &log)
			}
			places[2].Clear()
			put(t, st, fmt.Sprintf("after/%d", i), "x", store.IfAbsent())
			synctest.Wait()
			if keys := left(t, places[2]); len(keys) != 42+i {
				t.Errorf("the member that was slow has %v", keys)
			}
		}
	})
}

// TestRepairSettles: Repair decides on a write that only one member has accepted, though that is the last to be listed, and a key that was
// never written keeps no new member from becoming whole.
func TestRepairSettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		breaks := func(key string, at []*place) {
			mine := aliases(places)
			mine[0].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: key, Delay: 100 * time.Millisecond}) // so it is proposed to the other two
			for i := range at {
				// A write is a promise, and then an acceptance.
				mine[i].Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: key, When: func(c faultstore.Call) bool {
					return !strings.Contains(string(c.Body), `"accepted":""`)
				}})
			}
			if _, err := open(t, mine).Put(t.Context(), key, []byte("x"), store.IfAbsent()); err == nil {
				t.Errorf("%s was written", key)
			}
		}
		breaks("accepted", places[:2])
		places[0].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "accepted", Delay: 100 * time.Millisecond})
		places[2].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "list", Delay: time.Second})
		all(t, open(t, places))
		places[2].Partition(true)
		reads(t, open(t, places), "accepted", "x")
		places[2].Partition(false)
		for _, p := range places {
			p.Clear()
		}
		synctest.Wait()

		breaks("promised", places)
		by := newPlace("mem://new")
		says(t, open(t, places, by).Replace(t.Context(), "mem://2", by), "")
		if _, err := open(t, places, by).Get(t.Context(), "promised", ""); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("what was only promised: %v", err)
		}
	})
}

// TestStatusNext: a change that a member has accepted is shown as open, unless a majority has accepted something later: nothing can
// come of it then.
func TestStatusNext(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		by   string // for each member the counter of the ballot that it has accepted the change with; -: none
		none string // or a deletion
		want [5]int
	}{
		{"one", "3----", "-----", [5]int{1, 0, 0, 0, 0}},
		{"two rivals", "34---", "-----", [5]int{1, 1, 0, 0, 0}},
		{"settled later", "34---", "--555", [5]int{0, 0, 0, 0, 0}},
		{"settled before", "36---", "--555", [5]int{0, 1, 0, 0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, st := newQuorum(t, 5)
				put(t, st, "lock", "x", store.IfAbsent())
				synctest.Wait()
				for i, p := range places {
					for _, counter := range []byte{tc.by[i], tc.none[i]} {
						if counter == '-' {
							continue
						}
						ballot := register.Ballot{Counter: uint64(counter - '0'), By: "x"}
						a := register.Acceptor{Quorum: p.marker(t).Known.Quorum, Promised: ballot, Accepted: ballot}
						a.Value = register.Value{Version: "v" + string(counter), Deleted: tc.none[i] != '-'}
						body, err := a.Encode()
						if err != nil {
							t.Fatal(err)
						}
						p.overwrite(t, "!leasehold-quorum-next-1", string(body))
					}
				}
				// Otherwise the change would be settled when it is met.
				for _, p := range places[:2] {
					p.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: 100 * time.Millisecond})
				}
				number, members, err := open(t, places).Status(t.Context())
				if err != nil || number != 0 {
					t.Fatalf("configuration %d, %v", number, err)
				}
				for i, m := range members {
					if m.Next != tc.want[i] || m.Err != nil || !m.Whole {
						t.Errorf("%+v, want next %d", m, tc.want[i])
					}
				}
			})
		})
	}
}

// TestStatusFollows: Status shows since when a member fails, whichever of its objects cannot be read, and that it no longer does.
func TestStatusFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		last := func(want string, from time.Time) {
			t.Helper()
			_, members, err := st.Status(t.Context())
			if err != nil || members[2].From != from {
				t.Errorf("%+v, %v, want it from %v on", members, err, from)
			}
			says(t, members[2].Err, want)
			time.Sleep(time.Hour)
		}
		last("", time.Time{})
		places[2].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: nextKeys})
		from := time.Now()
		for range 2 {
			last(`get "!leasehold-quorum-next-1": access denied: `+injected, from)
		}
		places[2].Clear()
		last("", time.Time{})
		places[2].lose()
		from = time.Now()
		for range 2 {
			last("this member has lost its objects", from)
		}
		if err := open(t, places).Replace(t.Context(), "mem://2", places[2]); err != nil {
			t.Error(err)
		}
		last("", time.Time{})
		// What it answers to others when it has lost its objects once more is no sign that it has them.
		places[2].lose()
		from = time.Now()
		for range 2 {
			last("this member has lost its objects", from)
			for _, cut := range []bool{false, true, false} {
				places[2].Partition(cut)
				if _, err := st.Get(t.Context(), "none", ""); !errors.Is(err, store.ErrNotExist) {
					t.Error(err)
				}
				synctest.Wait()
			}
		}
	})
}

// TestForgetFails: Forget names each member that fails, and deletes in the others.
func TestForgetFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "trial", "x", store.IfAbsent())
		synctest.Wait()
		places[0].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "list"})
		places[2].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "delete"})
		says(t, st.Forget(t.Context(), "trial"), `mem://0: list "trial": access denied: `+injected+"\n"+`mem://2: delete "trial": access denied: `+injected)
		for i, want := range []int{1, 0, 1} {
			if keys := left(t, places[i]); len(keys) != want {
				t.Errorf("%s has %v", places[i].name, keys)
			}
		}
	})
}

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
