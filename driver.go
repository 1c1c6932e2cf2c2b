package leasehold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A driver gives one candidate of the protocol its clock, its timer and its
// requests. Whatever happens to the candidate happens in step, one event at a
// time and whichever goroutine brings it, so an idle driver has no goroutine. The
// candidate has at most one request under way, so writes of one lease never
// overtake each other.
type driver struct {
	lock *Lock
	at   layout.Layout
	opts *LockOptions

	mu    sync.Mutex
	lease *Lease     // from its grant until its release is settled
	calls *callbacks // of the user; made when the first is called

	// A lease under a session needs nothing until it is released. Its driver rests
	// then: it has no engine, and what there is to remember of the candidate, which is
	// little, because there may be very many of them.
	rest *protocol.Saved
	*engine
}

// An engine is what a driver has while it has something to do.
type engine struct {
	cfg          protocol.Config
	candidate    *protocol.Candidate
	timer        *time.Timer
	ctx          context.Context    // of the acquisition; gives requests their values
	began        time.Time          // the acquisition
	term         *term              // that the acquisition begins; nil: none
	sessionWatch sessionWatch       // for the session that the candidate waits for
	waiter       chan result        // of the acquisition, until it is answered
	settling     []chan struct{}    // closed when the candidate has settled
	past         chan struct{}      // closed when the collection of it has ended; nil: none goes on
	idle         []chan struct{}    // closed when no request is under way
	seen         Info               // the last holder that the acquisition waited for
	quit         context.CancelFunc // ends the read under way
	looked       time.Duration      // when the last read was sent
	shown        layout.Snapshot    // by the last read that showed anything
	showed       time.Duration      // when that was answered
	record       record.Record      // as last seen, to tell what has changed
	exists       bool
	last         time.Time // when the store last answered
	failures     int       // of requests, in a row
	requests     Requests

	// changed is told of every change that is seen, and beats of every heartbeat, while
	// the driver is locked.
	changed func(Change)
	beats   func(record.Record)

	forgot  *time.Timer // reports a lost lease that is not released
	fails   func(error) // is told of trouble instead of the user
	failing error       // why it is not known whether the session goes on that the acquisition waited for

	// peers are asked instead of the store, if there are any; longestWaiting is whom a
	// release names that names nobody.
	peers          Peers
	longestWaiting func() string
	leaderState    leaderState
	pollState      pollState
}

// result is the end of an acquisition.
type result struct {
	lease *Lease
	err   error
}

// maxSleep bounds how long a timer may run without a look at the clock: timers
// stand still while the machine is suspended, the clock does not.
const maxSleep = time.Second

func newDriver(lock *Lock, at layout.Layout, cfg protocol.Config, opts *LockOptions) *driver {
	d := &driver{lock: lock, at: at, opts: opts}
	d.start(cfg, protocol.New(cfg))
	return d
}

func (d *driver) start(cfg protocol.Config, c *protocol.Candidate) {
	d.engine = &engine{cfg: cfg, candidate: c, longestWaiting: func() string { return "" }}
}

// enter locks the driver and makes it ready for what comes.
func (d *driver) enter() {
	d.mu.Lock()
	if d.engine != nil {
		return
	}
	cfg := d.opts.config("")
	d.start(cfg, protocol.Restore(cfg, d.rest))
	d.rest, d.ctx = nil, context.WithoutCancel(d.lease.ctx)
}

// leave unlocks the driver, which rests from now on if it can.
func (d *driver) leave() {
	idle := d.changed == nil && d.past == nil
	if rest, can := d.candidate.Save(); can && idle {
		d.rest, d.engine = rest, nil
	}
	d.mu.Unlock()
}

// call runs a function of the user, after those before it.
func (d *driver) call(name string, f func()) {
	if d.calls == nil {
		d.calls = &callbacks{patience: d.opts.TTL, hangs: d.hangs}
	}
	d.calls.add(name, f)
}

func (d *driver) hangs(name string) {
	d.opts.Logger.Warn("a callback does not return, and the next ones wait for it", "lock", d.at.String(), "callback", name)
}

// acquire makes an acquisition, and cancels it if ctx ends first.
func (d *driver) acquire(ctx context.Context, wait bool, t *term) result {
	done := d.begin(ctx, wait, t)
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
		d.cancel()
		return <-done
	}
}

// begin begins an acquisition. Its one result comes on the channel.
func (d *driver) begin(ctx context.Context, wait bool, t *term) <-chan result {
	waiter := make(chan result, 1)
	d.enter()
	defer d.leave()
	if s := d.opts.Session; s != nil {
		if err := s.enter(d); err != nil {
			waiter <- result{err: err}
			return waiter
		}
	}
	d.ctx, d.began, d.waiter, d.seen = context.WithoutCancel(ctx), time.Now(), waiter, Info{}
	d.term, d.failing = t, nil
	d.stepLocked(d.wanted(wait))
	return waiter
}

func (d *driver) wanted(wait bool) protocol.Acquire {
	ev := protocol.Acquire{Wait: wait}
	if s := d.opts.Session; s != nil {
		ev.Session = s.Key()
	}
	return ev
}

// cancel ends the acquisition, unless its result and the end of its context cross.
func (d *driver) cancel() {
	d.enter()
	defer d.leave()
	if d.waiter != nil && d.quit != nil {
		d.quit() // nobody waits for what the read would show
	}
	if r := d.sessionWatch.reaper; r != nil {
		d.failing = r.failing()
	}
	d.stepLocked(protocol.Cancel{})
}

// release ends the lease and sends the release, which may name a successor.
func (d *driver) release(l *Lease, successor string) {
	if s := d.opts.Session; s != nil && !s.Valid() {
		s.end(protocol.ErrExpired) // if it has not ended yet: no timer has run since it ran out
	}
	d.enter()
	defer d.leave()
	if l.ctx.Err() == nil && !l.Valid() {
		d.stepLocked(protocol.Tick{}) // it is lost, and no timer has run since
	}
	if s := d.opts.Session; s != nil && s.ended.Load() {
		d.stepLocked(protocol.SessionOver{Session: s.Key(), Err: s.over()}) // it is on its way to tell us so
	}
	if successor == "" {
		successor = d.longestWaiting()
	}
	l.end(ErrReleased)
	// Not in an election: who resigns was promised that the lock is free then, for others too.
	pass := d.changed == nil && d.lock.queue.waits()
	d.stepLocked(protocol.Release{Successor: d.encodable(successor), Pass: pass})
}

// giveUp ends a lease whose work has not stopped; it must still be released.
func (d *driver) giveUp(l *Lease, why error) {
	d.enter()
	defer d.leave()
	if d.lease == l {
		d.stepLocked(protocol.GiveUp{Err: why})
	}
}

// step passes an event to the candidate and carries out what it answers.
func (d *driver) step(ev protocol.Event) {
	d.enter()
	defer d.leave()
	d.stepLocked(ev)
}

func (d *driver) stepLocked(ev protocol.Event) {
	actions := d.candidate.Step(ev, protocol.Now{Clock: clock.Now(), Wall: time.Now()})
	if d.lease != nil && d.lease.ctx.Err() == nil {
		// Before anything is sent: a renewal for a shorter TTL moves the deadline
		// back as it leaves (rule A7), not when it is answered.
		d.lease.deadline.Store(int64(d.candidate.Deadline()))
	}
	for _, action := range actions {
		d.do(action)
	}
	d.announce()
	d.watchSession()
	d.settle()
	if !d.candidate.Busy() {
		closeAll(d.idle)
		d.idle = nil
	}
	d.arm()
}

// closeAfter closes a channel when another is closed, if there is one.
func closeAfter(c chan struct{}, other <-chan struct{}) {
	if other == nil {
		close(c)
		return
	}
	go func() {
		<-other
		close(c)
	}()
}

func closeAll(all []chan struct{}) {
	for _, c := range all {
		close(c)
	}
}

// waitIdle is closed when no request is under way.
func (d *driver) waitIdle() <-chan struct{} {
	d.enter()
	defer d.leave()
	idle := make(chan struct{})
	if !d.candidate.Busy() {
		close(idle)
	} else {
		d.idle = append(d.idle, idle)
	}
	return idle
}

// settle tells those who wait for it that all has settled, if it has.
func (d *driver) settle() {
	if !d.unsettled() {
		closeAll(d.settling)
		d.settling = nil
	}
}

// unsettled reports that a request is under way, or a write may yet land, of an acquisition
// that the user neither waits for nor holds a lease of.
func (d *driver) unsettled() bool {
	return d.candidate.Outstanding() || d.lease == nil && d.past != nil
}

// settled is closed when no write of an acquisition is under way any more, or has become a
// lease: what the user holds or waits for was not given up.
func (d *driver) settled() <-chan struct{} {
	d.enter()
	defer d.leave()
	settled := make(chan struct{})
	if !d.unsettled() {
		close(settled)
	} else {
		d.settling = append(d.settling, settled)
	}
	return settled
}

// arm sets the timer for the candidate's next step.
func (d *driver) arm() {
	wake, ok := d.candidate.Wake()
	if late, sound := d.candidate.Sound(clock.Now()); sound && d.leaderState.changed != nil && clock.Now() < late {
		wake = min(wake, late)
	}
	if !ok {
		if d.timer != nil {
			d.timer.Stop()
		}
		return
	}
	sleep := min(max(wake-clock.Now(), 0), maxSleep)
	if d.timer == nil {
		d.timer = time.AfterFunc(maxSleep, func() { d.step(protocol.Tick{}) })
	}
	d.timer.Reset(sleep)
}

func (d *driver) do(action protocol.Action) {
	switch a := action.(type) {
	case protocol.Read:
		ctx, cancel := context.WithTimeout(d.ctx, a.Timeout)
		d.quit, d.looked = cancel, clock.Now()
		go func() { growStack(d.lock.key); d.read(ctx, cancel, a) }()
	case protocol.Check:
		ctx, cancel := context.WithTimeout(d.ctx, a.Timeout)
		d.quit = cancel
		go func() { growStack(d.lock.key); d.check(ctx, cancel, a.Session) }()
	case protocol.Write:
		ctx, cancel := context.WithTimeout(d.ctx, a.Timeout)
		go func() { growStack(d.lock.key); d.write(ctx, cancel, a) }()
	case protocol.Granted:
		d.lease = newLease(d.ctx, d, d.candidate.Lease())
		d.lease.deadline.Store(int64(d.candidate.Deadline()))
		d.seenNew() // the lease, and whose the lock is, become known together
		d.answer(result{lease: d.lease})
	case protocol.Renewed:
		d.renewed()
	case protocol.Troubled:
		d.troubled(a.Err)
	case protocol.Refused:
		if d.ownSession(a.Record) {
			d.answer(result{err: &HeldError{Info: d.describe(a.Record), advice: sameSession}})
			return
		}
		held := d.describe(a.Record)
		held.Abandoned = held.Abandoned || a.Abandoned
		d.answer(result{err: &HeldError{Info: held}})
	case protocol.Failed:
		d.seen = d.seenNow()
		d.answer(result{err: a.Err})
	case protocol.Waiting:
		d.seen = d.describe(a.Record)
		if d.ownSession(a.Record) {
			d.opts.Logger.Warn("an acquisition waits for another Lock under its own session", "lock", d.at.String(), "advice", sameSession)
		}
		if d.opts.OnWait != nil {
			seen := d.seen
			d.call("OnWait", func() { d.opts.OnWait(seen) })
		}
	case protocol.Seen:
		d.seenNew()
		if d.beats != nil {
			d.beats(d.record)
		}
	case protocol.Expired:
		d.emit(Change{Kind: Expired, Info: d.describe(a.Record)})
	case protocol.Unreadable:
		d.emit(Change{Kind: Unreadable, Info: d.describe(d.record), Err: a.Err})
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
		d.orphaned()
	case protocol.Unnamed:
		d.opts.Session.released(d.lock.key)
	case protocol.Left:
		d.opts.Session.leave(d)
	case protocol.PollPeer:
		ctx, stop := context.WithCancel(d.ctx)
		c := &d.pollState
		c.stop, c.asked = stop, c.asked+1
		var waited time.Duration
		if a.Waiting {
			waited = time.Since(d.began)
		}
		go d.ask(ctx, a, waited)
	case protocol.CancelPoll:
		d.pollState.stop()
	}
}

// growStack makes room at once on the stack of a new goroutine that a request needs bit by bit:
// the client of a store can call more than 32 KiB deep, and each time that a stack has become
// too small all that is on it is copied to one of twice the size, which took a sixth of the
// processor time of a small request.
//
// The room is part of the frame, and not touched, since no key is empty.
//
//go:noinline
func growStack(key string) {
	if key == "" {
		var room [56 << 10]byte
		for i := range room {
			room[i] = room[i/2] + touched
		}
		touched = room[len(room)-1]
	}
}

var touched byte // so that the room is there

// answer ends the acquisition.
func (d *driver) answer(r result) {
	d.waiter <- r
	d.waiter = nil
}

// describe makes an Info of a record, which is as old as it is now.
func (d *driver) describe(r record.Record) Info {
	s := d.shown
	if s.Record.WriteID != r.WriteID {
		s = layout.Snapshot{} // it is not the one that was read last
	}
	if !s.Date.IsZero() {
		s.Date = s.Date.Add(clock.Now() - d.showed)
	}
	s.Record = r
	return describe(d.lock.key, s)
}

// seenNow is the holder that the acquisition waits for, as he was last seen.
func (d *driver) seenNow() Info {
	r, _, _ := d.candidate.Observed()
	if !d.seen.Exists || !r.Held {
		return d.seen
	}
	seen := d.describe(r)
	if seen.Session != "" && seen.Session == d.sessionWatch.session {
		seen.Abandoned = d.sessionWatch.reaper.abandoned()
	}
	return seen
}

// seenNew finds out what changed since the object was last seen.
func (d *driver) seenNew() {
	before, existed := d.record, d.exists
	var version protocol.Version
	d.record, version, d.exists = d.candidate.Observed()
	if existed == d.exists && before.WriteID == d.record.WriteID {
		return // it has told of this (rule A2)
	}
	held := existed && before.Held
	c := Change{Info: describe(d.lock.key, layout.Snapshot{Record: d.record, Version: version})}
	switch {
	case !d.exists:
		c.Kind = Vanished
	case !d.record.Held && !held:
		return
	case !d.record.Held:
		c.Kind = Resigned
		if d.record.WriteID == "" { // there is no object any more that says who
			before.Held = false
			c.Info = describe(d.lock.key, layout.Snapshot{Record: before})
		}
	case held && before.SameLease(d.record):
		c.Kind = Renewed
	case held:
		c.Kind = TakenOver
	default:
		c.Kind = Elected
	}
	d.emit(c)
}

func (d *driver) emit(c Change) {
	if d.changed != nil {
		c.Time = time.Now()
		d.changed(c)
	}
}

// answered takes note of an answer, or of its absence.
func (d *driver) answered(err error) {
	if err != nil && !errors.Is(err, store.ErrNotModified) {
		d.failures++
		return
	}
	d.failures, d.last = 0, time.Now()
}

// A caller may keep a lock from itself.
const (
	sameSession = "another Lock of the same key holds it under the same session: release that lease, or share the Lock"
	notReleased = "this Lock's own lease of it was lost and has not been released: call Release when its work has stopped"
)

// ownSession reports that the holder's session is the one that the acquisition is for.
func (d *driver) ownSession(r record.Record) bool {
	return d.opts.Session != nil && r.Session == d.opts.Session.Key()
}

// warnOwn reports a lost lease that has not been released, since nobody gets in before.
func (d *driver) warnOwn() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lease != nil && d.lease.advice() != "" {
		d.opts.Logger.Warn("a lost lease has not been released", "lock", d.at.String(), "token", int64(d.lease.token), "advice", notReleased)
	}
}

// advice is what to do about a lease that keeps others out and is not valid any more.
func (l *Lease) advice() string {
	if errors.Is(context.Cause(l.ctx), ErrLost) {
		return notReleased
	}
	return ""
}

// troubled tells the user that the store fails, and goes on to.
func (d *driver) troubled(err error) {
	if errors.Is(err, layout.ErrNotExpired) {
		return // the store works: a marker is waited for, until it may be swept
	}
	if d.fails != nil {
		d.fails(err)
		return
	}
	if d.opts.OnTrouble != nil {
		d.call("OnTrouble", func() { d.opts.OnTrouble(err) })
		return
	}
	d.opts.Logger.Warn("the store fails, and is tried again", "lock", d.at.String(), "error", err)
}

func (d *driver) renewed() {
	if d.opts.OnRenew != nil {
		lease := d.lease
		d.call("OnRenew", func() { d.opts.OnRenew(lease) })
	}
}

func (d *driver) lost(cause error) {
	lease := d.lease
	lease.end(cause)
	d.opts.Logger.Info("lease lost", "lock", d.at.String(), "token", int64(lease.token), "error", cause)
	d.forgot = time.AfterFunc(d.cfg.TTL, d.warnOwn)
	if d.opts.OnLost != nil {
		d.call("OnLost", func() { d.opts.OnLost(lease, cause) })
	}
}

func (d *driver) released(err error) {
	if err == nil {
		err = d.left()
	}
	if err != nil {
		err = fmt.Errorf("the lock %v may still be taken for held, for a little over its TTL of %v: %w", d.at, d.cfg.TTL, err)
	}
	if d.forgot != nil {
		d.forgot.Stop()
	}
	d.lease.outcome = err
	d.lease.settled.Store(true)
	closeAfter(d.lease.released, d.past)
	d.lease = nil
	if !d.lock.queue.leave() {
		d.stepLocked(protocol.Drop{})
	}
}

// left says why the record is left as it is although the lease was released: its session ended
// while that was under way, and for others it may go on for a while.
func (d *driver) left() error {
	r, _, _ := d.candidate.Observed()
	if s := d.opts.Session; s != nil && r.Session == s.Key() && r.Token == int64(d.lease.token) && errors.Is(context.Cause(d.lease.ctx), ErrReleased) {
		return s.Err()
	}
	return nil
}

func (d *driver) read(ctx context.Context, cancel context.CancelFunc, a protocol.Read) {
	s, err := d.at.Look(ctx, a.Unless)
	cancel()
	d.enter()
	defer d.leave()
	d.quit = nil
	if !errors.Is(err, store.ErrNotModified) {
		d.shown, d.showed = s, clock.Now()
	}
	d.requests.Reads++
	d.answered(err)
	d.stepLocked(layout.ReadDone(s, err))
}

func (d *driver) write(ctx context.Context, cancel context.CancelFunc, a protocol.Write) {
	s, err := d.at.Write(ctx, a)
	cancel()
	if d.opts.Logger.Enabled(ctx, slog.LevelDebug) { // the arguments cost more than the rest
		d.opts.Logger.Debug("write", "lock", d.at.String(), "op", a.Op.String(), "token", a.Record.Token, "error", err)
	}
	d.enter()
	defer d.leave()
	d.requests.Writes++
	d.answered(err)
	d.stepLocked(layout.WriteDone(s, err))
	epochs, ok := d.at.(layout.Epochs) // of which none was written if it failed
	if ok && epochs.Due(a.Op, s.Record.Epoch) && d.past == nil && d.lease != nil && d.lease.ctx.Err() == nil {
		d.past = make(chan struct{})
		go d.collect(d.lease.ctx, epochs)
	}
}

// collect deletes epochs of the past, as long as the lease lasts, which ctx ends with. Whether
// it succeeds matters little: another holder will try.
func (d *driver) collect(ctx context.Context, epochs layout.Epochs) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	defer func() {
		d.enter()
		defer d.leave()
		close(d.past)
		d.past = nil
		d.settle()
	}()
	deleted := 0
	for _, err := range epochs.Collect(ctx, layout.DefaultCollection) {
		if errors.Is(err, record.ErrForeign) {
			continue // it stays where it is
		}
		if err != nil {
			d.opts.Logger.Debug("epochs of the past were not collected", "lock", d.at.String(), "error", err)
			return
		}
		deleted++
	}
	d.opts.Logger.Debug("epochs of the past were collected", "lock", d.at.String(), "deleted", deleted)
}

// heldError says who holds the lock, if that is known, and why the acquisition
// ended, if it has a reason of its own.
func (d *driver) heldError(cause error) error {
	d.enter()
	defer d.leave()
	trouble := d.candidate.Trouble()
	if trouble == nil {
		trouble = d.failing
	}
	if cause != nil && trouble != nil {
		cause = fmt.Errorf("%w; the lock %v was not acquired, since the store fails: %w", cause, d.at, trouble)
	}
	held := &HeldError{Info: d.seen}
	if d.opts.Session != nil && d.seen.Session == d.opts.Session.Key() {
		held.advice = sameSession
	}
	if d.waiter != nil { // another goroutine waits for that holder
		held.Info = d.seenNow()
	}
	if d.lease != nil { // another goroutine of this process
		held.Info = describe(d.lock.key, layout.Snapshot{Record: d.candidate.Lease()})
		held.advice = d.lease.advice()
	}
	switch {
	case cause == nil && !held.Info.Exists:
		// Another goroutine is acquiring it, and does not know more either.
		held.Info.Key, held.Info.Holder = d.lock.key, d.opts.Holder
		return held
	case cause == nil:
		return held
	case !held.Info.Exists:
		return cause
	}
	return errors.Join(cause, held)
}
