package leasehold

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A Lock is one candidate for one lock: an object in a store that at most one
// candidate at a time holds a valid lease of, as far as the guarantee in the
// package documentation goes. Goroutines that share a Lock queue in it, in order
// of arrival, and only the first talks to the store; two Locks of the same key
// are two candidates, in one process as in two.
//
// A Lock has no goroutines and sends no requests unless it is being acquired,
// held or released, and needs no closing. It is safe for concurrent use.
//
// Make one Lock for each key and process, and share it: what it has learned of the lock saves the
// next acquisition a read, and the wait for a holder that is gone is counted once.
type Lock struct{ d driver }

// NewLock makes a candidate for the lock that lies in st under key. It sends
// nothing. It fails if the key or an option cannot be used, and says which.
//
// The options are copied. An error is a mistake in the program or its configuration, or a
// [LockOptions.Proof] that speaks against the store: to try again is of no use.
func NewLock(st store.Store, key string, opts *LockOptions) (*Lock, error) {
	return newLock(st, key, opts, func(*protocol.Config) {})
}

// newLock is NewLock with a say in the protocol's configuration.
func newLock(st store.Store, key string, opts *LockOptions, tune func(*protocol.Config)) (*Lock, error) {
	if st == nil {
		return nil, errors.New("the store of a lock is nil")
	}
	if err := store.CheckKey("lock", key); err != nil {
		return nil, err
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	if err = o.encodable(); err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	if err = o.Session.suits(st, o.Layout); err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	at, err := o.at(st, key)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	cfg := o.config(newIncarnation())
	tune(&cfg)
	if err = o.proven(st, key); err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	l := &Lock{driver{st: st, key: key, at: at, opts: o}}
	l.d.Init(&l.d, cfg)
	return l, nil
}

// Key is the name of the lock in its store.
func (l *Lock) Key() string { return l.d.key }

// Acquire waits until it holds the lock and returns the lease, which is renewed
// in the background until it is released. Every lease must be released.
//
// When nobody holds the lock and this candidate knows its last version, that
// costs one write; when it knows nothing, one read and one write. While another
// holds it Acquire looks again soon, then less and less often, down to the
// holder's renewal interval; a holder that is gone is waited out for its TTL and a
// margin.
//
// If ctx ends first, Acquire returns an error that matches ctx.Err() and, where
// that is known, a [*HeldError] and why the store failed. A write that is under way
// then is followed to its end in the background, and if the lock comes after all it is
// released. Acquire fails at once if trying again is pointless: if access is denied,
// if there is no bucket, if the store refuses such requests for good, and if the
// object is not a lock ([ErrForeignObject]) or has too large a token
// ([ErrTokenTooLarge]). All other failures of the store are
// waited out, with pauses that grow to 4 s: see [LockOptions.OnTrouble].
//
// The lease outlives ctx: it keeps its values, not its end.
//
// Under a session ([LockOptions.Session]) Acquire also fails, with an error that matches
// [ErrSessionOver], if that is over. A holder under a session is waited for by a look at that
// session once for each of its heartbeats.
//
// The options are for this one lease: see [AcquireOption].
func (l *Lock) Acquire(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	terms, err := l.d.terms(opts)
	if err != nil {
		return nil, err
	}
	return l.acquireFor(ctx, terms, nil)
}

// acquireFor is Acquire, and has the term begin with the lease, if there is one.
func (l *Lock) acquireFor(ctx context.Context, terms protocol.Terms, t *term) (*Lease, error) {
	ctx, trace := l.d.begins(ctx, terms.Holder, false)
	lease, err := l.acquireInTurn(ctx, asked{wait: true, terms: terms, term: t, trace: trace})
	trace.ends(err)
	return lease, err
}

// acquireInTurn waits for its turn in this process first.
func (l *Lock) acquireInTurn(ctx context.Context, a asked) (*Lease, error) {
	if err := l.underSession(); err != nil {
		return nil, err
	}
	l.d.warnOwn()
	if err := a.trace.enterQueue(ctx, &l.d); err != nil {
		if !errors.Is(err, lock.ErrCrossed) {
			return nil, l.d.heldError(err)
		}
		err = l.d.heldError(ctx.Err())
		l.leave()
		return nil, err
	}
	return l.acquire(ctx, a)
}

// TryAcquire is Acquire that does not wait: if another holds the lock, this
// process included, it returns a [*HeldError] that says who. It does not take
// over from a holder that is gone, unless this Lock has seen its record unchanged
// for its TTL and margin (TTL/12 + 10 ms), by earlier calls or by Inspect, or
// [LockOptions.FastStart] is set; see [Info.Abandoned]. So a caller that tries once a second
// takes over within TTL, margin and a second of the first look that shows the holder's last
// record. From a holder whose session is over it does, and to find that out costs one read more.
//
// If the store fails three times in a row, or has not said within a TTL whether the lock
// is free, TryAcquire fails with the last reason.
//
// A [*HeldError] is an answer and no failure: do something else and try again, or call Acquire,
// which waits. The end of ctx is as for Acquire, and so are the options. A lock that is at rest
// ([WithHoldAtLeast]) counts as held: [Info.Rest] says for how much longer.
func (l *Lock) TryAcquire(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	terms, err := l.d.terms(opts)
	if err != nil {
		return nil, err
	}
	ctx, trace := l.d.begins(ctx, terms.Holder, false)
	lease, err := l.acquireAtOnce(ctx, asked{terms: terms, trace: trace})
	trace.ends(err)
	return lease, err
}

// acquireAtOnce does not wait for a turn in this process either.
func (l *Lock) acquireAtOnce(ctx context.Context, a asked) (*Lease, error) {
	if err := l.underSession(); err != nil {
		return nil, err
	}
	if !l.d.queue.TryEnter() {
		return nil, l.d.heldError(nil)
	}
	return l.acquire(ctx, a)
}

// acquire is for the goroutine whose turn it is. It ends in one of two ways: with a lease, whose
// release passes the turn on, or without one, and then it passes the turn on itself.
func (l *Lock) acquire(ctx context.Context, a asked) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		l.leave()
		return nil, err
	}
	r := l.d.acquire(ctx, a)
	switch {
	case r.lease != nil && ctx.Err() != nil:
		// It came as the caller gave up: undo it, as if it had come later.
		r.lease.beginRelease("")
		return nil, ctx.Err()
	case r.lease != nil && l.d.opts.Session != nil && r.lease.Err() != nil:
		err := r.lease.Err() // the session had run out before
		r.lease.beginRelease("")
		return nil, l.d.explain(err)
	case r.lease != nil:
		return r.lease, nil
	}
	// Before the next one begins, which forgets whom this one has waited for.
	err := l.d.explain(r.err)
	if errors.Is(r.err, protocol.ErrCancelled) {
		err = l.d.heldError(ctx.Err())
	}
	l.leave()
	return nil, err
}

// Settle waits until nothing is under way of acquisitions that were given up: a claim
// that was sent has been answered, and freed if it landed. A process that ends before
// may leave the lock held by nobody for its TTL, and with LayoutMarker until somebody
// deletes the marker. For a lease that somebody holds, or waits for, it does not wait. It
// returns ctx.Err() if ctx ends first.
func (l *Lock) Settle(ctx context.Context) error {
	select {
	case <-l.d.Settled():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave lets in the next goroutine of this process, or frees what was passed on to it.
func (l *Lock) leave() {
	if !l.d.queue.Leave() {
		l.d.Tell(protocol.Drop{})
	}
}

// explain adds to an error of the protocol what the user can do.
// Each message names the next step, and each error that a program may ask for is still there.
func (d *driver) explain(err error) error {
	moved, ok := errors.AsType[*record.MovedError](err)
	switch {
	case ok:
		return &MovedError{To: moved.To, From: moved.From, at: d.at.String(), cause: err}
	case errors.Is(err, protocol.ErrAbsent):
		return fmt.Errorf("the lock %v is to exist already, and does not; make it once with `leasehold init`: %w", d.at, store.ErrNotExist)
	case errors.Is(err, protocol.ErrVanished):
		return fmt.Errorf("the object of the lock %v was deleted, and its last holder may not know; wait a little over its TTL: %w", d.at, store.ErrNotExist)
	case errors.Is(err, protocol.ErrSlowStore):
		return fmt.Errorf("the lock %v: %w; choose a longer TTL", d.at, unavailable(err))
	case errors.Is(err, protocol.ErrNoAnswer):
		return fmt.Errorf("the lock %v: %w", d.at, unavailable(err))
	case errors.Is(err, ErrTokenTooLarge):
		return fmt.Errorf("the lock %v: %w; somebody set it by hand: while nobody holds the lock, set the token in its object to one above all that were given out, or give the lock another name", d.at, err)
	case errors.Is(err, ErrForeignObject):
		return fmt.Errorf("%w; it was left as it is: look at it, and move it away or give the lock another name", err)
	}
	return fmt.Errorf("the lock %v: %w", d.at, err)
}

// unavailable is an error that says of the store that it did not answer in time. Where there is no answer, there is no
// error of the store in it.
func unavailable(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// Do acquires the lock, calls f and releases the lock when f has returned or
// panicked. The context that f gets ends with ctx and with the lease, whichever
// ends first; then f must return.
//
// Do returns f's error, joined with one that matches [ErrLost] if the lease was
// lost before f returned. f may release the lease itself. Do returns an error of
// [Lock.Acquire] without calling f.
//
// Do never returns before f has, however ctx ends, because the lock must not be freed while f
// works. The release afterwards takes 5 s at most. That it was not confirmed is logged and not
// returned: f has done its work, and a caller that saw an error would do it again.
//
// The options are those of Acquire.
func (l *Lock) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error, opts ...AcquireOption) error {
	lease, err := l.Acquire(ctx, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// do is Do, of a lease that was acquired.
func (l *Lease) do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) (err error) {
	work, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })
	defer func() {
		cancel(nil)
		// Asked before the release, after which every lease has ended. That f has ended it itself is no failure.
		lost := l.Err()
		if errors.Is(lost, ErrDetached) || errors.Is(lost, ErrReleased) {
			lost = nil
		}
		last, done := lock.Last(ctx)
		defer done()
		if e := l.Release(last); e != nil && lost == nil {
			l.d.opts.Logger.Warn("lock not released", "lock", l.d.key, "error", e)
		}
		if lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	return f(work, l)
}

// Inspect reads the lock without taking it, by one read. A lock that does not
// exist is an Info that says so, not an error. The result counts as a look of this
// Lock: a holder that has not renewed for its TTL and margin since the first one is
// gone, and TryAcquire takes over from it.
//
// Inspect does not queue behind acquisitions of this Lock, and does not disturb them. It fails
// when the read fails, and with [ErrForeignObject] if the object is not a lock.
func (l *Lock) Inspect(ctx context.Context) (Info, error) {
	// Read before the request: the candidate ignores a look that began before its own last one.
	sent := clock.Now()
	s, info, err := l.look(ctx)
	if !info.Exists { // or that is not known
		return info, err
	}
	l.d.Tell(protocol.Sighted{Answer: layout.ReadDone(s, nil), Sent: sent})
	if info.Held && info.Session != "" {
		info.Abandoned, err = layout.Heartbeat{Store: l.d.st, Key: info.Session}.Gone(ctx, info.Key)
	}
	return info, err
}

func (l *Lock) look(ctx context.Context) (layout.Snapshot, Info, error) {
	sent := clock.Now()
	s, err := l.d.at.Look(ctx, "")
	l.d.traceLook(ctx, sent, err)
	switch {
	case err != nil:
		return s, Info{}, l.d.explain(err)
	case !s.Exists:
		return s, Info{Key: l.d.key, Age: -1}, nil
	}
	return s, describe(l.d.key, s), nil
}
