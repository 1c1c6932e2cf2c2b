package quorumstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/storetest"
)

// TestConformance: a quorum of three or of five is a store like any other.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run([]string{3: "three", 5: "five"}[n], func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) store.Store { return inMemory(t, n) })
		})
	}
}

// inMemory is a quorum over so many stores in memory.
func inMemory(t *testing.T, n int) *quorumstore.Store {
	t.Helper()
	var members []store.Store
	for i := range n {
		members = append(members, named{memstore.New(), fmt.Sprintf("mem://%d", i)})
	}
	st, err := quorumstore.New(members, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	return st
}

// named is a store with a name of its own.
type named struct {
	*memstore.Store
	name string
}

func (n named) String() string { return n.name }

// TestAbandonedRead: an answer to an earlier read, which nobody waits for any more, does not say what there is now.
func TestAbandonedRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, other := newQuorum(t, 3)
		before := put(t, other, "lock", "1", store.IfAbsent())
		var slow []*place
		for _, p := range places {
			slow = append(slow, p.alias(p.name))
		}
		st := open(t, slow)
		put(t, st, "another", "x", store.IfAbsent()) // the configuration is known from here on
		synctest.Wait()
		for _, p := range slow {
			p.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", Key: "lock", Nth: 1, Delay: 5 * time.Second})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := st.Get(ctx, "lock", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, want the end of the context", err)
		}
		put(t, other, "lock", "2", store.IfMatch(before))
		reads(t, st, "lock", "2")
		synctest.Wait()
	})
}

// TestListBesideOneBeingFilled: a member that is new has not yet what the others have, so a listing is not made of it.
func TestListBesideOneBeingFilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		places[1].Partition(true)
		put(t, st, "lock", "x", store.IfAbsent()) // which the second one has missed
		places[1].Partition(false)
		by := newPlace("mem://new")
		unfilled := faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", When: func(c faultstore.Call) bool { return c.Key == "lock" }}
		for _, p := range append(places[1:3:3], by) {
			p.Inject(unfilled)
		}
		if err := open(t, places, by).Replace(t.Context(), "mem://0", by); err == nil {
			t.Fatal("the new member is whole without the object")
		}
		for _, p := range append(places[1:3:3], by) {
			p.Clear()
		}
		places[2].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "list", Delay: 2 * time.Second})
		var keys []string
		for e, err := range open(t, places, by).List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, e.Key)
		}
		if len(keys) != 1 {
			t.Errorf("%q are listed, want the one object", keys)
		}
		time.Sleep(time.Minute) // until all requests have ended
	})
}

// TestNew: what New refuses, and what a quorum calls itself.
func TestNew(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		members []string
		opts    *quorumstore.Options
		name    string
		want    string
	}{
		{[]string{"mem://0", "mem://1"}, nil, "", `open "": invalid argument: 2 members: a quorum has 3 or 5`},
		{[]string{"mem://0", "mem://1", "mem://2", "mem://3"}, nil, "", `open "": invalid argument: 4 members: a quorum has 3 or 5`},
		{make([]string, 6), nil, "", `open "": invalid argument: 6 members: a quorum has 3 or 5`},
		{[]string{"mem://0", "mem://1", "mem://0"}, nil, "", `open "": invalid argument: mem://0 is a member twice`},
		{[]string{"a", "b", "c"}, &quorumstore.Options{Prefix: "a//b"}, "", `open "a//b": invalid argument: the key begins or ends with a slash, or has two in a row`},
		{[]string{"a", "b", "c"}, &quorumstore.Options{Prefix: "!leasehold-quorum"}, "", `open "!leasehold-quorum": invalid argument: keys that begin with "!leasehold-quorum" are the quorum's own`},
		{[]string{"s3://a/b?region=x", "file:///c", "mem://d e"}, nil, "quorum:///?member=s3://a/b%3Fregion%3Dx&member=file:///c&member=mem://d+e", ""},
		{[]string{"a", "b", "c", "d", "e"}, &quorumstore.Options{Prefix: "p/q"}, "quorum:///p/q?member=a&member=b&member=c&member=d&member=e", ""},
		{[]string{"a", "b", "c"}, &quorumstore.Options{Name: "name"}, "quorum://name", ""},
		{[]string{"a", "b", "c"}, &quorumstore.Options{Name: "name", Prefix: "p"}, "quorum://name/p", ""},
	} {
		var members []store.Store
		for _, name := range tc.members {
			members = append(members, newPlace(name))
		}
		st, err := quorumstore.New(members, tc.opts)
		says(t, err, tc.want)
		if tc.want != "" && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
		if err == nil && st.String() != tc.name {
			t.Errorf("it calls itself %s, want %s", st, tc.name)
		}
	}
}

// listed are the keys that a store lists.
func listed(t *testing.T, st store.Store, prefix, after string) (keys []string) {
	t.Helper()
	for e, err := range st.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	return keys
}

// TestPrefix: two quorums under prefixes of the same members do not see each other's objects, and say their own keys without
// the prefix. Over gives the same quorum around other members, those that are opened later too.
func TestPrefix(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, plain := newQuorum(t, 3)
		under := func(prefix string) *quorumstore.Store {
			st, err := quorumstore.New([]store.Store{places[0], places[1], places[2]}, &quorumstore.Options{Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		a, b := under("a"), under("b")
		for _, key := range []string{"1", "2", "3", "gone"} {
			put(t, a, key, "a"+key, store.IfAbsent())
		}
		put(t, b, "1", "b1", store.IfAbsent())
		if o, err := a.Get(t.Context(), "1", ""); err != nil || o.Key != "1" || string(o.Body) != "a1" {
			t.Errorf("%v, %v", o, err)
		}
		reads(t, b, "1", "b1")
		for _, tc := range []struct {
			st            store.Store
			prefix, after string
			want          []string
		}{
			{a, "", "", []string{"1", "2", "3", "gone"}},
			{a, "", "2", []string{"3", "gone"}},
			{a, "g", "", []string{"gone"}},
			{b, "", "", []string{"1"}},
			{plain, "", "", []string{"a/1", "a/2", "a/3", "a/gone", "b/1"}},
		} {
			if got := listed(t, tc.st, tc.prefix, tc.after); !slices.Equal(got, tc.want) {
				t.Errorf("%s lists %q after %q: %v, want %v", tc.st, tc.prefix, tc.after, got, tc.want)
			}
		}
		for name, err := range map[string]error{
			"get":    second(a.Get(t.Context(), "!leasehold-quorum", "")),
			"put":    second(plain.Put(t.Context(), "!leasehold-quorum", nil, store.IfAbsent())),
			"delete": plain.Delete(t.Context(), "!leasehold-quorum"),
			"forget": plain.Forget(t.Context(), "!leasehold-quorum"),
		} {
			if want := name != "get"; errors.Is(err, store.ErrInvalid) != want {
				t.Errorf("%s of the quorum's own: %v, refused: want %t", name, err, want)
			}
		}
		says(t, plain.Delete(t.Context(), "!leasehold-quorum-next-1"), `delete "!leasehold-quorum-next-1": invalid argument: keys that begin with "!leasehold-quorum" are the quorum's own`)
		says(t, second(a.Get(t.Context(), "/b", "")), `get "/b": invalid argument: the key begins or ends with a slash, or has two in a row`)
		says(t, second(plain.Get(t.Context(), "a//b", "")), `get "a//b": invalid argument: the key begins or ends with a slash, or has two in a row`)

		// A collection tells of keys as their users know them, and takes those of no other prefix.
		for _, st := range []store.Store{a, plain} {
			if err := st.Delete(t.Context(), map[store.Store]string{a: "gone", plain: "b/1"}[st]); err != nil {
				t.Fatal(err)
			}
		}
		all(t, plain)
		time.Sleep(day)
		var told []string
		got, err := a.Collect(t.Context(), &quorumstore.CollectOptions{OnKey: func(key string) { told = append(told, key) }})
		if want := (quorumstore.Collected{Gone: 1, Number: 1}); err != nil || got != want || !slices.Equal(told, []string{"gone"}) {
			t.Errorf("collected %+v, %v, and told of %v", got, err, told)
		}
		if keys := left(t, places[0]); !slices.Equal(keys, []string{"a/1", "a/2", "a/3", "b/1"}) {
			t.Errorf("a member has %v left", keys)
		}
		if err := a.Forget(t.Context(), "1"); err != nil {
			t.Error(err)
		}
		if keys := left(t, places[1]); !slices.Equal(keys, []string{"a/2", "a/3", "b/1"}) {
			t.Errorf("a member has %v left", keys)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestOver: Over gives the same quorum around other members, those that are opened later too.
func TestOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, _ := newQuorum(t, 3)
		by := newPlace("mem://new")
		opens := 0
		openPlace := func(_ context.Context, name string) (store.Store, error) {
			opens++
			if name == by.name {
				return by, nil
			}
			return nil, errors.New("no such place: " + name)
		}
		st, err := quorumstore.New([]store.Store{places[0], places[1], places[2]}, &quorumstore.Options{Prefix: "p", Name: "name", Open: openPlace})
		if err != nil {
			t.Fatal(err)
		}
		put(t, st, "lock", "x", store.IfAbsent())
		if err = st.Replace(t.Context(), "mem://0", by); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var mu sync.Mutex
		asked := map[string]bool{}
		around := func(m store.Store) store.Store {
			return counted{m, func() {
				mu.Lock()
				defer mu.Unlock()
				asked[m.String()] = true
			}}
		}
		over, err := st.Over(around)
		if err != nil {
			t.Fatal(err)
		}
		if over.String() != "quorum://name/p" {
			t.Errorf("it calls itself %s", over)
		}
		if opens != 0 {
			t.Errorf("a place that was given is opened %d times", opens)
		}
		reads(t, over, "lock", "x")
		for range 2 {
			if _, err = over.Members(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if opens != 1 {
			t.Errorf("a place is opened %d times", opens)
		}
		synctest.Wait()
		if want := map[string]bool{"mem://0": true, "mem://1": true, "mem://2": true, "mem://new": true}; fmt.Sprint(asked) != fmt.Sprint(want) {
			t.Errorf("%v were asked through what is around them, want %v", asked, want)
		}
		// What cannot be opened cannot be opened around it, either.
		by.name = "mem://elsewhere"
		over, err = st.Over(around)
		if err != nil {
			t.Fatal(err)
		}
		says(t, second(over.Get(t.Context(), "lock", "")), `get "lock": store unavailable: the member mem://new: no such place: mem://new`)
		st, err = quorumstore.New([]store.Store{places[0], places[1], places[2]}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if over, err = st.Over(around); err != nil {
			t.Fatal(err)
		}
		says(t, second(over.Members(t.Context())), `open "": invalid argument: mem://new is a member since configuration 1, and is not among the members given`)
	})
}

// counted tells of each read.
type counted struct {
	store.Store
	asked func()
}

func (c counted) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	c.asked()
	return c.Store.Get(ctx, key, unless)
}

// TestPlainMembers: members that have no more than a store must have keep every body of up to 1 MiB. What needs more is refused.
func TestPlainMembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places := []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2")}
		st, err := quorumstore.New([]store.Store{plain{places[0]}, plain{places[1]}, plain{places[2]}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err = st.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		full := strings.Repeat("x", store.MaxBody)
		put(t, st, "full", full, store.IfAbsent())
		reads(t, st, "full", full)
		r, size, err := st.GetLarge(t.Context(), "full")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || string(text) != full || size != store.MaxBody || r.Close() != nil {
			t.Errorf("%d of %d bytes, %v", len(text), size, err)
		}
		_, err = st.PutLarge(t.Context(), "large", strings.NewReader(full+"x"))
		refused := regexp.MustCompile(`(?m)^mem://(.): put "!leasehold-quorum-values-[A-Z0-9]+": body too large: mem://(.) keeps no bodies of 1048577 bytes$`)
		if n := len(refused.FindAllString(errorText(err), -1)); n != 2 {
			t.Errorf("%d members say that they cannot keep it: %v", n, err)
		}
		if !errors.Is(err, quorumstore.ErrNoMajority) {
			t.Errorf("%v, want ErrNoMajority", err)
		}
		alias, err := quorumstore.New([]store.Store{plain{newPlace("mem://0")}, plain{places[0].alias("mem://1")}, plain{places[0].alias("mem://2")}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		places[0].lose()
		if err = alias.Init(t.Context()); err == nil || !strings.HasSuffix(err.Error(), `delete the object "!leasehold-quorum" there: mem://0: delete "!leasehold-quorum": invalid argument: this store does not delete on a condition`) {
			t.Errorf("%v", err)
		}
	})
}

// TestListFollows: a listing of a process that opened the quorum before a member was replaced is made under the
// configuration of now, and one without a majority says what each member lacks.
func TestListFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, _ := newQuorum(t, 3)
		by := newPlace("mem://new")
		st := open(t, places, by)
		put(t, st, "a", "12345", store.IfAbsent())
		put(t, st, "b", "", store.IfAbsent())
		put(t, st, "c", "", store.IfAbsent())
		if err := st.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := open(t, places, by).Replace(t.Context(), "mem://0", by); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		places[0].lose()
		places[1].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: time.Second})
		if keys := listed(t, st, "", ""); !slices.Equal(keys, []string{"a", "c"}) {
			t.Errorf("listed: %v", keys)
		}
		time.Sleep(time.Minute)
		places[1].Clear()
		for e, err := range st.List(t.Context(), "a", "") {
			if o, e2 := st.Get(t.Context(), "a", ""); err != nil || e2 != nil || e != (store.Entry{Key: "a", Version: o.Version, Size: 5}) {
				t.Errorf("%+v, %v, %v", e, err, e2)
			}
		}
		by.lose()
		places[1].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "list"})
		for _, err := range st.List(t.Context(), "", "") {
			_ = err // the log says it
			break
		}
		var got string
		for _, err := range st.List(t.Context(), "p", "") {
			got += errorText(err)
		}
		lost, denied := "mem://new: this member has lost its objects", `mem://1: list "p": access denied: `+injected
		if head := "list \"p\": access denied: no majority of the members\n"; got != head+lost+"\n"+denied && got != head+denied+"\n"+lost {
			t.Errorf("a listing without a majority says %q", got)
		}
		// Whoever does not want the rest stops the listing, and one whose context has ended says so.
		places[1].Clear()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var errs []error
		for _, err := range st.List(ctx, "", "") {
			errs = append(errs, err)
		}
		if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
			t.Errorf("with a context that has ended: %v", errs)
		}
	})
}

// TestListingsHang: a listing that a member does not answer in time is a fault of that member, in the error and in the log.
func TestListingsHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, _ := newQuorum(t, 3)
		var log bytes.Buffer
		st, err := quorumstore.New([]store.Store{places[0], places[1], places[2]}, &quorumstore.Options{
			Timeout: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		put(t, st, "a", "x", store.IfAbsent())
		synctest.Wait()
		for _, p := range places[1:] {
			p.Inject(faultstore.Fault{Kind: faultstore.Hang, Op: "list"})
		}
		began := time.Now()
		for _, err = range st.List(t.Context(), "", "") {
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "mem://1: context deadline exceeded") || !strings.Contains(err.Error(), "mem://2: context deadline exceeded") {
				t.Errorf("%v", err)
			}
		}
		if took := time.Since(began); took != time.Second || strings.Count(log.String(), "fails") != 2 {
			t.Errorf("after %v the log has: %s", took, &log)
		}
	})
}

// TestAnswers: every field of what Get and Put answer, and the whole text of what they refuse.
func TestAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		_, st := newQuorum(t, 3)
		_, err := st.Get(t.Context(), "a", "")
		says(t, err, `get "a": object does not exist`)
		_, err = st.Put(t.Context(), "a", nil, store.IfMatch("v"))
		says(t, err, `put "a": object does not exist`)
		o, err := st.Put(t.Context(), "a", []byte("1"), store.IfAbsent())
		if err != nil || !reflect.DeepEqual(o, &store.Object{Key: "a", Version: o.Version}) || o.Version == "" {
			t.Errorf("put: %+v, %v", o, err)
		}
		for _, unless := range []store.Version{"", "v"} {
			got, failed := st.Get(t.Context(), "a", unless)
			if failed != nil || !reflect.DeepEqual(got, &store.Object{Key: "a", Body: []byte("1"), Version: o.Version}) {
				t.Errorf("get: %+v, %v", got, failed)
			}
		}
		_, err = st.Get(t.Context(), "a", o.Version)
		says(t, err, `get "a": object not modified`)
		_, err = st.Put(t.Context(), "a", nil, store.IfAbsent())
		says(t, err, `put "a": precondition failed`)
		_, err = st.Put(t.Context(), "a", nil, store.IfMatch("v"))
		says(t, err, `put "a": precondition failed`)
	})
}

// TestManyCalls: calls of one object by one process at the same time are all answered.
func TestManyCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		_, st := newQuorum(t, 3)
		var calls sync.WaitGroup
		var won atomic.Int64
		for range 10 {
			calls.Go(func() {
				_, err := st.Put(t.Context(), "lock", []byte("x"), store.IfAbsent())
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, store.ErrPrecondition) {
					t.Error(err)
				}
			})
			calls.Go(func() {
				if _, err := st.Get(t.Context(), "lock", ""); err != nil && !errors.Is(err, store.ErrNotExist) {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if n := won.Load(); n != 1 {
			t.Errorf("%d have created it", n)
		}
	})
}

// TestWriteMeetsChange: a write that a member may have accepted before it was known that the configuration has changed may have
// landed, so it is not sent again.
func TestWriteMeetsChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, _ := newQuorum(t, 3)
		by := newPlace("mem://new")
		st := open(t, places, by)
		version := put(t, st, "lock", "1", store.IfAbsent())
		synctest.Wait()
		if err := open(t, places, by).Replace(t.Context(), "mem://0", by); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, err := st.Put(t.Context(), "lock", []byte("2"), store.IfMatch(version))
		says(t, err, `put "lock": unknown outcome: the write may have landed: the configuration has changed`)
		reads(t, st, "lock", "1")
		put(t, st, "lock", "3", store.IfMatch(version))
	})
}

// TestListing: a listing that nobody wants the rest of ends, and so do its reads; one whose context ends, or of which an object cannot be
// read, says so where it ends.
func TestListing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		const keys = 100
		for i := range keys {
			put(t, st, fmt.Sprintf("%02d", i), "x", store.IfAbsent())
		}
		synctest.Wait()
		counts(places)
		for _, err := range st.List(context.WithoutCancel(t.Context()), "", "") {
			if err != nil {
				t.Error(err)
			}
			break
		}
		time.Sleep(time.Minute)
		for i, n := range counts(places) {
			if n.Get > keys/2 {
				t.Errorf("after the first one member %d is asked for %d objects", i, n.Get)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n, last := 0, error(nil)
		for _, err := range st.List(ctx, "", "") {
			if n++; n == 1 {
				synctest.Wait() // what is read ahead is there
				cancel()
				synctest.Wait()
			}
			last = err
		}
		says(t, last, `list "": store unavailable: context canceled`)
		if n > keys/2 {
			t.Errorf("%d objects are listed after the end of the context", n)
		}
		for _, p := range places[1:] {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "02"})
		}
		var got []string
		for e, err := range st.List(t.Context(), "", "") {
			if got = append(got, e.Key); err != nil {
				got = append(got, err.Error())
			}
		}
		want := `[00 01  list "02": access denied: no majority of the members
mem://1: get "02": access denied: faultstore: denied
mem://2: get "02": access denied: faultstore: denied]`
		if fmt.Sprint(got) != want {
			t.Errorf("listed %v, want %s", got, want)
		}
	})
}

// TestListingMembers: a listing takes as long as it takes, if each entry comes in time. A member counts only with its own marker, and one that
// knows of a later configuration leads there.
func TestListingMembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		for _, key := range []string{"a", "b", "c"} {
			put(t, st, key, "x", store.IfAbsent())
		}
		synctest.Wait()
		slow, err := quorumstore.New([]store.Store{lister{places[0]}, lister{places[1]}, lister{places[2]}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if keys := listed(t, slow, "", ""); !slices.Equal(keys, []string{"a", "b", "c"}) {
			t.Errorf("listed: %v", keys)
		}
		fails := func(want string) {
			t.Helper()
			places[2].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "list"})
			n := 0
			for _, err := range st.List(t.Context(), "", "") {
				n++
				if !errors.Is(err, quorumstore.ErrNoMajority) || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			if n != 1 {
				t.Errorf("%d entries", n)
			}
			for _, p := range places {
				p.Clear()
			}
		}
		places[1].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: markerKey})
		fails(`mem://1: get "!leasehold-quorum": access denied: ` + injected)
		good := places[1].marker(t)
		places[1].mark(t, func(m *register.Marker) { m.Name = "other" })
		fails("mem://1: this member has lost its objects")
		places[1].mark(t, func(m *register.Marker) { m.Name = good.Name })

		// Only the second one has the number of the configuration yet.
		by := newPlace("mem://new")
		st = open(t, places, by)
		listed(t, st, "", "")
		places[2].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: markerKey})
		says(t, open(t, places, by).Replace(t.Context(), "mem://0", by), `mem://2: put "!leasehold-quorum": access denied: `+injected)
		places[2].Clear()
		for _, p := range []*place{places[0], places[2]} {
			p.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "list", Delay: time.Second})
		}
		for range 2 {
			synctest.Wait()
			places[0].Reset()
			listed(t, st, "", "")
		}
		if n := places[0].Counts(); n != (faultstore.Counts{}) {
			t.Errorf("the member that was replaced is asked again: %+v", n)
		}
	})
}

// lister pauses before each entry of a listing.
type lister struct{ *place }

func (l lister) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range l.place.List(ctx, prefix, after) {
			select {
			case <-time.After(6 * time.Second):
			case <-ctx.Done():
				e, err = store.Entry{}, ctx.Err()
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestMarkerIsLogged: a member whose marker cannot be read is logged with the reason, and one whose marker is not what it was as lost.
func TestMarkerIsLogged(t *testing.T) {
	t.Parallel()
	const lost = "this member has lost its objects"
	mark := func(change func(m *register.Marker)) func(t *testing.T, p *place) {
		return func(t *testing.T, p *place) {
			t.Helper()
			p.mark(t, change)
		}
	}
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, p *place)
		cause  string
	}{
		{"well", func(*testing.T, *place) {}, ""},
		{"cannot be read", func(_ *testing.T, p *place) {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: markerKey})
		}, `get \"!leasehold-quorum\": access denied: ` + injected},
		{"emptied", func(_ *testing.T, p *place) { p.lose() }, lost},
		{"another's", mark(func(m *register.Marker) { m.Name = "other" }), lost},
		{"no longer whole", mark(func(m *register.Marker) { m.Whole = false }), lost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, _ := newQuorum(t, 3)
				var log bytes.Buffer
				st, err := quorumstore.New([]store.Store{places[0], places[1], places[2]}, &quorumstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				put(t, st, "other", "x", store.IfAbsent())
				if _, err = st.Get(t.Context(), "none", ""); !errors.Is(err, store.ErrNotExist) {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				tc.damage(t, places[2])
				places[0].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: time.Millisecond}) // so the marker of the other two is asked for
				if _, err := st.Get(t.Context(), "none", ""); !errors.Is(err, store.ErrNotExist) {
					t.Error(err)
				}
				synctest.Wait()
				want := ""
				if tc.cause != "" {
					want = `time=2000-01-01T00:01:00.000Z level=WARN msg="a member of the quorum fails; the others go on without it" member=mem://2 cause="` + tc.cause + "\"\n"
				}
				if log.String() != want {
					t.Errorf("the log says %s, want %s", &log, want)
				}
			})
		})
	}
}

// TestLostMemberIsBack: a member that has lost its objects and has them again is logged, and so is its next failure. It used to count
// as lost until its marker was read, and no request for an object that exists reads it.
func TestLostMemberIsBack(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, p *place, operator *quorumstore.Store) (restore func()){
		"replaced": func(t *testing.T, p *place, operator *quorumstore.Store) func() {
			t.Helper()
			p.lose()
			return func() {
				if err := operator.Replace(t.Context(), p.String(), p); err != nil {
					t.Fatal(err)
				}
			}
		},
		"as it was": func(t *testing.T, p *place, _ *quorumstore.Store) func() { // so reads find nothing new
			t.Helper()
			was := p.marker(t)
			p.mark(t, func(m *register.Marker) { m.Name = "other" })
			return func() { p.mark(t, func(m *register.Marker) { *m = was }) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, operator := newQuorum(t, 3)
				var log bytes.Buffer
				st, err := quorumstore.New([]store.Store{places[0], places[1], places[2]}, &quorumstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				seen := put(t, st, "k", "x", store.IfAbsent())
				get := func(key string, want error) {
					t.Helper()
					time.Sleep(2 * time.Minute)
					if _, err := st.Get(t.Context(), key, seen); !errors.Is(err, want) {
						t.Error(err)
					}
					synctest.Wait()
				}
				get("none", store.ErrNotExist)
				restore := lose(t, places[2], operator)
				places[0].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: time.Millisecond}) // so the marker of the other two is asked for
				get("none", store.ErrNotExist)
				places[0].Clear()
				restore()
				get("k", store.ErrNotModified)
				places[2].Inject(faultstore.Fault{Kind: faultstore.Denied})
				get("k", store.ErrNotModified)
				var said []string
				for line := range strings.Lines(log.String()) {
					_, line, _ = strings.Cut(line, "msg=")
					said = append(said, line[:min(len(line), 42)])
				}
				const fails, again = `"a member of the quorum fails; the others `, `"a member of the quorum answers again" mem`
				if !slices.Equal(said, []string{fails, again, fails}) {
					t.Errorf("the log says %q\n%s", said, &log)
				}
			})
		})
	}
}
