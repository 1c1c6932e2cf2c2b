package cost

import (
	"iter"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
)

// follows returns the monthly requests of one follower or waiter while the holder stays the same.
func (p Plan) follows() Requests {
	b, every := p.budget(), p.Infrequent
	switch {
	case p.Mode == Peer: // the leader's answers are trusted for so long without a read
		return b.several().Times(float64(Month) / float64(candidate.Trusted*p.TTL))
	case p.Mode == Session:
		return get.Times(p.renewals()) // reads the heartbeat in any layout
	case p.Mode == Fair: // watches the session of the waiter ahead, and polls the queue now and then
		return get.Times(p.seldom() + float64(Month)/float64(queue.LineLook))
	case p.Mode == Wait:
		every = p.poll()
	case p.Infrequent == 0:
		return b.news.Times(p.renewals()) // one read soon after each renewal
	}
	return p.look(every).Times(float64(Month) / float64(every))
}

// seldom returns how often a month a waiter far back in the queue polls the session of the waiter ahead.
func (p Plan) seldom() float64 { return float64(Month) / float64(protocol.SeldomWatch(p.TTL)) }

// look returns the mean requests of a poll at this interval.
func (p Plan) look(after time.Duration) Requests {
	b := p.budget()
	none, one, more := shares(float64(after) / float64(protocol.Renewal(p.TTL)))
	return b.look.Times(none).Plus(b.news.Times(one)).Plus(b.several().Times(more))
}

// several returns the requests of a poll that finds more than one renewal.
func (b budget) several() Requests {
	if b.renewals > 0 { // each is a separate object
		return b.jump
	}
	return b.news
}

// shares returns the fractions of polls that find no renewal, one, and more. Polls are x renewal
// intervals apart on average, uniformly distributed from 3/4 to 5/4 of that, and come at any time
// between two renewals.
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

// The most polls of a candidate after a change of holder, until it knows when the new leader or the
// new holder's session renews.
const (
	LooksOfFollower = 9
	looksOfWatcher  = 13
)

// interval returns a waiter's longest poll interval.
func (p Plan) interval() time.Duration {
	if p.Infrequent > 0 {
		return p.Infrequent
	}
	return candidate.PollInterval(Month, p.TTL)
}

// poll returns the mean time between two polls of a waiter that has waited for long. The intervals are
// uniformly distributed around the longest one, but none ends after the holder's lease has expired.
func (p Plan) poll() time.Duration {
	shortest, longest, end := p.interval()*3/4, p.interval()*5/4, protocol.Patience(p.TTL)+p.TTL*2/25
	if end <= shortest {
		return end
	}
	end = min(end, longest)
	early := float64(end-shortest) / float64(longest-shortest)
	return time.Duration(early*float64(shortest+end)/2 + (1-early)*float64(end))
}

// pauses yields a waiter's poll intervals from its first read of the holder on, until it has waited for
// wait. An interval of 0 means the default.
func pauses(wait, ttl, interval time.Duration) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		pause := candidate.MinPollInterval
		for at := pause; at <= wait && yield(pause); at += pause {
			longest := interval
			if interval == 0 {
				longest = candidate.PollInterval(at, ttl)
			}
			pause = min(pause*3/2, longest)
		}
	}
}

// LooksOfWaiter returns the number of a waiter's polls in that time.
func LooksOfWaiter(wait, ttl, interval time.Duration) (n int) {
	for range pauses(wait, ttl, interval) {
		n++
	}
	return n
}

// haste returns the additional requests of a waiter for each change of holder, because it polls a new
// holder more often. After two hours the intervals no longer grow.
func (p Plan) haste() (all Requests) {
	lasts := time.Duration(float64(24*time.Hour) / max(p.Changes, 12))
	for pause := range pauses(lasts, p.TTL, p.Infrequent) {
		all = all.Plus(p.look(pause))
	}
	return all.Plus(p.follows().Times(-float64(lasts) / float64(Month)))
}

// change returns the most requests that a change of holder costs all candidates of a lock: a release,
// the next claim, a refused claim of the former holder, which last saw the lock free, and the polls of
// the others.
func (p Plan) change() Requests {
	b := p.budget()
	if p.Mode == Fair {
		return p.turn()
	}
	if p.Candidates == 1 { // the holder acquires it again
		return b.release.Plus(b.acquire)
	}
	if p.Mode == Session { // the heartbeat is sent early
		b.release = b.release.Plus(put)
	}
	other := b.jump
	switch p.Mode {
	case Store:
		other = b.freed.Plus(b.jump).Plus(b.look.Times(LooksOfFollower - 2))
	case Wait:
		other = b.freed.Plus(b.jump).Plus(p.haste())
	case Session: // sees the release, reads, and polls both heartbeats for a while
		other = b.freed.Plus(b.jump).Plus(get.Times(looksOfWatcher))
	case Peer: // is told of the change, and reads once
	}
	return b.release.Plus(b.freed).Plus(b.acquire).Plus(b.refused).Plus(other.Times(float64(p.Candidates - 1)))
}

// The most additional polls of waiters: of the first one when its turn is near, and of each other one
// after the queue has moved.
const (
	looksOfFirst = 8
	looksOfNext  = 20
)

// turn returns the most additional requests of one turn of a fair lock: the holder leaves and joins again, each
// time perhaps after a conflict; the waiters poll the queue; and the one that joins finds out when the session of
// the waiter ahead renews.
func (p Plan) turn() Requests {
	leaves, joins := put, get.Plus(put)
	if p.Candidates == 1 {
		return leaves.Plus(joins)
	}
	return leaves.Plus(get).Plus(put).Plus(joins).Plus(get.Times(looksOfFirst + looksOfWatcher + looksOfNext*float64(p.Candidates-2)))
}
