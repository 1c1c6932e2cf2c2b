package leasehold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
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
	cfg  protocol.Config
	opts LockOptions

	mu        sync.Mutex
	candidate *protocol.Candidate
	timer     *time.Timer
	ctx       context.Context    // of the acquisition; gives requests their values
	began     time.Time          // the acquisition
	waiter    chan result        // of the acquisition, until it is answered
	settling  []chan struct{}    // closed when the candidate has settled
	seen      Info               // the last holder that the acquisition waited for
	quit      context.CancelFunc // ends the read under way
	shown     layout.Snapshot    // by the last read
	lease     *Lease             // from its grant until its release is settled
	record    protocol.Record    // as last seen, to tell what has changed
	exists    bool
	last      time.Time // when the store last answered
	failures  int       // of requests, in a row
	requests  Requests

	// changed is told of every change that is seen, while the driver is locked.
	changed func(Change)

	// peers are asked instead of the store, if there are any; heir is whom a
	// release names that names nobody.
	peers        Peers
	heir         func() string
	standing     standing
	conversation conversation

	calls callbacks
}

// result is the end of an acquisition.
type result struct {
	lease *Lease
	err   error
}

// maxSleep bounds how long a timer may run without a look at the clock: timers
// stand still while the machine is suspended, the clock does not.
const maxSleep = time.Second

func newDriver(lock *Lock, at layout.Layout, cfg protocol.Config, opts LockOptions) *driver {
	d := &driver{lock: lock, at: at, cfg: cfg, opts: opts, candidate: protocol.New(cfg), heir: func() string { return "" }}
	d.calls = callbacks{patience: cfg.TTL, hangs: func(name string) {
		opts.Logger.Warn("a callback does not return, and the next ones wait for it", "lock", at.String(), "callback", name)
	}}
	return d
}

// acquire begins an acquisition. Its one result comes on the channel.
func (d *driver) acquire(ctx context.Context, ev protocol.Acquire) <-chan result {
	waiter := make(chan result, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.began, d.waiter, d.seen = context.WithoutCancel(ctx), time.Now(), waiter, Info{}
	d.stepLocked(ev)
	return waiter
}

// cancel ends the acquisition, unless its result and the end of its context cross.
func (d *driver) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiter != nil && d.quit != nil {
		d.quit() // nobody waits for what the read would show
	}
	d.stepLocked(protocol.Cancel{})
}

// release ends the lease and sends the release, which may name a successor.
func (d *driver) release(l *Lease, successor string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.ctx.Err() == nil && !l.Valid() {
		d.stepLocked(protocol.Tick{}) // it is lost, and no timer has run since
	}
	if successor == "" {
		successor = d.heir()
	}
	l.end(ErrReleased)
	pass := successor == "" && d.lock.queue.waits()
	d.stepLocked(protocol.Release{Successor: d.fit(successor), Pass: pass})
}

// giveUp ends a lease whose work has not stopped; it must still be released.
func (d *driver) giveUp(l *Lease, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lease == l {
		d.stepLocked(protocol.GiveUp{Err: why})
	}
}

// step passes an event to the candidate and carries out what it answers.
func (d *driver) step(ev protocol.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
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
	if d.candidate.Settled() {
		for _, settled := range d.settling {
			close(settled)
		}
		d.settling = nil
	}
	d.arm()
}

// settled is closed when nothing of an acquisition is under way any more.
func (d *driver) settled() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	settled := make(chan struct{})
	if d.lease != nil || d.candidate.Settled() {
		close(settled)
	} else {
		d.settling = append(d.settling, settled)
	}
	return settled
}

// arm sets the timer for the candidate's next step.
func (d *driver) arm() {
	wake, ok := d.candidate.Wake()
	if d.standing.changed != nil && d.sound() {
		wake = min(wake, d.late())
	}
	if !ok {
		if d.timer != nil {
			d.timer.Stop()
		}
		return
	}
	sleep := min(max(wake-clock.Now(), 0), maxSleep)
	if d.timer == nil {
		d.timer = time.AfterFunc(sleep, func() { d.step(protocol.Tick{}) })
		return
	}
	d.timer.Reset(sleep)
}

func (d *driver) do(action protocol.Action) {
	switch a := action.(type) {
	case protocol.Read:
		ctx, cancel := context.WithTimeout(d.ctx, a.Timeout)
		d.quit = cancel
		go d.read(ctx, cancel, a)
	case protocol.Write:
		ctx, cancel := context.WithTimeout(d.ctx, a.Timeout)
		go d.write(ctx, cancel, a)
	case protocol.Granted:
		d.lease = newLease(d.ctx, d, d.candidate.Lease())
		d.lease.deadline.Store(int64(d.candidate.Deadline()))
		d.standing.free, d.standing.object = false, ""
		d.answer(result{lease: d.lease})
	case protocol.Renewed:
		d.renewed()
	case protocol.Refused:
		d.answer(result{err: &HeldError{d.describe(a.Record)}})
	case protocol.Failed:
		d.answer(result{err: a.Err})
	case protocol.Waiting:
		d.seen = d.describe(a.Record)
		if d.opts.OnWait != nil {
			seen := d.seen
			d.calls.add("OnWait", func() { d.opts.OnWait(seen) })
		}
	case protocol.Seen:
		d.seenNew()
	case protocol.Overdue:
		d.tell(Change{Kind: Expired, Info: d.describe(a.Record)})
	case protocol.Unreadable:
		d.tell(Change{Kind: Unreadable, Info: d.describe(d.record), Err: a.Err})
	case protocol.Vanished:
		d.opts.Logger.Warn("the lock's object was deleted: from now on its tokens grow only if the store's clock is right",
			"lock", d.at.String(), "token", a.Record.Token)
	case protocol.Lost:
		d.lost(fmt.Errorf("%w: %w", ErrLost, a.Err))
	case protocol.Released:
		d.released(a.Err)
	case protocol.Ask:
		ctx, stop := context.WithCancel(d.ctx)
		c := &d.conversation
		c.stop, c.number, c.asked = stop, c.number+1, c.asked+1
		var waited time.Duration
		if a.Waiting {
			waited = time.Since(d.began)
		}
		go d.ask(ctx, c.number, a, waited)
	case protocol.Hush:
		d.conversation.stop()
		d.conversation.number++
	}
}

// answer ends the acquisition.
func (d *driver) answer(r result) {
	d.waiter <- r
	d.waiter = nil
}

// describe makes an Info of the record last read.
func (d *driver) describe(r protocol.Record) Info {
	s := d.shown
	s.Record = r
	return describe(d.lock.key, s)
}

// seenNew finds out what changed since the object was last seen.
func (d *driver) seenNew() {
	before, existed := d.record, d.exists
	var version protocol.Version
	d.record, version, d.exists = d.candidate.Observed()
	held := existed && before.Held
	c := Change{Info: describe(d.lock.key, layout.Snapshot{Record: d.record, Version: version})}
	switch {
	case !d.exists && existed:
		c.Kind = Vanished
	case !d.exists, !d.record.Held && !held:
		return
	case !d.record.Held:
		c.Kind = Resigned
		if d.record.WriteID == "" { // there is no object any more that says who
			before.Held = false
			c.Info = describe(d.lock.key, layout.Snapshot{Record: before, Version: version})
		}
	case held && before.SameLease(d.record):
		c.Kind = Renewed
	case held:
		c.Kind = TakenOver
	default:
		c.Kind = Elected
	}
	d.tell(c)
}

func (d *driver) tell(c Change) {
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

func (d *driver) renewed() {
	if d.opts.OnRenew != nil {
		lease := d.lease
		d.calls.add("OnRenew", func() { d.opts.OnRenew(lease) })
	}
}

func (d *driver) lost(cause error) {
	lease := d.lease
	lease.end(cause)
	d.opts.Logger.Info("lease lost", "lock", d.at.String(), "token", int64(lease.token), "error", cause)
	if d.opts.OnLost != nil {
		d.calls.add("OnLost", func() { d.opts.OnLost(lease, cause) })
	}
}

func (d *driver) released(err error) {
	if err != nil {
		err = fmt.Errorf("the lock %v may still be taken for held, for a little over its TTL of %v: %w", d.at, d.cfg.TTL, err)
	}
	r, _, exists := d.candidate.Observed()
	d.standing.free = exists && !r.Held && r.Token == int64(d.lease.token)
	d.standing.successor = r.Successor
	d.lease.outcome = err
	close(d.lease.released)
	d.lease = nil
	if !d.lock.queue.leave() {
		d.stepLocked(protocol.Drop{})
	}
}

func (d *driver) read(ctx context.Context, cancel context.CancelFunc, a protocol.Read) {
	s, err := d.at.Look(ctx, a.Unless)
	cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.quit, d.shown = nil, s
	d.requests.Reads++
	d.answered(err)
	d.stepLocked(layout.ReadDone(s, err))
}

func (d *driver) write(ctx context.Context, cancel context.CancelFunc, a protocol.Write) {
	s, err := d.at.Write(ctx, a)
	cancel()
	d.opts.Logger.Debug("write", "lock", d.at.String(), "op", a.Op.String(), "token", a.Record.Token, "error", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests.Writes++
	d.answered(err)
	if err == nil && a.Op == protocol.Free {
		d.standing.record, d.standing.object = s.Record, store.Version(s.Version)
	}
	d.stepLocked(layout.WriteDone(s, err))
	if epochs, ok := d.at.(layout.Epochs); ok && err == nil && epochs.Due(a.Op, s.Record.Epoch) {
		go d.collect(d.ctx, epochs)
	}
}

// collect deletes epochs of the past. Whether it succeeds matters little: another
// holder will try.
func (d *driver) collect(ctx context.Context, epochs layout.Epochs) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	deleted := 0
	for _, err := range epochs.Collect(ctx, layout.DefaultCollection) {
		if errors.Is(err, protocol.ErrForeign) {
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
	d.mu.Lock()
	defer d.mu.Unlock()
	held := &HeldError{d.seen}
	if d.lease != nil { // another goroutine of this process
		held.Info = describe(d.lock.key, layout.Snapshot{Record: d.candidate.Lease()})
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
