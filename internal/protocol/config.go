package protocol

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// Version is the store's name for one state of the object, and empty if there is no object. You can
// only compare versions for equality: stores do not promise that later ones are larger.
type Version string

// Now is the time on the driver's clocks. It is an argument, not a function, so a step sees a
// single time, and a test can choose it.
type Now struct {
	Clock time.Duration // suspend-aware and monotonic: all decisions use it
	Wall  time.Time     // for the times in records, which are for people only
}

// Config configures a candidate. Incarnation makes write IDs unique and seeds the jitter. It must
// be new for each candidate and each start: 128 random bits in any text form (rule A9).
type Config struct {
	Incarnation string
	TTL         time.Duration
	Holder      string
	Address     string
	Meta        map[string]string
	Existing    bool   // never create the object
	Layout      string // the name in records

	// Numbered: tokens are object numbers, starting at 1.
	Numbered bool
	// Tokenless: there are no tokens, and a free lock has no object.
	Tokenless bool
	// WriteOnce: a record cannot be overwritten, so no lease is renewed. Without Sweep, none is
	// taken over either: its record must be deleted first.
	WriteOnce, Sweep bool

	// Fresh: the object must not exist yet, so a name is used only once (rule D1).
	Fresh bool
	// Reaper: the candidate wants the lock to be free. Where it would take the lock over, it frees
	// it (rule D3), and it answers an acquisition with Reaped.
	Reaper bool

	// FastStart lets the candidate take over at once if the record is old enough by the store's own
	// clock.
	FastStart bool
	// PollInterval limits how long the poll intervals of a waiting acquisition become. Zero: see
	// the function PollInterval. Followers do not use it.
	PollInterval time.Duration
	// Follow polls as for an election, where waits are long: see follow.
	Follow bool
	// Frequent and Infrequent are a follower's poll intervals: during transitions and failures, and
	// while the leader is stable. Zero: derived from the leader's TTL.
	Frequent, Infrequent time.Duration
	// Peers makes a follower ask the leader itself, if its record has an address. It asks the store
	// only if the leader does not answer.
	Peers bool
	// Retries are the backoffs after consecutive failures: see [Pause].
	Retries []time.Duration
}

// writeID returns the write ID of the n-th write. It is in the body, which every layout and store
// keeps, not in metadata. Each try has a new one, because on a store with hashes as versions, an
// identical record would bring back its version (rule A2).
func (cfg *Config) writeID(n uint64) string {
	return cfg.Incarnation + "." + strconv.FormatUint(n, 10)
}

// number returns the number in the record's write ID, if this candidate wrote it. It checks more
// than the prefix, because another incarnation may begin with this one.
func (cfg *Config) number(r record.Record) (n uint64, ours bool) {
	text, marked := strings.CutPrefix(r.WriteID, cfg.Incarnation)
	text, dotted := strings.CutPrefix(text, ".")
	if !marked || !dotted {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// mine reports whether this candidate wrote the record. That never means ownership (rule A9), only
// that nobody else relies on the record.
func (cfg *Config) mine(r record.Record) bool {
	_, ours := cfg.number(r)
	return ours
}

// frequent returns a follower's interval during transitions and failures.
func (cfg *Config) frequent(ttl time.Duration) time.Duration {
	if cfg.Frequent > 0 {
		return cfg.Frequent
	}
	return max(Renewal(ttl)/8, FirstPoll)
}
