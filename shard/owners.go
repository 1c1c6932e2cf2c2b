package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// A State is a shard's state.
type State int

// The states of a shard.
const (
	Free   State = iota + 1 // the shard has no owner
	Owned                   // by a worker whose session seems to be alive
	Moving                  // owned, but the plan gives it to another worker, and it will be released
	Gone                    // its last owner's session has ended, and it has not been taken over yet
	Broken                  // this version does not understand its lock
)

var stateNames = [...]string{Free: "free", Owned: "owned", Moving: "moving", Gone: "gone", Broken: "not a lock"}

func (s State) String() string {
	if s < Free || s > Broken {
		return fmt.Sprintf("state %d", int(s))
	}
	return stateNames[s]
}

// An Owner is a shard's owner.
type Owner struct {
	Shard   string
	State   State
	Holder  string          // of the lock; the last one if it is free
	Session string          // of the holder, the last part of its key
	Token   leasehold.Token // of the lock; NoToken if it was never owned

	// Planned is the holder's name of the worker that should own the shard, and PlannedSession
	// its session. Both are empty if the plan has no owner for it.
	Planned, PlannedSession string

	Err error // for Broken
}

// Owners returns the owners of all shards, ordered by name: those in the plan, and those owned
// before. It changes nothing. It costs one read for the plan, one for each of its lists, one
// for each shard and each session that owns any, and a listing of the shards.
//
// If the error matches [ErrForeign], Owners also returns the owners it could find out.
func Owners(ctx context.Context, st store.Store, prefix string) ([]Owner, error) {
	b := newPlanStore(st, prefix)
	plan := &Plan{}
	wire, _, broken := b.readPlan(ctx, "")
	if wire != nil {
		var owners map[string]string
		if owners, broken = b.resolve(ctx, wire); broken == nil {
			plan = wire.named(owners)
		}
	}
	if broken != nil && !errors.Is(broken, ErrForeign) {
		return nil, broken
	}
	names, err := b.shards(ctx, plan)
	if err != nil {
		return nil, err
	}
	holders := map[string]string{}
	for _, m := range plan.Workers {
		holders[m.Session] = m.Holder
	}
	owners, errs := make([]Owner, len(names)), make([]error, len(names))
	seen := &remembering{Store: st, planStore: b, of: map[string]*memory{}}
	slots := make(chan struct{}, abreast)
	var all sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		all.Go(func() {
			o := Owner{Shard: name, PlannedSession: plan.Owners[name]}
			o.Planned = holders[o.PlannedSession]
			errs[i] = b.inspect(ctx, seen, &o, plan.Token > 0)
			owners[i] = o
			<-slots
		})
	}
	all.Wait()
	if err = errors.Join(errs...); err != nil {
		return nil, err
	}
	return owners, broken
}

// shards returns the names of all known shards.
func (b *planStore) shards(ctx context.Context, plan *Plan) ([]string, error) {
	names := map[string]bool{}
	for name := range plan.Owners {
		names[name] = true
	}
	prefix := b.shardKey("")
	for e, err := range b.st.List(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		names[strings.TrimPrefix(e.Key, prefix)] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// inspect reads a shard's lock, which may be in the plan.
func (b *planStore) inspect(ctx context.Context, st store.Store, o *Owner, planned bool) error {
	lock, err := leasehold.NewLock(st, b.shardKey(o.Shard), &leasehold.LockOptions{Layout: leasehold.LayoutObject})
	if err != nil {
		o.State, o.Err = Broken, err
		return nil
	}
	i, err := lock.Inspect(ctx)
	if errors.Is(err, leasehold.ErrForeignObject) {
		o.State, o.Err = Broken, err
		return nil
	}
	if err != nil {
		return err
	}
	o.Holder, o.Token = i.Holder, i.Token
	if i.Session != "" {
		o.Session = path.Base(i.Session)
	}
	switch {
	case !i.Held:
		o.State = Free
	case i.Abandoned:
		o.State = Gone
	case planned && o.PlannedSession != o.Session:
		o.State = Moving
	default:
		o.State = Owned
	}
	return nil
}

// remembering is a store that reads each session once, and below its own prefix whatever the
// lock says: keys in locks are relative to the worker's store, whose root may differ from this
// one's.
type remembering struct {
	store.Store
	planStore *planStore

	mu sync.Mutex
	of map[string]*memory
}

type memory struct {
	once sync.Once
	obj  *store.Object
	err  error
}

func (r *remembering) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if strings.HasPrefix(key, r.planStore.shardKey("")) {
		return r.Store.Get(ctx, key, unless)
	}
	key = r.planStore.sessionKey(path.Base(key))
	r.mu.Lock()
	m := r.of[key]
	if m == nil {
		m = &memory{}
		r.of[key] = m
	}
	r.mu.Unlock()
	m.once.Do(func() { m.obj, m.err = r.Store.Get(ctx, key, unless) })
	return m.obj, m.err
}
