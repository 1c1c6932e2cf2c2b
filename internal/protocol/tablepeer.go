package protocol

import (
	"slices"

	"github.com/leasehold/leasehold/internal/record"
)

// told is what this process has heard from others. A word only brings a look forward, and the look decides. So one
// that is false costs a look, and one that is lost or late costs time.
type told struct {
	version Version // of a word that came while a look was under way, which may not show it; empty: none
	enough  bool    // a word was heeded since the table has last changed
}

// hear takes in the word of another process. Until the table has changed one word is heeded: an honest one tells of
// a change, and whoever lies can make this process look no more often than there are changes.
func (t *Table) hear(ev Told, now Now) {
	switch {
	case ev.Version == t.version, t.told.enough, !t.any(waiting), t.busy == claiming: // its answer tells
	case t.busy == reading:
		t.told = told{ev.Version, true}
	default:
		t.told.enough, t.fresh = true, false
		t.soon(now)
	}
}

// heard is called when a look has ended: one that was sent before a word came, and does not show what
// that tells of, is followed by another.
func (t *Table) heard() {
	if v := t.told.version; v != "" && v != t.version && t.any(waiting) {
		t.fresh = false
	}
	t.told.version = ""
}

// announce tells the processes of others that a write which has succeeded gave them seats.
func (t *Table) announce(before record.Table, out *actions) {
	var addresses []string
	for _, s := range t.table.Holders {
		if s.Address != "" && !t.mine(s) && seatOf(before.Waiters, s.ID) && !slices.Contains(addresses, s.Address) {
			addresses = append(addresses, s.Address)
			out.add(Promoted{s.Address, t.version})
		}
	}
}
