package quorumstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/quorumstore"
)

const markerKey = "!leasehold-quorum"

// marker reads a member's marker.
func (p *place) marker(t *testing.T) register.Marker {
	t.Helper()
	o, err := p.inner.Get(t.Context(), markerKey, "")
	if err != nil {
		t.Fatal(err)
	}
	m, err := register.DecodeMarker(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// mark changes a member's marker.
func (p *place) mark(t *testing.T, change func(m *register.Marker)) {
	t.Helper()
	m := p.marker(t)
	change(&m)
	body, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p.overwrite(t, markerKey, string(body))
}

// overwrite puts an object into a member, past the quorum.
func (p *place) overwrite(t *testing.T, key, body string) {
	t.Helper()
	if err := p.inner.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	put(t, p.inner, key, body, store.IfAbsent())
}

// before runs do at the nth request of that kind to the member, before the request arrives.
func (p *place) before(op, key string, nth int, do func()) {
	n := 0
	p.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: op, Key: key, When: func(faultstore.Call) bool {
		if n++; n == nth {
			do()
		}
		return false
	}})
}

// says compares an error's whole text.
func says(t *testing.T, err error, want string) {
	t.Helper()
	if got := errorText(err); got != want {
		t.Errorf("error:\n%s\nwant:\n%s", got, want)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestInitRefuses: where the members are no new quorum, or not the one that they were, Init names the member at fault
// and leaves everything as it was.
func TestInitRefuses(t *testing.T) {
	t.Parallel()
	fresh := func() []*place { return []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2")} }
	for _, tc := range []struct {
		name string
		make func(t *testing.T) []*place
		want string
	}{
		{"an object is there", func(t *testing.T) []*place {
			t.Helper()
			places := fresh()
			put(t, places[1].inner, "x", "", store.IfAbsent())
			return places
		}, `init "": invalid argument: mem://1 is not empty: it has "x"; a member has a bucket, prefix or directory of its own`},
		{"another quorum", func(t *testing.T) []*place {
			t.Helper()
			places, _ := newQuorum(t, 3)
			others, _ := newQuorum(t, 3)
			others[2].mark(t, func(m *register.Marker) { m.Known.Quorum = "Q" })
			return append(places[:2:2], others[2])
		}, `init "": invalid argument: mem://2 is a member of another quorum, Q`},
		{"no member", func(t *testing.T) []*place {
			t.Helper()
			places, _ := newQuorum(t, 3)
			return append(places[:2:2], newPlace("mem://3"))
		}, `init "": invalid argument: mem://3 is no member of the quorum that the others are of`},
		{"emptied", func(t *testing.T) []*place {
			t.Helper()
			places, _ := newQuorum(t, 3)
			places[0].empty()
			return places
		}, `mem://0: init "": invalid argument: mem://0 has lost its marker, and so its objects: replace it`},
		{"emptied, and then a late request has arrived", func(t *testing.T) []*place {
			t.Helper()
			places, _ := newQuorum(t, 3)
			places[1].mark(t, func(m *register.Marker) { m.Name += "-begun" })
			return places
		}, `mem://1: init "": invalid argument: mem://1 has lost its marker, and so its objects: replace it`},
		{"emptied, and another one is not filled", func(t *testing.T) []*place {
			t.Helper()
			places, _ := newQuorum(t, 3)
			places[0].empty()
			places[2].mark(t, func(m *register.Marker) { m.Whole = false })
			return places
		}, `mem://0: init "": invalid argument: mem://0 has lost its marker, and so its objects: replace it`},
		{"emptied, and cannot be read again", func(t *testing.T) []*place {
			t.Helper()
			places, _ := newQuorum(t, 3)
			places[1].empty()
			places[1].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 2})
			return places
		}, `mem://1: get "!leasehold-quorum": access denied: ` + injected},
		{"cannot be read", func(t *testing.T) []*place {
			t.Helper()
			places := fresh()
			places[1].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 1})
			return places
		}, `mem://1: get "!leasehold-quorum": access denied: ` + injected},
		{"emptied while it is initialized", func(t *testing.T) []*place {
			t.Helper()
			places := fresh()
			places[1].before("get", markerKey, 2, places[1].empty)
			return places
		}, `init "": invalid argument: the marker of mem://1 has changed meanwhile: run init again`},
		{"initialized by another while it is initialized", func(t *testing.T) []*place {
			t.Helper()
			places := fresh()
			others, _ := newQuorum(t, 3)
			places[1].before("get", markerKey, 2, func() {
				places[1].inner.mu.Lock()
				defer places[1].inner.mu.Unlock()
				places[1].inner.Store = others[1].inner.Store
			})
			return places
		}, `init "": invalid argument: the marker of mem://1 has changed meanwhile: run init again`},
		{"made a member by another when it was found empty", func(t *testing.T) []*place {
			t.Helper()
			places := fresh()
			others, _ := newQuorum(t, 3)
			others[1].mark(t, func(m *register.Marker) { m.Known.Quorum = "Q" })
			others[1].mark(t, func(m *register.Marker) { m.Known.Members[0].Place = "mem://9" })
			places[1].before("list", "", 1, func() {
				places[1].inner.mu.Lock()
				defer places[1].inner.mu.Unlock()
				places[1].inner.Store = others[1].inner.Store
			})
			return places
		}, `init "": invalid argument: mem://0 is no member of the quorum that the others are of`},
		{"cannot be read once it is written", func(t *testing.T) []*place {
			t.Helper()
			places := fresh()
			places[1].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 2})
			return places
		}, `mem://1: get "!leasehold-quorum": access denied: ` + injected},
		{"cannot be listed", func(t *testing.T) []*place {
			t.Helper()
			places := fresh()
			places[1].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "list"})
			return places
		}, `mem://1: list "": access denied: ` + injected},
		{"one place that cannot be cleaned up", func(t *testing.T) []*place {
			t.Helper()
			places := fresh()
			places[0].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "delete"})
			places[2] = places[0].alias("mem://2")
			return places
		}, `init "": invalid argument: mem://0 and mem://2 are one place under two names: give each member a bucket, prefix or directory of its own` +
			"\n" + `delete the object "!leasehold-quorum" there: mem://0: delete "!leasehold-quorum": access denied: ` + injected},
		{"one place that cannot be read to be cleaned up", func(t *testing.T) []*place {
			t.Helper()
			places := fresh()
			places[0].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 3})
			places[2] = places[0].alias("mem://2")
			return places
		}, `init "": invalid argument: mem://0 and mem://2 are one place under two names: give each member a bucket, prefix or directory of its own` +
			"\n" + `delete the object "!leasehold-quorum" there: mem://0: get "!leasehold-quorum": access denied: ` + injected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			places := tc.make(t)
			says(t, open(t, places).Init(t.Context()), tc.want)
		})
	}
}

// injected ends the text of what faultstore lets fail.
const injected = "faultstore: denied"

// TestReplaceRefuses: a replacement that could lose something, or that names the wrong places, is refused with the reason, and the
// configuration stays.
func TestReplaceRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		members int
		make    func(t *testing.T, places []*place, by *place)
		old     string
		by      int // of the places; -1: a new one
		want    string
	}{
		{"no member", 3, nil, "mem://9", -1, `replace "": invalid argument: mem://9 is no member; the members are mem://0, mem://1, mem://2`},
		{"no member, by one", 3, nil, "mem://9", 0, `replace "": invalid argument: mem://9 is no member; the members are mem://0, mem://1, mem://2`},
		{"a member", 3, nil, "mem://0", 1, `replace "": invalid argument: mem://1 is a member already`},
		{"another one emptied", 3, func(_ *testing.T, places []*place, _ *place) {
			places[1].lose()
		}, "mem://0", -1, `replace "": invalid argument: mem://1 is not whole: repair the quorum first, or replace that one`},
		{"another one with the marker of another", 3, func(t *testing.T, places []*place, _ *place) {
			t.Helper()
			places[1].mark(t, func(m *register.Marker) { m.Name = "other" })
		}, "mem://0", -1, `replace "": invalid argument: mem://1 is not whole: repair the quorum first, or replace that one`},
		{"another one not filled", 3, func(t *testing.T, places []*place, _ *place) {
			t.Helper()
			places[1].mark(t, func(m *register.Marker) { m.Whole = false })
		}, "mem://0", -1, `replace "": invalid argument: mem://1 is not whole: repair the quorum first, or replace that one`},
		{"another one away", 3, func(_ *testing.T, places []*place, _ *place) {
			places[1].Inject(faultstore.Fault{Kind: faultstore.Denied})
		}, "mem://0", -1, `mem://1: get "!leasehold-quorum": access denied: ` + injected},
		{"another one of five away", 5, func(_ *testing.T, places []*place, _ *place) {
			places[1].Inject(faultstore.Fault{Kind: faultstore.Denied})
		}, "mem://0", -1, ""},
		{"by what is not empty", 3, func(t *testing.T, _ []*place, by *place) {
			t.Helper()
			put(t, by.inner, "x", "", store.IfAbsent())
		}, "mem://0", -1, `init "": invalid argument: mem://new is not empty: it has "x"; a member has a bucket, prefix or directory of its own`},
		{"by a member of another quorum", 3, func(t *testing.T, _ []*place, by *place) {
			t.Helper()
			others, _ := newQuorum(t, 3)
			others[0].mark(t, func(m *register.Marker) { m.Known.Quorum = "Q" })
			by.inner.Store = others[0].inner.Store
		}, "mem://0", -1, `replace "": invalid argument: mem://new is a member of another quorum, Q`},
		{"by what cannot be read", 3, func(_ *testing.T, _ []*place, by *place) {
			by.Inject(faultstore.Fault{Kind: faultstore.Denied})
		}, "mem://0", -1, `mem://new: get "!leasehold-quorum": access denied: ` + injected},
		{"by what cannot be written", 3, func(_ *testing.T, _ []*place, by *place) {
			by.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put"})
		}, "mem://0", -1, `mem://new: put "!leasehold-quorum": access denied: ` + injected},
		{"not filled", 3, func(_ *testing.T, _ []*place, by *place) {
			by.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "lock"})
		}, "mem://0", -1, `repair "": invalid argument: mem://new has not taken every object: see what it says, and try again`},
		{"the last one not filled", 3, func(_ *testing.T, _ []*place, by *place) {
			by.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "lock"})
		}, "mem://2", -1, `repair "": invalid argument: mem://new has not taken every object: see what it says, and try again`},
		{"emptied when it was filled", 3, func(_ *testing.T, _ []*place, by *place) {
			filled(by, by.lose)
		}, "mem://0", -1, `repair "": invalid argument: mem://new has lost its objects meanwhile: replace it again`},
		{"another's when it was filled", 3, func(t *testing.T, _ []*place, by *place) {
			t.Helper()
			filled(by, func() { by.mark(t, func(m *register.Marker) { m.Name = "other" }) })
		}, "mem://0", -1, `repair "": invalid argument: mem://new has lost its objects meanwhile: replace it again`},
		{"away when it was filled", 3, func(_ *testing.T, _ []*place, by *place) {
			puts := 0
			by.before("put", "lock", 2, func() { puts = 2 })
			by.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: markerKey, When: func(faultstore.Call) bool { return puts == 2 }})
		}, "mem://0", -1, `mem://new: get "!leasehold-quorum": access denied: ` + injected},
		{"cannot be told of the configuration", 3, func(_ *testing.T, _ []*place, by *place) {
			by.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: markerKey, Nth: 3})
		}, "mem://0", -1, `mem://new: put "!leasehold-quorum": access denied: ` + injected},
		{"cannot be written when it was filled", 3, func(_ *testing.T, _ []*place, by *place) {
			by.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: markerKey, Nth: 4})
		}, "mem://0", -1, `mem://new: put "!leasehold-quorum": access denied: ` + injected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, st := newQuorum(t, tc.members)
				put(t, st, "lock", "x", store.IfAbsent())
				synctest.Wait()
				by := newPlace("mem://new")
				if tc.by >= 0 {
					by = places[tc.by]
				}
				if tc.make != nil {
					tc.make(t, places, by)
				}
				says(t, open(t, places, by).Replace(t.Context(), tc.old, by), tc.want)
			})
		})
	}
}

// filled runs do before the marker of a new member is read once the member has the object.
func filled(by *place, do func()) {
	puts := 0
	by.before("put", "lock", 2, func() { puts = 2 })
	by.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Key: markerKey, When: func(faultstore.Call) bool {
		if puts == 2 {
			do()
		}
		return false
	}})
}

// TestReplaceAgain: a replacement that was made before is made once, also if a later one came after it, and a member that is well is
// not taken for one that was replaced before.
func TestReplaceAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		by := newPlace("mem://new")
		number := func(want int) {
			t.Helper()
			if got, _, err := open(t, places, by).Status(t.Context()); err != nil || got != want {
				t.Errorf("configuration %d, %v, want %d", got, err, want)
			}
		}
		replace := func(old string, with *place, want string) {
			t.Helper()
			says(t, open(t, places, by).Replace(t.Context(), old, with), want)
		}
		for range 2 {
			replace("mem://0", by, "")
			number(1)
		}
		well := " has not lost its objects: empty it first, or name another place"
		replace("mem://1", places[1], `replace "": invalid argument: mem://1`+well)
		number(1)
		places[1].lose()
		for range 2 {
			replace("mem://1", places[1], "")
			number(2)
		}
		replace("mem://new", by, `replace "": invalid argument: mem://new`+well)
		replace("mem://0", places[2], `replace "": invalid argument: mem://0 is no member; the members are mem://new, mem://1, mem://2`)
		number(2)
		// Each marker has taken the configuration, and leads to it.
		members := []*place{by, places[1], places[2]}
		for i, p := range members {
			m := p.marker(t)
			want := register.Marker{Name: m.Known.Members[i].Marker, Number: 2, Whole: true, Known: members[0].marker(t).Known}
			if !reflect.DeepEqual(m, want) || m.Known.Number != 2 {
				t.Errorf("%s has the marker %+v, want %+v", p.name, m, want)
			}
		}
		// A repair of what is well writes no marker.
		synctest.Wait()
		for _, p := range members {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: markerKey})
		}
		says(t, open(t, places, by).Repair(t.Context()), "")
		for _, p := range members {
			p.Clear()
		}
		// A marker that has missed the number, or what it leads to, is brought up to date.
		places[1].mark(t, func(m *register.Marker) { m.Number = 1 })
		places[2].mark(t, func(m *register.Marker) { m.Known.Number, m.Known.Members[1].Since = 1, 0 })
		says(t, open(t, places, by).Repair(t.Context()), "")
		for _, p := range members {
			if m := p.marker(t); m.Number != 2 || m.Known.Number != 2 {
				t.Errorf("after a repair %s has the marker %+v", p.name, m)
			}
		}
	})
}

// TestStatus: every field of what Status says of each member.
func TestStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 5)
		put(t, st, "lock", "x", store.IfAbsent())
		by := newPlace("mem://new")
		if err := open(t, places, by).Replace(t.Context(), "mem://1", by); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		places[2].lose()
		places[3].Inject(faultstore.Fault{Kind: faultstore.Denied})
		began := time.Now()
		st = open(t, places, by)
		type one struct {
			quorumstore.MemberStatus
			err string
		}
		shows := func(want ...one) {
			t.Helper()
			number, members, err := st.Status(t.Context())
			var got []one
			for _, m := range members {
				e := errorText(m.Err)
				m.Err = nil
				got = append(got, one{m, e})
			}
			if err != nil || number != 1 || !reflect.DeepEqual(got, want) {
				t.Errorf("configuration %d, %v:\n%+v\nwant:\n%+v", number, err, got, want)
			}
		}
		denied := `get "!leasehold-quorum": access denied: ` + injected
		for range 2 { // since when a member fails does not change
			shows(
				one{quorumstore.MemberStatus{Place: "mem://0", Number: 1, Whole: true}, ""},
				one{quorumstore.MemberStatus{Place: "mem://new", Since: 1, Number: 1, Whole: true}, ""},
				one{quorumstore.MemberStatus{Place: "mem://2", From: began}, "this member has lost its objects"},
				one{quorumstore.MemberStatus{Place: "mem://3", From: began}, denied},
				one{quorumstore.MemberStatus{Place: "mem://4", Number: 1, Whole: true}, ""},
			)
			time.Sleep(time.Hour)
			if n := places[1].Counts(); began.Add(time.Hour).Before(time.Now()) && n != (faultstore.Counts{}) {
				t.Errorf("the member that was replaced is asked again: %+v", n)
			}
			places[1].Reset()
		}
	})
}

// TestStatusRefuses: what Status cannot show members of is an error.
func TestStatusRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, _, err := open(t, []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2")}).Status(t.Context())
		if !errors.Is(err, quorumstore.ErrNoQuorum) || !errors.Is(err, store.ErrNoBucket) {
			t.Errorf("%v, want ErrNoQuorum", err)
		}
		says(t, err, `open "": no such bucket or directory: these stores are no quorum yet: leasehold quorum init makes one`)

		places, st := newQuorum(t, 3)
		by := newPlace("mem://new")
		if err = st.Replace(t.Context(), "mem://0", by); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		// A member of now that cannot be opened is an error that names it.
		_, _, err = open(t, places).Status(t.Context())
		says(t, err, "the member mem://new: no such place: mem://new")
		st, err = quorumstore.New([]store.Store{places[0], places[1], places[2]}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = st.Status(t.Context())
		says(t, err, `open "": invalid argument: mem://new is a member since configuration 1, and is not among the members given`)
		_, err = st.Members(t.Context())
		says(t, err, `open "": invalid argument: mem://new is a member since configuration 1, and is not among the members given`)
		// Members are those of the configuration in force.
		members, err := open(t, places, by).Members(t.Context())
		if err != nil || len(members) != 3 || members[0] != store.Store(by) || members[2] != store.Store(places[2]) {
			t.Errorf("%v, %v", members, err)
		}
	})
}

// TestUnreadableObjects: an object that is none of the quorum's, where one of its own belongs, is shown and never written over.
func TestUnreadableObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		good := places[0].marker(t)
		places[0].overwrite(t, markerKey, "{")
		reads(t, open(t, places), "lock", "x")
		_, members, err := open(t, places).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(members[0].Err, store.ErrRefused) || !errors.Is(members[0].Err, register.ErrForeign) {
			t.Errorf("a marker that is none: %v", members[0].Err)
		}
		says(t, members[0].Err, `get "!leasehold-quorum": refused by the store: not an object of this quorum: a marker: unexpected EOF`)
		places[0].overwrite(t, markerKey, "")
		_, members, err = open(t, places).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		says(t, members[0].Err, `get "!leasehold-quorum": refused by the store: not an object of this quorum: a marker: EOF`)
		body, err := good.Encode()
		if err != nil {
			t.Fatal(err)
		}
		places[0].overwrite(t, markerKey, string(body))

		for _, p := range places[:2] {
			p.overwrite(t, "lock", "junk\n")
		}
		if _, err := open(t, places).Get(t.Context(), "lock", ""); !errors.Is(err, store.ErrRefused) {
			t.Errorf("a read of what is none of the quorum's: %v", err)
		}
		if o, err := places[0].inner.Get(t.Context(), "lock", ""); err != nil || string(o.Body) != "junk\n" {
			t.Errorf("it is %v, %v now", o, err)
		}

		// The next configuration, accepted by a majority, must be one that can follow.
		for _, tc := range []struct{ body, want string }{
			{`{`, "not an object of this quorum: configuration 1: unexpected end of JSON input"},
			{`{"quorum":"Q"}`, "not an object of this quorum: 0 members, and a quorum has 3 or 5"},
			{configuration(t, good, func(c *register.Configuration) { c.Number = 2 }), "not an object of this quorum: configuration 2 of Q has followed 0 of Q"},
			{configuration(t, good, func(c *register.Configuration) { c.Number, c.Quorum = 1, "R" }), "not an object of this quorum: configuration 1 of R has followed 0 of Q"},
		} {
			ballot := register.Ballot{Counter: 1, By: "x"}
			a := register.Acceptor{Quorum: good.Known.Quorum, Promised: ballot, Accepted: ballot, Value: register.Value{Version: "v", Body: []byte(tc.body)}}
			object, err := a.Encode()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range places {
				p.overwrite(t, "!leasehold-quorum-next-1", string(object))
			}
			_, _, err = open(t, places).Status(t.Context())
			says(t, err, strings.ReplaceAll(tc.want, "Q", good.Known.Quorum))
		}
	})
}

func configuration(t *testing.T, m register.Marker, change func(c *register.Configuration)) string {
	t.Helper()
	c := m.Known
	change(&c)
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestRepairRefuses: Repair brings to the members that are there what they lack, whatever else is lost, and says so if they are too few.
func TestRepairRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		places[0].lose()
		if err := places[1].inner.Delete(t.Context(), "lock"); err != nil {
			t.Fatal(err)
		}
		says(t, open(t, places).Repair(t.Context()), "")
		if _, err := places[1].inner.Get(t.Context(), "lock", ""); err != nil {
			t.Errorf("the member that lacked it: %v", err)
		}
		if _, err := places[0].inner.Get(t.Context(), markerKey, ""); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("the marker of the lost member: %v", err)
		}
		places[2].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "list"})
		err := open(t, places).Repair(t.Context())
		if !errors.Is(err, quorumstore.ErrNoMajority) || !strings.Contains(err.Error(), `mem://2: list "": access denied`) {
			t.Errorf("with one of three that can be listed: %v", err)
		}
	})
}

// TestLaterObject: an object of a configuration that no marker leads to is not read as one of now, and the error says what is wrong.
func TestLaterObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		for _, p := range places {
			o, err := p.inner.Get(t.Context(), "lock", "")
			if err != nil {
				t.Fatal(err)
			}
			a, err := register.Decode(p.marker(t).Known.Quorum, o.Body)
			if err != nil {
				t.Fatal(err)
			}
			a.Number = 7
			body, err := a.Encode()
			if err != nil {
				t.Fatal(err)
			}
			p.overwrite(t, "lock", string(body))
		}
		_, err := open(t, places).Get(t.Context(), "lock", "")
		says(t, err, `get "lock": store unavailable: the configuration has changed: a member has an object of a later one than configuration 0, which no marker leads to`)
		// One that knows the configuration and cannot find a later one says why.
		for _, p := range places {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: markerKey})
		}
		if _, err = st.Get(t.Context(), "lock", ""); !errors.Is(err, store.ErrDenied) || !strings.HasPrefix(err.Error(), `get "lock": access denied: no majority of the members`) {
			t.Errorf("%v", err)
		}
	})
}

// TestEndOfContext: a call whose context ends says so, and ends at once.
func TestEndOfContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		synctest.Wait()
		for _, p := range places {
			p.Inject(faultstore.Fault{Kind: faultstore.Hang})
		}
		began := time.Now()
		for name, st := range map[string]*quorumstore.Store{"known": st, "opened": open(t, places)} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := st.Get(ctx, "lock", ""); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want the end of the context", name, err)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("two reads took %v", took)
		}
	})
}
