package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A lie is a way in which a store answers other than the truth. None of them looks at
// names, so that it meets the objects of a lock as it meets those of a probe.
type lie struct {
	name string
	tell func(b *brokenstore.Store, chance func(of int) bool)
	// The uses that two candidates can be made to believe each other's lease in, or that
	// a former holder can write: a probe must refuse them.
	breaks []string
	// A use that the lie does not touch, or "".
	spares string
	// Findings that must be bad by it.
	finding []string
}

var (
	locks  = []string{"object", "epochs", "epochs without If-Match", "marker", "marker without If-Match", "fence.Object", "fencelog.Log"}
	swaps  = []string{"object", "epochs", "marker", "fence.Object"}
	values = []string{"fence.Object"}
)

func anyWrite(store.Condition) bool { return true }

// small keeps the conditions of a kind only for bodies of so many bytes.
func small(limit int, kind func(store.Condition) bool) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if len(body) > limit && kind(only) {
				return b.Force(ctx, key, body)
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}
}

// sometimes carries one write of a kind in so many out without its condition.
func sometimes(of int, kind func(store.Condition) bool) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if kind(only) && chance(of) {
				return b.Force(ctx, key, body)
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}
}

// forgotten answers one write of a kind in so many as if it had landed, if its condition
// holds, and does not carry it out.
func forgotten(of int, kind func(store.Condition) bool) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if v, there := b.Now(ctx, key); kind(only) && there != only.Absent() && v == only.Match() && chance(of) {
				return &store.Object{Key: key, Version: "forgotten", LastModified: time.Now(), Date: time.Now()}, nil
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}
}

// unwritten answers a create after a delete of the same key as if it had landed, one time
// in so many, and does not carry it out.
func unwritten(of int) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		var gone sync.Map
		b.OnDelete = func(ctx context.Context, key string) error {
			gone.Store(key, true)
			return b.Store.Delete(ctx, key)
		}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			_, was := gone.Load(key)
			if _, there := b.Now(ctx, key); was && !there && only.Absent() && chance(of) {
				return &store.Object{Key: key, Version: "unwritten", LastModified: time.Now(), Date: time.Now()}, nil
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}
}

// later answers one write of a kind in so many with err, and carries it out without its
// condition when the delay has passed.
func later(of int, kind func(store.Condition) bool, delay time.Duration, told error) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if !kind(only) || !chance(of) {
				return b.Store.Put(ctx, key, body, only)
			}
			if v, there := b.Now(ctx, key); errors.Is(told, store.ErrPrecondition) && (there != only.Absent() && v == only.Match()) {
				return b.Store.Put(ctx, key, body, only)
			}
			body = bytes.Clone(body)
			time.AfterFunc(delay, func() { _, _ = b.Force(context.WithoutCancel(ctx), key, body) })
			return nil, &store.Error{Op: "put", Key: key, Kind: told, Cause: errors.New("503")}
		}
	}
}

// unmoved says 304 to one read in so many that names an older version.
func unmoved(of int) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			if _, there := b.Now(ctx, key); there && unless != "" && chance(of) {
				return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified, Date: time.Now()}
			}
			return b.Store.Get(ctx, key, unless)
		}
	}
}

// cached gives again what it gave before, for so long.
func cached(keep time.Duration) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		type answer struct {
			o   *store.Object
			err error
			at  time.Time
		}
		var mu sync.Mutex
		seen := map[string]answer{}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			name := key + " " + string(unless)
			if a, ok := seen[name]; ok && time.Since(a.at) < keep {
				return a.o, a.err
			}
			o, err := b.Store.Get(ctx, key, unless)
			seen[name] = answer{o, err, time.Now()}
			return o, err
		}
	}
}

// cut gives a part of one body in so many, of those over a size.
func cut(of, over int, part func(int) int) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			if err == nil && len(o.Body) > over && chance(of) {
				o.Body = o.Body[:part(len(o.Body))]
			}
			return o, err
		}
	}
}

func half(n int) int      { return n / 2 }
func allButOne(n int) int { return n - 1 }

// stale shows what was there before the last write to one read in so many; mixed shows
// it under the version that is there now.
func stale(of int, mixed bool) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		var mu sync.Mutex
		was := map[string]store.Object{}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			before, _ := b.Store.Get(ctx, key, "")
			o, err := b.Store.Put(ctx, key, body, only)
			if err == nil && before != nil {
				mu.Lock()
				defer mu.Unlock()
				was[key] = *before
			}
			return o, err
		}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			mu.Lock()
			defer mu.Unlock()
			if old, ok := was[key]; ok && err == nil && chance(of) {
				if mixed {
					old.Version = o.Version
				}
				return &old, nil
			}
			return o, err
		}
	}
}

// undone takes one write in so many back when the delay has passed.
func undone(of int, delay time.Duration) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			before, _ := b.Store.Get(ctx, key, "")
			o, err := b.Store.Put(ctx, key, body, only)
			if again := context.WithoutCancel(ctx); err == nil && chance(of) {
				time.AfterFunc(delay, func() {
					if v, there := b.Now(again, key); !there || v != o.Version {
						return
					}
					if before == nil {
						_ = b.Store.Delete(again, key)
						return
					}
					_, _ = b.Force(again, key, before.Body)
				})
			}
			return o, err
		}
	}
}

// reborn forgets a condition of a create for so long after a delete of the key.
func reborn(within time.Duration) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		var mu sync.Mutex
		gone := map[string]time.Time{}
		b.OnDelete = func(ctx context.Context, key string) error {
			mu.Lock()
			defer mu.Unlock()
			gone[key] = time.Now()
			return b.Store.Delete(ctx, key)
		}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			mu.Lock()
			at, ok := gone[key]
			mu.Unlock()
			if ok && only.Absent() && time.Since(at) < within {
				return b.Force(ctx, key, body)
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}
}

// twice deletes once more when the delay has passed, whatever is there by then.
func twice(delay time.Duration) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		b.OnDelete = func(ctx context.Context, key string) error {
			again := context.WithoutCancel(ctx)
			time.AfterFunc(delay, func() { _ = b.Store.Delete(again, key) })
			return b.Store.Delete(ctx, key)
		}
	}
}

// landsRefused carries out one in so many of the writes that it refuses, after it has refused.
func landsRefused(of int) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, key, body, only)
			if errors.Is(err, store.ErrPrecondition) && chance(of) {
				_, _ = b.Force(ctx, key, body)
			}
			return o, err
		}
	}
}

// brains answers one request in so many from a second copy that knows nothing of the first.
func brains(of int) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		other := memstore.New()
		side := func() *memstore.Store {
			if chance(of) {
				return other
			}
			return b.Store
		}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			return side().Get(ctx, key, unless)
		}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			return side().Put(ctx, key, body, only)
		}
		b.OnDelete = func(ctx context.Context, key string) error {
			return errors.Join(b.Store.Delete(ctx, key), other.Delete(ctx, key))
		}
	}
}

var lies = []lie{
	{"keeps conditions up to 1 KiB", small(1<<10, anyWrite), locks, "fast start", []string{raceCreate + " of 2 KiB", raceUpdate + " of 2 KiB"}},
	{"keeps conditions of creates up to 1 KiB", small(1<<10, store.Condition.Absent), locks, "fast start", nil},
	{"keeps conditions of updates up to 1 KiB", small(1<<10, updates), swaps, "epochs without If-Match", nil},
	{"keeps conditions up to 16 KiB", small(16<<10, anyWrite), locks, "fast start", []string{raceCreate + " of 64 KiB", raceUpdate + " of 64 KiB"}},
	{"keeps conditions of updates up to 512 KiB", small(512<<10, updates), values, "object", []string{raceUpdate + " of 1 MiB"}}, // no record is as large
	{"keeps conditions of creates up to 512 KiB", small(512<<10, store.Condition.Absent), []string{"fence.Object", "fencelog.Log"}, "object", []string{raceCreate + " of 1 MiB"}},
	{"overlooks the condition of one create in 100", sometimes(100, store.Condition.Absent), locks, "", nil},
	{"overlooks the condition of one update in 100", sometimes(100, updates), swaps, "", nil},
	{"forgets one create in 100", forgotten(100, store.Condition.Absent), locks, "", nil},
	{"forgets one update in 100", forgotten(100, updates), swaps, "", nil},
	{"answers a create after a delete and does not apply it", unwritten(1), locks, "fast start", []string{afterRebirth}},
	{"does so one time in five", unwritten(5), locks, "fast start", []string{afterRebirth}},
	{"answers 503 to one create in 20, and applies it 300 ms later", later(20, store.Condition.Absent, 300*time.Millisecond, store.ErrUnknownOutcome), locks, "", []string{seenLater}},
	{"answers 503 to every create, and applies it 300 ms later", later(1, store.Condition.Absent, 300*time.Millisecond, store.ErrUnknownOutcome), locks, "", nil},
	{"answers 503 to every second create, and applies it 300 ms later", later(2, store.Condition.Absent, 300*time.Millisecond, store.ErrUnknownOutcome), locks, "", nil},
	{"answers 503 to one update in 20, and applies it 300 ms later", later(20, updates, 300*time.Millisecond, store.ErrUnknownOutcome), swaps, "", []string{updateStale}},
	{"answers 503 to one write in 20, and applies it 2 s later", later(20, anyWrite, 2*time.Second, store.ErrUnknownOutcome), locks, "", nil},
	{"refuses, and applies it 300 ms later", later(1, anyWrite, 300*time.Millisecond, store.ErrPrecondition), locks, "", []string{seenLater}},
	{"refuses, and applies one in 20 at once", landsRefused(20), locks, "", nil},
	{"says 304 to whatever is asked", unmoved(1), locks, "fast start", []string{unchanged}},
	{"says 304 to one in five that was changed", unmoved(5), locks, "fast start", []string{unchanged}},
	{"gives for a second what it gave before", cached(time.Second), locks, "", nil},
	{"gives half of one body in ten", cut(10, 0, half), locks, "", []string{bodiesWhole}},
	{"gives all but the last byte of one body in ten", cut(10, 0, allButOne), locks, "", []string{bodiesWhole}},
	{"gives half of bodies over 4 KiB", cut(1, 4<<10, half), locks, "fast start", []string{bodiesWhole}},
	{"shows one read in 20 what was before", stale(20, false), locks, "", nil},
	{"shows the body before under the version now", stale(20, true), locks, "", []string{bodiesWhole}},
	{"takes one write in 20 back after a second", undone(20, time.Second), locks, "", []string{seenLater}},
	{"overlooks conditions of creates for a second after a delete", reborn(time.Second), []string{"marker", "marker without If-Match"}, "", []string{raceAgain}},
	{"deletes once more after 300 ms", twice(300 * time.Millisecond), []string{"marker", "marker without If-Match"}, "", []string{seenLater}},
	{"answers every second request from another copy", brains(2), locks, "", nil},
	{"answers one request in 50 from another copy", brains(50), locks, "", nil},
}

// chances draws whether what happens one time in so many happens now.
func chances(seed uint64) func(of int) bool {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	return func(of int) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(of) == 0
	}
}

// asked probes a store that lies, in a bubble: its later actions happen at once.
func asked(t *testing.T, l lie, seed uint64, opts *Options) (r *Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &brokenstore.Store{Store: memstore.New()}
		l.tell(b, chances(seed))
		c := &counter{Store: brokenstore.Bare{Store: b}}
		var err error
		if r, err = Run(t.Context(), c, opts); err != nil {
			t.Fatal(err)
		}
		c.within(t, r, opts)
	})
	return r
}

// TestProbeRefusesLiars: what two candidates could both come to hold a lock by, or a
// former holder to write, is never called safe. The probe called most of these safe.
func TestProbeRefusesLiars(t *testing.T) {
	for _, l := range slices.Concat(lies, moreLies) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			r := asked(t, l, 1, &Options{Races: 100}) // twice as many as the rarest lie takes
			l.refused(t, r)
		})
	}
}

// refused fails unless the report refuses what the lie breaks.
func (l lie) refused(t *testing.T, r *Report) {
	t.Helper()
	var passed []string
	for _, use := range l.breaks {
		if r.Proves(r.Store, use) == nil {
			passed = append(passed, use)
		}
	}
	if passed != nil {
		t.Errorf("it is said to be safe for %q", passed)
	}
	if l.spares != "" && r.Proves(r.Store, l.spares) != nil {
		t.Error(r.Proves(r.Store, l.spares))
	}
	for _, name := range l.finding {
		if r.Finding(name).Result != Bad {
			t.Errorf("it says of %q: %+v", name, r.Finding(name))
		}
	}
	if t.Failed() {
		for _, f := range r.Findings {
			if f.Result != OK {
				t.Logf("%+v", f)
			}
		}
	}
}

// renamed takes each key for another one, as a server does that cuts keys off or cleans them.
func renamed(name func(string) string) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		// It remembers how a key was first written, and lists it so.
		var as sync.Map
		under := func(key string) string {
			as.LoadOrStore(name(key), key)
			return name(key)
		}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			return b.Store.Get(ctx, name(key), unless)
		}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			return b.Store.Put(ctx, under(key), body, only)
		}
		b.OnDelete = func(ctx context.Context, key string) error { return b.Store.Delete(ctx, name(key)) }
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				var all []store.Entry
				for e, err := range b.Store.List(ctx, "", "") {
					if err != nil {
						yield(e, err)
						return
					}
					if key, ok := as.Load(e.Key); ok {
						e.Key = key.(string) //nolint:errcheck,forcetypeassert // all of them are
					}
					if strings.HasPrefix(e.Key, prefix) && e.Key > after {
						all = append(all, e)
					}
				}
				slices.SortFunc(all, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
				for _, e := range all {
					if !yield(e, nil) {
						return
					}
				}
			}
		}
	}
}

// cutAt keeps so many bytes of a key.
func cutAt(n int) func(string) string {
	return func(key string) string {
		for cut := min(n, len(key)); ; cut-- {
			if utf8.ValidString(key[:cut]) && !strings.HasSuffix(key[:cut], "/") {
				return key[:cut]
			}
		}
	}
}

// overlooks carries out writes of some keys without their conditions, those of a kind.
func overlooks(key func(string) bool, kind func(store.Condition) bool) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		b.OnPut = func(ctx context.Context, k string, body []byte, only store.Condition) (*store.Object, error) {
			if key(k) && kind(only) {
				return b.Force(ctx, k, body)
			}
			return b.Store.Put(ctx, k, body, only)
		}
	}
}

func longer(than int) func(string) bool { return func(key string) bool { return len(key) > than } }
func deeper(than int) func(string) bool {
	return func(key string) bool { return strings.Count(key, "/") > than }
}

func foreign(key string) bool {
	return strings.ContainsFunc(key, func(r rune) bool { return r >= utf8.RuneSelf })
}

// crowded keeps no condition of a kind while more than so many writes are under way.
func crowded(than int64, kind func(store.Condition) bool) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		var underway atomic.Int64
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			now := underway.Add(1)
			time.Sleep(time.Millisecond)
			defer underway.Add(-1)
			if now > than && kind(only) {
				return b.Force(ctx, key, body)
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}
}

// jumps lets the date of one answer in so many jump.
func jumps(of int, by time.Duration, change func(o *store.Object, by time.Duration)) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			time.Sleep(time.Millisecond)
			o, err := b.Store.Get(ctx, key, unless)
			if o != nil && chance(of) {
				change(o, by)
			}
			return o, err
		}
	}
}

// haunted shows what was deleted once more: the state before the last one, or the last, in one
// read of so many.
func haunted(of int, before bool) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		var mu sync.Mutex
		past, ghosts := map[string]*store.Object{}, map[string]*store.Object{}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			was, _ := b.Store.Get(ctx, key, "")
			o, err := b.Store.Put(ctx, key, body, only)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				past[key] = was
				delete(ghosts, key)
			}
			return o, err
		}
		b.OnDelete = func(ctx context.Context, key string) error {
			ghost, _ := b.Store.Get(ctx, key, "")
			mu.Lock()
			defer mu.Unlock()
			if before {
				ghost = past[key]
			}
			if ghost != nil {
				ghosts[key] = ghost
			}
			return b.Store.Delete(ctx, key)
		}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			mu.Lock()
			defer mu.Unlock()
			ghost := ghosts[key]
			if !errors.Is(err, store.ErrNotExist) || ghost == nil || !chance(of) {
				return o, err
			}
			if unless == ghost.Version {
				return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
			}
			again := *ghost
			again.Date = time.Now()
			return &again, nil
		}
	}
}

// unlisted shows what was deleted in one listing of so many.
func unlisted(of int) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, chance func(int) bool) {
		var mu sync.Mutex
		gone := map[string]store.Entry{}
		b.OnDelete = func(ctx context.Context, key string) error {
			if o, err := b.Store.Get(ctx, key, ""); err == nil {
				mu.Lock()
				gone[key] = store.Entry{Key: key, Version: o.Version}
				mu.Unlock()
			}
			return b.Store.Delete(ctx, key)
		}
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				all := map[string]store.Entry{}
				for e, err := range b.Store.List(ctx, prefix, after) {
					if err != nil {
						yield(e, err)
						return
					}
					all[e.Key] = e
				}
				mu.Lock()
				for key, e := range gone {
					if _, there := all[key]; !there && strings.HasPrefix(key, prefix) && key > after && chance(of) {
						all[key] = e
					}
				}
				mu.Unlock()
				for _, key := range slices.Sorted(mapKeys(all)) {
					if !yield(all[key], nil) {
						return
					}
				}
			}
		}
	}
}

// remembers carries out a write that names a version, without its condition, where takes says so of what was
// written before: keys and versions.
func remembers(takes func(key string, past []string, v string) bool) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		var mu sync.Mutex
		var past []string
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (o *store.Object, err error) {
			mu.Lock()
			defer mu.Unlock()
			if updates(only) && takes(key, past, string(only.Match())) {
				o, err = b.Force(ctx, key, body)
			} else {
				o, err = b.Store.Put(ctx, key, body, only)
			}
			if err == nil {
				past = append(past[max(0, len(past)-200):], key+" "+string(o.Version))
			}
			return o, err
		}
	}
}

// versioned names the state of an object by its body.
func versioned(name func(body []byte) string) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		var mu sync.Mutex
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			o, err := b.Store.Get(ctx, key, "")
			if there := err == nil; there == only.Absent() || there && name(o.Body) != string(only.Match()) {
				return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
			}
			if o, err = b.Force(ctx, key, body); err == nil {
				o.Version = store.Version(name(body))
			}
			return o, err
		}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, "")
			if err != nil {
				return nil, err
			}
			if o.Version = store.Version(name(o.Body)); o.Version == unless {
				return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
			}
			return o, nil
		}
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				for e, err := range b.Store.List(ctx, prefix, after) {
					if o, getErr := b.Store.Get(ctx, e.Key, ""); getErr == nil {
						e.Version = store.Version(name(o.Body))
					}
					if !yield(e, err) {
						return
					}
				}
			}
		}
	}
}

func mapKeys[V any](m map[string]V) iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

var composed = strings.NewReplacer("e\u0301", "\u00e9", "\u212b", "\u00c5")

func dateJumps(o *store.Object, by time.Duration)  { o.Date = o.Date.Add(by) }
func writeJumps(o *store.Object, by time.Duration) { o.LastModified = o.LastModified.Add(-by) }

var startsFast = []string{useFastStart}

// moreLies are about keys, many requests at a time, times and what is deleted.
var moreLies = []lie{
	{"keeps conditions while 16 writes are under way", crowded(16, anyWrite), locks, "fast start", []string{crowdCreate}},
	{"keeps conditions while 100 writes are under way", crowded(100, anyWrite), locks, "fast start", []string{crowdCreate}},
	{"keeps conditions of creates while 64 writes are under way", crowded(64, store.Condition.Absent), locks, "fast start", []string{crowdCreate}},
	{"keeps conditions of updates while 64 writes are under way", crowded(64, updates), swaps, "epochs without If-Match", []string{crowdUpdate}},

	{"dates one answer in 100 a minute later", jumps(100, time.Minute, dateJumps), startsFast, "object", []string{tellsAge}},
	{"dates one answer in 300 two minutes later", jumps(300, 2*time.Minute, dateJumps), startsFast, "object", []string{tellsAge}},
	{"dates one answer in 100 a minute earlier", jumps(100, -time.Minute, dateJumps), startsFast, "object", []string{tellsAge}},
	{"shows one object in 100 a minute older", jumps(100, time.Minute, writeJumps), startsFast, "object", []string{tellsAge}},

	{"keeps no condition of keys over 200 bytes", overlooks(longer(200), anyWrite), locks, "fast start", []string{oddKeys}},
	{"keeps no condition of keys over 700 bytes", overlooks(longer(700), anyWrite), locks, "fast start", []string{oddKeys}},
	{"keeps no condition of keys from 255 to 511 bytes", overlooks(func(key string) bool { return len(key) > 255 && len(key) < 512 }, anyWrite), locks, "fast start", []string{oddKeys}},
	{"keeps no condition of updates of keys over 500 bytes", overlooks(longer(500), updates), swaps, "epochs without If-Match", []string{oddUpdates}},
	{"keeps no condition of keys over 20 deep", overlooks(deeper(20), anyWrite), locks, "fast start", []string{oddKeys}},
	{"keeps no condition of keys beyond ASCII", overlooks(foreign, anyWrite), locks, "fast start", []string{oddKeys}},
	{"cuts keys at 200 bytes", renamed(cutAt(200)), locks, "fast start", []string{oddKeys}},
	{"cuts keys at 255 bytes", renamed(cutAt(255)), locks, "fast start", []string{oddKeys}},
	{"cuts keys at 767 bytes", renamed(cutAt(767)), locks, "fast start", []string{oddKeys}},
	{"takes upper case for lower", renamed(strings.ToLower), locks, "fast start", []string{oddKeys}},
	{"composes letters", renamed(composed.Replace), locks, "fast start", []string{oddKeys}},
	{"drops dots at the end", renamed(func(key string) string { return strings.TrimRight(key, ".") }), locks, "fast start", []string{oddKeys}},
	{"drops dots before a slash", renamed(func(key string) string {
		for strings.Contains(key, "./") {
			key = strings.ReplaceAll(key, "./", "/")
		}
		return strings.ReplaceAll(key, "//", "/")
	}), locks, "fast start", []string{oddKeys}},
	{"drops spaces at the end", renamed(func(key string) string { return strings.TrimRight(key, " ") }), locks, "fast start", []string{oddKeys}},
	{"decodes twice", renamed(func(key string) string { return strings.NewReplacer("%2F", "/", "%41", "A").Replace(key) }), locks, "fast start", []string{oddKeys}},
	{"ends a key at a question mark", renamed(func(key string) string { key, _, _ = strings.Cut(key, "?"); return key }), locks, "fast start", []string{oddKeys}},
	{"takes all marks for underscores", renamed(func(key string) string { return strings.NewReplacer(" ", "_", "+", "_", "-", "_").Replace(key) }), locks, "fast start", nil},
	{"lists no keys over 300 bytes", func(b *brokenstore.Store, _ func(int) bool) {
		brokenstore.ListThen(func(all []store.Entry) []store.Entry {
			return slices.DeleteFunc(all, func(e store.Entry) bool { return len(e.Key) > 300 })
		})(b)
	}, []string{"epochs", "epochs without If-Match", "fencelog.Log"}, "object", []string{oddLists}},

	{"deletes all keys that begin as the deleted one", func(b *brokenstore.Store, _ func(int) bool) {
		b.OnDelete = func(ctx context.Context, key string) error {
			for e, err := range b.Store.List(ctx, key, "") {
				if err != nil {
					return err
				}
				_ = b.Store.Delete(ctx, e.Key)
			}
			return nil
		}
	}, locks, "", []string{oddKeys}},
	{"takes marks of a prefix for wildcards", func(b *brokenstore.Store, _ func(int) bool) {
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				like := regexp.MustCompile("^" + strings.NewReplacer("_", ".", "%", ".*").Replace(regexp.QuoteMeta(prefix)))
				for e, err := range b.Store.List(ctx, "", after) {
					if (err != nil || like.MatchString(e.Key)) && !yield(e, err) {
						return
					}
				}
			}
		}
	}, []string{"epochs", "epochs without If-Match", "fencelog.Log"}, "object", []string{canList}},
	{"takes versions that are long gone", remembers(func(key string, past []string, v string) bool {
		at := slices.Index(past, key+" "+v)
		return at >= 0 && len(slices.DeleteFunc(slices.Clone(past[at:]), func(s string) bool { return !strings.HasPrefix(s, key+" ") })) > 4
	}), swaps, "epochs without If-Match", []string{updateStale}},
	{"takes versions of other objects", remembers(func(key string, past []string, v string) bool {
		return slices.ContainsFunc(past, func(s string) bool { return strings.HasSuffix(s, " "+v) && !strings.HasPrefix(s, key+" ") })
	}), swaps, "epochs without If-Match", nil},
	{"has versions of one byte", versioned(func(body []byte) string { return fmt.Sprint(crc32.ChecksumIEEE(body) % 256) }), swaps, "", []string{allCreates}},
	{"has versions of the first 300 bytes", versioned(func(body []byte) string { return fmt.Sprint(crc32.ChecksumIEEE(body[:min(300, len(body))])) }), swaps, "", []string{newVersions}},
	{"keeps conditions between two rivals only", func(b *brokenstore.Store, _ func(int) bool) {
		var mu sync.Mutex
		rivals := map[string]int{}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			mu.Lock()
			rivals[key]++
			third := rivals[key] > 2
			mu.Unlock()
			time.Sleep(time.Millisecond)
			defer func() {
				mu.Lock()
				rivals[key]--
				mu.Unlock()
			}()
			if third {
				return b.Force(ctx, key, body)
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}, locks, "fast start", []string{crowdCreate}},

	{"shows what was deleted to one read in ten", haunted(10, false), locks, "fast start", nil},
	{"shows what was before what was deleted", haunted(1, true), locks, "fast start", []string{readsDeleted}},
	{"shows what was deleted to one read in 20", haunted(20, false), locks, "fast start", nil},
	{"lists one deleted object in five", unlisted(5), []string{"epochs", "epochs without If-Match", "fencelog.Log"}, "object", []string{allLists}},
	{"shows one read in 100 what was before", stale(100, false), locks, "", []string{allReads}},
	{"overlooks the condition of one create in 50", sometimes(50, store.Condition.Absent), locks, "", []string{allCreates}},
	{"overlooks the condition of one update in 50", sometimes(50, updates), swaps, "", []string{allUpdates}},
}
