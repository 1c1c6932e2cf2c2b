package record

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of a history. They hold for entries that are written here; those of others are read
// up to them.
const (
	MaxPast    = 16      // entries
	MaxHistory = 4 << 10 // bytes; the oldest entries give way

	// maxName bounds a holder's name in an entry, and why a lease ended: a name of 64 KiB would
	// leave no room for any other. A longer one is cut, and ends with an ellipsis.
	maxName = 96
)

// EndedAgain is how a lease ended that was followed at once by another one of the same candidate:
// passed on inside its process, for example. That one is told of in the same entry when it is over
// in its turn, or a process that takes a lock a hundred times a second would leave nothing of
// anybody else.
const EndedAgain = "acquired again"

// EndedByRelease is how a lease ended that its holder released.
const EndedByRelease = "released"

// EndedByDeletion is how a lease ended whose object was deleted.
const EndedByDeletion = "deleted"

// Past is an entry of a record's history: a lease that is over, or so many in a row of one
// candidate. It is for people, and nothing is decided by it.
type Past struct {
	Token  int64     // of the last lease
	Term   int64     // of the last lease; 0: it was not counted
	Holder string    // cut if it is long
	From   time.Time // the first lease was acquired, by its holder's wall clock
	To     time.Time // the last one was released, or the next one acquired, by the clock of whoever did that
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

// CountedTerm is the number of the record's lease among those of its lock, from 1; 0: it was not
// counted. A version that does not count leaves the last number as it is, beside a token that
// it was not counted with.
func (r Record) CountedTerm() int64 {
	if r.TermToken != r.Token {
		return 0
	}
	return r.Term
}

// NextTerm is the number of the lease that follows. Leases that were not counted leave no gap.
func (r Record) NextTerm() int64 {
	if r.Term >= LastToken {
		return 1 // it was set by hand
	}
	return max(r.Term, 0) + 1
}

// End is when and how the lease of the record ended, if the next one began at that time; where
// that is zero, there is none yet. No time and no reason: the lease goes on.
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

// Remember gives the history of a record that is written over this one, which adds the lease of
// this one.
//
// The entries before it are taken over as they are written, and only the newest is read: a claim
// is to cost no more than the request that it is. Where that one and this lease are of one
// candidate they become one entry: see EndedAgain. It may be so only if the claim of this record
// has written the entry, or it speaks of another lease that followed.
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

// Past reads the record's history, the newest entry first. Elements that are no entries are left out.
func (r Record) Past() (all []Past) {
	for _, e := range elements(r.History) {
		if p, ok := readPast(e); ok {
			all = append(all, p)
		}
	}
	return all
}

// readPast reads an entry, if it is one. Those that were written here are read in a sixth of the
// time that encoding/json takes: a claim reads one, and Pack reads all.
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

// readOurs reads an entry as append writes it. It checks nothing on its way: what it has read counts
// only if append makes the same bytes of it.
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

// append writes the entry in its form.
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

// appendText writes a text as JSON. Most texts are plain; encoding/json does the others.
func appendText(b []byte, s string) []byte {
	if plain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	var quoted bytes.Buffer
	enc := json.NewEncoder(&quoted)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // it fails for no text
	return append(b, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

// plain reports whether a text is ASCII that stands in JSON as it is.
func plain(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// short cuts a text that is too long for an entry, between two characters.
func short(s string) string {
	const mark = "…"
	if len(s) <= maxName {
		return s
	}
	return strings.ToValidUTF8(s[:maxName-len(mark)], "") + mark
}

// elements splits a JSON array into what stands between its commas, up to the bounds of a
// history. It takes for granted that raw is JSON, as all is that was decoded; anything but an array has
// none. No element is looked into, so what somebody else has written there costs no more than its
// bytes, and is not changed either.
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
