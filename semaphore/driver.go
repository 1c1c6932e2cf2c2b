package semaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
)

// A driver is the engine.Host of a semaphore. It turns the engine's reports into leases,
// errors and events, and decides nothing.
type driver struct {
	st   store.Store
	key  string
	size int64
	opts Options

	quiet atomic.Int64 // the clock reading before which no store errors are reported

	engine.Table

	// Guarded by the engine's mutex.
	last     queue.Caller
	callers  map[queue.Caller]*caller
	sessions map[string]*engine.Session // by name: all sessions that callers here may use

	tracer   *lock.Tracer // nil without a Trace
	failures int          // of traced requests, in a row
	reaps    bool         // the write in flight takes slots from a holder that has not released them
	reaped   bool         // the write whose answer is being processed has done so

	own  *lock.Lazy[*leasehold.Session] // begun here if the options have none
	said said
}

// under is a session, as the engine and as the caller see it.
type under struct {
	inner *engine.Session
	outer *leasehold.Session
}

// caller is an acquisition, and then what its lease belongs to.
type caller struct {
	d      *driver
	n      queue.Caller
	ctx    context.Context   // has the values of the caller's, and does not end
	trace  *lock.Acquisition // nil: not traced
	waiter chan result       // nil: already answered
	under  under
	weight int64
	holder string

	lease *leasehold.Lease
	times lock.Times
}

type result struct {
	lease *leasehold.Lease
	err   error
}

// Key, Where, Holder, TTL, Weight, ValidUntil and SessionErr describe the lease: see [lock.Holding].
func (c *caller) Key() string               { return c.d.key }
func (c *caller) Where() string             { return "slots in " + c.d.at().String() }
func (c *caller) Holder() string            { return c.holder }
func (c *caller) TTL() time.Duration        { return c.d.opts.TTL }
func (c *caller) Weight() int               { return int(c.weight) }
func (c *caller) ValidUntil() time.Duration { return c.under.inner.Until() }
func (c *caller) SessionErr() error         { return c.under.outer.Err() }

// Free begins the release. After the process was suspended, the lease may have expired unnoticed. Others
// may have had the slots since, so the release must report the loss.
func (c *caller) Free(l *lock.Lease, _ string) {
	// Validity ends before anything is sent (rule T4).
	c.d.Leave(queue.Leave{Caller: c.n}, func() bool {
		if l.Context().Err() == nil && !l.Valid() {
			c.lose(c.under.outer.Err())
		}
		c.d.tracer.Releasing(&c.times)
		l.Finish(leasehold.ErrReleased)
		return true
	})
}

// GiveUp ends the lease without releasing its slots.
func (c *caller) GiveUp(_ *lock.Lease, why error) {
	cause := protocol.ErrGivenUp
	if why != nil {
		cause = fmt.Errorf("%w: %w", cause, why)
	}
	c.d.Locked(func() { c.lose(cause) })
}

// lose ends a lease that was not released, unless it has ended. The engine is locked.
func (c *caller) lose(why error) {
	if c.lease.Context().Err() != nil {
		return
	}
	cause := fmt.Errorf("%w: %w", leasehold.ErrLost, why)
	leasehold.Internal.Core(c.lease).Finish(cause)
	c.d.lost(c, cause)
}

// start checks the options and creates the engine.
func (d *driver) start() error {
	if d.opts.Holder == "" {
		host, _ := os.Hostname() // "" if that fails
		d.opts.Holder = fmt.Sprintf("%s/%d", cmp.Or(host, "unknown"), os.Getpid())
	}
	if d.opts.TTL == 0 {
		d.opts.TTL = leasehold.DefaultTTL
	}
	if s := d.opts.Session; s != nil {
		if err := leasehold.Internal.Suits(s, d.st); err != nil {
			return err
		}
	}
	// NewLock checks the options that sessions and locks share.
	if _, err := leasehold.NewLock(d.st, d.key, &leasehold.LockOptions{
		TTL: d.opts.TTL, Holder: d.opts.Holder, Address: d.opts.Address, Meta: d.opts.Meta,
		Proof: d.opts.Proof, Layout: leasehold.LayoutObject,
	}); err != nil {
		return err
	}
	if d.opts.Trace != nil {
		of := locktrace.Subject{Kind: locktrace.Semaphore, Key: d.key, Holder: d.opts.Holder}
		d.tracer = lock.NewTracer(d.opts.Trace, d.st, of, lock.NewEvents(d.at().String(), d.opts.TTL, d.opts.Logger), context.Background)
	}
	d.own = lock.NewLazy(d.opts.TTL, d.end)
	cfg := queue.Config{
		Incarnation: engine.Process{}.Incarnation(), Size: d.size, TTL: d.opts.TTL, Existing: d.opts.Existing,
	}
	if d.opts.Peers != nil {
		cfg.Address = d.opts.Address
	}
	if len(cfg.Address) > maxAddress {
		return fmt.Errorf("with Peers its Address is written for each that waits: it has %d bytes, more than %d", len(cfg.Address), maxAddress)
	}
	d.Init(d, cfg)
	return nil
}

// Place returns the object's location.
func (d *driver) Place() engine.Place {
	return engine.Place{Runtime: engine.Process{}, Store: d.st, Key: d.key, Logger: d.opts.Logger}
}

// Session returns the callers' session with that name.
func (d *driver) Session(name string) *engine.Session { return d.sessions[name] }

// Watcher returns a watcher for another process's session.
func (d *driver) Watcher(session string, _ *engine.Engine) engine.Owner {
	cfg := leasehold.Internal.Watching()
	cfg.TTL, cfg.Holder = d.opts.TTL, d.opts.Holder
	return d.tracer.Watcher(engine.Watcher(d.Place(), session, cfg))
}

// EndLease ends the leases whose session has ended. It sends nothing.
func (d *driver) EndLease(why error) {
	for _, c := range d.callers {
		if c.lease != nil && c.under.inner.Over() != nil {
			c.lose(why)
		}
	}
}

// Stepped turns what the table asks for into what the user sees.
func (d *driver) Stepped(ev protocol.Event, actions []protocol.Action) protocol.Event {
	d.taken(ev)
	for _, action := range actions {
		d.sent(action)
		d.report(action)
	}
	return nil
}

func (d *driver) report(action protocol.Action) {
	switch a := action.(type) {
	case queue.Granted:
		c := d.callers[a.Caller]
		c.lease = leasehold.Internal.NewLease(c.ctx, c, a.Token, nil)
		d.tracer.Granted(&c.times)
		c.trace.Done(a.Token, d.reaped, nil)
		c.answer(result{lease: c.lease})
	case queue.Full:
		d.callers[a.Caller].answer(result{err: d.held(a.Table)})
		d.forget(a.Caller)
	case queue.Refused:
		d.refused(a)
	case queue.Lost:
		d.callers[a.Caller].lose(a.Err)
	case queue.Vacated:
		d.vacated(a)
	case queue.Queued:
		d.callers[a.Caller].trace.Waits(d.held(a.Table), false, a.Ahead)
	case queue.Tell:
		d.tell(a)
	case protocol.Troubled:
		d.troubled(a.Err, d.failures)
	case queue.Vanished:
		d.opts.Logger.Warn("the semaphore's object was deleted: its leases are lost, and its tokens grow only if the store's clock is right",
			"semaphore", d.at().String(), "token", a.Table.Token)
	case protocol.SessionOrphan:
		d.opts.Logger.Warn("the store does not say what became of a write, so the session ends", "semaphore", d.at().String(), "session", a.Session)
	}
}

func (d *driver) refused(a queue.Refused) {
	d.callers[a.Caller].answer(result{err: a.Err})
	if !errors.Is(a.Err, protocol.ErrCancelled) { // otherwise a Vacated follows
		d.forget(a.Caller)
	}
}

// lost reports a lease that ended before it was released.
func (d *driver) lost(c *caller, cause error) {
	d.tracer.Lost(leasehold.Internal.Core(c.lease), &c.times, cause)
	d.opts.Logger.Info("lease lost", "semaphore", d.at().String(), "token", int64(c.lease.Token()), "error", cause)
}

func (d *driver) vacated(a queue.Vacated) {
	c := d.callers[a.Caller]
	if c.lease != nil {
		outcome := a.Err
		if outcome != nil {
			outcome = fmt.Errorf("the slots in %v may still be taken for held, until the end of its session is known to others: %w", d.at(), outcome)
		}
		core := leasehold.Internal.Core(c.lease)
		core.Settle(outcome, d.tracer.Released(core, &c.times, outcome, false), nil)
	}
	d.forget(a.Caller)
}

// forget removes a caller.
func (d *driver) forget(n queue.Caller) {
	delete(d.callers, n)
	if d.opts.Session == nil {
		go d.own.Drop() // it may have to wait while a session begins
	}
}

func (c *caller) answer(r result) {
	c.waiter <- r
	c.waiter = nil
}

// acquire runs an acquisition, and gives up if ctx ends first.
func (d *driver) acquire(ctx context.Context, weight int64, wait bool, opts []leasehold.AcquireOption) (*leasehold.Lease, error) {
	if weight < 1 || weight > d.size {
		return nil, fmt.Errorf("the semaphore %v: the weight %d is not between 1 and its size %d", d.at(), weight, d.size)
	}
	holder, err := d.holder(opts)
	if err != nil {
		return nil, err
	}
	begun, trace := d.tracer.Begin(ctx, holder, false)
	for {
		lease, err := d.attempt(begun, weight, wait, holder, trace)
		// A store outage may end the session, but must not end the wait.
		if err == nil || !wait || d.opts.Session != nil || !errors.Is(err, leasehold.ErrSessionOver) {
			trace.End(d.Locked, err)
			return lease, err
		}
		var ended bool
		d.Locked(func() { ended = trace.Ended() })
		if ended { // there was a lease, which ended with the session
			begun, trace = d.tracer.Begin(ctx, holder, false) //nolint:fatcontext // it is made from the caller's anew
		}
		d.opts.Logger.Warn("the session ended while an acquisition waited, which begins again at the end of the queue", "semaphore", d.at().String(), "error", err)
	}
}

// attempt runs an acquisition under one session.
func (d *driver) attempt(ctx context.Context, weight int64, wait bool, holder string, trace *lock.Acquisition) (*leasehold.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in, err := d.join(ctx, weight, wait)
	if err != nil {
		return nil, err
	}
	c := &caller{d: d, ctx: context.WithoutCancel(ctx), trace: trace, waiter: make(chan result, 1), under: in, weight: weight, holder: holder}
	done := c.waiter
	d.Locked(func() {
		d.last++
		c.n = d.last
	})
	err = d.Join(in.inner, queue.Join{Caller: c.n, Weight: weight, Holder: holder, Wait: wait}, func() {
		d.callers[c.n] = c
		d.enter(in.inner)
	})
	if err != nil {
		if d.opts.Session == nil {
			d.own.Drop()
		}
		return nil, d.explain(err)
	}
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		// The answer may arrive at the same time. Then it counts.
		d.Leave(queue.Leave{Caller: c.n, Err: protocol.ErrCancelled}, func() bool { return c.waiter != nil })
		r = <-done
	}
	switch {
	case r.lease != nil && ctx.Err() != nil:
		leasehold.Internal.Core(r.lease).BeginRelease("") // the lease came as the caller gave up
		return nil, ctx.Err()
	case r.lease != nil && r.lease.Err() != nil:
		err := r.lease.Err() // the session had expired before
		leasehold.Internal.Core(r.lease).BeginRelease("")
		return nil, d.explain(err)
	case r.lease != nil:
		return r.lease, nil
	case errors.Is(r.err, protocol.ErrCancelled):
		return nil, d.heldError(ctx.Err())
	}
	if held, is := errors.AsType[*leasehold.HeldError](r.err); is {
		return nil, held
	}
	return nil, d.explain(r.err)
}

// work calls f under the lease, and then releases the lease.
func (d *driver) work(ctx context.Context, l *leasehold.Lease, f func(ctx context.Context, lease *leasehold.Lease) error) error {
	work := func(ctx context.Context) error { return f(ctx, l) }
	return leasehold.Internal.Core(l).Do(ctx, work, func(err error) {
		d.opts.Logger.Warn("slots were not released", "semaphore", d.key, "error", err)
	})
}

// held returns the error that names the holders of the slots.
func (d *driver) held(t record.Table) error {
	return &leasehold.HeldError{Info: describe(d.key, t, "")}
}

// heldError says why an acquisition ended and, if known, who holds the slots.
func (d *driver) heldError(cause error) error {
	var held error
	d.Locked(func() {
		if t, _ := d.Machine().Shown(); len(t.Holders) > 0 {
			held = d.held(t)
		}
		if trouble := d.Machine().Trouble(); trouble != nil {
			cause = fmt.Errorf("%w; the semaphore %v was not acquired, since the store fails: %w", cause, d.at(), trouble)
		}
	})
	return errors.Join(cause, held)
}

// explain adds the next step to an error.
func (d *driver) explain(err error) error {
	switch {
	case errors.Is(err, protocol.ErrAbsent):
		return fmt.Errorf("the semaphore %v is to exist already, and does not: %w", d.at(), store.ErrNotExist)
	case errors.Is(err, ErrSize):
		return fmt.Errorf("the semaphore %v: %w: all that share it must say the same size", d.at(), err)
	case errors.Is(err, leasehold.ErrForeignObject):
		return fmt.Errorf("%w; it was left as it is: look at it, and move it away or give the semaphore another name", err)
	}
	return fmt.Errorf("the semaphore %v: %w", d.at(), err)
}

// enter registers a session, and forgets ended sessions that no caller here uses.
func (d *driver) enter(s *engine.Session) {
	for name, other := range d.sessions {
		if other.Over() != nil && !slices.Contains(other.Members(), engine.Host(d)) {
			delete(d.sessions, name)
		}
	}
	d.sessions[s.Key()] = s
}

// join returns the session for an acquisition, and begins one if necessary. Its use of a
// session begun here ends with Drop.
func (d *driver) join(ctx context.Context, weight int64, wait bool) (under, error) {
	s := d.opts.Session
	if s == nil {
		var err error
		if s, err = d.own.Use(ctx, func() (*leasehold.Session, error) { return d.newSession(ctx, weight, wait) }); err != nil {
			return under{}, err
		}
	}
	return under{leasehold.Internal.Session(s), s}, nil
}

// newSession begins a session. For a caller that does not wait, it first checks that there
// are free slots, and it gives up on a failing store as the table does.
func (d *driver) newSession(ctx context.Context, weight int64, wait bool) (*leasehold.Session, error) {
	opts := &leasehold.SessionOptions{
		TTL: d.opts.TTL, Holder: d.opts.Holder, Address: d.opts.Address, Meta: d.opts.Meta,
		Proof: d.opts.Proof, Trace: d.sessionTrace(d.troubled), Logger: lock.Untroubled(d.opts.Logger),
	}
	if wait {
		s, err := leasehold.NewSession(ctx, d.st, opts)
		if err != nil {
			return nil, d.explain(err)
		}
		return s, nil
	}
	trying, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	trying, cancel := context.WithTimeout(trying, d.opts.TTL)
	defer cancel()
	if err := d.full(trying, weight); err != nil {
		return nil, err
	}
	opts.Trace = d.sessionTrace(func(err error, failures int) { //nolint:contextcheck // an event has a context of its own
		giveUp(err)
		d.troubled(err, failures)
	})
	s, err := leasehold.NewSession(trying, d.st, opts)
	if err == nil {
		return s, nil
	}
	switch why := context.Cause(trying); {
	case ctx.Err() != nil || why == nil:
	case errors.Is(why, context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w: %w", store.ErrUnavailable, protocol.ErrNoAnswer, err)
	default:
		err = why
	}
	return nil, d.explain(err)
}

// full returns a HeldError if one read shows that weight does not fit. If the read is
// inconclusive, full returns nil, and the acquisition finds the reason.
func (d *driver) full(ctx context.Context, weight int64) error {
	ctx, cancel := context.WithTimeout(ctx, min(d.opts.TTL/2, protocol.MaxRequest))
	defer cancel()
	shown, err := d.at().Look(ctx, "")
	if err != nil || shown.Table.Size != d.size {
		return nil //nolint:nilerr // see above
	}
	d.Tell(queue.TokenSighted{Token: shown.Table.Token})
	var fits bool
	d.Locked(func() { fits = d.Machine().Fits(shown.Table, weight) })
	if fits {
		return nil
	}
	return d.held(shown.Table)
}

// sessionTrace returns the Trace of a session that is begun here. Its trouble is that of the
// semaphore.
func (d *driver) sessionTrace(troubled func(err error, failures int)) *locktrace.Trace {
	var t locktrace.Trace
	if d.opts.Trace != nil {
		t = *d.opts.Trace
	}
	t.Trouble = func(_ context.Context, e locktrace.Trouble) { troubled(e.Err, e.Failures) }
	return &t
}

// troubled reports store errors once a minute, although the table and each session report them.
func (d *driver) troubled(err error, failures int) {
	now, quiet := int64(engine.Process{}.Now().Clock), d.quiet.Load()
	if now < quiet || !d.quiet.CompareAndSwap(quiet, now+int64(time.Minute)) {
		return
	}
	d.tracer.Trouble(err, failures)
	d.opts.Logger.Warn(locktrace.TroubleMessage, "semaphore", d.at().String(), "error", err,
		"advice", "an acquisition that waits goes on until its context ends: give it a deadline")
}

// end closes a session in the background, because its leases may not have been released
// yet.
func (d *driver) end(s *leasehold.Session) {
	go func() {
		if err := s.Close(context.Background()); err != nil && !errors.Is(err, leasehold.ErrLost) {
			d.opts.Logger.Warn("the session of a semaphore was not closed", "semaphore", d.at().String(), "error", err)
		}
	}()
}

func (d *driver) close(ctx context.Context) error {
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	if deadline, limited := ctx.Deadline(); limited && d.opts.Session == nil { // otherwise others may use the session
		d.Tell(queue.Closing{Until: engine.Process{}.Now().Clock + time.Until(deadline)})
	}
	select {
	case <-d.Settled():
	case <-ctx.Done():
		return fmt.Errorf("what is under way in the semaphore %v is not settled: %w", d.at(), ctx.Err())
	}
	for {
		s, unused, err := d.own.Take(ctx)
		if s != nil {
			err = s.Close(ctx)
		}
		switch {
		case err != nil:
			return err
		case unused == nil: // slots and session are settled; pending notifications are optional
			return d.said.done(ctx)
		}
		select {
		case <-unused:
		case <-ctx.Done():
			return fmt.Errorf("leases of the semaphore %v have not been released: %w", d.at(), ctx.Err())
		}
	}
}
