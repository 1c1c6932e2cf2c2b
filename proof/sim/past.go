package sim

import (
	"bytes"
	"strings"

	"github.com/leasehold/leasehold/internal/record"
)

// remembered checks a landed record's history: the earlier leases, each once, in order, and no
// others. A claim makes it, and no other write changes it.
//
// It checks the bytes in the store. Their writer saw only landed claims, and a landed claim's
// writer has seen all of them, unless the object was deleted.
func (led *ledger) remembered(r *request, claims bool) {
	l := r.from.from.on
	if last := len(l.claims) - 1; !claims && last > 0 && len(l.claims[last].remembers) > 0 && bytes.HasSuffix(r.body, l.claims[last].remembers) &&
		bytes.Contains(r.body, []byte(`"write_id":"`+l.claims[last].wrote.Incarnation()+".")) {
		return // the usual case, and faster
	}
	got, err := record.DecodeIn(record.AnyLayout, r.body)
	switch {
	case err != nil:
		led.violated(Remember, "%s: %v", l.key, err)
		return
	case l.session != nil || led.cfg.Tokenless:
		if len(got.History) > 0 || got.Term != 0 {
			led.violated(Remember, "%s remembers %s in term %d", l.key, got.History, got.Term)
		}
		return
	case !claims:
		if last := l.claims[len(l.claims)-1].wrote; string(got.History) != string(last.History) || got.Term != last.Term || got.TermToken != last.TermToken {
			led.violated(Remember, "a write that is no claim has changed what %s remembers from %s, term %d, to %s, term %d",
				l.key, last.History, last.Term, got.History, got.Term)
		}
		if last := &l.claims[len(l.claims)-1].wrote; got.Held {
			last.Holder, last.WriteID = got.Holder, got.WriteID // another holder, if the lease was detached
		}
		return
	}
	last := len(l.claims) - 1
	l.claims[last].wrote, l.claims[last].remembers = got, r.body[bytes.Index(r.body, []byte(`,"term":`)):]
	past := got.Past()
	told, newest := led.told(l, past)
	switch {
	case l.deleted && !led.existing: // the creator of a new object need not have seen it
	case got.CountedTerm() != int64(last):
		led.violated(Remember, "the claim %d of %s has term %d", last, l.key, got.CountedTerm())
	case last > 1 && (len(past) == 0 || newest != last-1):
		led.violated(Remember, "%s does not begin with the claim before", got.History)
	case told < last-1 && len(past) < record.MaxPast:
		led.violated(Remember, "%s tells of %d leases of %d, and there is room", got.History, told, last-1)
	}
	if len(past) > 0 {
		mark := l.claims[last].incarnation
		same := mark == l.claims[newest].wrote.Incarnation()
		// With epochs, another candidate may have ended a lease without ever claiming the next
		// one.
		own := same && r.from.write.Over.Incarnation() == mark
		if how := past[0].How; how == record.EndedAgain && !same || how == record.EndedByTakeover && own || how == "" {
			led.violated(Remember, "the lease before the claim of %s is said to be %q", mark, how)
		}
	}
}

// family returns the common part of one candidate's incarnations: see incarnation.
func family(incarnation string) string {
	return strings.Join(strings.SplitN(incarnation, "-", 4)[:3], "-")
}

// told checks each entry, and counts the leases in them. newest is the last claim of the first
// entry. After a deletion two leases may have the same token, so an entry may mean either.
func (led *ledger) told(l *lock, past []record.Past) (told, newest int) {
	at := len(l.claims) - 1 // the claim after this entry
	for i, p := range past {
		end := at - 1
		for end > 0 && l.claims[end].token != p.Token {
			end--
		}
		begin := end - int(p.Leases) + 1
		// After a deletion, the last record seen need not be the last one.
		other := l.claims[max(end, 0)].wrote.Holder != p.Holder && !l.deleted
		if end < 1 || begin < 1 || l.claims[begin].token != p.First || l.claims[end].wrote.CountedTerm() != p.Term || other {
			if !l.excused {
				led.violated(Remember, "%+v is said to have been a lease of %s", p, l.key)
			}
			return told, newest
		}
		for n := begin; n < end; n++ { // the last holder has claimed the next lease
			if before, next := l.claims[n].wrote, l.claims[n+1]; family(before.Incarnation()) != family(next.incarnation) || before.Holder != p.Holder && !l.deleted {
				led.violated(Remember, "%+v is said to be of one candidate", p)
			}
		}
		if i > 0 && end != at-1 && (!l.deleted || led.existing) {
			led.violated(Remember, "there is a gap before %+v in what %s remembers", past[i-1], l.key)
		}
		if i == 0 {
			newest = end
		}
		told, at = told+int(p.Leases), begin
	}
	return told, newest
}
