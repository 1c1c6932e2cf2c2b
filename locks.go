package leasehold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/store"
)

// Locks are a process's locks when their keys are known only at run time: one per user, order
// or file. They behave like one shared [Lock] per key, which is created when it is first used
// and dropped when it has been idle for some TTLs. So memory is bounded by the recently used
// keys, and keys have no goroutines.
//
// Locks are safe for concurrent use. Close them before the process exits if it may hold leases;
// otherwise they need no closing.
type Locks struct {
	st   store.Store
	opts LockOptions

	over  context.Context // ends with Close
	close context.CancelFunc

	mu     engine.Mutex
	keys   map[string]*keyed
	most   int           // largest size of the map since it was made
	calls  int           // calls in progress
	quiet  chan struct{} // closed when the Locks are closed and no call is in progress
	hushed bool          // quiet is closed
	ticker *time.Timer
}

// keyed is the lock of a key, with the number of calls that use it.
type keyed struct {
	*Lock
	calls int
}

// NewLocks returns the locks stored in st, which all have the same options. It sends nothing.
// It fails as [NewLock] does, except that each call checks its own key.
func NewLocks(st store.Store, opts *LockOptions) (*Locks, error) {
	trial, err := NewLock(st, "key", opts)
	if err != nil {
		return nil, err
	}
	l := &Locks{st: st, opts: *trial.d.opts, keys: map[string]*keyed{}, quiet: make(chan struct{})}
	l.over, l.close = context.WithCancel(context.Background())
	l.mu.Rank(engine.RankKeys)
	l.ticker = time.AfterFunc(time.Hour, l.sweep)
	l.ticker.Stop()
	return l, nil
}

// Acquire waits until it holds the key's lock: see [Lock.Acquire]. Close makes it fail with
// [ErrClosed], even if it is already waiting.
func (l *Locks) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return using(ctx, l, key, func(lock *Lock, ctx context.Context) (*Lease, error) { return lock.Acquire(ctx, opts...) })
}

// TryAcquire is Acquire without waiting: see [Lock.TryAcquire]. What these Locks have seen of a
// dead holder is kept for four TTLs: call it again within that time to take over.
func (l *Locks) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return using(ctx, l, key, func(lock *Lock, ctx context.Context) (*Lease, error) { return lock.TryAcquire(ctx, opts...) })
}

// Do acquires the key's lock, calls f and releases the lock: see [Lock.Do]. Close waits for f
// and does not end its context.
func (l *Locks) Do(ctx context.Context, key string, f func(ctx context.Context, lease *Lease) error, opts ...AcquireOption) error {
	lease, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, l.opts.Logger, f)
}

// Inspect reads the key's lock without taking it: see [Lock.Inspect]. As there, the result
// counts towards a takeover.
func (l *Locks) Inspect(ctx context.Context, key string) (Info, error) {
	return using(ctx, l, key, (*Lock).Inspect)
}

// using runs call with the key's lock. Close cancels the context of the call.
func using[T any](ctx context.Context, l *Locks, key string, call func(*Lock, context.Context) (T, error)) (result T, err error) {
	lock, err := l.enter(key)
	if err != nil {
		return result, err
	}
	defer l.leave(lock)
	open, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.over, cancel)() //nolint:contextcheck // Close ends it, and that is no context of the caller's
	if l.over.Err() != nil {
		return result, l.closed() // closed meanwhile, and cancel may follow a moment later
	}
	result, err = call(lock.Lock, open)
	if err != nil && open.Err() != nil && ctx.Err() == nil {
		err = l.closed() // Close canceled the context, not the caller
	}
	return result, err
}

// Close rejects new calls, ends those in progress with [ErrClosed], and waits until every lease
// has been released and every abandoned acquisition has ended. It does not release leases, and
// closes neither the store nor the session.
//
// If ctx ends first, Close returns an error that matches ctx.Err(); you may call it again. If
// ctx ended before the call, Close waits up to 5 s anyway.
func (l *Locks) Close(ctx context.Context) error {
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	l.mu.Lock()
	l.close()
	l.hush()
	l.mu.Unlock()
	// A call that entered earlier may not know about Close yet and may still begin an
	// acquisition.
	select {
	case <-l.quiet:
	case <-ctx.Done():
		return fmt.Errorf("the locks in %v are in use: %w", l.st, ctx.Err())
	}
	l.mu.Lock()
	keys := maps.Clone(l.keys) // complete: no call adds a key now
	l.mu.Unlock()
	for key, lock := range keys {
		if err := lock.finish(ctx); err != nil {
			return fmt.Errorf("a lease of %s in %v has not been released, or is not settled; so with %d other keys at most: %w", key, l.st, len(keys)-1, err)
		}
		delete(keys, key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.keys)
	l.ticker.Stop()
	return nil
}

// finish waits until this process neither holds the lock nor has a request for it in flight.
func (l *Lock) finish(ctx context.Context) error {
	err := l.d.queue.Enter(ctx)
	if err == nil || errors.Is(err, lock.ErrCrossed) {
		l.leave()
	}
	if err == nil {
		err = l.Settle(ctx)
	}
	if err != nil {
		return ctx.Err()
	}
	return nil
}

func (l *Locks) closed() error { return fmt.Errorf("the locks in %v: %w", l.st, ErrClosed) }

// enter returns the key's lock, which is kept until the call leaves it.
//
// It may create a lock that find then discards: NewLock asks a Proof, which is foreign code and
// must not run under the mutex.
func (l *Locks) enter(key string) (*keyed, error) {
	if lock, err := l.find(key, nil); lock != nil || err != nil {
		return lock, err
	}
	made, err := NewLock(l.st, key, &l.opts)
	if err != nil {
		return nil, err
	}
	return l.find(key, made)
}

// find returns the key's existing lock, or adds the one in made.
func (l *Locks) find(key string, made *Lock) (*keyed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Err() != nil {
		return nil, l.closed()
	}
	lock := l.keys[key]
	if lock == nil && made != nil {
		if len(l.keys) == 0 {
			l.ticker.Reset(l.interval())
		}
		lock = &keyed{Lock: made}
		l.keys[key] = lock
		l.most = max(l.most, len(l.keys))
	}
	if lock != nil {
		lock.calls++
		l.calls++
	}
	return lock, nil
}

func (l *Locks) leave(lock *keyed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock.calls--
	l.calls--
	l.hush()
}

// hush tells Close once that no call is in progress. The mutex is locked.
func (l *Locks) hush() {
	if l.over.Err() == nil || l.calls > 0 || l.hushed {
		return
	}
	l.hushed = true
	close(l.quiet)
}

// interval returns the time between two sweeps. A timer starts them because a sweep after each
// lease would run constantly for a busy key, and a sweep at the next call might never run.
func (l *Locks) interval() time.Duration { return min(l.opts.TTL, time.Minute) }

// sweep drops idle locks.
//
// No call can enter a lock while the mutex is locked. So a lock with no calls, an empty queue
// and a forgettable engine is unused when it is dropped.
func (l *Locks) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, lock := range l.keys {
		if lock.calls == 0 && !lock.d.queue.Taken() && lock.d.Forgettable() {
			delete(l.keys, key)
		}
	}
	if len(l.keys) < l.most/4 { // a map never shrinks
		l.keys, l.most = maps.Collect(maps.All(l.keys)), len(l.keys)
	}
	if len(l.keys) > 0 {
		l.ticker.Reset(l.interval())
	}
}

// AcquireAll acquires all the locks, or none, and returns their leases in the order of the
// locks. It takes locks in the order of their keys, several at a time while they are free.
// While it waits for a lock, it holds none that comes later in that order, so callers that
// share some locks cannot deadlock. If it loses a lease while it waits for another lock, it
// acquires that lock and the later ones again. When it returns, all leases were valid a moment
// ago.
//
// If AcquireAll fails or ctx ends, it releases the leases it holds and returns none. If a
// release fails, the error names the lock that may still be held. Other errors are as for
// [Lock.Acquire]. Two locks with the same key are an error. If there are many locks, put them
// under a session: see [LockOptions.Session].
func AcquireAll(ctx context.Context, locks []*Lock) ([]*Lease, error) {
	order := make([]int, len(locks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(locks[i].d.key, locks[j].d.key) })
	for n := 1; n < len(order); n++ {
		if key := locks[order[n]].d.key; key == locks[order[n-1]].d.key {
			return nil, fmt.Errorf("the lock %s is to be acquired twice, and would wait for itself", key)
		}
	}
	g := &gathering{locks, order, make([]*Lease, len(locks))}
	for done := 0; done < len(order); {
		next, err := g.more(ctx, done)
		if err == nil {
			done, err = g.keep(ctx, next)
		}
		if err != nil {
			return nil, errors.Join(err, g.giveBack(context.WithoutCancel(ctx), 0, len(order)))
		}
	}
	return g.leases, nil
}

// A gathering is the progress of AcquireAll: the leases of the first locks in the order. Each
// step below leaves it with no others. This prevents deadlocks, because all callers take shared
// locks in the same order.
type gathering struct {
	locks  []*Lock
	order  []int    // of the locks, by key
	leases []*Lease // of the locks; nil: not held
}

// more tries the next locks at once, and waits for the first one that it cannot get: the lock
// is held, or the store does not say. It returns how many of the order it has now.
func (g *gathering) more(ctx context.Context, done int) (int, error) {
	next := g.order[done:min(done+engine.Process{}.Parallel(), len(g.order))]
	errs := make([]error, len(next))
	var all sync.WaitGroup
	for n, i := range next {
		all.Go(func() { g.leases[i], errs[n] = g.locks[i].TryAcquire(ctx) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && (ctx.Err() != nil || Final(err)) {
			return done, err
		}
	}
	got := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if got < 0 {
		return done + len(next), nil
	}
	// Release the locks after the held one before the wait begins: another caller may hold that
	// one and wait for these.
	if err := g.giveBack(ctx, done+got, done+len(next)); err != nil {
		return done, err
	}
	i := next[got]
	lease, err := g.locks[i].Acquire(ctx)
	g.leases[i] = lease
	return done + got + 1, err
}

// keep releases the leases from the first ended one on, and returns how many are left.
func (g *gathering) keep(ctx context.Context, done int) (int, error) {
	for n, i := range g.order[:done] {
		if g.leases[i].Err() != nil {
			return n, g.giveBack(ctx, n, done)
		}
	}
	return done, nil
}

// giveBack releases the leases of a range of the order. A lost lease is not an error, because
// it had to end.
func (g *gathering) giveBack(ctx context.Context, from, to int) error {
	var leases []*Lease
	for _, i := range g.order[from:to] {
		if g.leases[i] != nil {
			leases = append(leases, g.leases[i])
			g.leases[i] = nil
		}
	}
	return freeAll(leases, func(l *Lease) error {
		last, cancel := lock.Grace(ctx)
		defer cancel()
		return l.core.Free(last, "")
	})
}

// ReleaseAll releases leases, several at a time, and ignores nil ones. All work under them must
// have stopped. Errors and the end of ctx are as for [Lease.Release]; errors are joined. A
// failed release does not keep the others from being sent.
func ReleaseAll(ctx context.Context, leases []*Lease) error {
	return freeAll(leases, func(l *Lease) error { return l.Release(ctx) })
}

// freeAll limits the number of concurrent requests, because ten thousand would time each other
// out.
func freeAll(leases []*Lease, free func(*Lease) error) error {
	errs := make([]error, len(leases))
	gate := make(chan struct{}, engine.Process{}.Parallel())
	var all sync.WaitGroup
	for i, l := range leases {
		if l == nil {
			continue
		}
		gate <- struct{}{}
		all.Go(func() {
			errs[i] = free(l)
			<-gate
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

const (
	// asksAtOnce is how many locks AcquireAny polls at a time.
	asksAtOnce = 8
	// anyPatience is how long AcquireAny waits for one lock before it continues with the
	// others.
	anyPatience = time.Second
)

// AcquireAny acquires one of the locks, whichever it can get first. It polls up to eight at a
// time, starting at a random one so that callers do not all want the same lock, and claims free
// ones one after the other. If the store does not answer about one lock within a second,
// AcquireAny continues with the others. If no lock is free, it waits for all of them. Errors
// and the end of ctx are as for [Lock.Acquire]; AcquireAny fails only if it cannot wait for any
// lock.
//
// The search costs one read per lock, or none for a lock known to be free, and the claim.
// During the wait, each lock that is not under a session costs as much as one waiter.
//
// AcquireAny may win two locks at the same moment, during the wait or if a claim takes longer
// than a second. It returns one and releases the other in the background, which ends within
// that lock's TTL: see [Lock.Settle]. The other's token is used up, which does no harm.
func AcquireAny(ctx context.Context, locks []*Lock) (*Lease, error) {
	if len(locks) == 0 {
		return nil, errors.New("there is no lock to acquire any of")
	}
	racing, over := context.WithCancel(ctx)
	defer over()
	r := &race{over: over, ends: make(chan result, 2*len(locks))}
	lease, err := r.try(racing, locks)
	switch cause := ctx.Err(); {
	case lease != nil:
		return lease, nil
	case racing.Err() == nil:
		return r.wait(racing, locks)
	case cause != nil && !errors.Is(err, cause):
		err = errors.Join(err, cause)
	}
	return r.end(nil, err) // ends the claim in progress too
}

// A race is a set of acquisitions, of which one wins.
type race struct {
	over    context.CancelFunc // ends all acquisitions
	ends    chan result        // of acquisitions; has room for all
	running int                // acquisitions that have not ended
}

// enter adds an acquisition.
func (r *race) enter(ctx context.Context, acquire func(ctx context.Context, opts ...AcquireOption) (*Lease, error)) {
	r.running++
	go func() {
		lease, err := acquire(ctx)
		r.ends <- result{lease: lease, err: err}
	}()
}

// end ends the race with a winner, or with the reason why there is none. Canceled acquisitions
// end at once, whatever the store does, so none is left that could return a second lease.
func (r *race) end(winner *Lease, err error) (*Lease, error) {
	r.over()
	for ; r.running > 0; r.running-- {
		// Its release continues in the background, because the caller already has a lease.
		if late := <-r.ends; late.lease != nil {
			late.lease.core.BeginRelease("")
		}
	}
	if winner == nil {
		return nil, err
	}
	if err := winner.Err(); err != nil { // lost before the others had ended
		winner.core.BeginRelease("")
		d, _ := winner.core.Of().(*driver)
		return nil, d.explain(err)
	}
	return winner, nil
}

// try acquires a lock that is free. If it returns no lease and ctx has not ended, a claim may
// still be in progress; it stays in the race.
//
// try polls all locks but claims one at a time, because each loser of a race of claims would
// have written an acquisition and a release for nothing. During a claim it begins no new polls.
func (r *race) try(ctx context.Context, locks []*Lock) (*Lease, error) {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	l := newLooks(locks)
	var errs []error
	late := time.NewTimer(anyPatience) // for the last claim, or for a poll if there is no claim
	defer late.Stop()
	for on := true; l.more() || r.running > 0; {
		if on && len(l.free) > 0 {
			r.enter(ctx, l.free[0].TryAcquire)
			l.free, on = l.free[1:], false
			late.Reset(anyPatience)
		}
		if on {
			l.begin(looking)
		}
		select {
		case s := <-l.seen:
			errs = append(errs, l.take(s))
			if r.running == 0 {
				late.Reset(anyPatience)
			}
		case e := <-r.ends:
			r.running--
			if e.err == nil {
				return r.end(e.lease, nil)
			}
			errs, on = append(errs, e.err), true
		case <-late.C:
			if on || !l.more() { // no answer about one lock, or about all that are left
				return nil, errors.Join(errs...)
			}
			on = true
			late.Reset(anyPatience)
		case <-ctx.Done():
			return r.end(nil, errors.Join(append(errs, ctx.Err())...))
		}
	}
	return nil, errors.Join(errs...)
}

// wait waits for all the locks at once.
func (r *race) wait(ctx context.Context, locks []*Lock) (*Lease, error) {
	var errs []error
	for _, lock := range locks {
		r.enter(ctx, lock.Acquire)
	}
	for r.running > 0 {
		e := <-r.ends
		r.running--
		if e.err == nil {
			return r.end(e.lease, nil)
		}
		errs = append(errs, e.err)
	}
	return nil, errors.Join(errs...)
}

// looks are the polls of AcquireAny before it claims a lock.
type looks struct {
	todo []*Lock // in the random order
	open int     // polls in progress
	seen chan look
	free []*Lock // found free, not claimed yet
}

// A look is the result of a poll: err is nil if the lock is free, and else says why not.
type look struct {
	lock *Lock
	err  error
}

func newLooks(locks []*Lock) *looks {
	first := rand.N(len(locks))
	return &looks{todo: slices.Concat(locks[first:], locks[:first]), seen: make(chan look, len(locks))}
}

// more reports whether there is a lock left to poll or to claim.
func (l *looks) more() bool { return len(l.todo) > 0 || l.open > 0 || len(l.free) > 0 }

// begin polls the next locks, up to the limit.
func (l *looks) begin(ctx context.Context) {
	for ; len(l.todo) > 0 && l.open < asksAtOnce; l.todo = l.todo[1:] {
		lock := l.todo[0]
		l.open++
		go func() { l.seen <- look{lock, lock.taken(ctx)} }()
	}
}

// take adds the result of a poll.
func (l *looks) take(s look) error {
	l.open--
	if s.err == nil {
		l.free = append(l.free, s.lock)
	}
	return s.err
}

// taken returns why the lock is not free, from what is known or from one read.
func (l *Lock) taken(ctx context.Context) error {
	if err := l.underSession(); err != nil {
		return err
	}
	if l.d.queue.Taken() {
		return l.d.heldError(nil)
	}
	if l.d.claimable() {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, anyPatience)
	defer cancel()
	info, err := l.Inspect(short)
	switch {
	case err != nil && short.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("the store has not said within %v whether the lock %v is free", anyPatience, l.d.at)
	case err != nil:
		return err
	case !info.Held && info.Rest == 0, info.Session != "" && info.Abandoned, l.d.claimable():
		return nil
	}
	return &HeldError{Info: info}
}

// claimable reports whether the candidate knows that it can claim the lock now.
func (d *driver) claimable() (yes bool) {
	d.Locked(func() { yes = d.Candidate().Claimable(clock.Now()) })
	return yes
}
