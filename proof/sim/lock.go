package sim

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// A lock is what the checks remember of a lock, or of a session's heartbeat.
type lock struct {
	key     string
	members []*member // that may want it
	reapers []*member // that wait for this session to end
	flights
	granted int // leases
	// restsUntil is the earliest end of the cooldown, on the fastest clock within the bound.
	restsUntil time.Duration
	claims     []claim
	top        int64         // the largest token of a landed claim
	last       int64         // the largest token of a granted lease
	claimed    time.Duration // when the last claim landed
	deleted    bool          // the object was deleted at some time
	restored   bool          // an earlier record was restored
	papers     []*paper      // of detached leases
	excused    bool          // P1 was broken in the one allowed way
	names      *session      // in its record, if that is held
	writer     string        // that record's incarnation

	// The last write to the protected resource had this token, and was under the lease of this
	// claim.
	resourceToken int64
	resourceClaim int

	session *session // whose heartbeat it is; nil: a lock
	born    bool     // its object was created
	over    bool     // its object says that the session ended
	there   bool     // its object was not deleted since
	reused  bool     // another session of this name is beginning
}

type flights struct {
	inFlight []*request
}

// A claim is a landed one, which began a lease.
type claim struct {
	incarnation string
	token       int64
	created     bool // the object
	granted     bool
	wrote       record.Record // as it landed
	remembers   []byte        // its last part, with the history
}

// A paper is a detached lease in its owner's hands. The owner works under it until a time on its
// machine's clock. Papers of one lease are copies.
type paper struct {
	on       *lock
	claim    int // the one that began the lease
	proof    candidate.Proof
	owner    *process
	deadline time.Duration // on the owner's clock, the owner relies on it until then
	tries    int
	lineage  *lineage
}

// A lineage is shared by all papers of one lease.
type lineage struct {
	copied bool // it has several owners
	ended  bool // an owner has begun to hold or free the lease, and none relies on its paper any more
	freed  bool // an owner has begun to free it
}

func (p *paper) relies() bool { return !p.lineage.ended && p.owner.clock() < p.deadline }

func (l *lock) drop(p *paper) {
	l.papers = slices.DeleteFunc(l.papers, func(other *paper) bool { return other == p })
}

// all returns the candidates for a lock, or a heartbeat's keeper and waiters.
func (l *lock) all() (all []*member) {
	if l.session == nil {
		return l.members
	}
	return append(l.reapers, l.session.heartbeat)
}

// A table is what the checks remember of the semaphore.
type table struct {
	key   string
	size  int64
	heavy []int64 // weights of the callers
	peers bool    // holders notify the next ones when they give up slots
	room  int     // for entries, in bytes; 0: no limit
	flights
	callers []*caller // all so far

	now     record.Table // the object as it is, or last was
	there   bool
	born    bool
	order   []string           // IDs of landed entries, in order
	tokens  map[int64][]string // the callers with that token; several in one case: see grants
	top     int64              // the largest token of a grant
	granted time.Duration      // when the last grant landed
	deleted bool               // the object was deleted at some time
	excused bool               // a token was granted again in the one allowed way
}
