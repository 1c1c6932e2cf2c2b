package s3lect

import (
	"context"
	"time"

	"github.com/leasehold/leasehold"
)

// saw ends an election cycle with what the election has seen. That this instance leads
// is told by lead, when its hook has returned, and by the renewals.
func (e *S3Elector) saw(c leasehold.Change) {
	switch c.Kind {
	case leasehold.Elected, leasehold.TakenOver, leasehold.Renewed:
		if c.Info.Holder == e.election.Status().Holder {
			return
		}
	case leasehold.Resigned, leasehold.Expired, leasehold.Vanished, leasehold.Unreadable:
	}
	e.cycle()
}

// cycle ends an election cycle.
func (e *S3Elector) cycle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.checked = time.Now()
	close(e.news)
	e.news = make(chan struct{})
}

// await waits until the condition holds, which is looked at under the mutex after each
// election cycle.
func (e *S3Elector) await(ctx context.Context, condition func() bool) error {
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

// IsLeader looks at the clock and reports whether this instance is the leader now. It
// is so from before OnAcquireLeadership is called until before OnLoseLeadership is, and
// no longer once Stop was called or Start's context has ended.
func (e *S3Elector) IsLeader() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leading()
}

func (e *S3Elector) leading() bool {
	return e.campaign != nil && e.campaign.ctx.Err() == nil &&
		e.term != nil && e.term.Err() == nil && e.election.IsLeader()
}

// WaitForLeadership waits until this instance is the leader and OnAcquireLeadership has
// returned, or ctx ends, and then returns its error. Within the hook it does not wait.
func (e *S3Elector) WaitForLeadership(ctx context.Context) error {
	if e.hooks.calling() && e.IsLeader() {
		return nil
	}
	return e.await(ctx, func() bool { return e.ready && e.leading() })
}

// WaitForNextElection waits until an election cycle has ended after since, or one at
// all if since is zero, and returns the status then; or nil and ctx's error, if that
// ends first. A cycle that ends before it is called is not missed.
//
// An election cycle has ended when this instance has become the leader and
// OnAcquireLeadership has returned, has renewed, or leads no more; when it has seen that
// another leads, has renewed, resigned or is gone; when the leader has answered it in
// peer mode; and when, as a follower, it could not look.
func (e *S3Elector) WaitForNextElection(ctx context.Context, since time.Time) (*LeadershipStatus, error) {
	if err := e.await(ctx, func() bool { return e.checked.After(since) }); err != nil {
		return nil, err
	}
	return e.GetLeadershipStatus(), nil
}

// LeaderID is the ServerID of the leader, or empty if none is known.
func (e *S3Elector) LeaderID() string { return e.GetLeadershipStatus().LeaderID }

// GetLeadershipStatus returns what this instance knows of the leadership. It sends
// nothing.
func (e *S3Elector) GetLeadershipStatus() *LeadershipStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.election.Status()
	s := &LeadershipStatus{
		ServerID: e.config.ServerID, LockfilePath: e.config.LockfilePath, IsLeader: e.leading(),
		LeaderLastSeen: known.Leader.RenewedAt, LastElectionTime: known.Elected, ConsecutiveFails: known.Failures,
	}
	if known.LastHeard.After(s.LeaderLastSeen) {
		s.LeaderLastSeen = known.LastHeard
	}
	switch own := known.Leader.Holder == s.ServerID; {
	case s.IsLeader:
		s.LeaderID, s.LeaderAddr = s.ServerID, e.config.ServerAddr
	case known.HasLeader && !own: // what names this instance is what it has left
		s.LeaderID, s.LeaderAddr = known.Leader.Holder, known.Leader.Address
	}
	return s
}
