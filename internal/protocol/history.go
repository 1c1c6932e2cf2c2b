package protocol

import "github.com/leasehold/leasehold/internal/record"

// remember adds to the record of a claim what is to be remembered of the leases before it: how
// many there were, and, as the newest entry of the history, the one that the claim writes over.
// Nothing is decided by it.
//
// Only a claim does so, because it writes the record anyway and knows the last record of the lease
// before, which nobody can write any more when the claim has landed (rule A1). So it takes no
// request, and no entry is of a lease whose record was not there.
func (c *Candidate) remember(r *record.Record, now Now) {
	if c.cfg.Tokenless || c.cfg.Fresh {
		return // its record does not stay, and a session is no lock
	}
	before := c.obs.record
	r.Term, r.TermToken, r.History = before.NextTerm(), r.Token, before.History
	if before.AcquiredAt.IsZero() {
		return // it was made by hand, free
	}
	p := record.Past{Token: before.Token, Term: before.CountedTerm(), Holder: before.Holder, From: before.AcquiredAt}
	p.To, p.How = before.End(now.Wall)
	ours := c.cfg.mine(before)
	if ours && before.Held {
		p.How = record.EndedByRelease // which has not landed, or was not sent
	}
	switch {
	case c.obs.version == "" && before.Held:
		p.How = record.EndedByDeletion
	case c.obs.version == "": // another may have created it, and that been deleted too
	// It is not enough that the record is ours: with epochs a claim may be two writes, of which the
	// first says of somebody else's lease that it is over.
	case ours && p.How == record.EndedByRelease && now.Wall.Sub(before.RenewedAt) < before.TTL:
		p.How = record.EndedAgain
	}
	r.History = before.Remember(p)
}
