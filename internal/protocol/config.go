package protocol

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// Version names one state of the object, as the store names it. The empty
// Version stands for "no object".
// Two versions are compared for equality only: no store promises that a later one is larger.
type Version string

// Now is what the driver's clocks show.
// It is an argument and not a function, so a step sees one time, and a test can choose it.
type Now struct {
	Clock time.Duration // suspend-aware and monotonic: all decisions rest on it
	Wall  time.Time     // for the times in a record that are for people, and nothing else
}

// Config is what makes a candidate. Incarnation must be new for each candidate
// and each start, 128 random bits in any text form (rule A9): it makes write IDs
// unique and seeds the jitter.
type Config struct {
	Incarnation string
	TTL         time.Duration
	Holder      string
	Address     string
	Meta        map[string]string
	Existing    bool   // never create the object
	Layout      string // as it stands in records

	// Numbered: the tokens are the numbers of objects, which begin with 1.
	Numbered bool
	// Tokenless: there are no tokens, and a lock that is free is no object at all.
	Tokenless bool
	// WriteOnce: a record cannot be written over, so no lease is renewed. Unless
	// Sweep is set none is taken over either: its record must be gone first.
	WriteOnce, Sweep bool

	// Fresh: the object must not exist yet, so a name is used once (rule D1).
	Fresh bool
	// Reaper: the candidate does not want the lock, but that nobody holds it any more.
	// Where it would take the lock over it frees it (rule D3), and an acquisition is
	// answered by Reaped.
	Reaper bool

	// FastStart lets the candidate take over without waiting when the store's
	// own clock says that the record is old enough.
	FastStart bool
	// PollInterval is what the pauses of an acquisition that waits grow to. Zero: see the function of
	// that name. A follower has others.
	PollInterval time.Duration
	// Follow paces the waiting as for an election, which is long: see follow.
	Follow bool
	// Frequent and Infrequent are the intervals of a follower, in transition and
	// trouble, and while the leader is stable. Zero: from the leader's TTL.
	Frequent, Infrequent time.Duration
	// Peers makes a follower ask the leader itself, where its record has an
	// address, and the store only when it does not answer.
	Peers bool
	// Retries are the pauses after failures in a row, as far as package retry allows
	// them. Nil: its own.
	Retries []time.Duration
}

// writeID is the write ID of the n-th attempt to write.
// It is in the body, where every layout and every store keeps it, and not in metadata. Each try
// has its own, or a record could come back byte for byte, and with it its version, on a store
// whose versions are hashes (rule A2).
func (cfg *Config) writeID(n uint64) string {
	return cfg.Incarnation + "." + strconv.FormatUint(n, 10)
}

// number is the number in the record's write ID, if this candidate made that.
// The prefix alone is not enough: an incarnation that begins like ours is somebody else's.
func (cfg *Config) number(r record.Record) (n uint64, ours bool) {
	text, marked := strings.CutPrefix(r.WriteID, cfg.Incarnation)
	text, dotted := strings.CutPrefix(text, ".")
	if !marked || !dotted {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// mine reports that a record was written by this candidate. That is never
// ownership (rule A9): it says that nobody else relies on the record.
func (cfg *Config) mine(r record.Record) bool {
	_, ours := cfg.number(r)
	return ours
}

// frequent is the interval of a follower in transition and in trouble.
func (cfg *Config) frequent(ttl time.Duration) time.Duration {
	if cfg.Frequent > 0 {
		return cfg.Frequent
	}
	return max(Renewal(ttl)/8, FirstPoll)
}
