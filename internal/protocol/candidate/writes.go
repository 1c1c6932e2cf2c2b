package candidate

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// attempt is a write that has landed, or may have, or may still land. A later read of the
// record decides (rule A6). Several may be merged into the range of their numbers, with the
// first one's time: see remember.
type attempt struct {
	first, last uint64 // the numbers in their write IDs
	expect      protocol.Version
	record      record.Record // the first one's
	meta        int           // the meta data change in the first one
	t0          time.Duration // the clock before its first byte (rule A4)
	vain        bool          // it should create the object, and was refused because there was one
}

// maxAttempts bounds the memory for attempts.
const maxAttempts = 8

// wrote reports whether one of these attempts has written r. Ranges of different sessions may
// overlap, and the record does not always tell them apart: see settle. Each range's time
// precedes its attempts', so the first match will do.
func (a attempt) wrote(cfg *Config, r record.Record) bool {
	n, ours := cfg.number(r)
	return ours && a.first <= n && n <= a.last
}

// writes is what a candidate knows about its own writes: whether it wrote a record, and whether
// a write may still land. Every answer to "did it land" comes from here.
type writes struct {
	seq  uint64    // the last one's number
	sent attempt   // the one in flight, or the last one
	open []attempt // claims and renewals that may have landed, or may still
}

// name returns the write ID of the next attempt (rule A2).
func (w *writes) name(cfg *Config) string {
	w.seq++
	return cfg.writeID(w.seq)
}

// record returns the start of every written record.
func (w *writes) record(cfg *Config, now protocol.Now) record.Record {
	return record.Record{
		Held: true, Holder: cfg.Holder, Address: cfg.Address, TTL: cfg.TTL, Meta: cfg.Meta,
		Layout: cfg.Layout, WriteID: w.name(cfg), RenewedAt: now.Wall, ExpiresAt: now.Wall.Add(cfg.TTL),
	}
}

// again returns the record of an ongoing lease: the last one, except for what a renewal
// changes.
func (w *writes) again(cfg *Config, last record.Record, now protocol.Now) record.Record {
	r := w.record(cfg, now)
	r.Session = last.Session
	r.Token, r.AcquiredAt, r.Unknown, r.Previous = last.Token, last.AcquiredAt, last.Unknown, last.Previous
	r.Term, r.TermToken, r.History = last.Term, last.TermToken, last.History
	return r
}

// First returns the record of a new, free lock, to be acquired later. The write ID must be new.
func First(cfg Config, writeID string, date, wall time.Time) record.Record {
	token := int64(1)
	if !cfg.Numbered {
		token = protocol.FirstToken(date, wall)
	}
	return record.Record{
		Token: token, Layout: cfg.Layout, Holder: cfg.Holder, TTL: cfg.TTL, WriteID: writeID,
		RenewedAt: wall, ExpiresAt: wall,
	}
}

// remember keeps an attempt that may land. None is forgotten: under a session, an unnoticed one
// is held for as long as the session lives (rule D6). If there are too many, the two oldest of
// the same session and condition become one range. It counts from the first one's t0, the
// earliest, so a write is believed for too short a time and never for too long (rule A4).
func (w *writes) remember(a attempt, out *protocol.Actions) {
	if len(w.open) == maxAttempts {
		w.merge(out)
	}
	w.open = append(w.open, a)
}

func (w *writes) merge(out *protocol.Actions) {
	for i, a := range w.open {
		for j := i + 1; j < len(w.open); j++ {
			if b := w.open[j]; a.expect == b.expect && a.record.Session == b.record.Session {
				w.open[i].last = b.last
				w.open[i].vain = a.vain && b.vain
				w.open = slices.Delete(w.open, j, j+1)
				return
			}
		}
	}
	// All are of different sessions, or conditions. Only its session's end makes a claim
	// harmless.
	if session := w.open[0].record.Session; session != "" {
		out.Add(protocol.SessionOrphan{Session: session})
	}
	w.open = slices.Delete(w.open, 0, 1)
}

// landed returns the attempt that wrote r. Only the write ID decides: another candidate may
// have the same holder name, and others in this process share the session (rules A9 and D5).
func (w *writes) landed(cfg *Config, r record.Record) (attempt, bool) {
	for _, a := range w.open {
		if r.Held && a.wrote(cfg, r) {
			a.record = r // in a range, it need not be the first one's
			return a, true
		}
	}
	return attempt{}, false
}

// settle forgets the attempts that can no longer land: their expected version is gone, and
// write IDs keep it from coming back.
//
// A claim may be two writes. If only the first one has landed, as r with the old holder's
// session, the second one may still land.
func (w *writes) settle(cfg *Config, current protocol.Version, r record.Record) {
	w.open = slices.DeleteFunc(w.open, func(a attempt) bool { return a.expect != current && !a.wrote(cfg, r) })
}

// refused notes that the store refused the last write. It is the last open attempt, if it
// should create the object and its session has not ended since.
func (w *writes) refused() {
	if i := len(w.open) - 1; i >= 0 && w.sent.expect == "" {
		w.open[i].vain = true
	}
}

// write sends w on the condition that the object still has the version seen (rule A1).
func (c *Machine) write(kind inflight, w Write, now protocol.Now, out *protocol.Actions) {
	w.Expect, w.Over = c.obs.version, c.obs.record
	// This reading of the clock is older than the first byte (rule A4).
	c.writes.sent = attempt{first: c.writes.seq, last: c.writes.seq, expect: w.Expect, record: w.Record, meta: c.lease.meta.asked, t0: now.Clock}
	if w.Op != Free { // a free record needs no owner
		c.writes.remember(c.writes.sent, out)
	}
	c.busy = kind
	out.Add(w)
}

// writeDone handles the answer to a write.
func (c *Machine) writeDone(kind inflight, ev WriteDone, now protocol.Now, out *protocol.Actions) {
	switch {
	case kind == attachWriting:
		c.attachWritten(ev, now, out)
		return
	case ev.Err != nil:
		c.writeFailed(ev, now, out)
		return
	}
	c.trouble.Progress()
	c.writes.sent.record.Epoch = ev.Epoch
	switch kind {
	// A release needs no read: only a clean success can be believed.
	case releasing:
		c.observe(c.writes.sent.record, ev.Version, now.Clock)
		c.released(nil, out)
	case reaping:
		c.observe(c.writes.sent.record, ev.Version, now.Clock)
	default:
		c.adopt(c.writes.sent, ev.Version, now, out)
	}
}

// writeFailed handles an error. Whatever the store said, the write may have landed, and a read
// must tell (rule A6). Even a refusal may be due to an earlier attempt, or to the same
// request delivered twice.
func (c *Machine) writeFailed(ev WriteDone, now protocol.Now, out *protocol.Actions) {
	c.release.deleting = c.release.deleting && !ev.Void
	if ev.Refused {
		c.writes.refused()
	}
	c.tryFailed(ev.Err, now, out)
	if !ev.Fatal {
		return
	}
	switch c.phase {
	case clear:
		c.denied(ev.Err, now, out)
	case freeing:
		c.freeDenied(ev.Err, now, out)
	case held, lost, detaching, attaching:
		// No short cut: the refusal may pass, and the lease is valid until its deadline
		// whatever the store says.
	}
}

// adopt notes that the attempt a landed as version v, so no other one can land. Time counts
// from its own t0, however long ago (rules A4 and A6). Counting from now would make the lease
// valid for longer than others believe, by all the time its answer was lost.
func (c *Machine) adopt(a attempt, v protocol.Version, now protocol.Now, out *protocol.Actions) {
	c.writes.open = nil
	c.trouble.Progress()
	c.observe(a.record, v, now.Clock)
	switch c.phase {
	case clear:
		c.claimed(a, now, out)
	case held:
		c.renewed(a, now, out)
	case detaching:
		c.lease.take(a)
		c.due = now.Clock
	case attaching:
		c.attached(a, now, out)
	case lost, freeing: // the record must be freed; the lease has ended
	}
}

// lookFailed handles a failed read.
func (c *Machine) lookFailed(err error, now protocol.Now, out *protocol.Actions) {
	c.trouble.Reads++
	c.trouble.LookAt = now.Clock + c.retryDelay(c.trouble.Reads)
	c.due = c.trouble.LookAt
	c.trouble.Failed(c.trouble.Reads, err, c.reaps(), now, out)
}

// tryFailed handles a failed write. The candidate reads at once whether it landed.
func (c *Machine) tryFailed(err error, now protocol.Now, out *protocol.Actions) {
	c.trouble.Writes++
	c.trouble.TryAt = now.Clock + c.retryDelay(c.trouble.Writes)
	c.obs.fresh = false
	c.due = now.Clock
	c.trouble.Failed(c.trouble.Writes, err, c.reaps(), now, out)
}

// resting reports whether a write must wait, and plans the next step for then. A failed write
// is followed by a pause even if the read in between succeeds. Otherwise, a store that answers
// reads and refuses writes would get them as fast as it answers.
func (c *Machine) resting(now protocol.Now) bool {
	if now.Clock >= c.trouble.TryAt {
		return false
	}
	c.due = c.trouble.TryAt
	return true
}

// retryDelay returns the pause after the n-th failure in a row. A holder has little time to
// renew its lease, so its pause is at most a sixth of the TTL. Others need not be slower than a
// renewal interval. Their pauses vary, so candidates do not all come back at once after a
// common failure.
func (c *Machine) retryDelay(n int) time.Duration {
	pause := protocol.Pause(n, c.cfg.Retries)
	if c.phase != clear {
		return min(pause, max(c.cfg.TTL/6, protocol.MinPause))
	}
	pause = min(pause, max(protocol.Renewal(c.cfg.TTL), time.Second))
	return pause + c.rng.Jitter(pause/4)
}

// Trouble returns why the last try failed, or nil if none has since the last success.
func (c *Machine) Trouble() error { return c.trouble.Err }

// remember adds history to a claim's record: the number of the lease, and an entry for the lease
// whose record the claim overwrites. Nothing is decided by it.
//
// Only a claim does this. It writes the record anyway, so it costs no request. And it knows the
// last record of the earlier lease, which nobody can change after the claim has landed (rule A1).
func (c *Machine) remember(r *record.Record, now protocol.Now) {
	if c.cfg.Tokenless || c.beats() {
		return // a marker's record is deleted, and a session is not a lock
	}
	before := c.obs.record
	r.Term, r.TermToken, r.History = before.NextTerm(), r.Token, before.History
	if before.AcquiredAt.IsZero() {
		return // there was no lease before it
	}
	p := record.Past{Token: before.Token, Term: before.CountedTerm(), Holder: before.Holder, From: before.AcquiredAt}
	p.To, p.How = before.End(now.Wall)
	ours := c.cfg.mine(before)
	if ours && before.Held {
		p.How = record.EndedByRelease // it has not landed, or was not sent
	}
	switch {
	case c.obs.version == "" && before.Held:
		p.How = record.EndedByDeletion
	case c.obs.version == "": // somebody may have created and deleted it since
	// That the record is ours is not enough: with epochs, a claim may be two writes, and the first
	// one ends the other holder's lease.
	case ours && p.How == record.EndedByRelease && now.Wall.Sub(before.RenewedAt) < before.TTL:
		p.How = record.EndedAgain
	}
	r.History = before.Remember(p)
}
