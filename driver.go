package leasehold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
)

// A driver is what a lock's engine works for: it turns the engine's reports into leases,
// errors, events and changes. All of this happens while the engine is locked.
//
// The driver decides nothing. The machine in package candidate has already decided what to
// write and when, which records to trust and when to retry, and the simulation tests that
// without a driver. So a fault here may misinform the user, but it cannot create a second
// holder. The one exception is the order in which a lease ends: its validity ends before
// anything is sent that lets others in (rules A7, A10, D7).
type driver struct {
	engine.Engine
	st    store.Store
	key   string
	at    layout.Layout
	queue lock.Turns
	opts  *LockOptions
	lease *Lease       // from its grant until its release is settled
	trace *lock.Tracer // nil without a Trace, and until the first event
	now   *present     // nil while the engine rests
}

// present is what a driver needs only while its engine is active. A process may hold ten
// thousand leases under a session, whose engines rest, so what each of those keeps is counted
// in bytes (TestMemoryOfALease).
type present struct {
	ctx      context.Context   // of the acquisition; gives requests their values
	began    time.Time         // start of the acquisition
	term     *term             // begins with the lease; nil: none
	trace    *lock.Acquisition // receives the acquisition's events; nil: none
	waiter   chan result       // of the acquisition, until it is answered
	seen     Info              // last holder that the acquisition waited for
	record   record.Record     // as last seen, to detect changes
	exists   bool
	last     time.Time // when the store last answered
	failures int       // consecutive failed requests
	failing  time.Time // since when tries fail; zero if the last one did not
	reads    int64     // requests so far
	writes   int64

	changed func(Change) // receives every change; nil outside of elections
	forgot  *time.Timer  // reports a lost lease that is not released

	metaCalls metaCalls
	known     time.Duration // clock reading at which the named successor knows

	// peers, if set, are asked instead of the store. longestWaiting returns the successor for
	// releases that name none.
	peers          Peers
	longestWaiting func() string
	leaderState    leaderState
	pollState      pollState
}

// asked is the request for one acquisition.
type asked struct {
	wait  bool
	terms candidate.Terms
	term  *term             // begins with the lease; nil: none
	trace *lock.Acquisition // nil: no Trace
}

// result is the end of an acquisition.
type result struct {
	lease  *Lease
	err    error
	record *record.Record // of a detached lease
	// With err: the last store error, and an incarnation with a write that may have landed.
	trouble error
	open    string
}

// Place returns the lock's location.
func (d *driver) Place() engine.Place {
	return engine.Place{Runtime: engine.Process{}, Store: d.st, Key: d.key, Layout: d.at, Logger: d.opts.Logger}
}

// Config returns the configuration of a candidate with these options.
func (d *driver) Config() candidate.Config { return d.opts.config("") }

// Session returns the session of the leases.
func (d *driver) Session(string) *engine.Session { return d.opts.Session.engineOf() }

// Watcher returns the owner of an engine that watches another holder's session.
func (d *driver) Watcher(session string, _ *engine.Engine) engine.Owner {
	return d.tracer().Watcher(engine.Watcher(d.Place(), session, d.opts.watching()))
}

// Context returns the context of the acquisition, or one with the values of the lease's.
func (d *driver) Context() context.Context {
	switch {
	case d.now.ctx != nil:
		return d.now.ctx
	case d.lease != nil:
		return d.lease.core.Values()
	}
	return context.Background()
}

// Rest drops the state of an active engine, or creates it.
func (d *driver) Rest(on bool) {
	if d.now = nil; !on {
		d.now = &present{longestWaiting: func() string { return "" }}
	}
}

// acquire runs an acquisition, and cancels it if ctx ends first.
func (d *driver) acquire(ctx context.Context, a asked) result {
	return d.await(ctx, d.begin(ctx, a))
}

// await waits for an answer, and cancels the request if ctx ends first.
func (d *driver) await(ctx context.Context, done <-chan result) result {
	select {
	case r := <-done: // even if ctx has ended: the answer may not have needed the store
		return r
	default:
	}
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
		// An answer that came meanwhile counts: a lease that no caller gets would be renewed
		// forever. There is always an answer soon, because Cancel sends nothing.
		d.Cancel()
		return <-done
	}
}

// begin begins an acquisition. The channel receives one result.
func (d *driver) begin(ctx context.Context, a asked) <-chan result {
	waiter := make(chan result, 1)
	ev := candidate.Acquire{Wait: a.wait, Terms: a.terms}
	if err := d.Acquire(ctx, ev, d.opts.Session.engineOf(), func() { d.asks(ctx, waiter, a) }); err != nil {
		waiter <- result{err: err}
	}
	return waiter
}

// asks stores the caller's request and the channel for its answer.
func (d *driver) asks(ctx context.Context, waiter chan result, a asked) {
	n := d.now
	// The requests outlive the caller, because the candidate must find out whether a claim
	// landed (rule A6).
	n.ctx, n.began, n.waiter, n.seen, n.term, n.trace = context.WithoutCancel(ctx), time.Now(), waiter, Info{}, a.term, a.trace
}

// Key, Where, Holder, TTL and Weight describe the lock's leases: see [lock.Holding].
func (d *driver) Key() string        { return d.key }
func (d *driver) Where() string      { return "the lock " + d.at.String() }
func (d *driver) Holder() string     { return d.opts.Holder }
func (d *driver) TTL() time.Duration { return d.opts.TTL }
func (d *driver) Weight() int        { return 1 }

// ValidUntil returns the clock reading at which the latest lease ceases to be valid.
func (d *driver) ValidUntil() time.Duration {
	until := d.Until()
	if s := d.opts.Session; s != nil {
		until = min(until, s.inner.Until())
	}
	return until
}

// SessionErr returns why the session has ended.
func (d *driver) SessionErr() error {
	if s := d.opts.Session; s != nil {
		return s.Err()
	}
	return nil
}

// Free ends the lease and sends the release, which may name a successor.
func (d *driver) Free(l *lock.Lease, successor string) {
	d.Release(func() candidate.Release {
		if successor == "" {
			successor = d.now.longestWaiting()
		}
		d.tracer().Releasing(d.tracer().Times())
		l.Finish(ErrReleased)
		// Not in an election: Resign promises that the lock is then free for others too.
		pass := d.now.changed == nil && d.queue.Waiting()
		return candidate.Release{Successor: d.encodable(successor), Pass: pass}
	})
}

// nameSuccessor tells a follower that it is next, and returns the clock reading at which the
// follower knows.
func (d *driver) nameSuccessor(successor string) (known time.Duration) {
	d.Enter()
	defer d.Leave()
	d.Step(candidate.NameSuccessor{Successor: d.encodable(successor)})
	return d.now.known
}

// GiveUp ends a lease whose work has not stopped. It must still be released.
func (d *driver) GiveUp(l *lock.Lease, why error) {
	d.Enter()
	defer d.Leave()
	if d.lease != nil && &d.lease.core == l {
		d.Step(candidate.GiveUp{Err: why})
	}
}

// EndLease ends the lease, if there is one, because its session has ended. It sends nothing and
// does not tell the candidate: the engine first ends the validity of all leases under the
// session and then tells each candidate, which takes time (rule D7).
func (d *driver) EndLease(why error) {
	if l := d.lease; l != nil && l.Context().Err() == nil {
		l.core.Finish(fmt.Errorf("%w: %w", ErrLost, why))
	}
}

// Stepped tells the user what an event has changed. Nothing has been sent yet, so a lease has ended
// for its user before its release is sent.
func (d *driver) Stepped(ev protocol.Event, actions []protocol.Action) (next protocol.Event) {
	d.tracer().Taken(ev, d.Until())
	switch ev := ev.(type) {
	case candidate.ReadDone:
		d.now.reads++
		d.answered(ev.Err)
	case candidate.WriteDone:
		d.now.writes++
		d.answered(ev.Err)
	}
	for _, action := range actions {
		d.tracer().Sent(action)
		if d.report(action) {
			next = candidate.Drop{}
		}
	}
	d.noteTrouble(ev)
	d.announce()
	return next
}

// report tells the user what the candidate reports. It returns true when a lease has been given up
// and nobody in this process waits for the next one.
func (d *driver) report(action protocol.Action) (unused bool) {
	switch a := action.(type) {
	case candidate.Granted:
		d.lease = new(Lease)
		d.lease.core.Begin(d.now.ctx, d, d.Candidate().Lease().Token, termsOf(d.Candidate()))
		d.tracer().Granted(d.tracer().Times())
		d.now.trace.Done(d.lease.core.Token, d.tracer().TookOver(), nil)
		d.seenNew() // the lease and its holder become known together
		d.answer(result{lease: d.lease})
	case candidate.Renewed:
		d.tracer().Renewed(d.lease.Holder(), d.lease.core.Token, d.Candidate().Lease().TTL)
	case candidate.MetaSet:
		d.metaSet(a.Number)
	case candidate.NoticeGiven:
		d.now.known = a.Known
	case protocol.Troubled:
		d.troubled(a.Err)
	case candidate.Refused:
		d.refused(a)
	case candidate.Failed:
		d.now.seen = d.seenNow()
		d.answer(result{err: a.Err, open: a.Open, trouble: d.Trouble()})
	case candidate.Detached:
		return d.detached(a)
	case candidate.Waiting:
		d.waiting(a.Record)
	case protocol.Seen:
		d.seenNew()
	case candidate.Expired:
		d.emit(Change{Kind: Expired, Info: d.describe(a.Record)})
	case candidate.Unreadable:
		d.emit(Change{Kind: Unreadable, Info: d.describe(d.now.record), Err: a.Err})
	case candidate.Vanished:
		d.opts.Logger.Warn("the lock's object was deleted: from now on its tokens grow only if the store's clock is right",
			"lock", d.at.String(), "token", a.Record.Token)
	case candidate.Lost:
		d.lost(fmt.Errorf("%w: %w", ErrLost, a.Err))
	case candidate.Released:
		return d.released(a.Err)
	case candidate.Reaped:
		d.answer(result{})
	case protocol.SessionOrphan:
		d.opts.Logger.Warn("the store does not say what became of a write, so the session ends", "lock", d.at.String(), "session", a.Session)
	case candidate.PollPeer:
		d.poll(a)
	case candidate.CancelPoll:
		d.now.pollState.stop()
	}
	return false
}

func (d *driver) refused(a candidate.Refused) {
	held := d.describe(a.Record)
	held.Rest = a.Rest // as the candidate knows it
	if d.ownSession(a.Record) {
		d.answer(result{err: &HeldError{Info: held, advice: sameSession}})
		return
	}
	held.Abandoned = held.Abandoned || a.Abandoned
	d.answer(result{err: &HeldError{Info: held}})
}

// waiting only warns about a holder under the same session, because another goroutine may
// release that lease.
func (d *driver) waiting(r record.Record) {
	seen := d.describe(r)
	d.now.seen = seen
	d.now.trace.Waits(&HeldError{Info: seen}, false, 0)
	if d.ownSession(r) {
		d.opts.Logger.Warn("an acquisition waits for another Lock under its own session", "lock", d.at.String(), "advice", sameSession)
	}
}

// answer ends the acquisition. Each has exactly one answer: a second would block under the
// engine's mutex, and without one the caller would wait forever. The simulation checks that the
// candidate sends one.
func (d *driver) answer(r result) {
	d.now.waiter <- r
	d.now.waiter = nil
}

// describe returns the Info for r, with the record's current age.
func (d *driver) describe(r record.Record) Info { return describe(d.key, d.Shown(r)) }

// seenNow returns the holder that the acquisition waits for, as last seen.
func (d *driver) seenNow() Info {
	r, _, _ := d.Candidate().Observed()
	if !d.now.seen.Exists || !r.Held && r.Resting() == 0 {
		return d.now.seen
	}
	seen := d.describe(r)
	seen.Abandoned = seen.Abandoned || d.Abandoned(seen.Session)
	return seen
}

// seenNew reports what changed since the object was last seen. It compares records instead of
// events, because a candidate that polls misses what happens in between. So it sees two
// takeovers as one change, and a release and an acquisition by the same candidate as TakenOver,
// because the lease is a new one.
func (d *driver) seenNew() {
	before, existed := d.now.record, d.now.exists
	var version protocol.Version
	d.now.record, version, d.now.exists = d.Candidate().Observed()
	held := existed && before.Held
	// With epochs, a takeover is two writes with one write ID: it ends the old epoch, then
	// creates the next.
	if existed == d.now.exists && before.WriteID == d.now.record.WriteID && before.Held == d.now.record.Held {
		return // already told (rule A2)
	}
	c := Change{Info: describe(d.key, layout.Snapshot{Record: d.now.record, Version: version})}
	switch {
	case !d.now.exists:
		c.Kind = Vanished
	case !d.now.record.Held && !held:
		return
	case !d.now.record.Held:
		c.Kind = Resigned
		if d.now.record.WriteID == "" { // no object left to name the former holder
			before.Held = false
			c.Info = describe(d.key, layout.Snapshot{Record: before})
		}
	case held && before.SameLease(d.now.record):
		c.Kind = Renewed
	case held:
		c.Kind = TakenOver
	default:
		c.Kind = Elected
	}
	d.emit(c)
}

func (d *driver) emit(c Change) {
	if d.now.changed != nil {
		c.Time = time.Now()
		d.now.changed(c)
	}
}

func (d *driver) lost(cause error) {
	lease := d.lease
	lease.core.Finish(cause)
	d.tracer().Lost(&lease.core, d.tracer().Times(), cause)
	d.opts.Logger.Info("lease lost", "lock", d.at.String(), "token", lease.core.Token, "error", cause)
	// The lost lease keeps others out until it is released. A TTL is enough for work that heeds
	// its context.
	d.now.forgot = time.AfterFunc(lease.core.TTL(), d.warnOwn)
}

// released stores the outcome before it closes the channel, because free reads it then. It reports
// whether nobody in this process waits for the lock.
func (d *driver) released(err error) (unused bool) {
	lease, past := d.lease, d.Past()
	if err == nil {
		err = d.left()
	}
	if err != nil { // nil must mean that the lease certainly no longer holds the lock
		err = fmt.Errorf("the lock %v may still be taken for held, for a little over its TTL of %v: %w", d.at, lease.core.TTL(), err)
	}
	if d.now.forgot != nil {
		d.now.forgot.Stop()
	}
	told := d.tracer().Released(&lease.core, d.tracer().Times(), err, false)
	d.seenNew() // the end of the lease and the free lock become known together
	d.lease = nil
	unused = !d.queue.Leave()
	lease.core.Settle(err, past, told) // last, so that the caller's next attempt finds the queue empty
	return unused
}

// left returns why the record still shows the released lease: its session ended during the
// release, and others may see the lease as held for a while.
func (d *driver) left() error {
	r, _, _ := d.Candidate().Observed()
	if s := d.opts.Session; s != nil && r.Session == s.Key() && r.Token == d.lease.core.Token && errors.Is(context.Cause(d.lease.Context()), ErrReleased) {
		return s.Err()
	}
	return nil
}

// answered counts consecutive failed requests.
func (d *driver) answered(err error) {
	if err != nil {
		d.now.failures++
		return
	}
	d.now.failures, d.now.last = 0, time.Now()
}

// noteTrouble keeps the time since which tries fail. A store may answer reads but refuse
// writes, so counting consecutive requests is not enough. Only a successful answer ends the
// failure: a new acquisition clears the candidate's error but proves nothing.
func (d *driver) noteTrouble(ev protocol.Event) {
	err := d.Candidate().Trouble()
	switch {
	case err != nil && !errors.Is(err, layout.ErrNotExpired):
		if d.now.failing.IsZero() {
			d.now.failing = time.Now()
		}
	case succeeded(ev):
		d.now.failing = time.Time{}
	}
}

// succeeded reports whether ev is a successful answer of the store.
func succeeded(ev protocol.Event) bool {
	switch ev := ev.(type) {
	case candidate.ReadDone:
		return ev.Err == nil
	case candidate.WriteDone:
		return ev.Err == nil
	}
	return false
}

// untilItsContext is the advice for an acquisition that waits for the store.
const untilItsContext = "the acquisition goes on until its context ends: give it a deadline"

// troubled tells the user that the store keeps failing.
func (d *driver) troubled(err error) {
	if errors.Is(err, layout.ErrNotExpired) {
		return // the store works: a marker is not old enough to sweep yet
	}
	d.tracer().Trouble(err, d.now.failures)
	log := d.opts.Logger.With("lock", d.at.String(), "error", err)
	if d.now.waiter != nil {
		log = log.With("advice", untilItsContext)
	}
	log.Warn(locktrace.TroubleMessage)
}

// Internal is for other packages of this module, and may change at any time.
var Internal internal

type internal struct{}

// Store returns the store of the lock.
func (internal) Store(l *Lock) store.Store { return l.d.st }

// Layout returns where and how the lock is stored.
func (internal) Layout(l *Lock) layout.Layout { return l.d.at }

// Config returns the configuration of the lock's candidate, without its incarnation.
func (internal) Config(l *Lock) candidate.Config { return l.d.opts.config("") }

// Proven returns why NewLock would refuse the store, and sets NoIfMatch as it would.
func (internal) Proven(o *LockOptions, st store.Store, key string) error { return o.proven(st, key) }

// Look reads the lock.
func (internal) Look(ctx context.Context, l *Lock) (layout.Snapshot, Info, error) { return l.look(ctx) }

// Known reports without a request whether the lock can be claimed now, or why it cannot be acquired.
func (internal) Known(l *Lock) (free bool, err error) {
	if err = l.underSession(); err != nil {
		return false, err
	}
	if l.d.queue.Taken() {
		return false, l.d.heldError(nil)
	}
	l.d.Locked(func() { free = l.d.Candidate().Claimable(clock.Now()) })
	return free, nil
}

// Explain adds to an error about the lock what the user can do.
func (internal) Explain(l *Lock, err error) error { return l.d.explain(err) }

// Describe returns the Info for a record or a table under this key.
func (internal) Describe(key string, s layout.Snapshot) Info { return describe(key, s) }

// Options returns the lock's options, with defaults. Do not change them.
func (internal) Options(l *Lock) *LockOptions { return l.d.opts }

// Watching returns the configuration of a candidate that watches another holder's session, with the
// default options and without its incarnation.
func (internal) Watching() candidate.Config {
	defaults, _ := (*LockOptions)(nil).withDefaults() // the defaults are valid
	return defaults.watching()
}

// NewLease returns a lease of what is not a lock.
func (internal) NewLease(ctx context.Context, of lock.Holding, token int64, terms *lock.Terms) *Lease {
	l := new(Lease)
	l.core.Begin(ctx, of, token, terms)
	return l
}

// Core returns how the lease ends.
func (internal) Core(l *Lease) *lock.Lease { return &l.core }

// Terms returns what options ask for.
func (internal) Terms(opts []AcquireOption) (candidate.Terms, error) { return termsFrom(opts) }

// Session returns the session's engine.
func (internal) Session(s *Session) *engine.Session { return s.engineOf() }

// Update changes an election's TTL and intervals.
func (internal) Update(e *Election, c candidate.Retune) error { return e.update(c) }

// Attend is peer.Attend.
func (internal) Attend(ctx context.Context, e *Election, q lock.Question) (lock.Leadership, error) {
	return e.attend(ctx, q)
}

// Suits returns why nothing in this store can be under the session.
func (internal) Suits(s *Session, st store.Store) error { return s.suits(st, LayoutObject) }
