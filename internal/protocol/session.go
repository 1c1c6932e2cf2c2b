package protocol

import (
	"slices"
	"time"
)

// held reports that the object says of a holder.
func (o *observation) held() bool { return o.version != "" && o.record.Held }

// outlive: the holder that was seen keeps its lease for as long as its session lasts, and
// does not look at the object meanwhile. So no patience is enough, and no clock: the session
// must be over (rule D3).
func (c *Candidate) outlive(now time.Duration) {
	c.obs.takeable = never
	if c.over == c.obs.record.Session {
		c.obs.takeable = now
	}
}

// outlived takes in that a session is over. The version that was seen is the one to take
// over: should somebody else have been faster, the write is refused.
func (c *Candidate) outlived(session string, now Now) {
	c.over = session
	if c.obs.known && c.obs.record.Held && c.obs.record.Session == session && !c.mine(c.obs.record) {
		c.obs.takeable = now.Clock
		if c.wanting() {
			c.due = min(c.due, now.Clock)
		}
	}
}

// sessionOver ends the lease with its session, whose end nobody can undo (rules D4 and
// D7). What this candidate has written under it, or what may land yet, is for others to
// take over.
func (c *Candidate) sessionOver(err error, now Now, out *actions) {
	if c.session == "" {
		return
	}
	c.over, c.session = c.session, ""
	c.attempts = nil
	switch {
	case c.phase == held:
		c.lose(err, out)
	case c.phase == clear && c.want != nothing:
		c.fail(err, now, out)
	case c.phase == freeing && c.busy == none:
		c.released(nil, out)
	}
}

// bound reports that an attempt names a session, so that it must be settled (rule D6).
func (c *Candidate) bound() bool {
	return slices.ContainsFunc(c.attempts, func(a attempt) bool { return a.record.Session != "" })
}

// abandon gives up to settle what may have landed, or may yet land, and says whose end
// alone would make it harmless.
func (c *Candidate) abandon(out *actions) {
	var named []string
	if c.phase == freeing {
		named = append(named, c.obs.record.Session)
	}
	for _, a := range c.attempts {
		named = append(named, a.record.Session)
	}
	for i, session := range named {
		if session != "" && session != c.over && !slices.Contains(named[:i], session) {
			out.add(Orphaned{session})
		}
	}
}

// reap frees a lock whose holder was waited out, over exactly what was seen. It is the end
// of a session: nobody will hold that lock again.
func (c *Candidate) reap(now Now, out *actions) {
	r := c.obs.record
	r.Held, r.WriteID, r.Ended = false, c.writeID(), "its holder was waited out by "+c.cfg.Holder
	c.write(reaping, Write{Op: Free, Record: r, Timeout: min(maxRequest, r.TTL/2)}, now, out)
}
