package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestDecodePlan: which objects are plans, and the errors for the others.
func TestDecodePlan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, says string }{
		{`{"format": 1, "token": 1, "serial": 1}`, ""},
		{`{"format": 1, "token": 1, "serial": 1, "workers": [{}, {}], "owners": [-1, 0, 1]}`, ""},
		{`{"format": 1, "token": 1, "serial": 1, "workers": [{}, {}], "owners": [0, 2]}`, "to worker 2 of 2"},
		{`{"format": 1, "token": 1, "serial": 1, "workers": [{}, {}], "owners": [-2]}`, "to worker -2 of 2"},
		{`{"format": 1, "token": 0, "serial": 1}`, "token 0"},
		{`{"format": 1, "token": 1, "serial": 0}`, "serial 0"},
		{`{"format": 1, "token": 1, "serial": 1, "owners": "x"}`, "cannot unmarshal"},
		{`{"format": 0, "token": 1, "serial": 1}`, "format 0, and this version knows format 1"},
		{`{"format": 2, "token": "of another kind"}`, "format 2, and this version knows format 1"},
		{`[]`, "not a JSON object with a format"},
		{`{"format": 1`, "not a JSON object with a format"},
	} {
		p, err := decodePlan([]byte(c.body))
		if (err == nil) != (c.says == "") || (p == nil) == (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v, want %q", c.body, p, err, c.says)
		}
	}
}

// TestReadList: a list is read once, and is what its name says, or nobody believes it.
func TestReadList(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := faultstore.Wrap(memstore.New(), nil)
	defer st.Close()
	plant := func(name, body string) {
		t.Helper()
		if _, err := st.Put(ctx, "x/lists/"+name, []byte(body), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	body, err := encodeList([]string{"a", `"b"`})
	if err != nil || string(body) != "[\n\"a\",\n\"\\\"b\\\"\"\n]\n" {
		t.Fatalf("the list is %s, %v", body, err)
	}
	if name := nameOf(nil); name != "e3b0c44298fc1c149afbf4c8996fb924" { // as in all versions
		t.Errorf("the list of nothing is called %s", name)
	}
	good, noList := nameOf(body), nameOf([]byte("{}"))
	plant(good, string(body))
	plant("other", string(body))
	plant(noList, "{}")
	b := newPlanStore(st, "x")
	for range 2 {
		names, wrong := b.list(ctx, good)
		if wrong != nil || !slices.Equal(names, []string{"a", `"b"`}) {
			t.Errorf("the list is read as %q, %v", names, wrong)
		}
	}
	if n := st.Counts().Get; n != 1 {
		t.Errorf("it was read %d times", n)
	}
	for name, want := range map[string]error{"other": ErrForeign, noList: ErrForeign, "absent": store.ErrNotExist} {
		for range 2 { // what is wrong is not kept
			before := st.Counts().Get
			_, wrong := b.list(ctx, name)
			if !errors.Is(wrong, want) || !strings.Contains(wrong.Error(), "x/lists/"+name) || st.Counts().Get != before+1 {
				t.Errorf("%s: %v, want %v", name, wrong, want)
			}
		}
	}
	large := newPlanStore(tooLarge{st}, "x")
	if _, err = large.list(ctx, good); !errors.Is(err, ErrForeign) {
		t.Errorf("a list that is too large: %v", err)
	}
	if p, version, err := large.readPlan(ctx, ""); p != nil || version != "" || !errors.Is(err, ErrForeign) {
		t.Errorf("a plan that is too large: %v, %v, %v", p, version, err)
	}
}

// tooLarge is a store in which every object is.
type tooLarge struct{ store.Store }

func (s tooLarge) Get(ctx context.Context, key string, _ store.Version) (*store.Object, error) {
	return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrTooLarge}
}

// TestUnion: the sum of some lists is their names, sorted, each once, and of each list which
// are on it; it is kept until another one is asked for.
func TestUnion(t *testing.T) {
	t.Parallel()
	b := newPlanStore(memstore.New(), "x")
	b.know("one", []string{"b", "d"})
	b.know("two", []string{"a", "b", "c"})
	u, err := b.union(t.Context(), []string{"one", "two"})
	if err != nil || !slices.Equal(u.names, []string{"a", "b", "c", "d"}) ||
		!slices.Equal(u.in[0], []bool{false, true, false, true}) || !slices.Equal(u.in[1], []bool{true, true, true, false}) {
		t.Errorf("%+v, %v", u, err)
	}
	if again, wrong := b.union(t.Context(), []string{"one", "two"}); again != u || wrong != nil {
		t.Errorf("it was added up again: %+v, %v", again, wrong)
	}
	other, err := b.union(t.Context(), []string{"two"})
	if err != nil || !slices.Equal(other.names, []string{"a", "b", "c"}) {
		t.Errorf("of another list: %+v, %v", other, err)
	}
	if _, err = b.union(t.Context(), []string{"two", "three"}); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("of a list that there is not: %v", err)
	}
	owners, err := b.resolve(t.Context(), &wirePlan{Lists: []string{"two"}, Workers: []Member{{Session: "s"}, {Session: "t"}}, Owners: []int{1, nobody, 0}})
	if err != nil || len(owners) != 3 || owners["a"] != "t" || owners["b"] != "" || owners["c"] != "s" {
		t.Errorf("the owners are %v, %v", owners, err)
	}
	if _, err = b.resolve(t.Context(), &wirePlan{Lists: []string{"two"}, Owners: []int{nobody}}); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "1 owners for 3 shards") {
		t.Errorf("a plan with too few owners: %v", err)
	}
}

// TestRequestsEnd: no request of a plan, a list or the memberships takes more than ten
// seconds.
func TestRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		defer st.Close()
		st.Inject(faultstore.Fault{Kind: faultstore.Hang})
		b := newPlanStore(st, "x")
		r := &members{Worker: &Worker{planStore: b}}
		for what, request := range map[string]func() error{
			"read a plan":    func() error { _, _, err := b.readPlan(t.Context(), ""); return err },
			"read a list":    func() error { _, err := b.list(t.Context(), "a"); return err },
			"publish a list": func() error { return b.publish(t.Context(), "a", nil) },
			"list":           func() error { _, err := r.listing(t.Context()); return err },
		} {
			begun := time.Now()
			if err := request(); err == nil || time.Since(begun) != 10*time.Second {
				t.Errorf("%s: %v after %v", what, err, time.Since(begun))
			}
		}
	})
}

// TestStates: each has a name, and what is none says so.
func TestStates(t *testing.T) {
	t.Parallel()
	for s, want := range map[State]string{
		0: "state 0", Free: "free", Owned: "owned", Moving: "moving", Gone: "gone", Broken: "not a lock", Broken + 1: "state 6",
	} {
		if got := s.String(); got != want {
			t.Errorf("%d is %q, want %q", int(s), got, want)
		}
	}
}
