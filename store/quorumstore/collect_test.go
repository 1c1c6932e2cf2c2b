package quorumstore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"slices"
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

const day = 24 * time.Hour

// left are the keys that a member has, beside those of the quorum's own.
func left(t *testing.T, p *place) (keys []string) {
	t.Helper()
	for e, err := range p.inner.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(e.Key, "!") {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// all has every member answer all that is under way.
func all(t *testing.T, st *quorumstore.Store) {
	t.Helper()
	if err := st.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func collect(t *testing.T, st *quorumstore.Store, want quorumstore.Collected) {
	t.Helper()
	got, err := st.Collect(t.Context(), nil)
	if err != nil || got != want {
		t.Errorf("collected %+v, %v; want %+v", got, err, want)
	}
}

// TestCollect: what deleted objects leave is there for a day, and then goes, with a new configuration. What is in use
// stays, and whoever has opened the quorum before goes on.
func TestCollect(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			places, st := newQuorum(t, n)
			other := open(t, places)
			for i := range 3 {
				put(t, st, fmt.Sprintf("gone/%d", i), "x", store.IfAbsent())
			}
			version := put(t, other, "kept", "1", store.IfAbsent())
			all(t, st)
			for i := range 3 {
				if err := st.Delete(t.Context(), fmt.Sprintf("gone/%d", i)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait() // the last member has it too
			collect(t, open(t, places), quorumstore.Collected{})
			time.Sleep(day - time.Second)
			collect(t, open(t, places), quorumstore.Collected{})
			time.Sleep(time.Second)

			dry, err := open(t, places).Collect(t.Context(), &quorumstore.CollectOptions{DryRun: true})
			if want := (quorumstore.Collected{Gone: 3}); err != nil || dry != want {
				t.Errorf("a dry run: %+v, %v", dry, err)
			}
			if keys := left(t, places[0]); len(keys) != 4 {
				t.Errorf("after a dry run there is %v", keys)
			}
			var told []string
			got, err := open(t, places).Collect(t.Context(), &quorumstore.CollectOptions{OnKey: func(key string) { told = append(told, key) }})
			slices.Sort(told)
			if want := (quorumstore.Collected{Gone: 3, Number: 1}); err != nil || got != want || !slices.Equal(told, []string{"gone/0", "gone/1", "gone/2"}) {
				t.Errorf("collected %+v, %v; told of %v", got, err, told)
			}
			for _, p := range places {
				if keys := left(t, p); !slices.Equal(keys, []string{"kept"}) {
					t.Errorf("%s has %v", p.name, keys)
				}
			}
			collect(t, open(t, places), quorumstore.Collected{Number: 1}) // nothing to do, and no other configuration for it

			// The former configuration is left when nothing is found.
			if _, err := other.Get(t.Context(), "gone/0", ""); !errors.Is(err, store.ErrNotExist) {
				t.Error(err)
			}
			put(t, other, "gone/0", "new", store.IfAbsent())
			reads(t, open(t, places), "gone/0", "new")
			put(t, other, "kept", "2", store.IfMatch(version))
			reads(t, st, "kept", "2")
			if _, err := st.Put(t.Context(), "gone/0", nil, store.IfAbsent()); !errors.Is(err, store.ErrPrecondition) {
				t.Errorf("a create over what is there: %v", err)
			}
		})
	}
}

// TestDryRunOfSlowMember: a dry run waits for a slow member instead of writing. A write would make the object young,
// and the collection after it would silently leave it.
func TestDryRunOfSlowMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		places[2].Partition(true) // it never has the object
		put(t, st, "gone", "x", store.IfAbsent())
		if err := st.Delete(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		places[2].Partition(false)
		time.Sleep(day)
		places[1].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "gone", Delay: 3 * time.Second})
		for range 2 {
			dry, err := open(t, places).Collect(t.Context(), &quorumstore.CollectOptions{DryRun: true})
			if want := (quorumstore.Collected{Gone: 1}); err != nil || dry != want {
				t.Errorf("a dry run: %+v, %v, want %+v", dry, err, want)
			}
		}
		collect(t, open(t, places), quorumstore.Collected{Gone: 1, Number: 1})

		// A member that lags behind takes the number only when something is collected.
		places[0].mark(t, func(m *register.Marker) { m.Number = 0 })
		for number, dry := range []bool{true, false} {
			if _, err := open(t, places).Collect(t.Context(), &quorumstore.CollectOptions{DryRun: dry}); err != nil {
				t.Error(err)
			}
			if got := places[0].marker(t).Number; got != number {
				t.Errorf("dry %v: the member has number %d, want %d", dry, got, number)
			}
		}
	})
}

// TestCollectSettles: a member that has missed a deletion gets it, and a day later it goes.
func TestCollectSettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		put(t, st, "gone", "x", store.IfAbsent())
		all(t, st)
		places[2].Partition(true)
		if err := st.Delete(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := open(t, places).Collect(t.Context(), nil); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "mem://2") {
			t.Errorf("with a member away: %v", err)
		}
		places[2].Partition(false)
		time.Sleep(day)
		collect(t, open(t, places), quorumstore.Collected{Settled: 1})
		collect(t, open(t, places), quorumstore.Collected{})
		time.Sleep(day)
		collect(t, open(t, places), quorumstore.Collected{Gone: 1, Number: 1})
		for _, p := range places {
			if keys := left(t, p); len(keys) > 0 {
				t.Errorf("%s has %v", p.name, keys)
			}
		}
	})
}

// TestCollectIsInterrupted: wherever it is, and whatever became of its last request, nothing comes back, and running
// it again takes what is left.
func TestCollectIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, kind := range []faultstore.Kind{faultstore.LostAnswer, faultstore.LostRequest, faultstore.Unavailable} {
		for fails := 1; ; fails++ { // the request that fails, and no other is sent after it
			done := false
			synctest.Test(t, func(t *testing.T) {
				collect := func(places []*place) error {
					st := open(t, places)
					st.Race(1) // the trials are not what is interrupted
					_, err := st.Collect(t.Context(), nil)
					return err
				}
				places, st := newQuorum(t, 3)
				put(t, st, "gone", "x", store.IfAbsent())
				put(t, st, "kept", "x", store.IfAbsent())
				all(t, st)
				if err := st.Delete(t.Context(), "gone"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				time.Sleep(day)
				var mu sync.Mutex
				requests := 0
				for _, p := range places {
					p.Inject(faultstore.Fault{Kind: kind, When: func(c faultstore.Call) bool {
						if strings.Contains(c.Key, quorumstore.Scratch) {
							return false
						}
						mu.Lock()
						defer mu.Unlock()
						requests++
						return requests >= fails
					}})
				}
				err := collect(places)
				synctest.Wait()
				if done = requests < fails; done && err != nil {
					t.Fatal(err)
				}
				for _, p := range places {
					p.Clear()
				}
				what := fmt.Sprintf("%v from request %d", kind, fails)
				if _, err := open(t, places).Get(t.Context(), "gone", ""); !errors.Is(err, store.ErrNotExist) {
					t.Errorf("%s: a read: %v", what, err)
				}
				for range 2 {
					if err := collect(places); err != nil {
						t.Errorf("%s: run again: %v", what, err)
					}
					time.Sleep(day)
				}
				for _, p := range places {
					if keys := left(t, p); !slices.Equal(keys, []string{"kept"}) {
						t.Errorf("%s: %s has %v", what, p.name, keys)
					}
				}
				reads(t, open(t, places), "kept", "x")
			})
			if done || t.Failed() {
				break
			}
		}
	}
}

// TestCollectRefuses: what cannot delete on a condition, or says no times, or is not whole, is refused by its name,
// and nothing is changed.
func TestCollectRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		member func(t *testing.T, p *place) store.Store
		want   string
	}{
		"no such method": {func(_ *testing.T, p *place) store.Store { return plain{p} }, "mem://1 cannot delete on a condition"},
		"ignores the condition": {func(_ *testing.T, p *place) store.Store {
			return deleting{p, func(ctx context.Context, key string, _ store.Version) error { return p.Delete(ctx, key) }}
		}, "mem://1 ignores the condition of a delete"},
		"says that it was refused, and deletes": {func(_ *testing.T, p *place) store.Store {
			return deleting{p, func(ctx context.Context, key string, v store.Version) error {
				err := p.DeleteIf(ctx, key, v)
				return errors.Join(err, p.Delete(ctx, key))
			}}
		}, "mem://1 ignores the condition of a delete"},
		"looks first": {func(_ *testing.T, p *place) store.Store {
			return deleting{p, func(ctx context.Context, key string, v store.Version) error {
				o, err := p.Get(ctx, key, "")
				if err != nil || o.Version != v {
					return p.DeleteIf(ctx, key, v)
				}
				for range 100 { // until the write has come
					if now, err := p.Get(ctx, key, v); err == nil && now.Version != v {
						break
					}
					time.Sleep(time.Millisecond)
				}
				return p.Delete(ctx, key)
			}}
		}, "mem://1 looks at the condition of a delete first and deletes later"},
		"says that it has deleted, and has not": {func(_ *testing.T, p *place) store.Store {
			return deleting{p, func(context.Context, string, store.Version) error { return nil }}
		}, "mem://1 ignores the condition of a delete"},
		"says so, and cannot be read": {func(_ *testing.T, p *place) store.Store {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: quorumstore.Scratch + "*"})
			return deleting{p, func(context.Context, string, store.Version) error { return nil }}
		}, `mem://1: get "TRIAL": access denied`},
		"says in a race that it has deleted, and has not": {func(_ *testing.T, p *place) store.Store {
			return deleting{p, func(ctx context.Context, key string, v store.Version) error {
				if trialKey.ReplaceAllString(key, "") != "" {
					return nil
				}
				return p.DeleteIf(ctx, key, v)
			}}
		}, "mem://1 looks at the condition of a delete first and deletes later"},
		"says in a race that it was refused, and deletes": {func(_ *testing.T, p *place) store.Store {
			return deleting{p, func(ctx context.Context, key string, v store.Version) error {
				if trialKey.ReplaceAllString(key, "") == "" {
					return p.DeleteIf(ctx, key, v)
				}
				time.Sleep(time.Millisecond) // until the write has come
				return errors.Join(p.Delete(ctx, key), &store.Error{Op: "delete", Key: key, Kind: store.ErrPrecondition})
			}}
		}, "mem://1 looks at the condition of a delete first and deletes later"},
		"no time of a write": {func(_ *testing.T, p *place) store.Store { return dateless{p} }, "mem://1 does not tell its time"},
		"no times":           {func(_ *testing.T, p *place) store.Store { return timeless{p} }, "mem://1 does not tell its time"},
		"emptied":            {func(_ *testing.T, p *place) store.Store { p.lose(); return p }, "mem://1 has lost its objects: replace it first"},
		"the marker of another": {func(t *testing.T, p *place) store.Store {
			t.Helper()
			p.mark(t, func(m *register.Marker) { m.Name = "other" })
			return p
		}, "mem://1 has lost its objects: replace it first"},
		"not filled": {func(t *testing.T, p *place) store.Store {
			t.Helper()
			p.mark(t, func(m *register.Marker) { m.Whole = false })
			return p
		}, "mem://1 is being filled: leasehold quorum repair first"},
		"ahead": {func(t *testing.T, p *place) store.Store {
			t.Helper()
			p.mark(t, func(m *register.Marker) { m.Number = 1 })
			return p
		}, "mem://1: the configuration has changed"},
		"no marker can be read":    {denied("get", 0, markerKey), `mem://1: get "!leasehold-quorum": access denied`},
		"no first write":           {denied("put", 1, ""), `mem://1: put "TRIAL": access denied`},
		"no second write":          {denied("put", 2, ""), `mem://1: put "TRIAL": access denied`},
		"no delete that fails":     {denied("delete", 1, ""), `mem://1: delete "TRIAL": access denied`},
		"no read":                  {denied("get", 1, ""), `mem://1: get "TRIAL": access denied`},
		"no delete":                {denied("delete", 2, ""), `mem://1: delete "TRIAL": access denied`},
		"nothing is left to clear": {denied("delete", 3, ""), `mem://1: delete "TRIAL": access denied`},
		"no first write of a race": {denied("put", 1, "-7"), `mem://1: put "TRIAL-7": access denied`},
		"no end of a race":         {denied("delete", 2, "-7"), `mem://1: delete "TRIAL-7": access denied`},
		"no listing":               {denied("list", 1, ""), `mem://1: list "": access denied`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				places, st := newQuorum(t, 3)
				put(t, st, "gone", "x", store.IfAbsent())
				all(t, st)
				if err := st.Delete(t.Context(), "gone"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				time.Sleep(day)
				st, err := quorumstore.New([]store.Store{places[0], c.member(t, places[1]), places[2]}, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := st.Collect(t.Context(), nil)
				if err == nil || !strings.Contains(trialKey.ReplaceAllString(err.Error(), "TRIAL"), c.want) || got != (quorumstore.Collected{}) {
					t.Errorf("%+v, %v; want %q", got, err, c.want)
				}
				for _, p := range []*place{places[0], places[2]} {
					if keys := left(t, p); !slices.Equal(keys, []string{"gone"}) {
						t.Errorf("%s has %v", p.name, keys)
					}
					for e, err := range p.List(t.Context(), quorumstore.Scratch, "") {
						t.Errorf("%s still has %s, %v", p.name, e.Key, err)
					}
				}
			})
		})
	}
}

var trialKey = regexp.MustCompile(`!leasehold-quorum-scratch-collect-[a-z0-9]+`)

// denied lets the nth request of a kind, or with 0 all of them, be denied, of those for the key, or whose keys in the trial end so.
func denied(op string, nth int, key string) func(_ *testing.T, p *place) store.Store {
	return func(_ *testing.T, p *place) store.Store {
		p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: op, Nth: nth, When: func(c faultstore.Call) bool {
			return c.Key == key || trialKey.ReplaceAllString(c.Key, "") == key
		}})
		return p
	}
}

// plain has the methods of a store.Store only.
type plain struct{ store.Store }

// deleting has a DeleteIf of its own.
type deleting struct {
	store.Store
	f func(ctx context.Context, key string, v store.Version) error
}

func (d deleting) DeleteIf(ctx context.Context, key string, v store.Version) error {
	return d.f(ctx, key, v)
}

// timeless does not say when an object was written.
type timeless struct{ *place }

func (p timeless) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, err := p.place.Get(ctx, key, unless)
	if err == nil {
		o.LastModified = time.Time{}
	}
	return o, err
}

// dateless does not say when it has written an object.
type dateless struct{ *place }

func (p dateless) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	o, err := p.place.Put(ctx, key, body, only)
	if err == nil {
		o.Date = time.Time{}
	}
	return o, err
}

// TestCollectMeetsWriter: a delete that is late does not hit what was written meanwhile.
func TestCollectMeetsWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		put(t, st, "gone", "x", store.IfAbsent())
		all(t, st)
		if err := st.Delete(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(day)
		for _, p := range places {
			p.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "delete", Key: "gone", Delay: 2 * time.Second})
		}
		go func() {
			time.Sleep(time.Second)
			_, _ = open(t, places).Put(t.Context(), "gone", []byte("new"), store.IfAbsent())
		}()
		collect(t, open(t, places), quorumstore.Collected{Left: 1, Number: 1})
		reads(t, open(t, places), "gone", "new")
		for _, p := range places {
			if keys := left(t, p); !slices.Equal(keys, []string{"gone"}) {
				t.Errorf("%s has %v", p.name, keys)
			}
		}
	})
}

// TestCollectCosts: the requests to each member. docs/quorum.md has them.
func TestCollectCosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		const gone, kept = 10, 20
		for i := range gone {
			put(t, st, fmt.Sprintf("gone/%d", i), "x", store.IfAbsent())
		}
		for i := range kept {
			put(t, st, fmt.Sprintf("kept/%d", i), "x", store.IfAbsent())
		}
		all(t, st)
		for i := range gone {
			if err := st.Delete(t.Context(), fmt.Sprintf("gone/%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		time.Sleep(day)
		count := func(want faultstore.Counts) {
			t.Helper()
			for _, p := range places {
				p.Reset()
			}
			if _, err := open(t, places).Collect(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, p := range places {
				n, trial := faultstore.Counts{}, 0
				for _, e := range p.Log() {
					if strings.HasPrefix(e.Key, quorumstore.Scratch) {
						trial++
						continue
					}
					switch e.Op {
					case "get":
						n.Get++
					case "put":
						n.Put++
					case "delete":
						n.Delete++
					case "list":
						n.List++
					}
				}
				// The markers of a majority are read to find the configuration: which, is chance.
				if n.Get >= want.Get-4 && n.Get <= want.Get+4 {
					n.Get = want.Get
				}
				if n.Put == want.Put-1 { // the third member is not waited for
					n.Put = want.Put
				}
				if n != want {
					t.Errorf("%s: %+v, want %+v", p.name, n, want)
				}
				if trial != 6+48*5 {
					t.Errorf("%s: %d requests of the trial", p.name, trial)
				}
			}
		}
		// A read of each key that is a day old, then one more and a delete of what goes; the rest is for the
		// configuration, and does not grow.
		count(faultstore.Counts{Get: gone + kept + gone + 8, Put: 3, Delete: gone, List: 1})
		count(faultstore.Counts{Get: kept + 4, List: 1})
	})
}

// TestCollectYoung: the age is that of what is read, whatever a listing said of it.
func TestCollectYoung(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		put(t, st, "gone", "x", store.IfAbsent())
		all(t, st)
		if err := st.Delete(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var members []store.Store
		for _, p := range places {
			members = append(members, undated{p})
		}
		st, err := quorumstore.New(members, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(day - time.Second)
		collect(t, st, quorumstore.Collected{Left: 1, Number: 1})
		time.Sleep(time.Second)
		collect(t, st, quorumstore.Collected{Gone: 1, Number: 1})
	})
}

// TestCollectUndated: an object whose age its member does not tell is not collected.
func TestCollectUndated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "gone", "x", store.IfAbsent())
		all(t, st)
		remove(t, st, "gone")
		st, err := quorumstore.New([]store.Store{places[0], places[1], ageless{places[2]}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(day)
		collect(t, st, quorumstore.Collected{Left: 1, Number: 1})
	})
}

// ageless tells the times of test objects only.
type ageless struct{ *place }

func (p ageless) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, err := p.place.Get(ctx, key, unless)
	if err == nil && key == "gone" {
		o.LastModified = time.Time{}
	}
	return o, err
}

// undated has no times in its listings.
type undated struct{ *place }

func (p undated) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range p.place.List(ctx, prefix, after) {
			e.LastModified = time.Time{}
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestCollectCounts: what is counted as gone and what as settled in one collection, and that what cannot be read, or decided, is an
// error that says so.
func TestCollectCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		for _, key := range []string{"gone", "missed", "kept", "young"} {
			put(t, st, key, "x", store.IfAbsent())
		}
		all(t, st)
		if err := st.Delete(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		places[2].Partition(true)
		if err := st.Delete(t.Context(), "missed"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		places[2].Partition(false)
		time.Sleep(day)
		if err := st.Delete(t.Context(), "young"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		dry, err := open(t, places).Collect(t.Context(), &quorumstore.CollectOptions{DryRun: true})
		if want := (quorumstore.Collected{Gone: 1, Settled: 1}); err != nil || dry != want {
			t.Errorf("a dry run: %+v, %v, want %+v", dry, err, want)
		}
		for _, p := range places[:2] {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "gone"})
		}
		_, err = open(t, places).Collect(t.Context(), &quorumstore.CollectOptions{DryRun: true})
		if !errors.Is(err, store.ErrDenied) || !strings.HasPrefix(err.Error(), `collect "gone": access denied: every member is needed: mem://0: `) {
			t.Errorf("a dry run that cannot read a key: %v", err)
		}
		for _, p := range places[:2] {
			p.Clear()
		}
		collect(t, open(t, places), quorumstore.Collected{Gone: 1, Settled: 1, Number: 1})
		if err = open(t, places).Delete(t.Context(), "kept"); err != nil { // under the present configuration
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(day)
		for _, p := range places[:2] {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "!leasehold-quorum-next-2"})
		}
		got, err := open(t, places).Collect(t.Context(), nil)
		if want := (quorumstore.Collected{Gone: 2, Number: 1}); !errors.Is(err, store.ErrDenied) || !strings.HasPrefix(err.Error(), `collect "!leasehold-quorum-next-": access denied: no majority of the members`) || got != want {
			t.Errorf("a collection that cannot make a configuration: %+v, %v", got, err)
		}
		if keys := left(t, places[0]); !slices.Equal(keys, []string{"kept"}) {
			t.Errorf("after that a member has %v", keys)
		}
		for _, p := range places[:2] {
			p.Clear()
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "kept"})
		}
		got, err = open(t, places).Collect(t.Context(), nil)
		if !errors.Is(err, store.ErrDenied) || !strings.HasPrefix(err.Error(), `collect "kept": access denied: `) || got != (quorumstore.Collected{Number: 1}) {
			t.Errorf("a collection that cannot read a key: %+v, %v", got, err)
		}
	})
}

// TestCollectMeetsReplace: a collection whose configuration comes second ends with an error, and what is deleted stays.
func TestCollectMeetsReplace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "gone", "x", store.IfAbsent())
		all(t, st)
		if err := st.Delete(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(day)
		by := newPlace("mem://new")
		var slow []*place
		for _, p := range places {
			apart := p.alias(p.name)
			apart.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "!leasehold-quorum-next-1", Delay: 5 * time.Second})
			slow = append(slow, apart)
		}
		go func() {
			time.Sleep(time.Second)
			if err := open(t, places, by).Replace(t.Context(), "mem://0", by); err != nil {
				t.Error(err)
			}
		}()
		got, err := open(t, slow, by).Collect(t.Context(), nil)
		says(t, err, `collect "": invalid argument: another change came first: configuration 1; try again when it is complete`)
		if got != (quorumstore.Collected{}) {
			t.Errorf("collected %+v", got)
		}
		if keys := left(t, places[1]); !slices.Equal(keys, []string{"gone"}) {
			t.Errorf("a member has %v", keys)
		}
	})
}

// remove deletes objects, and waits until every member has that.
func remove(t *testing.T, st *quorumstore.Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := st.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
}

// TestCollectOldAndNew: one collection counts what was deleted under an earlier configuration, what was under the present one, and what a
// member had missed.
func TestCollectOldAndNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		for _, key := range []string{"first", "new", "missed/1", "missed/2", "old/1", "old/2"} {
			put(t, st, key, "x", store.IfAbsent())
		}
		all(t, st)
		remove(t, st, "first")
		time.Sleep(day - time.Hour)
		remove(t, st, "old/1", "old/2")
		time.Sleep(time.Hour)
		collect(t, open(t, places), quorumstore.Collected{Gone: 1, Number: 1})
		st = open(t, places)
		remove(t, st, "new")
		places[2].Partition(true)
		remove(t, st, "missed/1", "missed/2")
		places[2].Partition(false)
		time.Sleep(day)
		collect(t, open(t, places), quorumstore.Collected{Gone: 3, Settled: 2, Number: 2})
	})
}

// TestCollectFails: a collection that fails says why and counts what it has done, and one that cannot go on makes no new configuration.
func TestCollectFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		fault  func(p *place)
		want   string // the beginning of the error
		number int    // of the configuration after that
		did    quorumstore.Collected
	}{
		{"a key cannot be read", func(p *place) {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "b"})
		}, `collect "b": access denied: every member is needed`, 0, quorumstore.Collected{}},
		{"a key cannot be deleted", func(p *place) {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "delete", Key: "b"})
		}, `collect "b": access denied: every member is needed`, 1, quorumstore.Collected{Left: 2, Number: 1}},
		{"the configuration may be written", func(p *place) {
			puts := 0
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: nextKeys, When: func(faultstore.Call) bool {
				puts++
				return puts > 1 // the first one is a promise
			}})
		}, `collect "!leasehold-quorum-next-": unknown outcome: the write may have landed: no majority of the members`, 0, quorumstore.Collected{}},
		{"the configuration is written, and then cannot be read", func(p *place) {
			written := false
			p.before("put", nextKeys, 2, func() { written = true })
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: nextKeys, When: func(faultstore.Call) bool { return written }})
		}, "no majority of the members", 1, quorumstore.Collected{}},
		{"a marker cannot be written", func(p *place) {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: markerKey})
		}, `mem://0: put "!leasehold-quorum": access denied: ` + injected, 1, quorumstore.Collected{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, st := newQuorum(t, 3)
				put(t, st, "a", "x", store.IfAbsent())
				put(t, st, "b", "x", store.IfAbsent())
				all(t, st)
				remove(t, st, "a", "b")
				time.Sleep(day)
				mine := aliases(places)
				for _, p := range mine {
					tc.fault(p)
				}
				got, err := open(t, mine).Collect(t.Context(), nil)
				got.Left, got.Gone = got.Left+got.Gone, 0 // whether the other key goes before the failure is chance
				if !strings.HasPrefix(errorText(err), tc.want) || got != tc.did {
					t.Errorf("%+v, %v\nwant %+v, %s", got, err, tc.did, tc.want)
				}
				synctest.Wait()
				if number, _, err := open(t, places).Status(t.Context()); err != nil || number != tc.number {
					t.Errorf("configuration %d, %v, want %d", number, err, tc.number)
				}
			})
		})
	}
}

// TestCollectSkipsYoung: what one member has not had for a day is not even read.
func TestCollectSkipsYoung(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		for i := range places {
			put(t, st, fmt.Sprint(i), "x", store.IfAbsent())
		}
		all(t, st)
		remove(t, st, "0", "1", "2")
		time.Sleep(day)
		for i, p := range places {
			o, err := p.inner.Get(t.Context(), fmt.Sprint(i), "")
			if err != nil {
				t.Fatal(err)
			}
			p.overwrite(t, o.Key, string(o.Body))
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "[0-2]"})
		}
		collect(t, open(t, places), quorumstore.Collected{})
	})
}

// TestCollectSettlesWriter: a write that comes while a deletion is brought to a member that has missed it stays, and is not counted.
func TestCollectSettlesWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "gone", "x", store.IfAbsent())
		all(t, st)
		places[2].Partition(true)
		remove(t, st, "gone")
		places[2].Partition(false)
		time.Sleep(day)
		mine := aliases(places)
		for _, p := range mine {
			p.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "gone", Delay: 2 * time.Second})
		}
		go func() {
			time.Sleep(time.Second)
			put(t, open(t, places), "gone", "new", store.IfAbsent())
		}()
		collect(t, open(t, mine), quorumstore.Collected{})
		reads(t, open(t, places), "gone", "new")
	})
}

// TestCollectTakes: a collection brings the markers up to date that have missed the configuration, or what leads to it, and writes no
// other.
func TestCollectTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		put(t, st, "gone", "x", store.IfAbsent())
		all(t, st)
		remove(t, st, "gone")
		time.Sleep(day)
		collect(t, open(t, places), quorumstore.Collected{Gone: 1, Number: 1})
		want := places[0].marker(t)
		if want.Number != 1 || want.Known.Number != 1 {
			t.Errorf("after a collection the marker is %+v", want)
		}
		places[1].mark(t, func(m *register.Marker) { m.Number = 0 })
		places[2].mark(t, func(m *register.Marker) { m.Known.Number = 0 })
		counts(places)
		collect(t, open(t, places), quorumstore.Collected{Number: 1})
		for i, p := range places {
			puts := 0
			for _, e := range p.Log() {
				if e.Op == "put" && e.Key == markerKey {
					puts++
				}
			}
			if m := p.marker(t); m.Number != 1 || !reflect.DeepEqual(m.Known, want.Known) || !m.Whole || puts != min(i, 1) {
				t.Errorf("after %d writes %s has the marker %+v, want %+v", puts, p.name, m, want.Known)
			}
		}
	})
}
