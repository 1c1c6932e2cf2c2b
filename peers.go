package leasehold

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// Peers let followers in an election ask the leader whether it leads: see
// [ElectionOptions.Peers]. Package peer does so over HTTPS.
type Peers = lock.Peers

// attend is peer.Attend.
func (e *Election) attend(ctx context.Context, q lock.Question) (lock.Leadership, error) {
	if q.Lock != e.lock.d.key {
		return lock.Leadership{}, fmt.Errorf("a peer asks about the lock %q, and this is %q", q.Lock, e.lock.d.key)
	}
	defer e.waiters.enter(&q)()
	late := time.NewTimer(q.Wait)
	defer late.Stop()
	for {
		said, changed := e.lock.d.leadership()
		if q.Wait <= 0 || said.Version != q.Known {
			return said, nil
		}
		select {
		case <-changed:
			e.giveWay(ctx, q, late.C)
		case <-late.C:
			q.Wait = 0
		case <-ctx.Done():
			return said, ctx.Err()
		}
	}
}

// headStart is how much earlier the successor learns of a release than the other followers.
// Those then only wait for the successor (firstPoll and more), and thousands of answers at once
// would delay the successor's own.
const headStart = 20 * time.Millisecond

// giveWay waits if a candidate other than the one asking must hear the news first.
func (e *Election) giveWay(ctx context.Context, q lock.Question, late <-chan time.Time) {
	if said, _ := e.lock.d.leadership(); said.Successor == "" || said.Successor == q.Holder {
		return
	}
	select {
	case <-time.After(headStart):
	case <-late:
	case <-ctx.Done():
	}
}

// waiters are the followers that wait for an answer from this candidate.
type waiters struct {
	mu   engine.Mutex
	open map[*lock.Question]time.Time // since when each has wanted to lead
}

func (a *waiters) enter(q *lock.Question) (leave func()) {
	if q.Waited <= 0 {
		return func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = map[*lock.Question]time.Time{}
	}
	a.open[q] = time.Now().Add(-q.Waited)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.open, q)
	}
}

// has reports whether a holder with this name is among them.
func (a *waiters) has(holder string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for q := range a.open {
		if q.Holder == holder {
			return true
		}
	}
	return false
}

// longest returns the holder that has wanted to lead for the longest time, or "". That is fair
// only among the followers that ask: the lock still goes to the first write that lands.
func (a *waiters) longest() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first *lock.Question
	for q, since := range a.open {
		if first == nil || since.Before(a.open[first]) {
			first = q
		}
	}
	if first == nil {
		return ""
	}
	return first.Holder
}

// encodable returns the successor if it fits into the record, and else "".
func (d *driver) encodable(successor string) string {
	if successor == "" {
		return ""
	}
	r := d.Candidate().Lease()
	r.Successor = successor
	if body, err := r.Encode(); err != nil || !bytes.Contains(body, r.History) { // the history must not shrink for it
		return ""
	}
	return successor
}

// A leaderState is what a leader's driver keeps for telling its followers in time.
type leaderState struct {
	said    string        // lock.Leadership.Version when changed was made
	changed chan struct{} // closed when the version changes; nil: nobody has asked since
}

func (d *driver) word() candidate.PeerStatus {
	var limit time.Duration
	if s := d.opts.Session; s != nil {
		limit = s.inner.Until()
	}
	return d.Candidate().PeerStatus(clock.Now(), limit)
}

// leadership returns what the candidate says about itself now, and a channel that is closed
// when that changes.
func (d *driver) leadership() (lock.Leadership, <-chan struct{}) {
	d.Enter()
	defer d.Leave()
	word, s := d.word(), &d.now.leaderState
	// Made at the first question, so that a leader without followers computes nothing at each
	// step.
	if s.changed == nil {
		s.changed, s.said = make(chan struct{}), word.Version
		d.TellLate(true)
	}
	r := d.Candidate().Lease()
	said := lock.Leadership{
		Lock: d.key, Version: word.Version, Leading: word.Leading, Free: word.Free, Successor: word.Successor, Remaining: word.Valid,
		Token: r.Token, Holder: r.Holder, Address: r.Address, Meta: r.Meta, Incarnation: r.Incarnation(), TTL: r.TTL,
		AcquiredAt: r.AcquiredAt, RenewedAt: r.RenewedAt,
	}
	if said.Free {
		record, version := d.Candidate().Freed()
		if body, err := record.Encode(); err == nil && version != "" {
			said.Record, said.Object = body, store.Version(version)
		}
	}
	return said, s.changed
}

// announce wakes the waiting followers if there is news for them.
func (d *driver) announce() {
	if s := &d.now.leaderState; s.changed != nil && s.said != d.word().Version {
		close(s.changed)
		s.changed = nil
		d.TellLate(false)
	}
}

// A pollState is what a follower's driver keeps about its questions.
type pollState struct {
	stop       context.CancelFunc // stops the question in progress
	asked      int64              // number of questions
	heard      time.Time          // when a leader last answered
	silent     string             // the leader that did not answer the last question; "": it answered
	complained string             // the leader already reported as silent
}

// poll asks the leader in the background.
func (d *driver) poll(a candidate.PollPeer) {
	ctx, stop := context.WithCancel(d.Context())
	c := &d.now.pollState
	c.stop, c.asked = stop, c.asked+1
	var waited time.Duration
	if a.Waiting {
		waited = time.Since(d.now.began)
	}
	go d.ask(ctx, d.now.peers, a, waited)
}

func (d *driver) ask(ctx context.Context, peers Peers, a candidate.PollPeer, waited time.Duration) {
	said, err := peers.Ask(ctx, a.Address, lock.Question{
		Lock: d.key, Holder: d.opts.Holder, Waited: waited, Known: a.Known, Wait: a.Wait,
	})
	if err == nil && said.Lock != d.key {
		err = fmt.Errorf("it answers for the lock %q", said.Lock)
	}
	d.Enter()
	defer d.Leave()
	// The candidate has dropped this question meanwhile, and stop may belong to another one.
	if !d.Candidate().Asks(a.Number) {
		return
	}
	c := &d.now.pollState
	c.stop()
	word := candidate.PeerStatus{
		Leading: said.Leading, Free: said.Free, Successor: said.Successor, Holder: said.Holder, Token: said.Token,
		Incarnation: said.Incarnation, Valid: said.Remaining, Version: said.Version,
	}
	leader, _, _ := d.Candidate().Observed()
	switch {
	case err != nil:
		d.complain(leader, err)
	case !word.Of(leader):
		d.complain(leader, fmt.Errorf("%q answers there, with token %d", said.Holder, said.Token))
	default:
		c.heard, c.silent = time.Now(), ""
	}
	heard := candidate.PeerAnswer{Number: a.Number, Status: word, Err: err}
	at, _ := d.at.(layout.Object) // a record proves itself in no other layout
	if s, proven := at.Proven(said.Record, protocol.Version(said.Object)); proven {
		answer := layout.ReadDone(s, nil)
		heard.Proof = &answer
	}
	d.Step(heard)
}

// complain reports, once per leader, that it cannot be asked. Followers ask again and again,
// and an unreachable address only costs requests to the store. One failure is not reported: the
// leader may have been elected a moment ago, and not know yet that its claim has landed.
func (d *driver) complain(leader record.Record, err error) {
	c, is := &d.now.pollState, leader.Incarnation()
	if c.silent != is {
		c.silent = is
		return
	}
	if c.complained != is {
		c.complained = is
		d.opts.Logger.Warn("the leader does not answer, and the store is asked instead",
			"lock", d.at.String(), "leader", leader.Holder, "address", leader.Address, "error", err)
	}
}
