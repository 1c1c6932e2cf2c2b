package faultstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return faultstore.Wrap(memstore.New(), nil) })
}

// A slow store keeps the contract.
func TestConformanceWhenSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		violations := storetest.Check(t.Context(), func() (store.Store, error) {
			return faultstore.Wrap(memstore.New(), &faultstore.Options{Seed: 1, Faults: []faultstore.Fault{
				{Kind: faultstore.DelayBefore, Probability: 0.5, Delay: time.Millisecond, Jitter: 10 * time.Millisecond},
				{Kind: faultstore.DelayAfter, Delay: time.Millisecond, Jitter: 10 * time.Millisecond},
			}}), nil
		})
		for _, v := range violations {
			t.Errorf("%s: %v", v.Case, v)
		}
	})
}

func TestPartition(t *testing.T) {
	st, inner, v := begin(t)
	st.Partition(true)
	st.Partition(true)
	for _, op := range []string{"get", "put", "delete", "list"} {
		wantError(t, do(t.Context(), st, op, v), op, store.ErrUnavailable)
	}
	if got := state(t, inner); got != "first" {
		t.Errorf("the store holds %q", got)
	}
	st.Partition(false)
	st.Partition(false)
	for _, op := range []string{"get", "put", "list", "delete"} {
		wantError(t, do(t.Context(), st, op, v), op, nil)
	}
}

// slow is a store that takes a minute to answer a put.
type slow struct{ *memstore.Store }

func (s slow) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	o, err := s.Store.Put(ctx, key, body, only)
	time.Sleep(time.Minute)
	return o, err
}

func TestPartitionWhileTheStoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(slow{inner}, nil)
		go func() {
			time.Sleep(time.Second)
			st.Partition(true)
		}()
		_, err := st.Put(t.Context(), key, []byte("first"), store.IfAbsent())
		wantError(t, err, "put", store.ErrUnknownOutcome)
		if got := state(t, inner); got != "first" {
			t.Errorf("the store holds %q", got)
		}
		if log := st.Log(); len(log) != 1 || log[0].Truth != "version 1" {
			t.Errorf("the log is %v", log)
		}
	})
}

func TestLateLanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, inner, v := begin(t, faultstore.Fault{Kind: faultstore.LateLanding, Op: "put", Delay: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		body := []byte("second")
		_, err := st.Put(ctx, key, body, store.IfMatch(v))
		wantError(t, err, "put", store.ErrUnknownOutcome)
		cancel() // what is on its way arrives all the same, and as it was sent
		copy(body, "XXXXXX")
		time.Sleep(time.Minute - 1)
		if got := state(t, inner); got != "first" {
			t.Errorf("before the delay the store holds %q", got)
		}
		st.Wait()
		if got := state(t, inner); got != "second" {
			t.Errorf("after the delay the store holds %q", got)
		}
		if log := st.Log(); len(log) != 2 || log[1].N != 1 || !log[1].Late || log[1].Truth != "version 2" {
			t.Errorf("the log is %v", log)
		}
	})
}

// A write that arrives twice does no harm the second time, because it is
// conditional; a delete does.
func TestLateDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, inner, v := begin(t, faultstore.Fault{Kind: faultstore.LateDuplicate, Delay: time.Minute})
		wantError(t, do(t.Context(), st, "put", v), "put", nil)
		st.Wait()
		if got := state(t, inner); got != "second" {
			t.Errorf("after a put and its duplicate the store holds %q", got)
		}
		if log := st.Log(); len(log) != 2 || log[1].Truth != store.ErrPrecondition.Error() {
			t.Errorf("the log is %v", log)
		}

		wantError(t, st.Delete(t.Context(), key), "delete", nil)
		if _, err := inner.Put(t.Context(), key, []byte("third"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		st.Wait()
		if got := state(t, inner); got != "" {
			t.Errorf("after the duplicate of a delete the store holds %q", got)
		}
	})
}

func TestCloseDropsWhatIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, inner, v := begin(t, faultstore.Fault{Kind: faultstore.LateLanding, Delay: time.Minute})
		wantError(t, do(t.Context(), st, "put", v), "put", store.ErrUnknownOutcome)
		begun := time.Now()
		st.Close()
		wantError(t, do(t.Context(), st, "put", v), "put", store.ErrUnknownOutcome)
		st.Close()
		if took := time.Since(begun); took != 0 {
			t.Errorf("Close took %v", took)
		}
		if got := state(t, inner); got != "first" {
			t.Errorf("the store holds %q", got)
		}
	})
}

func TestListBreaksOff(t *testing.T) {
	inner := memstore.New()
	for i := range 10 {
		if _, err := inner.Put(t.Context(), fmt.Sprint("k/", i), nil, store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	st := faultstore.Wrap(inner, &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.LostAnswer, Op: "list"}}})
	var seen []string
	for e, err := range st.List(t.Context(), "k/", "") {
		seen = append(seen, fmt.Sprint(e.Key, " ", errors.Is(err, store.ErrUnavailable)))
	}
	if want := []string{"k/0 false", "k/1 false", "k/2 false", "k/3 false", "k/4 false", " true"}; !slices.Equal(seen, want) {
		t.Errorf("the listing gave %q, want %q", seen, want)
	}
	for e, err := range st.List(t.Context(), "k/", "") {
		if err != nil || e.Key != "k/0" {
			t.Errorf("the listing begins with %+v, %v", e, err)
		}
		break
	}
}

func TestWhichCalls(t *testing.T) {
	inner := memstore.New()
	st := faultstore.Wrap(inner, &faultstore.Options{Faults: []faultstore.Fault{
		{Kind: faultstore.Conflict, Key: "a/*", Nth: 2},
		{Kind: faultstore.Denied, Op: "put", When: func(c faultstore.Call) bool { return string(c.Body) == "forbidden" }},
	}})
	put := func(key, body string) error {
		_, err := st.Put(t.Context(), key, []byte(body), store.IfAbsent())
		return err
	}
	for _, call := range []struct {
		key, body string
		want      error
	}{
		{"a/1", "", nil},
		{"b/1", "", nil},
		{"a/2", "", store.ErrConflict},
		{"a/2", "", nil},
		{"a/b/3", "", nil},
		{"b/2", "forbidden", store.ErrDenied},
		{"b/2", "", nil},
	} {
		if err := put(call.key, call.body); !errors.Is(err, call.want) {
			t.Errorf("put %q %q: got %v, want %v", call.key, call.body, err, call.want)
		}
	}

	st.Inject(faultstore.Fault{Kind: faultstore.Throttled, Op: "get", Nth: 1})
	for _, want := range []error{store.ErrThrottled, nil} {
		if _, err := st.Get(t.Context(), "a/1", ""); !errors.Is(err, want) {
			t.Errorf("get: got %v, want %v", err, want)
		}
	}
	st.Clear()
	if err := put("b/3", "forbidden"); err != nil {
		t.Errorf("after Clear: %v", err)
	}
}

func TestCounts(t *testing.T) {
	st, _, v := begin(t, faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Nth: 1})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, op := range []string{"get", "get", "get", "put", "put", "delete", "list"} {
		_ = do(t.Context(), st, op, v)
		_ = do(ended, st, op, v) // nothing is sent
	}
	_, _ = st.Put(t.Context(), "//", nil, store.IfAbsent())
	if got, want := st.Counts(), (faultstore.Counts{Get: 3, Put: 2, Delete: 1, List: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	st.Reset()
	if got := st.Counts(); got != (faultstore.Counts{}) || len(st.Log()) != 0 {
		t.Errorf("after Reset: %+v, %v", got, st.Log())
	}
}

// sequence makes the same calls whatever the seed, and gives the log.
func sequence(t *testing.T, seed uint64, faults ...faultstore.Fault) string {
	t.Helper()
	st := faultstore.Wrap(memstore.New(), &faultstore.Options{Seed: seed, Faults: faults})
	for i := range 500 {
		key := fmt.Sprint("k/", i%7)
		_, _ = st.Put(t.Context(), key, nil, store.IfAbsent())
		_, _ = st.Get(t.Context(), key, "")
		_ = st.Delete(t.Context(), key)
	}
	st.Wait()
	return st.Log().String()
}

func TestSeed(t *testing.T) {
	faults := []faultstore.Fault{
		{Kind: faultstore.LostAnswer, Probability: 0.1},
		{Kind: faultstore.Unavailable, Probability: 0.1},
		{Kind: faultstore.Conflict, Probability: 0.1},
	}
	log := sequence(t, 1, faults...)
	if again := sequence(t, 1, faults...); again != log {
		t.Error("the same seed gave other faults")
	}
	if other := sequence(t, 2, faults...); other == log {
		t.Error("another seed gave the same faults")
	}
	for _, f := range faults {
		if n := strings.Count(log, "["+f.Kind.String()+"]"); n < 20 {
			t.Errorf("%v happened %d times in 1500 calls", f, n)
		}
	}
}

func TestItPrintsItself(t *testing.T) {
	st := faultstore.Wrap(memstore.New(), &faultstore.Options{Seed: 42, Faults: []faultstore.Fault{
		{Kind: faultstore.LostAnswer, Op: "put", Key: "jobs/*", Nth: 1},
		{Kind: faultstore.DelayBefore, Probability: 0.25, Delay: time.Second, Jitter: time.Second},
	}})
	want := `mem:// behind faults of seed 42; lost answer of put "jobs/*", call 1; delay before, 25% of calls, by 1s to 2s`
	if got := st.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	st.Clear()
	st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Nth: 1})
	_, _ = st.Put(t.Context(), key, nil, store.IfAbsent())
	_, _ = st.Put(t.Context(), key, nil, store.IfAbsent())
	_, _ = st.Get(t.Context(), key, "1")
	want = `#1 put "jobs/backup" if absent [lost answer]: unknown outcome: the write may have landed (in truth: version 1)
#2 put "jobs/backup" if absent: precondition failed
#3 get "jobs/backup" unless version 1: object not modified`
	if got := st.Log().String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestImpossibleFaults(t *testing.T) {
	for _, f := range []faultstore.Fault{
		{},
		{Kind: faultstore.SecondAnswer + 1},
		{Kind: faultstore.Conflict, Op: "get"},
		{Kind: faultstore.LateLanding, Op: "list"},
		{Kind: faultstore.Denied, Op: "head"},
		{Kind: faultstore.Denied, Key: "["},
		{Kind: faultstore.Denied, Nth: -1},
		{Kind: faultstore.Denied, Probability: 1.5},
		{Kind: faultstore.DelayAfter, Delay: -time.Second},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was taken", f)
				}
			}()
			faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{f}})
		}()
	}
}

// limited is a store that says what it is good for.
type limited struct{ *memstore.Store }

func (limited) Proves(storeName, use string) error { return errors.New(storeName + " " + use) }

// TestProves: the faults do not hide what the store says of itself. They did, so locks used what it refuses.
func TestProves(t *testing.T) {
	if err := faultstore.Wrap(memstore.New(), nil).Proves("a", "b"); err != nil {
		t.Errorf("of a store without an opinion: %v", err)
	}
	if err := faultstore.Wrap(limited{memstore.New()}, nil).Proves("a", "b"); err == nil || err.Error() != "a b" {
		t.Errorf("of a store with one: %v", err)
	}
}
