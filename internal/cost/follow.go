package cost

import (
	"iter"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
)

// follows is what one follower or waiter asks in a month of a holder that stays.
func (p Plan) follows() Requests {
	b, every := p.budget(), p.Infrequent
	switch {
	case p.Mode == Peer: // the leader answers, and its word alone counts for so long
		return b.several().Times(float64(Month) / float64(candidate.Trusted*p.TTL))
	case p.Mode == Session:
		return get.Times(p.renewals()) // of a heartbeat, whatever the layout
	case p.Mode == Fair: // it watches the session of the one before it, and looks at the line now and then
		return get.Times(p.seldom() + float64(Month)/float64(queue.LineLook))
	case p.Mode == Wait:
		every = p.poll()
	case p.Infrequent == 0:
		return b.news.Times(p.renewals()) // one look soon after each
	}
	return p.look(every).Times(float64(Month) / float64(every))
}

// seldom is how often one that waits far behind looks in a month at the session of the one before it.
func (p Plan) seldom() float64 { return float64(Month) / float64(protocol.SeldomWatch(p.TTL)) }

// look is what a look costs, on average, which comes so long after the one before.
func (p Plan) look(after time.Duration) Requests {
	b := p.budget()
	none, one, more := shares(float64(after) / float64(protocol.Renewal(p.TTL)))
	return b.look.Times(none).Plus(b.news.Times(one)).Plus(b.several().Times(more))
}

// several is what a look costs that shows more than one renewal.
func (b budget) several() Requests {
	if b.renewals > 0 { // each was an object of its own
		return b.jump
	}
	return b.news
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
// the new leader, or the new holder's session, renews.
const (
	LooksOfFollower = 9
	looksOfWatcher  = 13
)

// interval is what the pauses of a waiter grow to.
func (p Plan) interval() time.Duration {
	if p.Infrequent > 0 {
		return p.Infrequent
	}
	return candidate.PollInterval(Month, p.TTL)
}

// poll is the pause, on average, between the looks of one that has waited for long: evenly spread
// around the interval, but none goes beyond the time when the holder's lease has certainly ended.
func (p Plan) poll() time.Duration {
	shortest, longest, end := p.interval()*3/4, p.interval()*5/4, protocol.Patience(p.TTL)+p.TTL*2/25
	if end <= shortest {
		return end
	}
	end = min(end, longest)
	early := float64(end-shortest) / float64(longest-shortest)
	return time.Duration(early*float64(shortest+end)/2 + (1-early)*float64(end))
}

// pauses are those before the looks of a waiter, in so much time from when it first saw the holder.
// An interval of 0 is the default.
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

// LooksOfWaiter is how many there are of these.
func LooksOfWaiter(wait, ttl, interval time.Duration) (n int) {
	for range pauses(wait, ttl, interval) {
		n++
	}
	return n
}

// haste is how much more a waiter asks of a holder that comes and goes than of one that stays. After
// two hours its pauses do not grow any more.
func (p Plan) haste() (all Requests) {
	lasts := time.Duration(float64(24*time.Hour) / max(p.Changes, 12))
	for pause := range pauses(lasts, p.TTL, p.Infrequent) {
		all = all.Plus(p.look(pause))
	}
	return all.Plus(p.follows().Times(-float64(lasts) / float64(Month)))
}

// change is what one change of holder costs all candidates of a lock, at most: a
// release, the next claim, one claim in vain of the former holder (it last saw the lock
// free), and the looks of the others.
func (p Plan) change() Requests {
	b := p.budget()
	if p.Mode == Fair {
		return p.turn()
	}
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
		other = b.freed.Plus(b.jump).Plus(p.haste())
	case Session: // it hears of the release, and looks; and looks at the heartbeats of both for a while
		other = b.freed.Plus(b.jump).Plus(get.Times(looksOfWatcher))
	case Peer: // it hears of the change, and looks once
	}
	return b.release.Plus(b.freed).Plus(b.acquire).Plus(b.refused).Plus(other.Times(float64(p.Candidates - 1)))
}

// How often those in line look, at most, besides: the first, more than once in ten seconds when its turn is near;
// and each of the others, more than once in two minutes after the line has moved.
const (
	looksOfFirst = 8
	looksOfNext  = 20
)

// turn is what one turn of a fair lock costs, at most, besides: whoever leaves and comes back, each time perhaps
// to a line that has changed, the looks of those in line, and those that find out when the session renews behind
// which the other stands now.
func (p Plan) turn() Requests {
	leaves, joins := put, get.Plus(put)
	if p.Candidates == 1 {
		return leaves.Plus(joins)
	}
	return leaves.Plus(get).Plus(put).Plus(joins).Plus(get.Times(looksOfFirst + looksOfWatcher + looksOfNext*float64(p.Candidates-2)))
}
