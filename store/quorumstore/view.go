package quorumstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// A view is a configuration with its open members, and the registers of the keys that are used
// under it.
type view struct {
	s       *Store
	cfg     register.Configuration
	members []store.Store
	began   time.Time

	clocks atomic.Pointer[[]time.Time] // of the members, during a collection

	whole atomic.Int64 // a bit for each member whose marker was seen to be whole

	// once, for a view that visits all keys: after one request to a member has timed out, the
	// member is skipped.
	once   bool
	silent atomic.Int64 // a bit for each such member

	mu   sync.Mutex
	keys map[string]*key
}

// maxKeys bounds the keys for which a view remembers what the members have. Writing a forgotten
// key costs two more requests to each member.
const maxKeys = 8192

func (s *Store) newView(cfg register.Configuration, members []store.Store) *view {
	return &view{s: s, cfg: cfg, members: members, began: time.Now(), keys: map[string]*key{}}
}

// key returns a key's register. Two at the same time do no harm, because their ballots differ.
func (v *view) key(name string) *key {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.keys[name]
	if k == nil {
		v.makeRoom()
		k = newKey(v, name)
		v.keys[name] = k
	}
	return k
}

// makeRoom forgets some idle keys.
func (v *view) makeRoom() {
	if len(v.keys) < maxKeys {
		return
	}
	n := 0
	for name, k := range v.keys {
		if k.idle() {
			delete(v.keys, name)
			n++
		}
		if n == maxKeys/16 {
			return
		}
	}
}

// sees records a marker.
func (v *view) sees(member int, marker *register.Marker) {
	if marker != nil && marker.Name == v.cfg.Members[member].Marker && marker.Whole {
		v.whole.Or(1 << member)
	}
}

// old reports whether a member has had an object for so long that all earlier requests have
// ended.
func (v *view) old(member int, modified time.Time) bool {
	clocks := v.clocks.Load()
	return clocks != nil && !modified.IsZero() && (*clocks)[member].Sub(modified) >= keptFor
}

// deaf reports whether a member is skipped.
func (v *view) deaf(member int) bool { return v.silent.Load()>>member&1 != 0 }

// hears records how a request to a member ended.
func (v *view) hears(member int, err error) {
	if v.once && errors.Is(err, context.DeadlineExceeded) {
		v.silent.Or(1 << member)
	}
	v.s.health.note(v.cfg.Members[member].Place, err)
}

// A timed member ends each request within Options.Timeout.
type timed struct {
	store.Store
	timeout time.Duration
}

func (s *Store) timed(m store.Store) timed { return timed{m, s.opts.Timeout} }

func (t timed) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.Store.Get(ctx, key, unless)
}

func (t timed) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.Store.Put(ctx, key, body, only)
}

func (t timed) Delete(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.Store.Delete(ctx, key)
}

func (t timed) DeleteIf(ctx context.Context, key string, v store.Version) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return deleteIf(ctx, t.Store, key, v)
}

// deleteIf deletes on a condition, if the member supports it.
func deleteIf(ctx context.Context, m store.Store, key string, v store.Version) error {
	if st, ok := m.(store.Conditional); ok {
		return st.DeleteIf(ctx, key, v)
	}
	return &store.Error{Op: "delete", Key: key, Kind: store.ErrInvalid, Cause: errors.New("this store does not delete on a condition")}
}

// ask sends a request to a member with its own timeout, because the caller may have returned
// before it is answered.
func (v *view) ask(member int, request func(ctx context.Context, m store.Store) error) {
	ctx, cancel := context.WithTimeout(context.Background(), v.s.opts.Timeout)
	defer cancel()
	if v.deaf(member) {
		cancel()
		_ = request(ctx, v.members[member]) // the context has ended, so it sends nothing and returns at once
		return
	}
	v.hears(member, request(ctx, v.members[member]))
}
