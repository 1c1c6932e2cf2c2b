package leasehold

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lockorder"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// Peers lets the followers of an election ask the leader itself whether it leads,
// so that they need not ask the store: see [ElectionOptions.Peers]. Package peer
// asks over HTTPS.
//
// A leader's answer makes a follower look at the store later, or sooner. It never
// extends a lease and never ends one, so an answer that is wrong, late or lost
// costs time and nothing else.
type Peers interface {
	// Ask asks the candidate at an address, which is as its record gives it, and
	// returns what [Election.Attend] returns there. It returns soon after ctx has
	// ended. Any error means that there is no answer. It is called by one
	// goroutine at a time for each Election.
	Ask(ctx context.Context, address string, q Question) (Leadership, error)
}

// A Question is what a follower asks a leader.
// Nothing in it is trusted with more than a courtesy: who may ask at all is for the transport.
type Question struct {
	Lock   string        // the key of the lock that the election lies in
	Holder string        // the name of who asks
	Waited time.Duration // how long it has wanted to lead; 0 if it only watches
	Known  string        // Leadership.Version of the last answer; empty: answer at once
	Wait   time.Duration // how long the answer may be kept while that is still so
}

// Leadership is what a candidate says to its peers of its own leadership, and never
// more than the record in the store says, but for what is left of the lease.
// It is signed by nobody. A follower uses it to decide when to look, and the proof in Record to spare
// the look; the store's conditional write decides the rest.
type Leadership struct {
	Lock string

	// Leading: its lease is valid now, the last renewal was in time, and no
	// request to the store has failed since.
	Leading bool
	// Free: it leads no more, and its release is confirmed.
	Free bool

	// Of the present lease, or the last one. All are zero if there was none.
	Token       Token
	Holder      string
	Address     string
	Meta        map[string]string
	Incarnation string // of this candidate and this start of it
	TTL         time.Duration
	AcquiredAt  time.Time // by its own wall clock
	RenewedAt   time.Time // when the last renewal that succeeded was sent
	Successor   string    // Free: whom it named to go first

	// Record and Object, when Free, are what the release wrote and the version that
	// it has in the store. Where that is a hash of the record they prove each other,
	// and the follower need not look. Empty if unknown.
	Record []byte
	Object store.Version

	// Remaining is what is left of the lease's validity unless it is renewed.
	Remaining time.Duration

	// Version is another one whenever Leading or Free or the lease is.
	Version string
}

// Attend answers the question of one follower: what this candidate can say of its
// leadership. It returns as soon as that is other than what the follower knows, or 20 ms
// later if a release names another that is to go first, and when q.Wait is over or ctx ends
// at the latest. While it waits, the follower counts
// as one that this leader can name as its successor: see [Election.Resign]. It sends
// nothing. It fails if the question is about another lock.
// Call it for each question, from as many goroutines as there are followers. An error is for
// the one who asks, and changes nothing here.
func (e *Election) Attend(ctx context.Context, q Question) (Leadership, error) {
	if q.Lock != e.lock.d.key {
		return Leadership{}, fmt.Errorf("a peer asks about the lock %q, and this is %q", q.Lock, e.lock.d.key)
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

// headStart is how long after the successor the other followers hear of a release. They only
// wait for it then (firstPoll and more), and thousands of answers at once would delay its own.
const headStart = 20 * time.Millisecond

// giveWay waits if another than who asks is to hear first what is new.
func (e *Election) giveWay(ctx context.Context, q Question, late <-chan time.Time) {
	if said, _ := e.lock.d.leadership(); said.Successor == "" || said.Successor == q.Holder {
		return
	}
	select {
	case <-time.After(headStart):
	case <-late:
	case <-ctx.Done():
	}
}

// Waiters are the followers that have asked this candidate and wait for the answer.
type waiters struct {
	mu   lockorder.Mutex
	open map[*Question]time.Time // since when each has wanted to lead
}

func (a *waiters) enter(q *Question) (leave func()) {
	if q.Waited <= 0 {
		return func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = map[*Question]time.Time{}
	}
	a.open[q] = time.Now().Add(-q.Waited)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.open, q)
	}
}

// has reports that a holder of that name is among them.
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

// longest is the holder that has wanted to lead for longest, or empty.
// It is fair among those that ask, and among nobody else: the record still goes to the first
// write that lands.
func (a *waiters) longest() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first *Question
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

// encodable is the successor if a record can name it, which is a courtesy, and else none.
func (d *driver) encodable(successor string) string {
	if successor == "" {
		return ""
	}
	r := d.Candidate().Lease()
	r.Successor = successor
	if body, err := r.Encode(); err != nil || !bytes.Contains(body, r.History) { // that gives way only to what must be there
		return ""
	}
	return successor
}

// A leaderState is what a leader's driver keeps to tell the followers in time.
type leaderState struct {
	said    string        // Leadership.Version, as it was when changed was made
	changed chan struct{} // closed when that is another; nil: nobody has asked since
}

func (d *driver) word() protocol.PeerStatus {
	var limit time.Duration
	if s := d.opts.Session; s != nil {
		limit = s.inner.Until()
	}
	return d.Candidate().PeerStatus(clock.Now(), limit)
}

// leadership is what the candidate says of itself now, and a channel that is closed
// when it would say otherwise.
func (d *driver) leadership() (Leadership, <-chan struct{}) {
	d.Enter()
	defer d.Leave()
	word, s := d.word(), &d.now.leaderState
	// Made when somebody asks first. A leader that nobody asks has nothing to compute at each step.
	if s.changed == nil {
		s.changed, s.said = make(chan struct{}), word.Version
		d.TellLate(true)
	}
	r := d.Candidate().Lease()
	said := Leadership{
		Lock: d.key, Version: word.Version, Leading: word.Leading, Free: word.Free, Successor: word.Successor, Remaining: word.Valid,
		Token: Token(r.Token), Holder: r.Holder, Address: r.Address, Meta: r.Meta, Incarnation: r.Incarnation(), TTL: r.TTL,
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

// announce wakes the followers that wait, if there is news for them.
func (d *driver) announce() {
	if s := &d.now.leaderState; s.changed != nil && s.said != d.word().Version {
		close(s.changed)
		s.changed = nil
		d.TellLate(false)
	}
}

// A pollState is what a follower's driver keeps of its questions.
type pollState struct {
	stop       context.CancelFunc // of the question under way
	asked      int64              // questions in all
	heard      time.Time          // when a leader last answered
	complained string             // the leader whose silence has been reported
}

// poll asks the leader.
func (d *driver) poll(a protocol.PollPeer) {
	ctx, stop := context.WithCancel(d.Context())
	c := &d.now.pollState
	c.stop, c.asked = stop, c.asked+1
	var waited time.Duration
	if a.Waiting {
		waited = time.Since(d.now.began)
	}
	go d.ask(ctx, d.now.peers, a, waited)
}

func (d *driver) ask(ctx context.Context, peers Peers, a protocol.PollPeer, waited time.Duration) {
	said, err := peers.Ask(ctx, a.Address, Question{
		Lock: d.key, Holder: d.opts.Holder, Waited: waited, Known: a.Known, Wait: a.Wait,
	})
	if err == nil && said.Lock != d.key {
		err = fmt.Errorf("it answers for the lock %q", said.Lock)
	}
	d.Enter()
	defer d.Leave()
	// The candidate has dropped this question meanwhile, and stop may be another question's.
	if !d.Candidate().Asks(a.Number) {
		return
	}
	c := &d.now.pollState
	c.stop()
	word := protocol.PeerStatus{
		Leading: said.Leading, Free: said.Free, Successor: said.Successor, Holder: said.Holder, Token: int64(said.Token),
		Incarnation: said.Incarnation, Valid: said.Remaining, Version: said.Version,
	}
	leader, _, _ := d.Candidate().Observed()
	switch {
	case err != nil:
		d.complain(leader, err)
	case !word.Of(leader):
		d.complain(leader, fmt.Errorf("%q answers there, with token %d", said.Holder, said.Token))
	default:
		c.heard = time.Now()
	}
	heard := protocol.PeerAnswer{Number: a.Number, Status: word, Err: err}
	at, _ := d.at.(layout.Object) // in no other layout does a record prove itself
	if s, proven := at.Proven(said.Record, protocol.Version(said.Object)); proven {
		answer := layout.ReadDone(s, nil)
		heard.Proof = &answer
	}
	d.Step(heard)
}

// complain reports, once for each leader, that it cannot be asked.
// Once, because a follower asks again and again, and an address that cannot be reached from here
// does no harm: it costs requests to the store.
func (d *driver) complain(leader record.Record, err error) {
	if c := &d.now.pollState; c.complained != leader.Incarnation() {
		c.complained = leader.Incarnation()
		d.opts.Logger.Warn("the leader does not answer, and the store is asked instead",
			"lock", d.at.String(), "leader", leader.Holder, "address", leader.Address, "error", err)
	}
}
