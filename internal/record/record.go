// Package record is the format of a lock in its store: one JSON object, which any tool for the
// store can show. An unrecognized record is an error, and is never overwritten. Unknown fields
// are kept.
package record

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"
)

const (
	// Format is the only record format of this version.
	Format = 1
	// MaxSize is the largest record's size in bytes.
	MaxSize = 64 << 10
	// MaxToken is the largest token of a record.
	MaxToken = math.MaxInt64
	// LastToken is the largest token ever granted. It is far below MaxToken, and above what
	// tokens can ever grow to: a larger one was set by hand. Such a record is read, shown and
	// freed like any other, but not claimed.
	LastToken = 1<<62 - 1
)

// MaxTTL is a record's largest TTL. With a longer one, a crash would leave the lock idle for
// longer.
const MaxTTL = 24 * time.Hour

// ErrForeign is matched by every error about an object that is not a record in this version's
// format. Such an object is never overwritten.
var ErrForeign = errors.New("not a lock record that this version understands")

// A Record is the state of a register: a lock, or a session. It is stored in four kinds of objects, which
// have one format but do not all use the same fields: a lock's only object, an epoch (one of a lock's
// numbered objects), a marker, and a session's heartbeat. Its maps and slices never change, so copies may
// share them.
type Record struct {
	Token   int64  // grows with every acquisition, kept by a release; 0 in a marker, which has none
	Held    bool   // false: free
	Holder  string // for people; identifies nobody in the protocol (rule A9)
	Address string // where the holder can be reached; may be empty
	TTL     time.Duration
	WriteID string // unique to the attempt that wrote this (rule A2)
	Session string
	Meta    map[string]string

	Layout Layout
	// Ended is why the lease ended, if not by a release.
	Ended string

	// For people, by the writer's wall clock. No decision of the protocol depends on them.
	AcquiredAt, RenewedAt, ExpiresAt time.Time

	// Unknown holds the fields unknown to this version, by name. They are written back
	// unchanged.
	Unknown map[string]json.RawMessage

	// Of a lock, in one object or in epochs:

	// Successor is the holder that a release prefers as the next one; the others let it go
	// first for a moment. In a renewal, it is the one in the coming release.
	Successor string
	// Rest, of a free record, is a cooldown: see Resting.
	Rest *Rest
	// Move means: there is no lock here, because it has gone, or has yet to come (rule M5).
	// Then the record is neither free nor held, and candidates treat it as an unrecognized
	// object.
	Move Move
	// For people: Term is a lease's number among those of its lock, from 1, and TermToken its
	// token: see CountedTerm. History has the leases before this one, in stored form: see Past. A
	// claim creates it, and all other writes keep it.
	Term, TermToken int64
	History         json.RawMessage

	// Of an epoch: Epoch is the number of the record's object, which is not in its text, and
	// Previous is the number of the last object of the lease before. 0: there was none.
	Epoch, Previous int64

	// Of a heartbeat: Freed is about the locks released under the session.
	Freed *Freed

	// In a marker's place: something other than a record marks the lock as held. It is not stored.
	Opaque bool
}

// Freed tells waiters for a session's locks which of them are worth a read. It decides nothing:
// waiters read the lock themselves.
type Freed struct {
	Count int64    `json:"count"`          // so far
	Last  []string `json:"last,omitempty"` // the marks of the last ones, the newest at the end
}

// A Move is a record's note about a lock that moves. At most one field is set.
type Move struct {
	To   string // the object is sealed: the lock is there now
	From string // the object is closed: the lock will come from there
}

// ErrMoved is matched by every error about a sealed or closed object. They match ErrForeign
// too, so code without support for moves leaves the object alone.
var ErrMoved = errors.New("the lock moves to another place")

// A MovedError says where a lock has gone, or will come from.
type MovedError struct{ Move }

func (e *MovedError) Error() string {
	if e.To != "" {
		return "sealed: the lock has moved to " + e.To
	}
	return "closed: the lock is to come here from " + e.From + ", and leasehold move is not done yet"
}

// Is reports whether target is ErrMoved or ErrForeign.
func (e *MovedError) Is(target error) bool { return target == ErrMoved || target == ErrForeign }

// A Rest is the cooldown that a release asks for.
type Rest struct {
	Milliseconds int64 `json:"ms"` // from the write on
	// WriteID is the original record's. Versions that do not know the field keep it when they
	// acquire and release the lock. Then it belongs to another write, and does not count.
	WriteID string `json:"write_id"`
}

// MaxRest is the longest cooldown. A record with a longer one gets this.
const MaxRest = 24 * time.Hour

// Resting returns how long others must leave the lock alone, counted from the record's write.
// It is 0 unless the record is free and asked for it itself.
func (r Record) Resting() time.Duration {
	if r.Held || r.Rest == nil || r.Rest.WriteID != r.WriteID {
		return 0
	}
	return time.Duration(max(0, min(r.Rest.Milliseconds, MaxRest.Milliseconds()))) * time.Millisecond
}

// Values of Record.Ended: the lease was force-released, the lock was moved, or the holder died
// and its successor is about to follow.
const (
	EndedByHand     = "broken"
	EndedByMove     = "moved"
	EndedByTakeover = "taken over"
)

// A Layout is how a record is stored. The zero value is the default: one object that is
// overwritten.
type Layout struct {
	Name string // empty: the default

	// IfMatch, of LayoutEpochs: a renewal overwrites the epoch's object. Otherwise it creates the
	// next epoch. The two ways must not meet in one lock (docs/rfc/0006-layouts.md), so they are
	// two layouts to DecodeIn.
	IfMatch bool
}

// The names of the other layouts known to the protocol.
const (
	LayoutEpochs  = "epochs"  // a new object for each lease
	LayoutMarker  = "marker"  // it has no tokens
	LayoutSession = "session" // a session's heartbeat, which is not a lock
)

// Incarnation returns the mark of the candidate that wrote the record.
func (r Record) Incarnation() string {
	mark, _, _ := strings.Cut(r.WriteID, ".")
	return mark
}

// SameLease reports whether two held records are of the same lease.
func (r Record) SameLease(other Record) bool {
	if r.Token == 0 && r.AcquiredAt.UnixMilli() != other.AcquiredAt.UnixMilli() {
		return false // nothing else tells two leases of one candidate apart
	}
	return r.Token == other.Token && r.Incarnation() == other.Incarnation()
}
