package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// few makes a probe short, where races are not what matters.
var few = &Options{Races: 40}

func probed(t *testing.T, st store.Store, opts *Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), st, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// probedSoon is probed in a bubble, so that no time passes while it waits.
func probedSoon(t *testing.T, st store.Store, opts *Options) (r *Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { r = probed(t, st, opts) })
	return r
}

// empty fails unless there is nothing in the store.
func empty(t *testing.T, st store.Store) {
	t.Helper()
	for e, err := range st.List(t.Context(), "", "") {
		t.Errorf("left behind: %q, %v", e.Key, err)
	}
}

// A good store is good for everything, in no more requests than were announced, all of
// them counted, and is left as it was.
func TestProbeOfAGoodStore(t *testing.T) {
	st := faultstore.Wrap(memstore.New(), nil)
	var told []Finding
	r := probedSoon(t, st, &Options{OnFinding: func(f Finding) { told = append(told, f) }})
	for _, v := range r.Verdicts {
		if !v.Safe || len(v.Why) > 0 {
			t.Errorf("%s: %v", v.Use, v.Why)
		}
	}
	if len(r.Verdicts) != len(Uses()) || len(r.Findings) != len(experiments) || !reflect.DeepEqual(told, r.Findings) {
		t.Errorf("%d verdicts, %d findings, %d told", len(r.Verdicts), len(r.Findings), len(told))
	}
	c := st.Counts()
	if want := (Requests{Get: c.Get, Put: c.Put, List: c.List, Delete: c.Delete}); r.Requests != want {
		t.Errorf("counted %+v; it was %+v", r.Requests, want)
	}
	if n := r.Requests.Total(); n > r.Limit || n < r.Limit/2 || r.Limit != (*Options)(nil).Requests() {
		t.Errorf("%d requests, with a limit of %d", n, r.Limit)
	}
	if r.Left != 0 || r.TTL.Suggested.Duration() != 15*time.Second || r.TTL.Least.Duration() != time.Second {
		t.Errorf("left %d, TTL %+v", r.Left, r.TTL)
	}
	empty(t, st)
}

// overlook carries out the writes of a kind without their conditions.
func overlook(kind func(store.Condition) bool) func(*brokenstore.Store) {
	return func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if !kind(only) {
				return b.Store.Put(ctx, key, body, only)
			}
			return b.Force(ctx, key, body)
		}
	}
}

func updates(c store.Condition) bool { return !c.Absent() }

// shifted is a store whose times were changed.
func shifted(change func(*store.Object)) func(*brokenstore.Store) {
	return brokenstore.GetThen(func(_ string, o *store.Object, err error) (*store.Object, error) {
		if o != nil {
			change(o)
		}
		return o, err
	})
}

// lag is a store of which each reader sees what was there one write before.
func lag(b *brokenstore.Store) {
	var mu sync.Mutex
	was := map[string]*store.Object{}
	b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		before, _ := b.Store.Get(ctx, key, "")
		o, err := b.Store.Put(ctx, key, body, only)
		if err == nil && before != nil && strings.Contains(key, "/read-") {
			was[key] = before
		}
		return o, err
	}
	b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if o := was[key]; o != nil {
			return o, nil
		}
		return b.Store.Get(ctx, key, unless)
	}
}

// Each way to be broken is found, by its name, and rules out what rests on it.
var ailments = []struct {
	name    string
	apply   func(*brokenstore.Store)
	finding string
	unfit   string // one of the uses
	fit     string // one that does not rest on it, or ""
}{
	{"makes up objects", brokenstore.GetThen(func(key string, o *store.Object, err error) (*store.Object, error) {
		if errors.Is(err, store.ErrNotExist) {
			return &store.Object{Key: key, Version: "none"}, nil
		}
		return o, err
	}), canRead, "object", ""},
	{"refuses to create", brokenstore.PutThen(func(_ context.Context, key string, _ *store.Object, _ error) (*store.Object, error) {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
	}), canCreate, "object", ""},
	{"ignores IfAbsent", overlook(store.Condition.Absent), createOver, "epochs without If-Match", ""},
	{"ignores IfMatch", overlook(updates), updateStale, "object", "epochs without If-Match"},
	{"knows no IfMatch", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if !only.Absent() {
				return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}, canUpdate, "object", ""},
	{"updates what is not there", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if _, there := b.Now(ctx, key); !there && updates(only) {
				return b.Force(ctx, key, body)
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}, updateAbsent, "object", "epochs without If-Match"},
	{"updates what was deleted", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if strings.Contains(key, "/gone-") {
				return b.Force(ctx, key, body)
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}, updateGone, "object", "marker without If-Match"},
	{"brings versions back", func(b *brokenstore.Store) {
		const two = 2
		b.OnPut = func(ctx context.Context, key string, body []byte, _ store.Condition) (*store.Object, error) {
			o, err := b.Force(ctx, key, body)
			if o != nil {
				o.Version = store.Version(fmt.Sprint(int(o.Version[len(o.Version)-1]) % two))
			}
			return o, err
		}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			if o != nil {
				o.Version = store.Version(fmt.Sprint(int(o.Version[len(o.Version)-1]) % two))
			}
			return o, err
		}
	}, newVersions, "object", ""},
	{"does not delete", func(b *brokenstore.Store) {
		b.OnDelete = func(context.Context, string) error { return nil }
	}, canDelete, "marker without If-Match", ""},
	{"keeps deleted keys taken", func(b *brokenstore.Store) {
		var gone sync.Map
		b.OnDelete = func(ctx context.Context, key string) error {
			gone.Store(key, true)
			return b.Store.Delete(ctx, key)
		}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if _, taken := gone.Load(key); taken && strings.Contains(key, "/deleted-") {
				return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}, afterDelete, "marker without If-Match", "epochs without If-Match"},
	{"lists in no order", brokenstore.ListThen(func(all []store.Entry) []store.Entry {
		slices.Reverse(all)
		return all
	}), canList, "epochs without If-Match", "object"},
	{"lists late", func(b *brokenstore.Store) {
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			if strings.Contains(prefix, "/fresh/") {
				prefix += "nothing"
			}
			return b.Store.List(ctx, prefix, after)
		}
	}, listsCurrent, "fencelog.Log", "fence.Object"},
	{"reads what was before the last write", lag, readsCurrent, "object", ""},
	{"denies what was just written", func(b *brokenstore.Store) {
		var asked sync.Map
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			if strings.HasSuffix(key, "/appears-0") {
				if errors.Is(err, store.ErrNotExist) {
					asked.Store(key, true)
				} else if _, again := asked.LoadAndDelete(key); again {
					return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
				}
			}
			return o, err
		}
	}, readsCurrent, "epochs without If-Match", ""},
	{"lets both win a race of creates", both(store.Condition.Absent), raceCreate, "epochs without If-Match", ""},
	{"lets both win a race of updates", both(updates), raceUpdate, "object", "epochs without If-Match"},
	{"refuses both of a race", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if strings.Contains(key, "/race-") {
				return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}, raceCreate, "object", ""},
	{"has no Date", shifted(func(o *store.Object) { o.Date = time.Time{} }), tellsTime, "fast start", "object"},
	{"has no Last-Modified", shifted(func(o *store.Object) { o.LastModified = time.Time{} }), tellsTime, "fast start", "object"},
	{"makes objects older", shifted(func(o *store.Object) { o.LastModified = o.LastModified.Add(-trust - time.Second) }), tellsAge, "fast start", "object"},
}

// both lets both of two writes at a time win, in lanes and races.
func both(kind func(store.Condition) bool) func(*brokenstore.Store) {
	return func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if kind(only) && (strings.Contains(key, "/race-") || strings.Contains(key, "/lane-") && updates(only)) {
				return b.Force(ctx, key, body)
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}
}

func TestProbeFindsWhatIsBroken(t *testing.T) {
	for _, a := range ailments {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			b := &brokenstore.Store{Store: memstore.New()}
			a.apply(b)
			r := probedSoon(t, brokenstore.Bare{Store: b}, few)
			f := r.Finding(a.finding)
			if f.Result != Bad || f.Detail == "" {
				t.Errorf("%+v", f)
			}
			err := r.Proves(r.Store, a.unfit)
			if !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), a.finding) && !strings.Contains(err.Error(), "not tried") {
				t.Errorf("%s: %v", a.unfit, err)
			}
			if a.fit != "" && r.Proves(r.Store, a.fit) != nil {
				t.Error(r.Proves(r.Store, a.fit))
			}
			if t.Failed() {
				for _, f := range r.Findings {
					t.Logf("%+v", f)
				}
			}
		})
	}
}

// createOnly is a store that refuses every update, as a driver does that has no such request.
func createOnly(b *brokenstore.Store) {
	inner := b.OnPut
	if inner == nil {
		inner = b.Store.Put
	}
	b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
		if updates(only) {
			return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrRefused}
		}
		return inner(ctx, key, body, only)
	}
}

// A store that refuses updates is good for what needs none. It used to be good for nothing: what
// epochs rest on was found out by updates, and so it was not tried.
func TestProbeOfAStoreWithoutUpdates(t *testing.T) {
	b := &brokenstore.Store{Store: memstore.New()}
	createOnly(b)
	r := probedSoon(t, brokenstore.Bare{Store: b}, few)
	for _, v := range r.Verdicts {
		if needs := slices.Contains(byUpdate, v.Use); v.Safe == needs || v.Untried {
			t.Errorf("%s: safe %t, untried %t: %v", v.Use, v.Safe, v.Untried, v.Why)
		}
	}
	if n := r.Requests.Total(); n > r.Limit || r.Left != 0 {
		t.Errorf("%d requests of %d, %d objects left", n, r.Limit, r.Left)
	}
	empty(t, b)
}

// What an update would show of a store, a create in the place of what was deleted shows too.
func TestProbeFindsWhatIsBrokenWithoutUpdates(t *testing.T) {
	for _, a := range []struct {
		name, finding string
		apply         func(*brokenstore.Store)
	}{
		{"has one version for all", newVersions, func(b *brokenstore.Store) {
			b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
				o, err := b.Store.Put(ctx, key, body, only)
				if o != nil {
					o.Version = "1"
				}
				return o, err
			}
			b.OnGet = func(ctx context.Context, key string, _ store.Version) (*store.Object, error) {
				o, err := b.Store.Get(ctx, key, "")
				if o != nil {
					o.Version = "1"
				}
				return o, err
			}
		}},
		{"says that all is unchanged", unchanged, func(b *brokenstore.Store) {
			b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
				if unless != "" {
					return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
				}
				return b.Store.Get(ctx, key, "")
			}
		}},
		{"reads what was before the last delete", readsCurrent, func(b *brokenstore.Store) {
			was := map[string]*store.Object{}
			b.OnDelete = func(ctx context.Context, key string) error {
				if o, err := b.Store.Get(ctx, key, ""); err == nil && strings.Contains(key, "/read-") {
					was[key] = o
				}
				return b.Store.Delete(ctx, key)
			}
			b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
				if o := was[key]; o != nil {
					return o, nil
				}
				return b.Store.Get(ctx, key, unless)
			}
		}},
	} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			b := &brokenstore.Store{Store: memstore.New()}
			a.apply(b)
			createOnly(b)
			r := probedSoon(t, brokenstore.Bare{Store: b}, few)
			if f := r.Finding(a.finding); f.Result != Bad || r.Proves(r.Store, "epochs without If-Match") == nil {
				t.Errorf("%+v; epochs: %v", f, r.Proves(r.Store, "epochs without If-Match"))
			}
		})
	}
}

// A network on which deletes arrive late, and remove what was created after them, does not make
// such a store look bad.
func TestProbeWithoutUpdatesOverABadNetwork(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &brokenstore.Store{Store: memstore.New()}
				createOnly(b)
				st := faultstore.Wrap(brokenstore.Bare{Store: b}, &faultstore.Options{Seed: seed, Faults: []faultstore.Fault{
					{Kind: faultstore.LateLanding, Op: "delete", Probability: 0.05, Delay: 60 * time.Millisecond, Jitter: 100 * time.Millisecond},
					{Kind: faultstore.DelayAfter, Delay: 5 * time.Millisecond},
				}})
				defer st.Close()
				for _, f := range probed(t, st, few).Findings {
					if f.Result == Bad {
						t.Errorf("%+v", f)
					}
				}
			})
		})
	}
}

// Everything that a verdict rests on is made to fail by one of the above, by a lie, or by
// the tests of clocks, of long listings and of values in parts.
func TestEveryNeedIsDefended(t *testing.T) {
	defended := []string{clockRate, longLists, largeBodies}
	for _, a := range ailments {
		defended = append(defended, a.finding)
	}
	for _, l := range slices.Concat(lies, moreLies, bodyLies) {
		defended = append(defended, l.finding...)
	}
	for _, e := range experiments {
		if len(e.uses) > 0 && !slices.Contains(defended, e.name) {
			t.Errorf("%q rests on %q, which nothing here breaks", e.uses, e.name)
		}
	}
}

// A bad network does not break the store's conditions: an honest store is never called bad,
// whatever the network loses, refuses or delays.
func TestProbeOverABadNetwork(t *testing.T) {
	for seed := range uint64(4) {
		p := 0.005 * float64(1+2*seed) // of each kind
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := faultstore.Wrap(memstore.New(), &faultstore.Options{Seed: seed, Faults: []faultstore.Fault{
					{Kind: faultstore.Throttled, Probability: p},
					{Kind: faultstore.Conflict, Probability: 2 * p},
					{Kind: faultstore.LostAnswer, Probability: p},
					{Kind: faultstore.LostRequest, Probability: p},
					{Kind: faultstore.LateLanding, Probability: p, Delay: time.Millisecond, Jitter: 8 * time.Second},
					{Kind: faultstore.DelayAfter, Probability: p, Delay: time.Millisecond, Jitter: 2 * time.Second},
				}})
				defer st.Close()
				r := probed(t, st, &Options{Races: 1000}) // so that updates come round to the same keys
				for _, f := range r.Findings {
					// Of the larger bodies there are a few races only: by chance most have no
					// clear answer, and unknown is what there is to say.
					few := strings.Contains(f.Name, " of ")
					if f.Result == Bad || f.Result == Unknown && p <= 0.01 && len(f.Uses) > 0 && !few {
						t.Errorf("%v of each kind: %+v", p, f)
					}
				}
				if f := r.Finding(trouble); f.Result != Note || !strings.Contains(f.Detail, "conflicting") {
					t.Errorf("%+v", f)
				}
				if r.Requests.Total() > r.Limit || r.Sent > r.SentLimit {
					t.Errorf("%d requests of %d, %d bytes of %d", r.Requests.Total(), r.Limit, r.Sent, r.SentLimit)
				}
			})
		})
	}
}

// However early a probe is interrupted, it leaves nothing behind and claims nothing.
func TestProbeInterrupted(t *testing.T) {
	for n := 1; n < 400; n += 1 + n/10 {
		ctx, cancel := context.WithCancel(t.Context())
		st := &brokenstore.Store{Store: memstore.New()}
		var calls atomic.Int64
		st.OnPut = func(putCtx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if calls.Add(1) == int64(n) {
				cancel()
			}
			if putCtx.Err() != nil {
				t.Error("a write is cut off, and may land later")
			}
			return st.Store.Put(putCtx, key, body, only)
		}
		r, err := Run(ctx, brokenstore.Bare{Store: st}, few)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d writes of %d: %v", n, calls.Load(), err)
		}
		for _, v := range r.Verdicts {
			// It said that the store is not safe, which nobody had found.
			if v.Safe || !v.Untried || len(v.Why) != 1 || !strings.HasPrefix(v.Why[0], "not tried: ") {
				t.Errorf("after %d writes it claims: %+v", n, v)
			}
		}
		empty(t, st)
	}
}

// denies is a store that denies one operation.
func denies(op string) *brokenstore.Store {
	b := &brokenstore.Store{Store: memstore.New()}
	no := func(key string) error { return &store.Error{Op: op, Key: key, Kind: store.ErrDenied} }
	switch op {
	case "put":
		b.OnPut = func(_ context.Context, key string, _ []byte, _ store.Condition) (*store.Object, error) {
			return nil, no(key)
		}
	case "get":
		b.OnGet = func(_ context.Context, key string, _ store.Version) (*store.Object, error) { return nil, no(key) }
	case "list":
		b.OnList = func(_ context.Context, prefix, _ string) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) { yield(store.Entry{}, no(prefix)) }
		}
	case "delete":
		b.OnDelete = func(_ context.Context, key string) error { return no(key) }
	}
	return b
}

func TestProbeDenied(t *testing.T) {
	for _, op := range []string{"put", "get"} {
		if r, err := Run(t.Context(), brokenstore.Bare{Store: denies(op)}, few); !errors.Is(err, store.ErrDenied) {
			t.Errorf("%s is denied: %v, %v", op, r, err)
		}
	}
	r := probedSoon(t, brokenstore.Bare{Store: denies("list")}, few)
	if f := r.Finding(canList); f.Result != Unknown || r.Proves(r.Store, "object") != nil || r.Proves(r.Store, "epochs without If-Match") == nil {
		t.Errorf("list is denied: %+v, %+v", f, r.Verdicts)
	}
	// Without the right to delete the probe leaves few objects, and says so.
	b := denies("delete")
	r = probedSoon(t, brokenstore.Bare{Store: b}, few)
	n := 0
	for _, err := range b.Store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if f := r.Finding(canDelete); f.Result != Unknown || r.Left != n || n == 0 || n > 20 || r.Proves(r.Store, "object") == nil {
		t.Errorf("delete is denied: %+v, %d of %d left, %+v", f, r.Left, n, r.Verdicts)
	}
}

// leisurely is a store that takes a millisecond for a read or a write, and has past versions.
func leisurely() store.Store {
	b := &brokenstore.Store{Store: memstore.New()}
	b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
		time.Sleep(time.Millisecond)
		return b.Store.Get(ctx, key, unless)
	}
	b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
		time.Sleep(time.Millisecond)
		return b.Store.Put(ctx, key, body, only)
	}
	return &inspected{Store: b, settings: []store.Setting{{Name: "versioning", Value: "enabled"}}, purges: 7}
}

// TestReports: a report tells what was found, in how many requests, and how long they took; it can be kept and read, and
// proves what its verdicts say, for its store and what lies in it.
func TestReports(t *testing.T) {
	r := probedSoon(t, leisurely(), few)
	var told strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&told, "%s: %s: %s\n", f.Name, f.Result, f.Detail)
	}
	fmt.Fprintf(&told, "%+v, at most %d, in %v; %d objects left\n", r.Requests, r.Limit, r.Took.Duration().Round(time.Second), r.Left)
	for _, l := range r.Latency {
		fmt.Fprintf(&told, "%+v\n", l)
	}
	want, err := os.ReadFile("testdata/report.txt")
	if err != nil {
		t.Fatal(err)
	}
	if told.String() != string(want) {
		t.Errorf("it tells\n%s\nand not\n%s", told.String(), want)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadReport(bytes.NewReader(text))
	if err != nil || again.Proves(r.Store, "object") != nil {
		t.Errorf("%v, %+v", err, again)
	}
	for _, bad := range []string{"", "{}", `{"format":0}`, `{"format":2}`, `{"format":1,"store":"s3://b"}`, "[]"} {
		if got, err := ReadReport(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read: %+v", bad, got)
		}
	}
	r.Store = "s3://bucket/locks?endpoint=http%3A%2F%2Fhost"
	for name, proves := range map[string]bool{
		r.Store:                                  true,
		"s3://bucket/locks?endpoint=http://host": true, // another way to write the same
		"s3://bucket/locks/team?endpoint=http%3A%2F%2Fhost":                true,
		"s3://bucket/locksmith?endpoint=http%3A%2F%2Fhost":                 false,
		"s3://bucket?endpoint=http%3A%2F%2Fhost":                           false,
		"s3://bucket/locks":                                                false,
		"s3://other/locks?endpoint=http%3A%2F%2Fhost":                      false,
		"s3://bucket/locks?endpoint=http%3A%2F%2Fhost&unquoted_etags=true": false,
		"mem://bucket/locks?endpoint=http%3A%2F%2Fhost":                    false,
	} {
		if err := r.Proves(name, "object"); (err == nil) != proves {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Proves(r.Store, "chess"); !errors.Is(err, ErrUnproven) {
		t.Error(err)
	}
}

// The store's clock is found to be where it is and as fast as it is, from answers in
// whole seconds; the truth always lies within what is said.
func TestClocks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		offset := time.Duration(random.Int64N(int64(time.Hour))) - 30*time.Minute
		rate := 0.8 + 0.4*random.Float64()
		begin := time.Now()
		var s samples
		for at := time.Duration(0); at < 20*time.Second; at += time.Duration(random.Int64N(int64(20 * time.Millisecond))) {
			sent := begin.Add(at)
			received := sent.Add(time.Duration(random.Int64N(int64(30 * time.Millisecond))))
			between := sent.Add(time.Duration(random.Int64N(int64(received.Sub(sent)) + 1)))
			theirs := begin.Add(offset).Add(time.Duration(rate * float64(between.Sub(begin))))
			s.add("get", sent, received, theirs.Round(0).Truncate(time.Second))
		}
		c := s.clock()
		if c.Resolution.Duration() != time.Second {
			t.Fatalf("%+v", c)
		}
		if rate < c.RateFrom-1e-6 || rate > c.RateTo+1e-6 || c.RateTo-c.RateFrom > 0.3 {
			t.Errorf("the rate is %f, and not between %f and %f", rate, c.RateFrom, c.RateTo)
		}
	}
}

// Where the clock runs as fast as ours, its offset is known to the milliseconds.
func TestClockOffset(t *testing.T) {
	begin := time.Now()
	const offset = 1234 * time.Millisecond
	var s samples
	for at := time.Duration(0); at < 5*time.Second; at += 3 * time.Millisecond {
		sent := begin.Add(at)
		s.add("get", sent, sent.Add(2*time.Millisecond), sent.Add(offset+time.Millisecond).Round(0).Truncate(time.Second))
	}
	c := s.clock()
	if c.OffsetFrom.Duration() > offset || c.OffsetTo.Duration() < offset || c.OffsetTo-c.OffsetFrom > 10_000 || c.Contradiction != 0 {
		t.Errorf("%+v", c)
	}
	// A cached clock contradicts itself.
	late := begin.Add(5 * time.Second)
	s.add("get", late, late.Add(time.Millisecond), late.Add(offset-2*time.Second).Round(0).Truncate(time.Second))
	if c = s.clock(); c.Contradiction.Duration() < time.Second/2 {
		t.Errorf("%+v", c)
	}
	if new(samples).clock() != nil {
		t.Error("a clock without answers")
	}
}

// A machine whose clock is too fast must not hold locks.
func TestFastClockIsBad(t *testing.T) {
	for rate, want := range map[float64]Result{0.85: Bad, 0.99: OK, 1: OK, 1.01: OK, 1.2: Bad} {
		s := &survey{report: &Report{}}
		begin := time.Now()
		for at := time.Duration(0); at < 30*time.Second; at += 5 * time.Millisecond {
			sent := begin.Add(at)
			s.samples.add("get", sent, sent.Add(time.Millisecond), begin.Add(time.Duration(rate*float64(at))).Round(0).Truncate(time.Second))
		}
		if got, detail, err := s.clock(); got != want || err != nil {
			t.Errorf("rate %v: %s, %s, %v", rate, got, detail, err)
		}
	}
}
