package quorumstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

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
}
