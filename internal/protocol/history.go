package protocol

import "github.com/leasehold/leasehold/internal/record"

// remember adds history to a claim's record: the number of the lease, and an entry for the lease
// whose record the claim overwrites. Nothing is decided by it.
//
// Only a claim does this. It writes the record anyway, so it costs no request. And it knows the
// last record of the earlier lease, which nobody can change after the claim has landed (rule A1).
func (c *Candidate) remember(r *record.Record, now Now) {
	if c.cfg.Tokenless || c.cfg.Fresh {
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
