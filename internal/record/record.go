// Package record is the format of a lock in its store: one JSON object, which any tool for
// the store can show. A record that is not understood is an error, and is never written over;
// fields that this version does not know are kept.
package record

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"
)

const (
	// Format is the format of the records that this version writes and understands.
	Format = 1
	// MaxSize is the size of the largest record in bytes.
	MaxSize = 64 << 10
	// MaxToken is the largest token that a record can have.
	MaxToken = math.MaxInt64
	// LastToken is the largest token that is given out. It is far below MaxToken, and above
	// what tokens can ever grow to: a larger one was set by hand. Such a record is read, shown
	// and freed like any other, and not claimed over.
	LastToken = 1<<62 - 1
)

// MaxTTL is the largest TTL that a record can have. A crash would leave the lock idle for longer.
const MaxTTL = 24 * time.Hour

// ErrForeign is the kind of every error about an object that is not a record
// that this version understands. Such an object is never written over.
var ErrForeign = errors.New("not a lock record that this version understands")

// A Record is what one lock looks like in the store. Its maps and slices are
// never changed once it is made, so that copies may share them.
type Record struct {
	Token   int64  // grows with every acquisition, kept by a release; 0 in a layout without tokens
	Held    bool   // false: free
	Holder  string // for people; names nobody in the protocol (rule A9)
	Address string // where the holder can be reached; may be empty
	TTL     time.Duration
	WriteID string // unique to the attempt that wrote this (rule A2)
	Session string
	Meta    map[string]string
	// Successor names the holder that a release would like to come next; the
	// others let it go first for a moment. A renewal says whom the release that is soon to follow
	// will name.
	Successor string

	// Layout names the layout that the record belongs to. Empty: one object, the
	// default.
	Layout string
	// Of layouts with many objects: Epoch is the number of the object that the
	// record lies in, which is not part of its text, and Previous that of the last
	// one of the lease before. 0: the layout has no numbers, or there was none.
	Epoch, Previous int64
	// Ended says why the lease is over, if not by a release.
	Ended string
	// Freed, of a session, are the locks that were released under it.
	Freed *Freed
	// Rest, of a record that is free, asks the others to leave the lock alone for a while: see
	// Resting.
	Rest *Rest
	// Opaque: something else than a record says that the lock is held.
	Opaque bool
	// Move says that there is no lock here: it has gone, or has yet to come (rule M5). The record is
	// not free then and not held, and to a candidate it is an object that is not understood.
	Move Move

	// For people, by the writer's wall clock. The protocol decides nothing by them.
	AcquiredAt, RenewedAt, ExpiresAt time.Time

	// For people too: Term is the number of a lease among those of its lock, from 1, and TermToken
	// the token of that lease: see CountedTerm. History tells of the leases before this one, as it
	// is written in the store: see Past. A claim makes it, and all other writes keep it.
	Term, TermToken int64
	History         json.RawMessage

	// Unknown holds the fields that this version does not know, by name. They
	// are written back as they were.
	Unknown map[string]json.RawMessage
}

// Freed tells waiters for locks of a session which of them are worth a look. It
// decides nothing: a waiter looks for itself.
type Freed struct {
	Count int64    `json:"count"`          // so far
	Last  []string `json:"last,omitempty"` // the marks of the last ones, the newest at the end
}

// A Move is what a record says of a lock that leaves a place for another. At most one is set.
type Move struct {
	To   string // the object is sealed: the lock is there now
	From string // the object is closed: the lock is to come from there
}

// ErrMoved is the kind of every error about an object that is sealed or closed. Each matches
// ErrForeign too, so that code that does not know of moves leaves the object alone.
var ErrMoved = errors.New("the lock moves to another place")

// A MovedError says where a lock has gone, or is to come from.
type MovedError struct{ Move }

func (e *MovedError) Error() string {
	if e.To != "" {
		return "sealed: the lock has moved to " + e.To
	}
	return "closed: the lock is to come here from " + e.From + ", and leasehold move is not done yet"
}

// Is reports whether target is ErrMoved or ErrForeign.
func (e *MovedError) Is(target error) bool { return target == ErrMoved || target == ErrForeign }

// A Rest is what the release of a lease says that was to keep the lock for longer.
type Rest struct {
	Milliseconds int64 `json:"ms"` // from the write on
	// WriteID is that of the record which it was written into. Versions that do not know the field
	// keep it as it is when they acquire and release the lock; then it belongs to another write, and
	// does not count.
	WriteID string `json:"write_id"`
}

// MaxRest is the longest rest. A record that asks for more gets this.
const MaxRest = 24 * time.Hour

// Resting is for how long after it was written a record asks the others to leave the lock alone:
// if it is free, and it is itself what asked for it.
func (r Record) Resting() time.Duration {
	if r.Held || r.Rest == nil || r.Rest.WriteID != r.WriteID {
		return 0
	}
	return time.Duration(max(0, min(r.Rest.Milliseconds, MaxRest.Milliseconds()))) * time.Millisecond
}

// What Record.Ended says of a lease that was broken by hand, of one that ended as the lock was moved, and of
// one whose holder was gone and whose successor was on its way.
const (
	EndedByHand     = "broken"
	EndedByMove     = "moved"
	EndedByTakeover = "taken over"
)

// The layouts that the protocol knows of.
const (
	LayoutMarker  = "marker"  // it has no tokens
	LayoutSession = "session" // the heartbeat of a session, which is no lock
)

// Incarnation is the mark of the candidate that wrote the record.
func (r Record) Incarnation() string {
	mark, _, _ := strings.Cut(r.WriteID, ".")
	return mark
}

// SameLease reports that two records that are held tell of one lease.
func (r Record) SameLease(other Record) bool {
	if r.Token == 0 && r.AcquiredAt.UnixMilli() != other.AcquiredAt.UnixMilli() {
		return false // nothing else tells two leases of one candidate apart
	}
	return r.Token == other.Token && r.Incarnation() == other.Incarnation()
}
