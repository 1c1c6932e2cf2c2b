package leasehold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A driver is what the engine of a lock works for: it makes leases, errors, callbacks and
// changes of what the engine reports. All of it happens while the engine is locked.
//
// It decides nothing. The candidate in package protocol has decided by then what to write, when,
// whom to believe and when to try again, and the simulation drives that without any of this. So a
// fault here may tell a user the wrong thing, but it cannot make a second holder. The one exception
// is the order in which a lease ends: its validity first, before anything is sent that lets others
// in (rules A7, A10, D7).
type driver struct {
	engine.Engine
	st    store.Store
	key   string
	at    layout.Layout
	queue lock.Turns
	opts  *LockOptions
	lease *Lease     // from its grant until its release is settled
	calls *callbacks // nil until the first
	now   *present   // nil while the engine rests
}

// present is what a driver has while its engine has something to do. A process may hold ten
// thousand leases under a session, whose engines rest: what each of those keeps is counted in
// bytes (TestMemoryOfALease), so all that only an active one needs stands here.
type present struct {
	ctx      context.Context // of the acquisition; gives requests their values
	began    time.Time       // the acquisition
	term     *term           // that the acquisition begins; nil: none
	trace    *acquiring      // that the acquisition is told to; nil: none
	waiter   chan result     // of the acquisition, until it is answered
	seen     Info            // the last holder that the acquisition waited for
	record   record.Record   // as last seen, to tell what has changed
	exists   bool
	last     time.Time // when the store last answered
	failures int       // of requests, in a row
	failing  time.Time // since when tries fail; zero if the last did not
	requests Requests

	changed func(Change) // is told of every change that is seen
	forgot  *time.Timer  // reports a lost lease that is not released

	metaCalls metaCalls
	known     time.Duration // the successor that was named knows of it, by the clock

	// peers are asked instead of the store, if there are any; longestWaiting is whom a
	// release names that names nobody.
	peers          Peers
	longestWaiting func() string
	leaderState    leaderState
	pollState      pollState
}

// asked is what one acquisition asks for.
type asked struct {
	wait  bool
	terms protocol.Terms
	term  *term      // that begins with the lease; nil: none
	trace *acquiring // nil: nobody is told
}

// result is the end of an acquisition.
type result struct {
	lease  *Lease
	err    error
	record *record.Record // of a lease that is detached
	// With err: why the store failed last, and an incarnation of which a write may have landed.
	trouble error
	open    string
}

// Place is where the lock lies.
func (d *driver) Place() engine.Place {
	return engine.Place{Runtime: engine.Process{}, Store: d.st, Key: d.key, Layout: d.at, Logger: d.opts.Logger}
}

// Config is that of a candidate with these options.
func (d *driver) Config() protocol.Config { return d.opts.config("") }

// Session is the one that the leases are under.
func (d *driver) Session(string) *engine.Session { return d.opts.Session.engineOf() }

// Watcher is for a session that the lock waits for.
func (d *driver) Watcher(session string, _ *engine.Engine) engine.Owner {
	return d.traceWatcher(engine.Watcher(d.Place(), session, d.opts.watching()))
}

// Context is that of the acquisition, of which a lease has the values too.
func (d *driver) Context() context.Context {
	switch {
	case d.now.ctx != nil:
		return d.now.ctx
	case d.lease != nil:
		return context.WithoutCancel(d.lease.ctx)
	}
	return context.Background()
}

// Rest makes what there is while the engine has something to do, and forgets it.
func (d *driver) Rest(on bool) {
	if d.now = nil; !on {
		d.now = &present{longestWaiting: func() string { return "" }}
	}
}

// acquire makes an acquisition, and cancels it if ctx ends first.
func (d *driver) acquire(ctx context.Context, a asked) result {
	return d.await(ctx, d.begin(ctx, a))
}

// await waits for an answer, and cancels what was asked if ctx ends first.
func (d *driver) await(ctx context.Context, done <-chan result) result {
	select {
	case r := <-done: // even if ctx has ended: it need not have taken a request
		return r
	default:
	}
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
		// The answer may cross, and then it counts: a lease that nobody is handed would be
		// renewed for ever. There is always one, and soon, since Cancel sends nothing.
		d.Cancel()
		return <-done
	}
}

// begin begins an acquisition. Its one result comes on the channel.
func (d *driver) begin(ctx context.Context, a asked) <-chan result {
	waiter := make(chan result, 1)
	d.Enter()
	defer d.Leave()
	d.asks(ctx, waiter, a)
	if err := d.AcquireEntered(a.wait, d.opts.Session.engineOf(), a.terms); err != nil {
		d.answer(result{err: err})
	}
	return waiter
}

// asks takes note of what is asked now, and where its answer is to go.
func (d *driver) asks(ctx context.Context, waiter chan result, a asked) {
	n := d.now
	// The requests outlive the caller: somebody has to find out whether a claim landed (rule A6).
	n.ctx, n.began, n.waiter, n.seen, n.term, n.trace = context.WithoutCancel(ctx), time.Now(), waiter, Info{}, a.term, a.trace
}

// release ends the lease and sends the release, which may name a successor.
func (d *driver) release(l *Lease, successor string) {
	d.Release(func() protocol.Release {
		if successor == "" {
			successor = d.now.longestWaiting()
		}
		d.traceReleasing()
		l.end(ErrReleased)
		// Not in an election: who resigns was promised that the lock is free then, for others too.
		pass := d.now.changed == nil && d.queue.Waiting()
		return protocol.Release{Successor: d.encodable(successor), Pass: pass}
	})
}

// nameSuccessor gives notice to a follower that it is next, and says at which reading of the clock
// that knows of it.
func (d *driver) nameSuccessor(successor string) (known time.Duration) {
	d.Enter()
	defer d.Leave()
	d.Step(protocol.NameSuccessor{Successor: d.encodable(successor)})
	return d.now.known
}

// giveUp ends a lease whose work has not stopped; it must still be released.
func (d *driver) giveUp(l *Lease, why error) {
	d.Enter()
	defer d.Leave()
	if d.lease == l {
		d.Step(protocol.GiveUp{Err: why})
	}
}

// EndLease ends the lease that is under a session that is over, if there is one.
// It sends nothing and does not tell the candidate. The engine ends the validity of all leases of
// the session first, and only then takes the time to tell each candidate (rule D7).
func (d *driver) EndLease(why error) {
	if l := d.lease; l != nil && l.ctx.Err() == nil {
		l.end(fmt.Errorf("%w: %w", ErrLost, why))
	}
}

// Taken moves the deadline, before anything is sent: a renewal for a shorter TTL moves it back
// as it leaves (rule A7), not when it is answered.
func (d *driver) Taken(ev protocol.Event) {
	d.traceTaken(ev)
	if d.lease != nil && d.lease.ctx.Err() == nil {
		d.lease.deadline.Store(int64(d.Candidate().Deadline()))
	}
	switch ev := ev.(type) {
	case protocol.ReadDone:
		d.now.requests.Reads++
		d.answered(ev.Err)
	case protocol.WriteDone:
		d.now.requests.Writes++
		d.answered(ev.Err)
	}
}

// Stepped notes whether the store works, and wakes the followers that wait, if there is news for
// them.
func (d *driver) Stepped(ev protocol.Event) {
	d.noteTrouble(ev)
	d.announce()
}

// closeAfter closes a channel when two others are closed, as far as there are any.
func closeAfter(c chan struct{}, one, other <-chan struct{}) {
	if one == nil && other == nil {
		close(c)
		return
	}
	go func() {
		for _, before := range []<-chan struct{}{one, other} {
			if before != nil {
				<-before
			}
		}
		close(c)
	}()
}

// Report makes of what the candidate says what the user is told.
// It comes before the engine carries the action out, so a lease has ended for its user by then.
func (d *driver) Report(action protocol.Action) {
	d.traceReport(action)
	switch a := action.(type) {
	case protocol.Granted:
		d.lease = newLease(d.now.ctx, d, d.Candidate())
		d.traceGranted()
		d.lease.deadline.Store(int64(d.Candidate().Deadline()))
		d.seenNew() // the lease, and whose the lock is, become known together
		d.answer(result{lease: d.lease})
	case protocol.Renewed:
		d.renewed()
	case protocol.MetaSet:
		d.metaSet(a.Number)
	case protocol.NoticeGiven:
		d.now.known = a.Known
	case protocol.Troubled:
		d.troubled(a.Err)
	case protocol.Refused:
		d.refused(a)
	case protocol.Failed:
		d.now.seen = d.seenNow()
		d.answer(result{err: a.Err, open: a.Open, trouble: d.Trouble()})
	case protocol.Detached:
		d.detached(a)
	case protocol.Waiting:
		d.waiting(a.Record)
	case protocol.Seen:
		d.seenNew()
	case protocol.Expired:
		d.emit(Change{Kind: Expired, Info: d.describe(a.Record)})
	case protocol.Unreadable:
		d.emit(Change{Kind: Unreadable, Info: d.describe(d.now.record), Err: a.Err})
	case protocol.Vanished:
		d.opts.Logger.Warn("the lock's object was deleted: from now on its tokens grow only if the store's clock is right",
			"lock", d.at.String(), "token", a.Record.Token)
	case protocol.Lost:
		d.lost(fmt.Errorf("%w: %w", ErrLost, a.Err))
	case protocol.Released:
		d.released(a.Err)
	case protocol.Reaped:
		d.answer(result{})
	case protocol.SessionOrphan:
		d.opts.Logger.Warn("the store does not say what became of a write, so the session ends", "lock", d.at.String(), "session", a.Session)
	case protocol.PollPeer:
		d.poll(a)
	case protocol.CancelPoll:
		d.now.pollState.stop()
	}
}

func (d *driver) refused(a protocol.Refused) {
	held := d.describe(a.Record)
	held.Rest = a.Rest // by what the candidate itself knows of it
	if d.ownSession(a.Record) {
		d.answer(result{err: &HeldError{Info: held, advice: sameSession}})
		return
	}
	held.Abandoned = held.Abandoned || a.Abandoned
	d.answer(result{err: &HeldError{Info: held}})
}

// waiting warns of one's own session and does not fail: another goroutine may release that lease.
func (d *driver) waiting(r record.Record) {
	seen := d.describe(r)
	d.now.seen = seen
	d.now.trace.waits(seen, false)
	if d.ownSession(r) {
		d.opts.Logger.Warn("an acquisition waits for another Lock under its own session", "lock", d.at.String(), "advice", sameSession)
	}
	if d.opts.OnWait != nil {
		d.call("OnWait", func() { d.opts.OnWait(seen) })
	}
}

// answer ends the acquisition. It has exactly one: a second would block under the engine's
// mutex, and none would keep the caller for ever. The simulation checks that of the candidate.
func (d *driver) answer(r result) {
	d.now.waiter <- r
	d.now.waiter = nil
}

// describe makes an Info of a record, which is as old as it is now.
func (d *driver) describe(r record.Record) Info { return describe(d.key, d.Shown(r)) }

// seenNow is the holder that the acquisition waits for, as he was last seen.
func (d *driver) seenNow() Info {
	r, _, _ := d.Candidate().Observed()
	if !d.now.seen.Exists || !r.Held && r.Resting() == 0 {
		return d.now.seen
	}
	seen := d.describe(r)
	seen.Abandoned = seen.Abandoned || d.Abandoned(seen.Session)
	return seen
}

// seenNew finds out what changed since the object was last seen. It compares records and not
// events, because a candidate that looks now and then has missed what happened in between:
// two takeovers are one change then, and a release and an acquisition of the same candidate
// are a TakenOver, since the lease is another.
func (d *driver) seenNew() {
	before, existed := d.now.record, d.now.exists
	var version protocol.Version
	d.now.record, version, d.now.exists = d.Candidate().Observed()
	held := existed && before.Held
	// A takeover among epochs is two writes by one write ID: the old one is over, then there is the next.
	if existed == d.now.exists && before.WriteID == d.now.record.WriteID && before.Held == d.now.record.Held {
		return // it has told of this (rule A2)
	}
	c := Change{Info: describe(d.key, layout.Snapshot{Record: d.now.record, Version: version})}
	switch {
	case !d.now.exists:
		c.Kind = Vanished
	case !d.now.record.Held && !held:
		return
	case !d.now.record.Held:
		c.Kind = Resigned
		if d.now.record.WriteID == "" { // there is no object any more that says who
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

func (d *driver) renewed() {
	d.traceRenewed()
	if d.opts.OnRenew != nil {
		lease := d.lease
		d.call("OnRenew", func() { d.opts.OnRenew(lease) })
	}
}

func (d *driver) lost(cause error) {
	lease := d.lease
	lease.end(cause)
	d.traceLost(lease, cause)
	d.opts.Logger.Info("lease lost", "lock", d.at.String(), "token", int64(lease.token), "error", cause)
	// Nobody gets in before Release. A TTL is enough for work that heeds its context.
	d.now.forgot = time.AfterFunc(lease.ttl(), d.warnOwn)
	if d.opts.OnLost != nil {
		d.call("OnLost", func() { d.opts.OnLost(lease, cause) })
	}
}

// released stores the outcome before the channel is closed, because free reads it after that.
func (d *driver) released(err error) {
	lease, past := d.lease, d.Past()
	if err == nil {
		err = d.left()
	}
	if err != nil { // nil says that the lock is certainly not this lease's any more, so it is not said lightly
		err = fmt.Errorf("the lock %v may still be taken for held, for a little over its TTL of %v: %w", d.at, lease.ttl(), err)
	}
	if d.now.forgot != nil {
		d.now.forgot.Stop()
	}
	told := d.traceReleased(lease, err, false)
	d.seenNew() // the end of the lease, and that the lock is free, become known together too
	lease.outcome = err
	lease.settled.Store(true)
	d.lease = nil
	if !d.queue.Leave() {
		d.Step(protocol.Drop{})
	}
	closeAfter(lease.released, past, told) // at last: the caller's next attempt finds the queue empty
}

// left says why the record is left as it is although the lease was released: its session ended
// while that was under way, and for others it may go on for a while.
func (d *driver) left() error {
	r, _, _ := d.Candidate().Observed()
	if s := d.opts.Session; s != nil && r.Session == s.Key() && r.Token == int64(d.lease.token) && errors.Is(context.Cause(d.lease.ctx), ErrReleased) {
		return s.Err()
	}
	return nil
}
