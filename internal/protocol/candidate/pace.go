package candidate

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// pace is how a candidate polls a held lock. It affects cost and speed, and no rule: only what
// a read shows makes a lock claimable.
type pace struct {
	looked time.Duration // when the last read was answered
	sent   time.Duration // when it was sent, or the one in flight
	before time.Duration // when the one before was answered
	poll   time.Duration // the growing interval; 0: start again
	begun  time.Duration // when it started to grow
	steady bool          // this holder was seen to renew
	isNext bool          // it has named this candidate as its successor
	named  time.Duration // when that was seen
	again  bool          // what the read in flight shows is too old
	edge   time.Duration // a read sent at this time has shown a renewal
	width  time.Duration // a read sent this much earlier would not have; 0: unknown
	slack  time.Duration // a read that was too early is repeated after this
	// What the role says, or zero:
	longest       time.Duration // a waiter's PollInterval
	often, seldom time.Duration // a follower's Frequent and Infrequent
}

// A waiter pays for its reads, and the others for the time a released lock stays idle. Neither
// depends on the TTL, so the intervals do not: a third of a one-day TTL would leave the lock
// idle for hours.
const (
	// shortPoll is the interval that the first ones grow to. After a release, the lock stays
	// idle for half of it with one waiter, and for a third with two.
	shortPoll = 600 * time.Millisecond
	// pollShare lengthens intervals by 1/pollShare of the time waited so far. With shortPoll,
	// it makes one read a second, on average, in the first ten minutes.
	pollShare = 600
	// No interval exceeds the holder's renewal interval, because the wait for a dead holder
	// starts with the read showing its last renewal. If renewals come more often than every
	// seldomPoll, that would be more than one read a second, so seldomPoll is the bound.
	seldomPoll = 1500 * time.Millisecond
	// longestPoll is the longest interval.
	longestPoll = 10 * time.Second

	// MinPollInterval is the shortest configurable interval.
	MinPollInterval = protocol.FirstPoll
)

// PollInterval returns the interval before a waiter's next poll, by how long it has waited and
// the holder's TTL.
func PollInterval(waited, ttl time.Duration) time.Duration {
	return min(shortPoll+waited/pollShare, max(protocol.Renewal(ttl), seldomPoll), longestPoll)
}

// restLook is how often a waiter polls during a cooldown. Its end is known, but somebody may
// end it early.
const restLook = time.Minute

// renewed notes that the record has changed. Only a renewal shows a steady holder.
func (p *pace) renewed(before, after record.Record) {
	if p.steady = after.Held && before.Held && after.SameLease(before); !p.steady {
		p.width, p.isNext, p.poll = 0, false, 0
	}
}

// grow returns intervals from first to limit, each 50 % longer. Doubling would find a
// briefly held lock too late, and equal intervals cost too many reads if it is held for hours.
// This way, a wait is at most 50 % too long.
func (p *pace) grow(first, limit time.Duration) time.Duration {
	p.poll = max(p.poll, min(first, limit))
	pause := p.poll
	p.poll = min(p.poll*3/2, limit)
	return pause
}

// waiter returns the intervals of a waiter that does not follow.
func (p *pace) waiter(ttl, now time.Duration) time.Duration {
	if p.poll == 0 {
		p.begun = now
	}
	limit := p.longest
	if limit == 0 {
		limit = PollInterval(now-p.begun, ttl)
	}
	return p.grow(protocol.FirstPoll, limit)
}

// wait plans the next poll of a held lock. When the lock may be taken, there is always one more
// read first: it costs a twelfth of a write, and shows most waiters that another one was
// faster.
func (c *Machine) wait(now protocol.Now, out *protocol.Actions) {
	r := c.obs.record
	// Waiting for a cooldown is not the same as waiting for the holder.
	if !c.acq.reported.SameLease(r) || c.acq.reported.Held && r.Resting() > 0 {
		c.acq.reported = r
		if c.acq.want != nothing {
			out.Add(Waiting{r})
		}
	}
	quiet := c.peer.until(c.pace.looked, r.TTL)
	switch {
	case c.pace.again:
		c.pace.again, c.due = false, now.Clock
	case c.obs.rests(now.Clock):
		c.due = c.obs.from(eventually) + c.rng.Spread(r.TTL/10)
		if look := now.Clock + restLook; c.due > look {
			c.due = look + c.rng.Jitter(restLook/10)
		}
		c.obs.fresh = false
		return
	case r.Held && r.Session != "" && now.Clock < c.obs.claimableAt:
		// Its session tells when to read again.
		c.due = c.obs.claimableAt
		return
	case now.Clock < quiet:
		c.due, c.obs.fresh = quiet, false
		return // however soon the lock may be taken
	case !c.follows() && c.acq.want != nothing:
		c.due = now.Clock + c.rng.Vary(c.pace.waiter(r.TTL, now.Clock))
	case c.pace.next(&c.cfg, r, now.Clock):
		c.due = now.Clock + c.rng.Vary(min(c.pace.frequent(r.TTL), time.Second))
	case c.pace.relaxed(&c.obs, now.Clock):
		c.pace.poll = 0
		c.due = now.Clock + c.rng.Vary(c.pace.seldom)
		c.obs.fresh = false
		return // however soon the lock may be taken
	default:
		c.due = c.pace.follow(&c.cfg, &c.obs, &c.rng, now.Clock)
	}
	if turn := c.obs.from(eventually); now.Clock < turn {
		c.due = min(c.due, turn)
	}
	c.obs.fresh = false
}

// next reports whether the leader is about to end its lease in favour of this candidate. By
// default, its work may take a third of the TTL to stop. After that, its successor is no longer
// in a hurry.
func (p *pace) next(cfg *Config, r record.Record, now time.Duration) bool {
	if r.Successor != cfg.Holder { // a free record that names it is claimed, and not waited for
		return false
	}
	if !p.isNext {
		p.isNext, p.named = true, now
	}
	return now-p.named < min(noticed(r.TTL)+r.TTL/3, time.Minute)
}

// noticed returns the longest time until a follower reads a renewal, if it knows when its
// leader renews: see locate and follow.
func noticed(ttl time.Duration) time.Duration { return protocol.Renewal(ttl) / 8 * 3 }

// frequent returns a follower's interval during transitions and failures.
func (p *pace) frequent(ttl time.Duration) time.Duration {
	if p.often > 0 {
		return p.often
	}
	return max(protocol.Renewal(ttl)/8, protocol.FirstPoll)
}

// relaxed reports whether the follower has an interval of its own for a steady leader, and the
// leader is steady.
func (p *pace) relaxed(o *observation, now time.Duration) bool {
	interval := max(protocol.Renewal(o.record.TTL), p.seldom)
	return p.seldom > 0 && o.version != "" && p.steady && now-o.first < interval
}

// follow returns when to poll a leader again. A leader renews at equal intervals, so one read
// soon after each renewal is enough: the follower is never out of date, and notices a dead
// leader as early as possible. To find out when renewals come, it polls frequently until it
// sees one, and then improves with each read.
func (p *pace) follow(cfg *Config, o *observation, rng *protocol.Random, now time.Duration) time.Duration {
	if !o.held() {
		return now + rng.Vary(p.grow(p.frequent(cfg.TTL), protocol.Renewal(cfg.TTL)))
	}
	interval, frequent := protocol.Renewal(o.record.TTL), p.frequent(o.record.TTL)
	late := now-o.first > interval+2*frequent
	if p.seldom > 0 {
		return now + rng.Vary(p.grow(frequent, max(interval, frequent)))
	}
	if p.steady && o.first == now {
		p.locate(interval, frequent)
	}
	switch aim, jitter := p.aim(interval), rng.Jitter(frequent/16); {
	case p.width > 0 && aim > now:
		p.poll = 0
		return aim + jitter
	case p.width > 0: // too early, or the leader is late
		pause := max(p.width/2, p.slack)
		p.width, p.slack = 0, min(2*p.slack, 2*frequent)
		return now + pause
	case late: // it should have renewed
		return now + rng.Vary(p.grow(frequent, max(interval, frequent)))
	}
	return now + rng.Vary(frequent)
}

// aim returns when to read the next renewal: in the middle of the time in which it may land.
func (p *pace) aim(interval time.Duration) time.Duration { return p.edge + interval - p.width/2 }

// locate estimates when the leader renews, from a renewal that landed between the last two
// reads. Then each read at aim halves the time in which the next one may land.
//
// The estimate can be wrong, because renewals vary, and a leader may move them. So a short one
// grows again, slowly at first, until a read comes too early, as one in a hundred does. The
// more often that happens, the later the read is repeated. Otherwise, each renewal would cost a
// fast clock a search.
func (p *pace) locate(interval, frequent time.Duration) {
	switch aim, gap := p.aim(interval), p.sent-p.before; {
	case p.width > p.slack && p.before < aim && aim <= p.sent:
		p.edge, p.width = aim, p.width/2
	case p.width > 0 && p.before < aim && aim <= p.sent:
		p.edge, p.width = aim, p.width+p.width/32
	case gap <= p.slack:
		p.edge = p.sent // nearly: see below
	case gap <= 2*frequent:
		p.edge, p.width = p.sent, gap
	default:
		// Only two reads close together show when the renewal landed. Otherwise the search goes
		// on.
		p.width = 0
		return
	}
	p.slack = max(p.slack-p.slack/16, frequent/8)
	p.width = max(p.width, p.slack/256)
}
