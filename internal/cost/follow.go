package cost

import "github.com/leasehold/leasehold/internal/protocol"

// follows is what one follower or waiter asks in a month of a holder that stays.
func (p Plan) follows() Requests {
	b, renewal := budgets[p.Layout], protocol.Renewal(p.TTL)
	several := b.news
	if b.renewals > 0 { // then each was an object of its own
		several = b.jump
	}
	switch {
	case p.Mode == Peer: // the leader answers, and its word alone counts for so long
		return several.Times(float64(Month) / float64(protocol.Trusted*p.TTL))
	case p.Mode == Session:
		return get.Times(p.renewals()) // of a heartbeat, whatever the layout
	case p.Mode == Store && p.Infrequent == 0:
		return b.news.Times(p.renewals()) // one look soon after each
	}
	every := renewal
	if p.Infrequent > 0 {
		every = p.Infrequent
	}
	none, one, more := shares(float64(every) / float64(renewal))
	each := b.look.Times(none).Plus(b.news.Times(one)).Plus(several.Times(more))
	return each.Times(float64(Month) / float64(every))
}

// shares is how often a look shows no renewal since the one before, one, or more. Looks
// are x renewals apart on average, evenly spread from three quarters to five quarters of
// that, and at any time between two renewals.
func shares(x float64) (none, one, more float64) {
	mean := func(area func(float64) float64) float64 { return (area(x*5/4) - area(x*3/4)) / (x / 2) }
	none = mean(func(pause float64) float64 { // of max(0, 1 - pause)
		pause = min(pause, 1)
		return pause - pause*pause/2
	})
	one = mean(func(pause float64) float64 { // of max(0, 1 - |1 - pause|)
		if pause < 1 {
			return pause * pause / 2
		}
		left := 2 - min(pause, 2)
		return 1 - left*left/2
	})
	return none, one, 1 - none - one
}

// How often a candidate looks, at most, when the holder has changed: until it knows when
// the new leader renews, or until it has backed off.
const (
	LooksOfFollower = 8
	LooksOfWaiter   = 13
)

// change is what one change of holder costs all candidates of a lock, at most: a
// release, the next claim, one claim in vain of the former holder (it last saw the lock
// free), and the looks of the others.
func (p Plan) change() Requests {
	b := budgets[p.Layout]
	if p.Candidates == 1 { // it comes back itself
		return b.release.Plus(b.acquire)
	}
	if p.Mode == Session { // whose heartbeat is brought forward
		b.release = b.release.Plus(put)
	}
	other := b.jump
	switch p.Mode {
	case Store:
		other = b.freed.Plus(b.jump).Plus(b.look.Times(LooksOfFollower - 2))
	case Wait:
		other = b.freed.Plus(b.jump).Plus(b.look.Times(LooksOfWaiter - 2))
	case Session: // it hears of the release, and looks; and looks at the heartbeats of both for a while
		other = b.freed.Plus(b.jump).Plus(get.Times(LooksOfWaiter))
	case Peer: // it hears of the change, and looks once
	}
	return b.release.Plus(b.freed).Plus(b.acquire).Plus(b.refused).Plus(other.Times(float64(p.Candidates - 1)))
}
