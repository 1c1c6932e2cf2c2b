package shard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// Keys in the Meta of a membership lock.
const (
	metaWeight = "shard.weight"
	metaList   = "shard.list"
)

// maxWeight is the maximum weight of a worker.
const maxWeight = 1000

// members tracks the live workers for a coordinator. Each worker holds a membership lock, named
// after its session. A listing finds new memberships. For each, a watch tries to acquire the
// lock, and gets it when the worker releases it to leave or when its session has ended. So the
// end of a worker is known as early as possible, and its session has then ended for good: the
// next owners of its shards need not wait.
type members struct {
	*Worker
	session *leasehold.Session // of the coordinator
	me      string
	watches sync.WaitGroup
	news    chan struct{} // has an element if a worker has left or died

	mu  sync.Mutex
	all map[string]*member
}

// A member is one membership, as last read.
type member struct {
	session string
	holder  string
	list    string
	weight  int
	alive   bool
	ignore  context.CancelFunc // ends its watch
}

// call returns the live workers, ordered by session. It costs one listing, and two reads for
// each new worker.
func (r *members) call(ctx context.Context) ([]*member, error) {
	entries, err := r.listing(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	there := map[string]bool{}
	var fresh []store.Entry
	for _, e := range entries {
		session := r.sessionOf(e.Key)
		there[session] = true
		if r.all[session] == nil {
			fresh = append(fresh, e)
		}
	}
	for session, m := range r.all {
		if !there[session] {
			m.ignore()
			delete(r.all, session)
		}
	}
	r.mu.Unlock()
	if err := r.read(ctx, fresh); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var living []*member
	for _, m := range r.all {
		if m.alive {
			living = append(living, m)
		}
	}
	slices.SortFunc(living, func(a, b *member) int { return strings.Compare(a.session, b.session) })
	return living, nil
}

func (b *planStore) sessionOf(key string) string { return strings.TrimPrefix(key, b.workerKey("")) }

func (r *members) listing(ctx context.Context) (entries []store.Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for e, err := range r.st.List(ctx, r.workerKey(""), "") {
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// read reads memberships, several at a time, and begins to watch them.
func (r *members) read(ctx context.Context, entries []store.Entry) error {
	errs := make([]error, len(entries))
	slots := make(chan struct{}, abreast)
	var all sync.WaitGroup
	for i, e := range entries {
		slots <- struct{}{}
		all.Go(func() {
			for found, err := range admin.List(ctx, listed{r.planStore, r.st, e}, "") {
				if err != nil && !errors.Is(err, leasehold.ErrForeignObject) {
					errs[i] = err
					break
				}
				if found.Size > 0 {
					err = leasehold.ErrForeignObject
				}
				r.enter(ctx, found.Info, err)
			}
			<-slots
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// enter records a membership that was read, or the reason why it is invalid.
func (r *members) enter(ctx context.Context, info leasehold.Info, err error) {
	watch, ignore := context.WithCancel(ctx)
	m := &member{session: r.sessionOf(info.Key), holder: info.Holder, ignore: ignore}
	if err == nil {
		err = m.take(info)
	}
	// A membership not held under its own session is a leftover of another coordinator.
	m.alive = err == nil && info.Held && info.Session == r.sessionKey(m.session)
	r.mu.Lock()
	r.all[m.session] = m
	r.mu.Unlock()
	switch {
	case err != nil:
		r.opts.Logger.Warn("an object among the workers is none and is left alone", "key", info.Key, "error", err)
	case m.session != r.me:
		r.watches.Go(func() { r.watch(watch, m) })
	}
}

// take records the content of a membership.
func (m *member) take(i leasehold.Info) error {
	m.list = i.Meta[metaList]
	m.weight, _ = strconv.Atoi(i.Meta[metaWeight]) // if it is not a number, the result is 0 or the maximum
	if m.weight < 1 || m.weight > maxWeight {
		return fmt.Errorf("its %s is %q", metaWeight, i.Meta[metaWeight])
	}
	return nil
}

// watch waits until the worker leaves or dies.
func (r *members) watch(ctx context.Context, m *member) {
	lock, err := leasehold.NewLock(r.st, r.workerKey(m.session), r.memberOptions(r.session))
	if err != nil {
		r.opts.Logger.Warn("a worker cannot be watched", "worker", m.session, "error", err)
		return
	}
	for failures := 1; ctx.Err() == nil; failures++ {
		lease, failed := lock.Acquire(ctx)
		if failed != nil {
			sleep(ctx, protocol.Pause(failures, nil))
			continue
		}
		r.mu.Lock()
		m.alive = false
		r.mu.Unlock()
		select {
		case r.news <- struct{}{}:
		default:
		}
		last, cancel := cleanupContext(ctx, requestTimeout)
		defer cancel()
		_ = lease.Release(last)
		r.remove(last, m)
		return
	}
	last, cancel := cleanupContext(ctx, requestTimeout)
	defer cancel()
	_ = lock.Settle(last)
}

// remove deletes the membership of an ended session. Session names are used once, so it cannot
// be needed again.
func (r *members) remove(ctx context.Context, m *member) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := r.st.Delete(ctx, r.workerKey(m.session)); err != nil {
		r.opts.Logger.Debug("the membership of a worker that is gone was not deleted", "worker", m.session, "error", err)
	}
}

// listed is a store with a single object, which was listed already.
type listed struct {
	planStore *planStore
	store.Store
	entry store.Entry
}

func (l listed) List(context.Context, string, string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) { yield(l.entry, nil) }
}

func (l listed) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	return l.planStore.get(ctx, key, unless)
}
