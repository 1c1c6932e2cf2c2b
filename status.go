package leasehold

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
)

// ChangeKind is what happened to a leadership.
// A candidate finds it out by comparing what two looks have shown, so anything that happened and
// was undone in between is not among them.
type ChangeKind int

// The kinds of change.
const (
	Elected    ChangeKind = iota + 1 // there is a leader, after there was none
	Renewed                          // the leader renewed its lease
	Resigned                         // the leader released its lease
	Expired                          // the leader did not renew in time: anybody may take over
	TakenOver                        // there is another leader, and no release was seen
	Vanished                         // the object was deleted
	Unreadable                       // a look failed, or showed an object that is not a lock: see Change.Err
)

var kindNames = [...]string{
	Elected: "elected", Renewed: "renewed", Resigned: "resigned", Expired: "expired",
	TakenOver: "taken over", Vanished: "vanished", Unreadable: "unreadable",
}

func (k ChangeKind) String() string {
	if k < Elected || k > Unreadable {
		return fmt.Sprintf("change %d", int(k))
	}
	return kindNames[k]
}

// A Change is what a follower saw happen.
type Change struct {
	Kind ChangeKind
	Info Info      // the record, as it was last seen
	Time time.Time // when it was seen, by the local clock
	Err  error     // of Unreadable
}

// Requests counts what was sent to a store.
// A request that failed counts too, because the store may charge for it. The listings of a layout
// that needs them are not counted apart.
type Requests struct{ Reads, Writes int64 }

// Status is what one candidate knows of its election.
// It is for monitoring. Work must not be made to depend on Leading: it may be over by the time
// that it is read, and only [Lease.Valid] is asked at the moment of use.
type Status struct {
	Key     string
	Holder  string // the name of this candidate
	Leading bool   // its lease is valid now

	// Leader is the leader last seen; HasLeader is false if it is none any more.
	Leader    Info
	HasLeader bool
	Elected   time.Time // when that leader was first seen

	LastSeen time.Time // when the store last answered
	NextLook time.Time // when the next request is due; zero if none is planned
	Failures int       // of requests, in a row
	// FailingSince is when what the candidate tries began to fail, and zero if the last try did
	// not. Looks that are answered do not end it while writes fail.
	FailingSince time.Time
	Requests     Requests // sent since the candidate was made

	// Of the leader itself, with ElectionOptions.Peers: when it last answered, and
	// how many questions it was asked.
	LastHeard time.Time
	Questions int64
}

// Status sends nothing.
// It waits for no request, so a health check may call it as often as it likes.
func (e *Election) Status() Status {
	d := &e.lock.d
	d.Enter()
	n := d.now
	s := Status{
		Key: e.lock.d.key, Holder: d.opts.Holder,
		LastSeen: n.last, Failures: n.failures, FailingSince: n.failing, Requests: n.requests,
		LastHeard: n.pollState.heard, Questions: n.pollState.asked,
	}
	if wake, ok := d.Candidate().Wake(); ok {
		s.NextLook = time.Now().Add(wake - clock.Now())
	}
	d.Leave()
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Leading = e.lease != nil && e.lease.Valid()
	s.Leader, s.HasLeader, s.Elected = e.leader, e.leading, e.elected
	return s
}

// WaitForLeadership waits until this candidate leads. It does not campaign itself.
// It returns ctx.Err() if ctx ends first. The leadership may be over again when it returns nil.
func (e *Election) WaitForLeadership(ctx context.Context) error {
	return e.await(ctx, func() bool { return e.lease != nil && e.lease.Valid() })
}

// WaitForNextElection waits until a leader is seen that was not seen before since,
// or any leader if since is zero, and returns the status then. Meanwhile the
// candidate looks like a follower even if it does not campaign.
//
// Pass the Elected of the last status, and no election is returned twice. If ctx ends first, the
// error is ctx.Err(), and the status is the present one all the same.
func (e *Election) WaitForNextElection(ctx context.Context, since time.Time) (Status, error) {
	defer e.watch()()
	err := e.await(ctx, func() bool { return e.elected.After(since) })
	return e.Status(), err
}

// await waits until the condition holds, which is looked at under the mutex.
// The channel is taken together with the look: a change that comes after it closes that channel,
// so none is slept through.
func (e *Election) await(ctx context.Context, condition func() bool) error {
	for {
		e.mu.Lock()
		met, news := condition(), e.news
		e.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
