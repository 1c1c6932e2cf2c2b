package protocol

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// attempt is a write that has landed, may have landed, or may yet land. A later
// read of the record decides which (rule A6). Where there are many they are kept
// together, as the range of their numbers with the first one's time: see remember.
type attempt struct {
	first, last uint64 // the numbers in their write IDs
	expect      Version
	record      record.Record // the first one's
	meta        int           // the change of the meta data that the first one carries
	t0          time.Duration // the clock before its first byte (rule A4)
	vain        bool          // it was to create the object, and was refused: there was one
}

// maxAttempts bounds the memory of attempts.
const maxAttempts = 8

// wrote reports that one of these attempts has written r. Ranges of different sessions may
// overlap, and the record does not always tell which it is of: see settle. Each begins before
// its attempts, so the first one will do.
func (a attempt) wrote(cfg *Config, r record.Record) bool {
	n, ours := cfg.number(r)
	return ours && a.first <= n && n <= a.last
}

// writes is what a candidate knows of its own writes.
//
// A Candidate asks it two things: whether a record that a look has shown is one of its own, and
// whether anything of its own may still come. Every answer to "did it land" is made of these.
type writes struct {
	seq  uint64    // the number of the last one
	sent attempt   // the one that is under way, or was last
	open []attempt // claims and renewals that may have landed, or may yet
}

// name makes the write ID of the next attempt to write (rule A2).
func (w *writes) name(cfg *Config) string {
	w.seq++
	return cfg.writeID(w.seq)
}

// record is what every record that is written begins with.
func (w *writes) record(cfg *Config, now Now) record.Record {
	return record.Record{
		Held: true, Holder: cfg.Holder, Address: cfg.Address, TTL: cfg.TTL, Meta: cfg.Meta,
		Layout: cfg.Layout, WriteID: w.name(cfg), RenewedAt: now.Wall, ExpiresAt: now.Wall.Add(cfg.TTL),
	}
}

// again is the record of a lease that goes on: it has what the last one had, but for what a renewal
// is for.
func (w *writes) again(cfg *Config, last record.Record, now Now) record.Record {
	r := w.record(cfg, now)
	r.Session = last.Session
	r.Token, r.AcquiredAt, r.Unknown, r.Previous = last.Token, last.AcquiredAt, last.Unknown, last.Previous
	r.Term, r.TermToken, r.History = last.Term, last.TermToken, last.History
	return r
}

// First is the record of a lock that is made free, to be acquired later. The write
// ID must be new.
func First(cfg Config, writeID string, date, wall time.Time) record.Record {
	token := int64(1)
	if !cfg.Numbered {
		token = FirstToken(date, wall)
	}
	return record.Record{
		Token: token, Layout: cfg.Layout, Holder: cfg.Holder, TTL: cfg.TTL, WriteID: writeID,
		RenewedAt: wall, ExpiresAt: wall,
	}
}

// remember keeps an attempt that may land. None is forgotten, because under a session
// one that lands unnoticed is held for as long as the session lives (rule D6). Where
// there are too many, the two oldest become one range, which counts from the first
// one's t0: that is earlier than any other's, so a write that lands is believed for too
// short a time and never for too long (rule A4).
func (w *writes) remember(a attempt, out *Actions) {
	if len(w.open) == maxAttempts {
		w.merge(out)
	}
	w.open = append(w.open, a)
}

// merge makes room for one more.
func (w *writes) merge(out *Actions) {
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
	// All of different sessions: only the end of one makes its claim harmless.
	if session := w.open[0].record.Session; session != "" {
		out.Add(SessionOrphan{Session: session})
	}
	w.open = slices.Delete(w.open, 0, 1)
}

// landed finds the attempt that wrote r.
// The write ID decides, and nothing else in the record: not the holder's name, which another may
// have; not the session, which others of this process share (rules A9 and D5).
func (w *writes) landed(cfg *Config, r record.Record) (attempt, bool) {
	for _, a := range w.open {
		if r.Held && a.wrote(cfg, r) {
			a.record = r // of a range it need not be the first one's
			return a, true
		}
	}
	return attempt{}, false
}

// settle forgets the attempts that can no longer land, because the version that
// they were conditional on is gone and write IDs keep it from coming back.
//
// A claim may be two writes, of which only the first has landed, as r, which names the session of
// the holder that it is over with: then the second may yet.
func (w *writes) settle(cfg *Config, current Version, r record.Record) {
	w.open = slices.DeleteFunc(w.open, func(a attempt) bool { return a.expect != current && !a.wrote(cfg, r) })
}

// refused takes in that the store refused what was sent last. It is the last one that is open, if that was to create the
// object and its session has not ended meanwhile.
func (w *writes) refused() {
	if i := len(w.open) - 1; i >= 0 && w.sent.expect == "" {
		w.open[i].vain = true
	}
}

// write sends w on the condition that the object has the version that was seen (rule A1).
func (c *Candidate) write(kind inflight, w Write, now Now, out *Actions) {
	w.Expect, w.Over = c.obs.version, c.obs.record
	// This reading of the clock is older than the first byte (rule A4).
	c.writes.sent = attempt{first: c.writes.seq, last: c.writes.seq, expect: w.Expect, record: w.Record, meta: c.lease.meta.asked, t0: now.Clock}
	if w.Op != Free { // a free record needs no owner
		c.writes.remember(c.writes.sent, out)
	}
	c.busy = kind
	out.Add(w)
}

// writeDone takes in the answer to a write.
func (c *Candidate) writeDone(kind inflight, ev WriteDone, now Now, out *Actions) {
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
	// A release needs no look: a clean success is the one answer that can be believed.
	case releasing:
		c.observe(c.writes.sent.record, ev.Version, now.Clock)
		c.released(nil, out)
	case reaping:
		c.observe(c.writes.sent.record, ev.Version, now.Clock)
	default:
		c.adopt(c.writes.sent, ev.Version, now, out)
	}
}

// writeFailed: whatever the store said, the write may have landed, and a read
// must tell (rule A6). That holds for a refusal too: an earlier attempt of our
// own, or the same request delivered twice, may be what it collided with.
func (c *Candidate) writeFailed(ev WriteDone, now Now, out *Actions) {
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
		// No short cut: the reason of the refusal may pass, and until the deadline
		// the lease is valid whatever the store says.
	}
}

// adopt takes in that the attempt a landed as version v, with that attempt's own
// t0, however long ago that was (rules A4 and A6). The others can no longer land.
//
// The attempt's time may be long ago. To count from now instead would make the lease valid for
// longer than others believe, by all the time in which its answer was lost.
func (c *Candidate) adopt(a attempt, v Version, now Now, out *Actions) {
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
	case lost, freeing: // the record is ours, to be freed; the lease is over
	}
}
