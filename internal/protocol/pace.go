package protocol

import (
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// pace is how a candidate looks at a lock that another holds.
// It is about cost and speed and about nothing else: however it looks, no rule is broken, since
// only what a look shows makes a lock claimable.
type pace struct {
	looked  time.Duration // when the last look was answered
	before  time.Duration // when the one before was
	poll    time.Duration // the pause that grows; 0: begin anew
	steady  bool          // this holder has been seen to renew
	located bool          // edge is known
	again   bool          // what the look under way shows is too old
	edge    time.Duration // a renewal had landed by then, and not much earlier
}

// firstPoll is how soon a waiter looks again at a lock that just got a new holder.
const firstPoll = 20 * time.Millisecond

// renewed takes in that record became another. Only a renewal says that the holder
// is steady.
func (p *pace) renewed(before, after record.Record) {
	if p.steady = after.Held && before.Held && after.SameLease(before); !p.steady {
		p.located, p.poll = false, 0
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

// wait plans the next look at a lock that another holds. When the lock may be taken
// there is always one more look first: a look costs a twelfth of a write, and shows
// most waiters that another was faster.
func (c *Candidate) wait(now Now, out *actions) {
	r := c.obs.record
	if !c.acq.reported.SameLease(r) {
		c.acq.reported = r
		if c.acq.want != nothing {
			out.add(Waiting{r})
		}
	}
	quiet := c.peer.until(c.pace.looked, r.TTL)
	switch {
	case c.pace.again:
		c.pace.again, c.due = false, now.Clock
	case r.Held && r.Session != "" && now.Clock < c.obs.claimableAt:
		// Its session tells when it is worth a look.
		c.due = c.obs.claimableAt
		return
	case now.Clock < quiet:
		c.due, c.obs.fresh = quiet, false
		return // however soon the lock may be taken
	case !c.cfg.Follow && c.acq.want != nothing:
		c.due = now.Clock + c.rng.vary(c.pace.grow(firstPoll, max(Renewal(r.TTL), firstPoll)))
	case c.pace.relaxed(&c.cfg, &c.obs, now.Clock):
		c.pace.poll = 0
		c.due = now.Clock + c.rng.vary(c.cfg.Infrequent)
		c.obs.fresh = false
		return // however soon the lock may be taken
	default:
		c.due = c.pace.follow(&c.cfg, &c.obs, &c.rng, now.Clock)
	}
	if now.Clock < c.obs.claimableAt {
		c.due = min(c.due, c.obs.claimableAt)
	}
	c.obs.fresh = false
}

// relaxed reports that the follower has an interval of its own for a steady leader,
// and the leader is steady.
func (p *pace) relaxed(cfg *Config, o *observation, now time.Duration) bool {
	interval := max(Renewal(o.record.TTL), cfg.Infrequent)
	return cfg.Infrequent > 0 && o.version != "" && p.steady && now-o.first < interval
}

// follow says when to look at a leader again. It renews at equal intervals, so one
// look for each renewal is enough, if it comes soon after it: then what is seen is
// never old, and a leader that is gone is noticed as early as can be. When that is
// has to be found out first, by looking frequently until a renewal is seen.
func (p *pace) follow(cfg *Config, o *observation, rng *random, now time.Duration) time.Duration {
	if !o.held() {
		return now + rng.vary(p.grow(cfg.frequent(cfg.TTL), Renewal(cfg.TTL)))
	}
	interval, frequent := Renewal(o.record.TTL), cfg.frequent(o.record.TTL)
	late := now-o.first > interval+2*frequent
	if cfg.Infrequent > 0 {
		return now + rng.vary(p.grow(frequent, max(interval, frequent)))
	}
	if p.steady && o.first == now {
		p.locate(now, interval, frequent)
	}
	switch next := p.edge + interval + frequent/2 + rng.jitter(frequent/2); {
	case p.located && next > now:
		p.poll = 0
		return next
	case late: // it should have renewed: trouble
		p.located = false
		return now + rng.vary(p.grow(frequent, max(interval, frequent)))
	}
	p.located = false
	return now + rng.vary(frequent)
}

// locate finds out when the leader renews from a renewal that was just seen: it
// landed after the last look, and an interval after the one before.
func (p *pace) locate(now, interval, frequent time.Duration) {
	switch expected := p.edge + interval; {
	case p.located && p.before < expected && expected <= now:
		p.edge = expected
	default:
		// Only two looks that lie close together say when the renewal landed. Else the search goes on.
		p.located, p.edge = now-p.before <= 2*frequent, now
	}
}
