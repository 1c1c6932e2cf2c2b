package candidate

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// Config configures a candidate. Incarnation makes write IDs unique and seeds the jitter. It must
// be new for each candidate and each start: 128 random bits in any text form (rule A9).
type Config struct {
	Incarnation string
	TTL         time.Duration
	Holder      string
	Address     string
	Meta        map[string]string
	Retries     []time.Duration // the backoffs after consecutive failures: see protocol.Pause
	Register                    // how the lock is stored
	Role        Role            // nil: a Waiter without options
}

// A Register says what the layout makes of the lock's record.
type Register struct {
	Layout record.Layout // in records
	// Numbered: tokens are object numbers, starting at 1.
	Numbered bool
	// Tokenless: there are no tokens, and a free lock has no object.
	Tokenless bool
	// WriteOnce: a record cannot be overwritten, so no lease is renewed. Without Sweep, none is
	// taken over either: its record must be deleted first.
	WriteOnce, Sweep bool
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

// Terms are what an acquisition asks for its own lease. They apply from its Acquire until the
// lease is released, or until the acquisition ends without one. The candidate's next lease has
// its own, even if the lock is passed on to it within the process.
type Terms struct {
	// Holder, Meta and TTL override the configuration unless they are zero.
	Holder string
	Meta   map[string]string
	TTL    time.Duration
	// NoRenewal: the lease is not renewed, so it ends with its claim's validity.
	NoRenewal bool
	// MaxHold: the lease ends at most this long after its claim was sent. 0: no limit.
	MaxHold time.Duration
	// HoldAtLeast: if the lease is released earlier than this after its grant, the lock has a
	// cooldown for the rest. 0: none.
	HoldAtLeast time.Duration
}

// The bounds of terms. MaxHold has the lower bound of a TTL, for the same reason.
const (
	MinHold = protocol.MinTTL
	MaxRest = record.MaxRest
)

// ErrTimeUp is why a lease ends whose terms allow no more.
var ErrTimeUp = errors.New("the time that the lease was to last at most is up")

// Check returns why an acquisition, under a session or not, cannot have these terms, or nil.
func (t Terms) Check(session bool) error {
	switch {
	case t.TTL != 0 && (t.TTL < protocol.MinTTL || t.TTL > protocol.MaxTTL):
		return fmt.Errorf("the TTL %v is not between %v and %v", t.TTL, protocol.MinTTL, protocol.MaxTTL)
	case t.MaxHold != 0 && t.MaxHold < MinHold:
		return fmt.Errorf("the longest hold %v is less than %v", t.MaxHold, MinHold)
	case t.HoldAtLeast < 0 || t.HoldAtLeast > MaxRest:
		return fmt.Errorf("the shortest hold %v is not between 0 and %v", t.HoldAtLeast, MaxRest)
	case t.MaxHold != 0 && t.HoldAtLeast > t.MaxHold:
		return fmt.Errorf("the shortest hold %v is more than the longest, %v", t.HoldAtLeast, t.MaxHold)
	case session && t.TTL != 0:
		return errors.New("a lease under a session has the TTL of the session")
	case session && t.NoRenewal:
		return errors.New("a lease under a session is not renewed, and lasts as long as the session: give it a longest hold")
	}
	return nil
}

// None reports whether the terms are empty.
func (t *Terms) None() bool {
	return t.Holder == "" && t.Meta == nil && t.TTL == 0 && !t.NoRenewal && t.MaxHold == 0 && t.HoldAtLeast == 0
}

// agree makes these terms apply, and no earlier ones.
func (c *Machine) agree(t Terms) {
	c.terms = t
	c.cfg.Holder, c.cfg.Meta, c.cfg.TTL = c.usual.Holder, c.usual.Meta, c.usual.TTL
	if t.Holder != "" {
		c.cfg.Holder = t.Holder
	}
	if t.Meta != nil {
		c.cfg.Meta = t.Meta
	}
	if t.TTL != 0 {
		c.cfg.TTL = t.TTL
	}
}

// forgetTerms ends the terms with their acquisition or lease. It runs at the end of each step,
// so no way to end one has to remember it.
func (c *Machine) forgetTerms() {
	if c.phase == clear && c.acq.want == nothing && !c.terms.None() {
		c.agree(Terms{})
	}
}

// retune changes the defaults, where the terms ask for nothing else.
func (c *Machine) retune(ev Retune) {
	c.usual.TTL, c.pace.often, c.pace.seldom = ev.TTL, ev.Frequent, ev.Infrequent
	if c.terms.TTL == 0 {
		c.cfg.TTL = ev.TTL
	}
}

// agreed reports whether a record is what the current terms would have written. An earlier
// acquisition's claim need not be. It may land while another one waits, with the name, the meta
// data and the TTL of a user that has left.
func (c *Machine) agreed(r record.Record) bool {
	return r.Holder == c.cfg.Holder && r.TTL == c.cfg.TTL && maps.Equal(r.Meta, c.cfg.Meta)
}

// end returns the clock reading at which the terms end a lease claimed at t0. Counted from the
// claim and not from the grant, it is early if anything.
func (t *Terms) end(t0 time.Duration) time.Duration {
	if t.MaxHold == 0 || t0 > protocol.Never-t.MaxHold {
		return protocol.Never
	}
	return t0 + t.MaxHold
}

// tooSlow returns the error of an acquisition whose claims were all answered too late.
func (t *Terms) tooSlow() error {
	if t.MaxHold == 0 {
		return protocol.ErrSlowStore
	}
	return fmt.Errorf("%w, or than half of the longest hold, %v", protocol.ErrSlowStore, t.MaxHold)
}

// rest returns the cooldown to write with a release, if the lease was granted at that clock
// reading, or nil for none. It counts from the grant, so it is late if anything.
func (t *Terms) rest(granted, now time.Duration, writeID string) *record.Rest {
	left := granted + t.HoldAtLeast - now
	if left <= 0 {
		return nil
	}
	return &record.Rest{Milliseconds: (left + time.Millisecond - 1).Milliseconds(), WriteID: writeID}
}

// Expiry returns why a lease has come to its deadline, given its TTL and the clock reading at
// which these terms end it.
func (t *Terms) Expiry(clock, end, ttl time.Duration) error {
	switch {
	case t.NoRenewal && (t.MaxHold == 0 || protocol.Validity(ttl) < t.MaxHold): // whichever ends it first
		return fmt.Errorf("%w: it was to last for one TTL of %v, and not to be renewed", ErrTimeUp, ttl)
	case clock >= end:
		return fmt.Errorf("%w: it was to be held for %v at most", ErrTimeUp, t.MaxHold)
	}
	return protocol.ErrExpired
}

// Terms returns the current lease's terms and the clock reading at which they end it.
func (c *Machine) Terms() (t Terms, end time.Duration) { return c.terms, c.lease.end }

// Rested returns how much of its cooldown a record has behind it, if it is that old by the
// store's clock. Both times of that clock are whole seconds, so the difference may be a second
// too large.
func Rested(age time.Duration) time.Duration { return max(age-time.Second, 0) }
