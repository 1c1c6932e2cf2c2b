package leasehold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A Lock is one candidate for one lock: an object in a store. At most one candidate holds a
// valid lease of it at a time. Goroutines that share a Lock queue in order of arrival, and only
// the first one talks to the store. Two Locks of the same key are two candidates, whether in
// one process or in two.
//
// Make one Lock per key and process, and share it: what it has learned saves requests, and the
// wait for a dead holder is counted once. A Lock has no goroutines and sends no requests unless
// it is being acquired, held or released. It needs no closing. It is safe for concurrent use.
type Lock struct{ d driver }

// NewLock returns a candidate for the lock stored in st under key. It sends nothing, and fails
// if the key or an option is invalid, or if [LockOptions.Proof] does not prove the store safe.
func NewLock(st store.Store, key string, opts *LockOptions) (*Lock, error) {
	return newLock(st, key, opts, func(*candidate.Config) {})
}

// newLock is NewLock, except that tune may change the protocol's configuration.
func newLock(st store.Store, key string, opts *LockOptions, tune func(*candidate.Config)) (*Lock, error) {
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
	if err = o.proven(st, key); err != nil { // it decides on If-Match
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	at, err := o.at(st, key)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	cfg := o.config(newIncarnation())
	tune(&cfg)
	l := &Lock{driver{st: st, key: key, at: at, opts: o}}
	l.d.Init(&l.d, cfg)
	return l, nil
}

// Key returns the lock's name in its store.
func (l *Lock) Key() string { return l.d.key }

// Acquire waits until it holds the lock and returns the lease, which is renewed in the
// background until you release it. The lease keeps the values of ctx but outlives it.
//
// A free lock costs one write if this candidate knows its last version, otherwise one read and
// one write. While another candidate holds the lock, Acquire polls it, or its session. It takes
// over from a dead holder after that holder's TTL and a margin.
//
// If ctx ends first, the error matches ctx.Err() and, if they are known, a [*HeldError] and the
// reason why the store failed. A write in flight is then followed in the background, and if it
// wins the lock, the lock is released: see [Lock.Settle].
//
// Acquire fails at once if retrying is pointless: see [Final]. It retries after all other store
// errors, with a backoff of up to 4 s: see [locktrace.Trace]. If the [Session] of the lock has
// ended, the error matches [ErrSessionOver].
func (l *Lock) Acquire(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	terms, err := l.d.terms(opts)
	if err != nil {
		return nil, err
	}
	return l.acquireFor(ctx, terms, nil)
}

// acquireFor is Acquire. If t is not nil, the term t begins with the lease.
func (l *Lock) acquireFor(ctx context.Context, terms candidate.Terms, t *term) (*Lease, error) {
	ctx, trace := l.d.traced(ctx, terms.Holder, false)
	lease, err := l.acquireInTurn(ctx, asked{wait: true, terms: terms, term: t, trace: trace})
	trace.End(l.d.Locked, err)
	return lease, err
}

// acquireInTurn first waits for its turn within this process.
func (l *Lock) acquireInTurn(ctx context.Context, a asked) (*Lease, error) {
	if err := l.underSession(); err != nil {
		return nil, err
	}
	l.d.warnOwn()
	if err := l.d.enterQueue(ctx, a.trace); err != nil {
		if !errors.Is(err, lock.ErrCrossed) {
			return nil, l.d.heldError(err)
		}
		err = l.d.heldError(ctx.Err())
		l.leave()
		return nil, err
	}
	return l.acquire(ctx, a)
}

// TryAcquire is Acquire without waiting. If the lock is held, by this process or another one,
// or in its cooldown ([WithHoldAtLeast]), it returns a [*HeldError] that names the holder. It
// fails if the store fails three times in a row, or has not said within a TTL whether the lock
// is free.
//
// TryAcquire takes over from a dead holder only if this Lock has seen the holder's record
// unchanged for its TTL and margin, in earlier calls or with Inspect, or if
// [LockOptions.FastStart] is set. So a caller that tries once a second takes over within TTL,
// margin and a second. From a holder whose session has ended, it takes over at once.
func (l *Lock) TryAcquire(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	terms, err := l.d.terms(opts)
	if err != nil {
		return nil, err
	}
	ctx, trace := l.d.traced(ctx, terms.Holder, false)
	lease, err := l.acquireAtOnce(ctx, asked{terms: terms, trace: trace})
	trace.End(l.d.Locked, err)
	return lease, err
}

// acquireAtOnce fails unless the turn within this process is free.
func (l *Lock) acquireAtOnce(ctx context.Context, a asked) (*Lease, error) {
	if err := l.underSession(); err != nil {
		return nil, err
	}
	if !l.d.queue.TryEnter() {
		return nil, l.d.heldError(nil)
	}
	return l.acquire(ctx, a)
}

// acquire is for the goroutine that has the turn. It returns a lease, whose release passes the
// turn on, or it passes the turn on itself.
func (l *Lock) acquire(ctx context.Context, a asked) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		l.leave()
		return nil, err
	}
	r := l.d.acquire(ctx, a)
	switch {
	case r.lease != nil && ctx.Err() != nil:
		// The lease came as the caller gave up: undo it, as if it had come later.
		r.lease.core.BeginRelease("")
		return nil, ctx.Err()
	case r.lease != nil && l.d.opts.Session != nil && r.lease.Err() != nil:
		err := r.lease.Err() // the session had expired before
		r.lease.core.BeginRelease("")
		return nil, l.d.explain(err)
	case r.lease != nil:
		return r.lease, nil
	}
	// Before the next acquisition begins, because that forgets the holder this one waited for.
	err := l.d.explain(r.err)
	if errors.Is(r.err, protocol.ErrCancelled) {
		err = l.d.heldError(ctx.Err())
	}
	l.leave()
	return nil, err
}

// Settle waits until abandoned acquisitions have ended: until the store has answered every
// claim, and every claim that landed has been released. Otherwise a process that exits may
// leave the lock held for its TTL. Settle does not wait for leases that are held. It returns
// ctx.Err() if ctx ends first.
func (l *Lock) Settle(ctx context.Context) error {
	select {
	case <-l.d.Settled():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave passes the turn to the next goroutine of this process. If there is none, it frees the lock
// in case it was passed on within the process.
func (l *Lock) leave() {
	if !l.d.queue.Leave() {
		l.d.Tell(candidate.Drop{})
	}
}

// explain adds the next step to an error of the protocol. The result still matches the error.
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
	case errors.Is(err, record.ErrIfMatch), errors.Is(err, record.ErrNoIfMatch):
		return err // it says what to do
	case errors.Is(err, ErrForeignObject):
		return fmt.Errorf("%w; it was left as it is: look at it, and move it away or give the lock another name", err)
	}
	return fmt.Errorf("the lock %v: %w", d.at, err)
}

// unavailable makes err match store.ErrUnavailable. A store that did not answer in time has returned no error that does.
func unavailable(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// Do acquires the lock, calls f, and releases the lock when f has returned or panicked. The
// context passed to f ends with ctx or with the lease, whichever ends first; f must then
// return.
//
// Do returns f's error, joined with an error that matches [ErrLost] if the lease was lost
// before f returned. If Acquire fails, Do returns its error without calling f. f may release
// the lease itself. A release that takes longer than 5 s, or is not confirmed, is logged and
// not an error, because a caller would repeat the work.
func (l *Lock) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error, opts ...AcquireOption) error {
	lease, err := l.Acquire(ctx, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, l.d.opts.Logger, f)
}

// do is Do for a lease that has been acquired.
func (l *Lease) do(ctx context.Context, log *slog.Logger, f func(ctx context.Context, lease *Lease) error) error {
	work := func(ctx context.Context) error { return f(ctx, l) }
	return l.core.Do(ctx, work, func(err error) { log.Warn("lock not released", "lock", l.Key(), "error", err) })
}

// Inspect reads the lock with one read, and perhaps its session, without taking it. If the lock
// does not exist, Info.Exists is false and the error is nil. Inspect does not queue behind
// acquisitions of this Lock. Its result counts towards a takeover: see TryAcquire.
func (l *Lock) Inspect(ctx context.Context) (Info, error) {
	// Read the clock before the request: the candidate ignores a look that began before its own last one.
	sent := clock.Now()
	s, info, err := l.look(ctx)
	if !info.Exists { // or that is not known
		return info, err
	}
	l.d.Tell(candidate.Sighted{Answer: layout.ReadDone(s, nil), Sent: sent})
	if info.Held && info.Session != "" {
		info.Abandoned, err = layout.Heartbeat{Store: l.d.st, Key: info.Session}.Gone(ctx, info.Key)
	}
	return info, err
}

func (l *Lock) look(ctx context.Context) (layout.Snapshot, Info, error) {
	sent := clock.Now()
	s, err := l.d.at.Look(ctx, "")
	if l.d.opts.Trace != nil {
		l.d.Locked(func() { l.d.tracer().Looked(ctx, sent, err) })
	}
	switch {
	case err != nil:
		return s, Info{}, l.d.explain(err)
	case !s.Exists:
		return s, Info{Key: l.d.key, Age: -1}, nil
	}
	return s, describe(l.d.key, s), nil
}

// An AcquireOption applies to one acquisition and its lease. If it is invalid, the call returns
// an error and sends nothing. Semaphores take WithHolder only.
type AcquireOption func(*acquisition) error

// acquisition collects the options of one acquisition.
type acquisition struct{ terms candidate.Terms }

// WithHolder sets the holder's name for this lease instead of [LockOptions.Holder].
func WithHolder(name string) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.Holder = name; name == "" {
			return errors.New("WithHolder: the name is empty")
		}
		return nil
	}
}

// WithMeta sets the metadata of this lease instead of [LockOptions.Meta], until [Lease.SetMeta]
// changes it. The map is copied; nil means no metadata.
func WithMeta(meta map[string]string) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.Meta = maps.Clone(meta); meta == nil {
			a.terms.Meta = map[string]string{}
		}
		return nil
	}
}

// WithTTL sets the TTL of this lease instead of [LockOptions.TTL]. It is an error under a
// [Session], which sets the TTL of all its leases.
func WithTTL(ttl time.Duration) AcquireOption {
	return func(a *acquisition) error {
		// The record keeps whole milliseconds, and both sides must count the same.
		if a.terms.TTL = ttl.Truncate(time.Millisecond); a.terms.TTL == 0 {
			return fmt.Errorf("WithTTL: %v is not between %v and %v", ttl, MinTTL, MaxTTL)
		}
		return nil
	}
}

// WithoutRenewal makes a lease that is not renewed: it ends with [ErrTimeUp] when its TTL less
// the margin has passed. Under a [Session] it is an error: use WithMaxHold.
func WithoutRenewal() AcquireOption {
	return func(a *acquisition) error {
		a.terms.NoRenewal = true
		return nil
	}
}

// WithMaxHold ends this lease with [ErrTimeUp] at the latest d after its claim was sent, even
// if the work takes longer. Others can take the lock when it is released or when the TTL after
// its last renewal has passed; under a [Session], only when it is released. At least 1 s.
func WithMaxHold(d time.Duration) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.MaxHold = d; d <= 0 {
			return fmt.Errorf("WithMaxHold: %v is not a time to hold a lock for", d)
		}
		return nil
	}
}

// WithHoldAtLeast keeps all candidates from taking the lock for d after the acquisition, even
// if the lease is released earlier: the release then records a cooldown. Use it for jobs that
// must run once per period on one of several machines, if a run is shorter than the difference
// between their clocks. At most 24 h, and at most the limit of WithMaxHold.
//
// No guarantee rests on the cooldown. A holder that dies, or whose release fails, leaves none.
// Candidates measure it by the store's clock or, without one, from when they first see it.
// `leasehold break` ends it. Layouts without tokens reject the option.
func WithHoldAtLeast(d time.Duration) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.HoldAtLeast = d; d < 0 {
			return fmt.Errorf("WithHoldAtLeast: %v is negative", d)
		}
		return nil
	}
}

// terms returns what the options ask for, or which option is invalid.
func (d *driver) terms(opts []AcquireOption) (candidate.Terms, error) {
	if len(opts) == 0 {
		return candidate.Terms{}, nil
	}
	t, err := termsFrom(opts)
	if err == nil {
		err = t.Check(d.opts.Session != nil)
	}
	if err == nil && t.HoldAtLeast > 0 && !d.opts.Layout.Tokens() {
		err = fmt.Errorf("the layout %s cannot keep a shortest hold: a lock that is free has no record", d.opts.Layout)
	}
	if err == nil {
		with := *d.opts
		if t.Holder != "" {
			with.Holder = t.Holder
		}
		if t.Meta != nil {
			with.Meta = t.Meta
		}
		err = with.encodable()
	}
	if err != nil {
		err = fmt.Errorf("the lock %v: %w", d.at, err)
	}
	return t, err
}

// termsFrom returns what the options ask for, without checking that it can be had.
func termsFrom(opts []AcquireOption) (candidate.Terms, error) {
	var a acquisition
	for _, option := range opts {
		if option == nil {
			continue
		}
		if err := option(&a); err != nil {
			return a.terms, err
		}
	}
	return a.terms, nil
}

// termsOf returns the terms of the candidate's lease, or nil if its acquisition had no options.
func termsOf(c *candidate.Machine) *lock.Terms {
	t, end := c.Terms()
	if t.None() {
		return nil
	}
	return &lock.Terms{Terms: t, End: end}
}
