package protocol

import (
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// pace is how a candidate looks at a lock that another holds.
// It is about cost and speed and about nothing else: however it looks, no rule is broken, since
// only what a look shows makes a lock claimable.
type pace struct {
	looked time.Duration // when the last look was answered
	sent   time.Duration // when it was sent, or the one under way
	before time.Duration // when the one before was answered
	poll   time.Duration // the pause that grows; 0: begin anew
	begun  time.Duration // when it began to
	steady bool          // this holder has been seen to renew
	isNext bool          // it has named this candidate as its successor
	named  time.Duration // when that was seen
	again  bool          // what the look under way shows is too old
	edge   time.Duration // a look that was sent then has shown a renewal
	width  time.Duration // one sent so much earlier would not have; 0: unknown
	slack  time.Duration // how much later than one that was too early the next is
}

// A waiter pays for its looks, and the others pay for the time in which a lock that was released
// stands idle. Neither depends on the TTL, so its pauses do not: at one of a day a third of that
// would leave the lock idle for hours.
const (
	// FirstPoll is how soon a waiter polls a lock again that just got a new holder.
	FirstPoll = 20 * time.Millisecond
	// shortPoll is the pause that those after it grow to. A lock stands idle for half of that after a
	// release if one waits for it, and for a third if two do.
	shortPoll = 600 * time.Millisecond
	// pollShare is by which part of the time waited so far pauses are longer than that. With shortPoll
	// it makes one look a second, on average, in the first ten minutes.
	pollShare = 600
	// No pause is longer than the interval of the holder's renewals, since the wait for a holder that
	// is gone begins with the look that shows its last one. Where they come more often than
	// seldomPoll that would be more than one look a second, so there it is that.
	seldomPoll = 1500 * time.Millisecond
	// longestPoll is the longest pause.
	longestPoll = 10 * time.Second

	// MinPollInterval is the shortest one that may be asked for.
	MinPollInterval = FirstPoll
)

// PollInterval is the pause before the next look of a waiter that has waited for so long for a
// holder with that TTL.
func PollInterval(waited, ttl time.Duration) time.Duration {
	return min(shortPoll+waited/pollShare, max(Renewal(ttl), seldomPoll), longestPoll)
}

// restLook is how often one who waits looks at a lock that rests, since somebody may end that by
// hand. For the rest it is known when the lock may be taken.
const restLook = time.Minute

// renewed takes in that record became another. Only a renewal says that the holder
// is steady.
func (p *pace) renewed(before, after record.Record) {
	if p.steady = after.Held && before.Held && after.SameLease(before); !p.steady {
		p.width, p.isNext, p.poll = 0, false, 0
	}
}

// grow gives pauses that begin at first and grow by half, up to limit.
// Doubling would find a lock that is held for a moment too late, and equal steps cost too many
// looks at one that is held for hours. By half, a wait is at most half as long again as it had to be.
func (p *pace) grow(first, limit time.Duration) time.Duration {
	p.poll = max(p.poll, min(first, limit))
	pause := p.poll
	p.poll = min(p.poll*3/2, limit)
	return pause
}

// waiter gives the pauses of one that waits for a lock and does not follow.
func (p *pace) waiter(cfg *Config, ttl, now time.Duration) time.Duration {
	if p.poll == 0 {
		p.begun = now
	}
	limit := cfg.PollInterval
	if limit == 0 {
		limit = PollInterval(now-p.begun, ttl)
	}
	return p.grow(FirstPoll, limit)
}

// wait plans the next look at a lock that another holds. When the lock may be taken
// there is always one more look first: a look costs a twelfth of a write, and shows
// most waiters that another was faster.
func (c *Candidate) wait(now Now, out *Actions) {
	r := c.obs.record
	// That its lock rests is another thing to wait for than a holder.
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
		// Its session tells when it is worth a look.
		c.due = c.obs.claimableAt
		return
	case now.Clock < quiet:
		c.due, c.obs.fresh = quiet, false
		return // however soon the lock may be taken
	case !c.cfg.Follow && c.acq.want != nothing:
		c.due = now.Clock + c.rng.Vary(c.pace.waiter(&c.cfg, r.TTL, now.Clock))
	case c.pace.next(&c.cfg, r, now.Clock):
		c.due = now.Clock + c.rng.Vary(min(c.cfg.frequent(r.TTL), time.Second))
	case c.pace.relaxed(&c.cfg, &c.obs, now.Clock):
		c.pace.poll = 0
		c.due = now.Clock + c.rng.Vary(c.cfg.Infrequent)
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

// next reports that the leader is about to end its lease in favour of this candidate. Its work may take
// a third of the TTL to stop, by default. If it takes longer its successor is in no hurry any more.
func (p *pace) next(cfg *Config, r record.Record, now time.Duration) bool {
	if r.Successor != cfg.Holder { // a free record that names it is claimed, and not waited for
		return false
	}
	if !p.isNext {
		p.isNext, p.named = true, now
	}
	return now-p.named < min(noticed(r.TTL)+r.TTL/3, time.Minute)
}

// noticed is how long it takes at most until a follower that knows when its leader renews has
// looked at a renewal: see locate and follow.
func noticed(ttl time.Duration) time.Duration { return Renewal(ttl) / 8 * 3 }

// relaxed reports that the follower has an interval of its own for a steady leader,
// and the leader is steady.
func (p *pace) relaxed(cfg *Config, o *observation, now time.Duration) bool {
	interval := max(Renewal(o.record.TTL), cfg.Infrequent)
	return cfg.Infrequent > 0 && o.version != "" && p.steady && now-o.first < interval
}

// follow says when to look at a leader again. It renews at equal intervals, so one
// look for each renewal is enough, if it comes soon after it: then what is seen is
// never old, and a leader that is gone is noticed as early as can be. When that is
// has to be found out first, by looking frequently until a renewal is seen, and then
// better with each look.
func (p *pace) follow(cfg *Config, o *observation, rng *Random, now time.Duration) time.Duration {
	if !o.held() {
		return now + rng.Vary(p.grow(cfg.frequent(cfg.TTL), Renewal(cfg.TTL)))
	}
	interval, frequent := Renewal(o.record.TTL), cfg.frequent(o.record.TTL)
	late := now-o.first > interval+2*frequent
	if cfg.Infrequent > 0 {
		return now + rng.Vary(p.grow(frequent, max(interval, frequent)))
	}
	if p.steady && o.first == now {
		p.locate(interval, frequent)
	}
	switch aim, jitter := p.aim(interval), rng.Jitter(frequent/16); {
	case p.width > 0 && aim > now:
		p.poll = 0
		return aim + jitter
	case p.width > 0: // too early, or trouble
		pause := max(p.width/2, p.slack)
		p.width, p.slack = 0, min(2*p.slack, 2*frequent)
		return now + pause
	case late: // it should have renewed: trouble
		return now + rng.Vary(p.grow(frequent, max(interval, frequent)))
	}
	return now + rng.Vary(frequent)
}

// aim is when to look for the next renewal: in the middle of the time in which it may land.
func (p *pace) aim(interval time.Duration) time.Duration { return p.edge + interval - p.width/2 }

// locate finds out when the leader renews from a renewal that the last look has shown: it landed
// after the look before. Then each look at aim halves the time in which the next one may land.
//
// That time can be wrong, since renewals vary, and a leader may come to renew at another moment. So once
// it is short it grows again, by little at first, until a look comes too early: of a hundred one does. How
// much later it is repeated grows with how often that happens, or each renewal would cost a clock
// that is fast a search.
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
		// Only two looks that lie close together say when the renewal landed. Else the search goes on.
		p.width = 0
		return
	}
	p.slack = max(p.slack-p.slack/16, frequent/8)
	p.width = max(p.width, p.slack/256)
}
