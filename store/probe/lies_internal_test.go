package probe

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	locks  = []string{"object", "epochs", "epochs+if-match", "marker", "marker+if-match", "fence.Object", "fencelog.Log"}
	swaps  = []string{"object", "epochs+if-match", "marker+if-match", "fence.Object"}
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
	{"keeps conditions of updates up to 1 KiB", small(1<<10, updates), swaps, "epochs", nil},
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
	{"overlooks conditions of creates for a second after a delete", reborn(time.Second), []string{"marker", "marker+if-match"}, "", []string{raceAgain}},
	{"deletes once more after 300 ms", twice(300 * time.Millisecond), []string{"marker", "marker+if-match"}, "", []string{seenLater}},
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
