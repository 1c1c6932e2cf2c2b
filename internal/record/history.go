package record

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// The bounds of a history. Entries written here obey them; those of others are read up to them.
const (
	MaxPast    = 16      // entries
	MaxHistory = 4 << 10 // bytes; the oldest entries give way

	// maxName bounds a holder's name in an entry, and why a lease ended: a name of 64 KiB would
	// leave no room for another entry. A longer one is cut, and ends with an ellipsis.
	maxName = 96
)

// EndedAgain is how a lease ended when the same candidate acquired another one at once, for
// example passed on inside its process. That lease joins the same entry when it ends.
// Otherwise, a process taking a lock a hundred times a second would leave no room for others.
const EndedAgain = "acquired again"

// EndedByRelease is how a lease ended when its holder released it.
const EndedByRelease = "released"

// EndedByDeletion is how a lease ended when its object was deleted.
const EndedByDeletion = "deleted"

// Past is an entry of a record's history: an ended lease, or several consecutive ones of one
// candidate. It is for people, and decides nothing.
type Past struct {
	Token  int64     // of the last lease
	Term   int64     // of the last lease; 0: it was not counted
	Holder string    // cut if it is long
	From   time.Time // the first lease was acquired, by its holder's wall clock
	To     time.Time // the last one was released, or the next one acquired, by that process's clock
	How    string    // the last one ended
	First  int64     // the token of the first lease
	Leases int64     // at least 1
}

// past is the form of an entry.
type past struct {
	Token  int64  `json:"token"`
	Term   int64  `json:"term,omitempty"`
	Holder string `json:"holder"`
	From   string `json:"from"`
	To     string `json:"to"`
	How    string `json:"how"`
	First  int64  `json:"first,omitempty"`
	Leases int64  `json:"leases,omitempty"`
}

// CountedTerm returns the lease's number among those of its lock, from 1, or 0 if it was not
// counted. A version that does not count keeps the last number, next to a new token.
func (r Record) CountedTerm() int64 {
	if r.TermToken != r.Token {
		return 0
	}
	return r.Term
}

// NextTerm returns the next lease's number. Uncounted leases leave no gap.
func (r Record) NextTerm() int64 {
	if r.Term >= LastToken {
		return 1 // it was set by hand
	}
	return max(r.Term, 0) + 1
}

// End returns when and how the record's lease ended, if the next one began at that time. Zero:
// none has begun. Without a time and a reason, the lease goes on.
func (r Record) End(next time.Time) (ended time.Time, how string) {
	switch {
	case r.Held && next.IsZero():
		return time.Time{}, ""
	case r.Held:
		return next, EndedByTakeover
	case r.Ended == EndedByTakeover && next.IsZero():
		return r.ExpiresAt, r.Ended // and the candidate that took it over has not come through
	case r.Ended == EndedByTakeover:
		return next, r.Ended
	case r.Ended == "":
		return r.RenewedAt, EndedByRelease
	}
	return r.RenewedAt, r.Ended
}

// Remember returns the history for a record that overwrites this one, with this record's lease
// added.
//
// Earlier entries are copied as written, and only the newest is parsed: a claim must cost no
// more than its request. If that entry and this lease are the same candidate's, they become one
// entry: see EndedAgain. But if this record's claim did not write the entry, it is about a
// later lease.
func (r Record) Remember(p Past) json.RawMessage {
	old := elements(r.History)
	if len(old) > 0 && r.TermToken == r.Token {
		if last, ok := readPast(old[0]); ok && last.How == EndedAgain && last.Token < p.Token && last.Holder == short(p.Holder) {
			p.First, p.Leases, p.From = last.First, last.Leases+1, last.From
			old = old[1:]
		}
	}
	b := p.append(make([]byte, 1, 256+len(r.History)))
	b[0] = '['
	for _, e := range old[:min(len(old), MaxPast-1)] {
		if len(b)+len(e)+len(",]") > MaxHistory {
			break
		}
		b = append(append(b, ','), e...)
	}
	return append(b, ']')
}

// Past returns the record's history, newest first. Invalid entries are left out.
func (r Record) Past() (all []Past) {
	for _, e := range elements(r.History) {
		if p, ok := readPast(e); ok {
			all = append(all, p)
		}
	}
	return all
}

// readPast parses an entry. If it was written here, that takes a sixth of encoding/json's time:
// a claim reads one, and Pack reads all.
func readPast(raw []byte) (Past, bool) {
	p, ok := readOurs(raw)
	if !ok {
		var f past
		if json.Unmarshal(raw, &f) != nil {
			return Past{}, false
		}
		p = Past{
			Token: f.Token, Term: max(f.Term, 0), Holder: short(f.Holder), From: parseTime(f.From), To: parseTime(f.To), How: short(f.How),
			First: f.First, Leases: f.Leases,
		}
	}
	if p.Leases < 2 || p.Leases > LastToken || p.First < 1 || p.First >= p.Token { // so it is of one lease
		p.First, p.Leases = p.Token, 1
	}
	return p, p.Token > 0
}

// readOurs parses an entry in append's format. It checks nothing: the result counts only if
// append makes the same bytes of it.
func readOurs(raw []byte) (p Past, ok bool) {
	rest := string(raw)
	number := func(name string) (n int64) {
		rest = strings.TrimPrefix(rest, name)
		for rest != "" && '0' <= rest[0] && rest[0] <= '9' {
			n, rest = n*10+int64(rest[0]-'0'), rest[1:]
		}
		return n
	}
	text := func(name string) (s string) {
		s, rest, _ = strings.Cut(strings.TrimPrefix(rest, name), `"`)
		return s
	}
	p.Token = number(`{"token":`)
	p.Term = number(`,"term":`)
	p.Holder = text(`,"holder":"`)
	p.From = parseTime(text(`,"from":"`))
	p.To = parseTime(text(`,"to":"`))
	p.How = text(`,"how":"`)
	p.First = number(`,"first":`)
	p.Leases = number(`,"leases":`)
	return p, string(p.append(make([]byte, 0, 512))) == string(raw)
}

func (p Past) append(b []byte) []byte {
	number := func(name string, n int64) { b = strconv.AppendInt(append(b, name...), n, 10) }
	text := func(name, s string) { b = appendText(append(b, name...), s) }
	number(`{"token":`, p.Token)
	if p.Term > 0 {
		number(`,"term":`, p.Term)
	}
	text(`,"holder":`, short(p.Holder))
	b = append(appendTime(append(b, `,"from":"`...), p.From), '"')
	b = append(appendTime(append(b, `,"to":"`...), p.To), '"')
	text(`,"how":`, short(p.How))
	if p.Leases > 1 {
		number(`,"first":`, p.First)
		number(`,"leases":`, p.Leases)
	}
	return append(b, '}')
}

// short cuts a text between two characters if it is too long for an entry.
func short(s string) string {
	const mark = "…"
	if len(s) <= maxName {
		return s
	}
	return strings.ToValidUTF8(s[:maxName-len(mark)], "") + mark
}

// elements splits a JSON array at its commas, up to the bounds of a history. raw must be valid
// JSON, as all decoded members are; anything but an array has no elements. Elements are not
// parsed, so those of others cost no more than their bytes, and stay unchanged.
func elements(raw []byte) (all [][]byte) {
	if !bytes.HasPrefix(raw, []byte("[")) {
		return nil
	}
	depth, begin := 0, 1
	quoted := false
	for i := 1; i < min(len(raw), MaxHistory) && len(all) < MaxPast; i++ {
		switch c := raw[i]; {
		case c == '\\':
			i++ // it is in a text
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case depth > 0 && (c == '}' || c == ']'):
			depth--
		case depth == 0 && (c == ',' || c == ']'):
			if e := bytes.TrimSpace(raw[begin:i]); len(e) > 0 {
				all = append(all, e)
			}
			begin = i + 1
		}
	}
	return all
}
