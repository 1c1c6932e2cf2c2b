package quorumstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// A place is a member that can be made to fail, and whose requests are counted.
type place struct {
	*faultstore.Store
	inner *emptied
	name  string
}

func (p *place) String() string { return p.name }

// emptied is a store in memory that can lose all that it has.
type emptied struct {
	mu sync.Mutex
	store.Store
}

func (e *emptied) now() store.Store {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Store
}

func (e *emptied) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	return e.now().Get(ctx, key, unless)
}

func (e *emptied) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	return e.now().Put(ctx, key, body, only)
}

func (e *emptied) Delete(ctx context.Context, key string) error { return e.now().Delete(ctx, key) }

func (e *emptied) DeleteIf(ctx context.Context, key string, v store.Version) error {
	return e.now().(store.Conditional).DeleteIf(ctx, key, v) //nolint:errcheck,forcetypeassert // all of them are
}

func (e *emptied) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	return e.now().(store.Large).GetLarge(ctx, key) //nolint:errcheck,forcetypeassert // all of them are
}

func (e *emptied) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	return e.now().(store.Large).PutLarge(ctx, key, r) //nolint:errcheck,forcetypeassert // all of them are
}

func (e *emptied) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return e.now().List(ctx, prefix, after)
}

// lose empties the member, in a bubble, when all writes have reached it: a write returns once a majority has it, and
// what came to the last member after that would lie in the emptied one.
func (p *place) lose() {
	synctest.Wait()
	p.empty()
}

// empty empties the member, whatever is on its way to it.
func (p *place) empty() {
	p.inner.mu.Lock()
	defer p.inner.mu.Unlock()
	p.inner.Store = memstore.New()
}

func newPlace(name string) *place {
	inner := &emptied{Store: memstore.New()}
	return &place{faultstore.Wrap(inner, nil), inner, name}
}

// newQuorum is a quorum of so many places.
func newQuorum(t *testing.T, n int) ([]*place, *quorumstore.Store) {
	t.Helper()
	var places []*place
	for i := range n {
		places = append(places, newPlace(fmt.Sprintf("mem://%d", i)))
	}
	st := open(t, places)
	if err := st.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return places, st
}

// open opens the quorum of these places, as another process would.
func open(t *testing.T, places []*place, more ...*place) *quorumstore.Store {
	t.Helper()
	var members []store.Store
	for _, p := range places {
		members = append(members, p)
	}
	st, err := quorumstore.New(members, &quorumstore.Options{Open: func(_ context.Context, name string) (store.Store, error) {
		for _, p := range more {
			if p.name == name {
				return p, nil
			}
		}
		return nil, errors.New("no such place: " + name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func put(t *testing.T, st store.Store, key, body string, only store.Condition) store.Version {
	t.Helper()
	o, err := st.Put(t.Context(), key, []byte(body), only)
	if err != nil {
		t.Fatalf("put %s %q: %v", key, body, err)
	}
	return o.Version
}

func reads(t *testing.T, st store.Store, key, want string) store.Version {
	t.Helper()
	o, err := st.Get(t.Context(), key, "")
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	if string(o.Body) != want {
		t.Fatalf("%s has %q, want %q", key, o.Body, want)
	}
	return o.Version
}

// TestRequests: what each call costs, in requests to all members together.
func TestRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testRequests)
}

func testRequests(t *testing.T) {
	places, st := newQuorum(t, 3)
	put(t, st, "other", "x", store.IfAbsent()) // the configuration is known from here on
	var version store.Version
	for _, c := range []struct {
		what string
		want faultstore.Counts
		do   func()
	}{
		// The marker of a member that answers last is not needed.
		{"a look at nothing", faultstore.Counts{Get: 5}, func() {
			places[2].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: time.Millisecond, Nth: 1})
			if _, err := st.Get(t.Context(), "lock", ""); !errors.Is(err, store.ErrNotExist) {
				t.Error(err)
			}
		}},
		{"the first write", faultstore.Counts{Get: 3, Put: 6}, func() { version = put(t, st, "lock", "1", store.IfAbsent()) }},
		{"a renewal", faultstore.Counts{Put: 3}, func() { version = put(t, st, "lock", "2", store.IfMatch(version)) }},
		{"a look", faultstore.Counts{Get: 3}, func() { reads(t, st, "lock", "2") }},
		{"a renewal after it", faultstore.Counts{Put: 3}, func() { version = put(t, st, "lock", "3", store.IfMatch(version)) }},
		{"a refusal", faultstore.Counts{Get: 3}, func() {
			if _, err := st.Put(t.Context(), "lock", nil, store.IfAbsent()); !errors.Is(err, store.ErrPrecondition) {
				t.Error(err)
			}
		}},
		{"another's write after a look", faultstore.Counts{Put: 6}, func() {
			other := open(t, places)
			before := reads(t, other, "other", "x") // it learns the configuration
			synctest.Wait()
			for _, p := range places {
				p.Reset()
			}
			put(t, other, "other", "y", store.IfMatch(before))
		}},
		// The markers, and the next configuration and the object, each with the markers of a majority after it.
		{"another's look at nothing, which opens the quorum", faultstore.Counts{Get: 3 + 5 + 5}, func() {
			places[2].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: time.Millisecond})
			if _, err := open(t, places).Get(t.Context(), "none", ""); !errors.Is(err, store.ErrNotExist) {
				t.Error(err)
			}
		}},
	} {
		synctest.Wait() // for the members that nobody waits for
		for _, p := range places {
			p.Reset()
		}
		c.do()
		time.Sleep(time.Second) // until every member has answered
		synctest.Wait()
		var got faultstore.Counts
		for _, p := range places {
			n := p.Counts()
			got.Get, got.Put, got.Delete, got.List = got.Get+n.Get, got.Put+n.Put, got.Delete+n.Delete, got.List+n.List
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// TestMembersDown: with a minority down everything goes on, and with a majority down nothing does.
func TestMembersDown(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		places, st := newQuorum(t, n)
		version := put(t, st, "lock", "0", store.IfAbsent())
		for i := range n / 2 {
			places[i].Partition(true)
		}
		version = put(t, st, "lock", "1", store.IfMatch(version))
		reads(t, st, "lock", "1")
		reads(t, open(t, places), "lock", "1")
		version = put(t, open(t, places), "lock", "2", store.IfMatch(version))

		places[n/2].Partition(true)
		if _, err := st.Get(t.Context(), "lock", ""); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("with a majority down, a look says %v", err)
		}
		_, err := st.Put(t.Context(), "lock", []byte("3"), store.IfMatch(version))
		if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("with a majority down, a write says %v", err)
		}
		for i := range n/2 + 1 {
			if !strings.Contains(err.Error(), places[i].name) {
				t.Errorf("it does not name member %d: %v", i, err)
			}
		}
		for _, p := range places {
			p.Partition(false)
		}
		put(t, st, "lock2", "1", store.IfAbsent())
		o, err := st.Get(t.Context(), "lock", "")
		if err != nil || string(o.Body) != "2" && string(o.Body) != "3" {
			t.Errorf("when they are back: %v, %v", o, err)
		}
	}
}

// TestReplace: a member that has lost everything does not vote, and comes back as a new one, at its place or at
// another, wherever the change is interrupted.
func TestReplace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testReplace)
}

func testReplace(t *testing.T) {
	t.Helper()
	const keys = 5
	for _, elsewhere := range []bool{false, true} {
		for fails := 0; ; fails++ { // the request of the change that fails
			places, st := newQuorum(t, 3)
			for i := range keys {
				put(t, st, fmt.Sprintf("locks/%d", i), "a", store.IfAbsent())
			}
			if err := st.Delete(t.Context(), "locks/0"); err != nil {
				t.Fatal(err)
			}
			places[0].lose()
			version := reads(t, open(t, places), "locks/1", "a")
			put(t, open(t, places), "locks/1", "b", store.IfMatch(version))

			by := places[0]
			if elsewhere {
				by = newPlace("mem://new")
			}
			requests := 0
			var mu sync.Mutex
			for _, p := range append(places[1:3:3], by) {
				p.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, When: func(c faultstore.Call) bool {
					mu.Lock()
					defer mu.Unlock()
					if c.Op == "put" {
						requests++
					}
					return c.Op == "put" && requests == fails
				}})
			}
			operator := open(t, places, by)
			err := operator.Replace(t.Context(), "mem://0", by)
			done := requests < fails
			if err != nil {
				for _, p := range append(places[1:3:3], by) {
					p.Clear()
				}
				if err = open(t, places, by).Replace(t.Context(), "mem://0", by); err != nil {
					t.Fatalf("elsewhere %v, request %d lost: run again: %v", elsewhere, fails, err)
				}
			}
			after := open(t, places, by)
			number, members, err := after.Status(t.Context())
			if err != nil || number == 0 {
				t.Fatalf("elsewhere %v, request %d: configuration %d, %v", elsewhere, fails, number, err)
			}
			for _, m := range members {
				if m.Err != nil || !m.Whole {
					t.Errorf("elsewhere %v, request %d: %+v", elsewhere, fails, m)
				}
			}
			// Each of the others alone may be lost now, and nothing is.
			places[2].Partition(true)
			reads(t, after, "locks/1", "b")
			for i := 2; i < keys; i++ {
				reads(t, after, fmt.Sprintf("locks/%d", i), "a")
			}
			if _, err := after.Get(t.Context(), "locks/0", ""); !errors.Is(err, store.ErrNotExist) {
				t.Errorf("what was deleted: %v", err)
			}
			var listed []string
			for e, err := range after.List(t.Context(), "locks/", "") {
				if err != nil {
					t.Fatal(err)
				}
				listed = append(listed, e.Key)
			}
			if len(listed) != keys-1 {
				t.Errorf("listed: %v", listed)
			}
			if done {
				t.Logf("elsewhere %v: %d requests", elsewhere, requests)
				break
			}
		}
	}
}

// TestReplaceInPlace: a member that is well is not replaced by itself, and one that was emptied is.
func TestReplaceInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testReplaceInPlace)
}

func testReplaceInPlace(t *testing.T) {
	t.Helper()
	places, st := newQuorum(t, 3)
	version := put(t, st, "lock", "x", store.IfAbsent())
	err := st.Replace(t.Context(), places[0].name, places[0])
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "mem://0 has not lost its objects") {
		t.Errorf("%v, want a refusal", err)
	}
	if number, members, err := st.Status(t.Context()); err != nil || number != 0 || !members[0].Whole {
		t.Errorf("after that: configuration %d, %+v, %v", number, members, err)
	}
	places[0].lose()
	if err := st.Replace(t.Context(), places[0].name, places[0]); err != nil {
		t.Fatal(err)
	}
	places[1].Partition(true)
	if got := reads(t, st, "lock", "x"); got != version {
		t.Errorf("version %s, want %s", got, version)
	}
}

// TestRegister: of many that add a line to one object at once nobody's is lost, and none is added twice.
func TestRegister(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { testRegister(t, seed) })
	}
}

func testRegister(t *testing.T, seed uint64) {
	t.Helper()
	const writers, lines = 4, 12
	places, st := newQuorum(t, 3)
	put(t, st, "lines", "", store.IfAbsent())
	synctest.Wait()
	for i, p := range places {
		p.Store = faultstore.Wrap(p.inner, &faultstore.Options{Seed: 3*seed + uint64(i)})
		p.Inject(
			faultstore.Fault{Kind: faultstore.DelayBefore, Jitter: 30 * time.Millisecond},
			faultstore.Fault{Kind: faultstore.DelayAfter, Jitter: 10 * time.Millisecond},
		)
	}
	var all sync.WaitGroup
	var want []string
	for n := range writers {
		mine := open(t, places)
		for i := range lines {
			want = append(want, fmt.Sprintf("%d-%d", n, i))
		}
		here := want[n*lines:]
		all.Go(func() {
			for _, line := range here {
				if err := addLine(t.Context(), mine, line); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	o, err := st.Get(t.Context(), "lines", "")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(o.Body))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("seed %d: the lines are %v, want %v", seed, got, want)
	}
	time.Sleep(time.Second) // what nobody waits for is under way, and ends
}

// addLine adds a line to what there is. If it is not known whether it did, it looks: where the line is not there, the
// write that was on the condition of the former version can land no more, or this one lands in its place.
func addLine(ctx context.Context, st store.Store, line string) error {
	for {
		o, err := st.Get(ctx, "lines", "")
		if err != nil {
			return err
		}
		if slices.Contains(strings.Fields(string(o.Body)), line) {
			return nil
		}
		_, err = st.Put(ctx, "lines", append(o.Body, line+"\n"...), store.IfMatch(o.Version))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrPrecondition), errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrUnknownOutcome):
		default:
			return err
		}
	}
}

// TestReplaceAll: who has opened the quorum goes on when all members that it was given have been replaced and are gone.
func TestReplaceAll(t *testing.T) {
	t.Parallel()
	places, _ := newQuorum(t, 3)
	all := append([]*place{}, places...)
	for i := range 4 {
		all = append(all, newPlace(fmt.Sprintf("mem://new/%d", i)))
	}
	st := open(t, places, all...)
	put(t, st, "lock", "0", store.IfAbsent())
	for i := range 4 {
		operator := open(t, all[i:i+3], all...)
		if err := operator.Replace(t.Context(), all[i].name, all[i+3]); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		all[i].Partition(true)
		// A write that meets the change may be told that it is uncertain, a read is not.
		version := put(t, st, "lock", fmt.Sprint(i+1), store.IfMatch(reads(t, st, "lock", fmt.Sprint(i))))
		if got := reads(t, operator, "lock", fmt.Sprint(i+1)); got != version {
			t.Errorf("after change %d version %s was written, and there is %s", i, version, got)
		}
	}
	number, _, err := st.Status(t.Context())
	if err != nil || number != 4 {
		t.Errorf("after four changes: configuration %d, %v", number, err)
	}
}

// TestOnceMore: while a member does not answer, another one that has failed once is asked again.
func TestOnceMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		version := put(t, st, "lock", "0", store.IfAbsent())
		synctest.Wait()
		for _, op := range []string{"open", "get", "put"} {
			places[0].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: time.Hour})
			failed := false
			places[1].Inject(faultstore.Fault{Kind: faultstore.Unavailable, When: func(c faultstore.Call) bool {
				once := !failed && (c.Op == op || op == "open")
				failed = failed || once
				return once
			}})
			began := time.Now()
			switch op {
			case "open":
				reads(t, open(t, places), "lock", "0")
			case "get":
				reads(t, st, "lock", "0")
			default:
				put(t, st, "lock", "1", store.IfMatch(version))
			}
			if took := time.Since(began); took > 3*time.Second || !failed {
				t.Errorf("%s: it took %v, and failed: %t", op, took, failed)
			}
			places[0].Clear()
			places[1].Clear()
		}
		time.Sleep(2 * quorumstore.DefaultTimeout) // until all requests have ended
	})
}

// TestMemberFlaps: of a member that fails and answers by turns it is said once a minute that it fails, and each time
// that it answers again. A member that has lost its objects answers, but not again until it was replaced.
func TestMemberFlaps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "0", store.IfAbsent())
		synctest.Wait()
		var log bytes.Buffer
		var members []store.Store
		for _, p := range places {
			members = append(members, p)
		}
		told, err := quorumstore.New(members, &quorumstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		reads(t, told, "lock", "0")
		synctest.Wait()
		down := faultstore.Fault{Kind: faultstore.Unavailable}
		for range 100 {
			places[2].Inject(down)
			reads(t, told, "lock", "0")
			synctest.Wait()
			time.Sleep(250 * time.Millisecond)
			places[2].Clear()
			reads(t, told, "lock", "0")
			synctest.Wait()
			time.Sleep(750 * time.Millisecond)
		}
		places[1].lose()
		places[0].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: time.Millisecond}) // so the marker of 1 is asked for
		for range 2 {                                                                             // it answers that it has no such object
			if _, err := told.Get(t.Context(), "none", ""); !errors.Is(err, store.ErrNotExist) {
				t.Error(err)
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		places[0].Clear()
		if err := told.Replace(t.Context(), "mem://1", places[1]); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		places[2].Inject(down)
		for range 5 { // it is told of once, a minute after the last time
			reads(t, told, "lock", "0")
			synctest.Wait()
			time.Sleep(time.Minute)
		}
		places[2].Clear()
		reads(t, told, "lock", "0")
		synctest.Wait()
		fails := "level=WARN msg=\"a member of the quorum fails; the others go on without it\" member=mem://"
		again := "level=INFO msg=\"a member of the quorum answers again\" member=mem://"
		unavailable := ` cause="get \"lock\": store unavailable: faultstore: unavailable"` + "\n"
		want := "time=2000-01-01T00:00:00.000Z " + fails + "2" + unavailable +
			"time=2000-01-01T00:00:00.250Z " + again + "2 after=250ms" + unavailable +
			"time=2000-01-01T00:01:00.000Z " + fails + "2" + unavailable +
			"time=2000-01-01T00:01:00.250Z " + again + "2 after=250ms" + unavailable +
			"time=2000-01-01T00:01:40.000Z " + fails + "1 cause=\"this member has lost its objects\"\n" +
			"time=2000-01-01T00:01:42.004Z " + again + "1 after=2.004s cause=\"this member has lost its objects\"\n" +
			"time=2000-01-01T00:02:42.004Z " + fails + "2" + unavailable +
			"time=2000-01-01T00:06:42.004Z " + again + "2 after=5m0s" + unavailable
		if log.String() != want {
			t.Errorf("it was said:\n%s\nwant:\n%s", &log, want)
		}
		time.Sleep(time.Minute) // until all requests have ended
	})
}

// TestReplaceAbandoned: a change that was interrupted between the marker of its new member and its proposal is none. Its
// configuration used to be believed by whoever met the marker, beside the one that came about instead: when both were
// repaired, there were two majorities without a common member.
func TestReplaceAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testReplaceAbandoned)
}

func testReplaceAbandoned(t *testing.T) {
	t.Helper()
	places, st := newQuorum(t, 3)
	put(t, st, "lock", "x", store.IfAbsent())
	places[0].lose()
	for _, p := range places[1:] {
		p.Inject(faultstore.Fault{Kind: faultstore.LostRequest, When: func(c faultstore.Call) bool {
			return c.Op == "put" && strings.HasPrefix(c.Key, "!leasehold-quorum-next")
		}})
	}
	if err := open(t, places).Replace(t.Context(), "mem://0", places[0]); err == nil {
		t.Fatal("the change was not interrupted")
	}
	for _, p := range places[1:] {
		p.Clear()
	}
	by := newPlace("mem://new")
	if err := open(t, places, by).Replace(t.Context(), "mem://0", by); err != nil {
		t.Fatal(err)
	}
	// This one is led by the abandoned marker alone.
	led := open(t, []*place{places[0], newPlace("mem://x"), newPlace("mem://y")}, places[1], places[2], by)
	reads(t, led, "lock", "x")
	number, members, err := led.Status(t.Context())
	if err != nil || number != 1 || members[0].Place != by.name || !members[0].Whole {
		t.Errorf("configuration %d, %+v, %v; want the one with %s", number, members, err, by.name)
	}
}

// TestMissedChanges: a process that was cut off while all members were replaced in their places finds the quorum again. To
// its configuration all of them had lost their objects, and it asked no further.
func TestMissedChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testMissedChanges)
}

func testMissedChanges(t *testing.T) {
	t.Helper()
	places, st := newQuorum(t, 3)
	put(t, st, "lock", "x", store.IfAbsent())
	var apart []*place
	for _, p := range places {
		apart = append(apart, &place{faultstore.Wrap(p.inner, nil), p.inner, p.name})
	}
	late := open(t, apart)
	reads(t, late, "lock", "x")
	for _, p := range apart {
		p.Partition(true)
	}
	for i, p := range places {
		p.lose()
		if err := open(t, places).Replace(t.Context(), p.name, p); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	for _, p := range apart {
		p.Partition(false)
	}
	if _, err := late.Get(t.Context(), "never", ""); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("what never was: %v", err)
	}
	reads(t, late, "lock", "x")
}

// TestOneHangs: nothing waits long for one member that never answers, however many objects there are.
func TestOneHangs(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("x", store.MaxBody)
	for hung := range 3 {
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(time.Minute) // until all requests have ended
			places, st := newQuorum(t, 3)
			for i := range 100 {
				put(t, st, fmt.Sprintf("locks/%d", i), "x", store.IfAbsent())
			}
			for i := range 5 {
				put(t, st, fmt.Sprintf("large/%d", i), full, store.IfAbsent())
			}
			synctest.Wait()
			places[hung].Inject(faultstore.Fault{Kind: faultstore.Hang, When: func(faultstore.Call) bool { return true }})
			by := newPlace("mem://new")
			for _, c := range []struct {
				what string
				most time.Duration
				do   func(st *quorumstore.Store) error
			}{
				{"a large read", 2 * time.Second, func(st *quorumstore.Store) error { reads(t, st, "large/1", full); return nil }},
				{"a listing", 2 * time.Second, func(st *quorumstore.Store) error {
					n := 0
					for _, err := range st.List(t.Context(), "", "") {
						if err != nil {
							return err
						}
						n++
					}
					if n != 105 {
						t.Errorf("%d objects listed, want 105", n)
					}
					return nil
				}},
				{"a repair", time.Minute, func(st *quorumstore.Store) error { return st.Repair(t.Context()) }},
				{"what deleted objects have left", 30 * time.Second, func(st *quorumstore.Store) error {
					if err := st.Forget(t.Context(), "none"); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Forget: %v, want the member that hangs", err)
					}
					return nil
				}},
				{"a replacement", 2 * time.Minute, func(st *quorumstore.Store) error {
					return st.Replace(t.Context(), places[hung].name, by)
				}},
			} {
				began := time.Now()
				if err := c.do(open(t, places, by)); err != nil {
					t.Errorf("%s: %v", c.what, err)
				}
				took := time.Since(began)
				if t.Log(c.what, took); took > c.most {
					t.Errorf("%s took %v, want at most %v", c.what, took, c.most)
				}
			}
		})
	}
}

// TestHangs: what needs a member that never answers ends with an error that names it, without a deadline of the caller's.
func TestHangs(t *testing.T) {
	t.Parallel()
	type action func(ctx context.Context, st *quorumstore.Store, by *place) error
	no := func(context.Context, *quorumstore.Store, *place) error { return nil }
	initialize := func(ctx context.Context, st *quorumstore.Store, _ *place) error { return st.Init(ctx) }
	replace := func(ctx context.Context, st *quorumstore.Store, by *place) error {
		return st.Replace(ctx, "mem://0", by)
	}
	collect := func(ctx context.Context, st *quorumstore.Store, _ *place) error {
		_, err := st.Collect(ctx, nil)
		return err
	}
	write := func(ctx context.Context, st *quorumstore.Store, _ *place) error {
		_, err := st.Put(ctx, "full", bytes.Repeat([]byte("x"), store.MaxBody), store.IfAbsent())
		return err
	}
	for _, tc := range []struct {
		name   string
		before action
		op     string
		key    string
		hung   []int // of the places, the last of which is the new member
		do     action
	}{
		{"init, the listing of a member", no, "list", "", []int{2}, initialize},
		{"replace, the listing of the new member", initialize, "list", "", []int{3}, replace},
		{"collect, a write of the trial", initialize, "put", quorumstore.Scratch + "*", []int{2}, collect},
		{"collect, a read of the trial", initialize, "get", quorumstore.Scratch + "*", []int{2}, collect},
		{"collect, a delete of the trial", initialize, "delete", quorumstore.Scratch + "*", []int{2}, collect},
		{"put, the bodies that lie beside", initialize, "put", "!leasehold-quorum-values-*", []int{1, 2}, write},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				places := []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2"), newPlace("mem://3")}
				if err := tc.before(t.Context(), open(t, places[:3]), places[3]); err != nil {
					t.Fatal(err)
				}
				for _, i := range tc.hung {
					places[i].Inject(faultstore.Fault{Kind: faultstore.Hang, Op: tc.op, Key: tc.key})
				}
				done := make(chan error, 1)
				began := time.Now()
				go func() { done <- tc.do(t.Context(), open(t, places[:3]), places[3]) }()
				select {
				case err := <-done:
					if took := time.Since(began); took > 5*quorumstore.DefaultTimeout || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, quorumstore.ErrNoMajority) {
						t.Errorf("after %v: %v", took, err)
					}
					if err != nil && !strings.Contains(err.Error(), places[tc.hung[0]].name) {
						t.Errorf("%v, which does not name %s", err, places[tc.hung[0]].name)
					}
				case <-time.After(24 * time.Hour):
					t.Error("it has not ended a day later")
					for _, p := range places {
						p.Close()
					}
					t.Log(<-done)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestReplaceTwice: of two changes at once one is made, and the other is told so.
func TestReplaceTwice(t *testing.T) {
	t.Parallel()
	for range 50 {
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		by := []*place{newPlace("mem://a"), newPlace("mem://b")}
		errs := make([]error, 2)
		var both sync.WaitGroup
		for i := range by {
			both.Go(func() { errs[i] = open(t, places, by...).Replace(t.Context(), "mem://0", by[i]) })
		}
		both.Wait()
		number, members, err := open(t, places, by...).Status(t.Context())
		if err != nil || number != 1 {
			t.Fatalf("configuration %d, %v", number, err)
		}
		for i := range by {
			if made := members[0].Place == by[i].name; made != (errs[i] == nil) {
				t.Errorf("%s: %v, and the member is %s", by[i].name, errs[i], members[0].Place)
			}
		}
	}
}

// TestReplaceKilled: whoever changes a member and is killed, with whatever has arrived by then, leaves nothing that
// running it again does not finish.
func TestReplaceKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lost, elsewhere bool }{{true, false}, {true, true}, {false, true}} {
		for kill := 0; ; kill++ {
			done := false
			for round := range 6 { // whose last requests arrive, or not, and who answers first afterwards
				synctest.Test(t, func(t *testing.T) { done = replaceKilled(t, c.lost, c.elsewhere, kill, round) })
			}
			if done || t.Failed() {
				t.Logf("%+v: %d writes", c, kill)
				break
			}
		}
	}
}

func replaceKilled(t *testing.T, lost, elsewhere bool, kill, round int) (done bool) {
	t.Helper()
	places, st := newQuorum(t, 3)
	put(t, st, "lock", "x", store.IfAbsent())
	by := places[0]
	if lost {
		places[0].lose()
	}
	if elsewhere {
		by = newPlace("mem://new")
	}
	// The one that is killed has the same places, through wires of its own.
	var dying []*place
	var mu sync.Mutex
	sent := 0
	wire := func(p *place) *place {
		apart := p.alias(p.name)
		cut := func(lands bool) func(faultstore.Call) bool {
			return func(c faultstore.Call) bool {
				mu.Lock()
				defer mu.Unlock()
				if c.Op == "put" && !lands {
					sent++
				}
				late := sent > kill && c.Op == "put" && sent <= kill+2 && sent%2 == round%2
				return sent > kill && late == lands
			}
		}
		apart.Inject(
			faultstore.Fault{Kind: faultstore.Unavailable, When: cut(false)},
			faultstore.Fault{Kind: faultstore.LostAnswer, When: cut(true)},
		)
		return apart
	}
	for _, p := range places {
		dying = append(dying, wire(p))
	}
	other := dying[0]
	if elsewhere {
		other = wire(by)
	}
	err := open(t, dying, other).Replace(t.Context(), "mem://0", other)
	mu.Lock()
	done = sent <= kill
	mu.Unlock()
	if done && err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	for i, p := range append(slices.Clone(places), by) {
		p.Store = faultstore.Wrap(p.inner, &faultstore.Options{Seed: uint64(100*kill + 4*round + i)})
		p.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Jitter: 30 * time.Millisecond})
	}
	if err = open(t, places, by).Replace(t.Context(), "mem://0", by); err != nil {
		t.Errorf("lost %v, elsewhere %v, killed after %d writes, round %d: run again: %v", lost, elsewhere, kill, round, err)
	}
	_, members, err := open(t, places, by).Status(t.Context())
	for _, m := range members {
		if err != nil || m.Err != nil || !m.Whole {
			t.Errorf("lost %v, elsewhere %v, killed after %d writes, round %d: %+v, %v", lost, elsewhere, kill, round, m, err)
		}
	}
	reads(t, open(t, places, by), "lock", "x")
	time.Sleep(time.Minute) // until all requests have ended
	return done
}

// TestReplaceBrokenOff: a change that one member has accepted and no majority is shown, and settled by Repair, or by who opens the
// quorum and meets it. It used to count as none until a member was lost; then it came into force, with a new member that had nothing, and no
// majority was left.
func TestReplaceBrokenOff(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		settle string // how it is
		place  string // the first member after that
	}{
		{"repaired", "repair", "mem://new"},
		{"repaired with that member slow", "repair slow", "mem://0"},
		{"opened", "open", "mem://new"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				places, st := newQuorum(t, 3)
				by := newPlace("mem://new")
				put(t, st, "lock", "x", store.IfAbsent())
				breakOff(t, places, by)
				// Two members that do not have it answer first, and the third one's answer comes too late for any majority.
				slow := faultstore.Fault{Kind: faultstore.DelayBefore, Delay: 100 * time.Millisecond}
				places[0].Inject(slow)
				number, members, err := open(t, places, by).Status(t.Context())
				if err != nil || number != 0 || members[0].Next != 1 || members[1].Next != 0 || members[2].Next != 0 {
					t.Fatalf("configuration %d, %+v, %v", number, members, err)
				}
				if tc.settle != "repair slow" { // the one that has it answers first, and no majority needs it
					places[0].Clear()
					places[1].Inject(slow)
					places[2].Inject(slow)
				}
				if tc.settle == "open" {
					reads(t, open(t, places, by), "lock", "x")
				} else if err = open(t, places, by).Repair(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				for _, p := range places {
					p.Clear()
				}
				_, members, err = open(t, places, by).Status(t.Context())
				if err != nil || members[0].Place != tc.place {
					t.Fatalf("%+v, %v, want %s", members, err, tc.place)
				}
				for _, m := range members {
					if m.Next != 0 {
						t.Errorf("it is still open: %+v", m)
					}
				}
				if err := open(t, places, by).Repair(t.Context()); err != nil {
					t.Fatal(err)
				}
				places[1].lose()
				if err := open(t, places, by).Replace(t.Context(), "mem://1", places[1]); err != nil {
					t.Error(err)
				}
				reads(t, open(t, places, by), "lock", "x")
				time.Sleep(time.Minute)
			})
		})
	}
}

// breakOff replaces the first place by another one, and is cut off when only the first has accepted that.
func breakOff(t *testing.T, places []*place, by *place) {
	t.Helper()
	var dying []*place
	for i, p := range places {
		apart := p.alias(p.name)
		var cut atomic.Bool
		proposes := func(c faultstore.Call) bool {
			return c.Op == "put" && strings.HasPrefix(c.Key, "!leasehold-quorum-next-")
		}
		late := faultstore.Fault{Kind: faultstore.DelayBefore, Delay: 10 * time.Millisecond, When: proposes}
		off := faultstore.Fault{Kind: faultstore.Unavailable, When: func(c faultstore.Call) bool {
			if proposes(c) && !bytes.Contains(c.Body, []byte(`"accepted":""`)) {
				cut.Store(true)
			}
			return cut.Load()
		}}
		if i > 0 {
			apart.Inject(off, late)
		}
		dying = append(dying, apart)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := open(t, dying, by).Replace(ctx, "mem://0", by); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Fatalf("the broken-off change said %v", err)
	}
	time.Sleep(time.Minute)
}

// TestLatestMarkerIsLate: the one member that knows the configuration in force may be the last to show its marker.
func TestLatestMarkerIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		by := places[0]
		by.lose()
		for _, p := range places[1:] {
			p.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: "!leasehold-quorum"})
		}
		if err := open(t, places).Replace(t.Context(), by.name, by); err == nil {
			t.Fatal("the change was not interrupted")
		}
		by.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "!leasehold-quorum", Nth: 1, Delay: 10 * time.Millisecond})
		for _, p := range places[1:] {
			p.Clear()
			p.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "!leasehold-quorum-next-1", Delay: 50 * time.Millisecond})
		}
		reads(t, open(t, places), "lock", "x")
		time.Sleep(time.Minute) // until all requests have ended
	})
}

// TestMarkersAreSlow: who knows the quorum waits for a second for the markers of a majority once it has one, and asks the members it was given
// for as long again; who does not know it waits for all that it needs.
func TestMarkersAreSlow(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tc := range []struct {
		known  bool
		delays [5]time.Duration // of each member's marker; hours: none comes
		took   time.Duration
		fails  bool
	}{
		{true, [5]time.Duration{0, 0, 0, time.Hour, time.Hour}, 0, false},
		{true, [5]time.Duration{0, 900 * ms, 950 * ms, time.Hour, time.Hour}, 950 * ms, false},
		{true, [5]time.Duration{0, 0, time.Hour, time.Hour, time.Hour}, 2 * time.Second, false},
		{true, [5]time.Duration{0, 900 * ms, time.Hour, time.Hour, time.Hour}, 2 * time.Second, false},
		{true, [5]time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second, time.Hour, time.Hour}, 3 * time.Second, false},
		{false, [5]time.Duration{0, 900 * ms, 3 * time.Second, time.Hour, time.Hour}, 3 * time.Second, false},
		{false, [5]time.Duration{0, 0, time.Hour, time.Hour, time.Hour}, quorumstore.DefaultTimeout, true},
	} {
		t.Run(fmt.Sprint(tc.known, tc.delays), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, st := newQuorum(t, 5)
				all(t, st) // no marker is needed to read the next configuration from here on
				synctest.Wait()
				if !tc.known {
					st = open(t, places)
				}
				for i, p := range places {
					p.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: markerKey, Delay: tc.delays[i]})
				}
				began := time.Now()
				_, err := st.Members(t.Context())
				if took := time.Since(began); took != tc.took || tc.fails != errors.Is(err, quorumstore.ErrNoMajority) || !tc.fails && err != nil {
					t.Errorf("%v after %v, want that after %v", err, took, tc.took)
				}
			})
		})
	}
}

// TestMarkerIsReadAgain: a member whose marker could not be read is asked again after half a second, unless it would say the same.
func TestMarkerIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		all(t, st)
		synctest.Wait()
		for _, p := range places[1:] {
			p.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Key: markerKey, Nth: 1})
		}
		began := time.Now()
		if _, err := open(t, places).Members(t.Context()); err != nil || time.Since(began) != 500*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for _, p := range places[1:] {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: markerKey})
		}
		began = time.Now()
		if _, err := open(t, places).Members(t.Context()); !errors.Is(err, store.ErrDenied) || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestLatestMarkerIsSlow: the one marker that leads to the configuration in force is waited for, however slow its member is, by who knows
// the quorum as well as by who opens it.
func TestLatestMarkerIsSlow(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(time.Minute) // until all requests have ended
			places, st := newQuorum(t, 3)
			put(t, st, "lock", "x", store.IfAbsent())
			late := open(t, places)
			if known {
				reads(t, late, "lock", "x")
			}
			by := places[0]
			by.lose()
			for _, p := range places[1:] {
				p.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: markerKey})
			}
			by.Inject(faultstore.Fault{Kind: faultstore.LostRequest, Op: "put", Key: "!leasehold-quorum-next-1"})
			if err := open(t, places).Replace(t.Context(), by.name, by); err == nil {
				t.Fatal("the change was not interrupted")
			}
			synctest.Wait()
			by.Clear()
			by.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: markerKey, Delay: 2 * time.Second})
			for _, p := range places[1:] {
				p.Clear()
				p.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "!leasehold-quorum-next-1", Delay: 5 * time.Second})
			}
			members, err := late.Members(t.Context())
			if err != nil || len(members) != 3 {
				t.Errorf("known %t: %v, %v", known, members, err)
			}
		})
	}
}

// TestTooFewMarkers: the marker of one member of three makes no quorum, if the others cannot be read, nor do those that are left of a list
// most of which were replaced. That markers are missing is told only if most are.
func TestTooFewMarkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "lock", "x", store.IfAbsent())
		all(t, st)
		synctest.Wait()
		for _, p := range places[1:] {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: markerKey})
		}
		_, err := open(t, places).Get(t.Context(), "lock", "")
		if !errors.Is(err, quorumstore.ErrNoMajority) || !errors.Is(err, store.ErrDenied) {
			t.Errorf("with the marker of one member: %v", err)
		}

		places, st = newQuorum(t, 5)
		put(t, st, "lock", "x", store.IfAbsent())
		more := []*place{newPlace("mem://a"), newPlace("mem://b"), newPlace("mem://c")}
		for i, by := range more {
			if err = open(t, places, more...).Replace(t.Context(), places[i].name, by); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		reads(t, open(t, places, more...), "lock", "x")
		time.Sleep(time.Minute)
		for _, p := range places[:3] {
			p.Partition(true)
		}
		if _, err = open(t, places, more...).Get(t.Context(), "lock", ""); !errors.Is(err, quorumstore.ErrNoMajority) {
			t.Errorf("with two of five that are still members: %v", err)
		}

		fresh := []*place{newPlace("mem://0"), newPlace("mem://1"), newPlace("mem://2"), newPlace("mem://3"), newPlace("mem://4")}
		for n, p := range fresh[:4] {
			_, err := open(t, fresh).Get(t.Context(), "lock", "")
			if errors.Is(err, quorumstore.ErrNoQuorum) != (n < 3) || errors.Is(err, quorumstore.ErrNoMajority) != (n >= 3) {
				t.Errorf("%d of five have no marker: %v", 5-n, err)
			}
			p.Inject(faultstore.Fault{Kind: faultstore.Denied})
		}
	})
}
