package protocol

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// Terms are what one acquisition asks for its own lease. They hold from the Acquire that brings
// them until that lease is released, or until the acquisition ends without one. The next lease of
// the candidate has its own, even if the lock is passed on to it inside the process.
type Terms struct {
	// Holder, Meta and TTL stand in for those of the configuration, unless they are zero.
	Holder string
	Meta   map[string]string
	TTL    time.Duration
	// NoRenewal: the lease is not renewed, so it ends with the validity of its claim.
	NoRenewal bool
	// MaxHold: the lease ends this long after its claim was sent at the latest. 0: it need not.
	MaxHold time.Duration
	// HoldAtLeast: a lease that is released earlier than this after it was granted leaves the
	// lock at rest for what is left. 0: it does not.
	HoldAtLeast time.Duration
}

// The bounds of terms. A longest hold has the bound of a TTL, for the same reason.
const (
	MinHold = MinTTL
	MaxRest = record.MaxRest
)

// ErrTimeUp is the reason for which a lease ends that was not to last any longer.
var ErrTimeUp = errors.New("the time that the lease was to last at most is up")

// Check says why the terms cannot be those of an acquisition, if they cannot; under a session or not.
func (t Terms) Check(session bool) error {
	switch {
	case t.TTL != 0 && (t.TTL < MinTTL || t.TTL > MaxTTL):
		return fmt.Errorf("the TTL %v is not between %v and %v", t.TTL, MinTTL, MaxTTL)
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

// None reports that nothing is asked for.
func (t *Terms) None() bool {
	return t.Holder == "" && t.Meta == nil && t.TTL == 0 && !t.NoRenewal && t.MaxHold == 0 && t.HoldAtLeast == 0
}

// agree lets these terms hold, and nothing of any earlier ones.
func (c *Candidate) agree(t Terms) {
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

// forgetTerms ends the terms with what they were for. It is asked at the end of each step, so no
// way in which an acquisition or a lease can end has to remember it.
func (c *Candidate) forgetTerms() {
	if c.phase == clear && c.acq.want == nothing && !c.terms.None() {
		c.agree(Terms{})
	}
}

// retune changes what holds where the terms ask for nothing else.
func (c *Candidate) retune(ev Retune) {
	c.usual.TTL, c.cfg.Frequent, c.cfg.Infrequent = ev.TTL, ev.Frequent, ev.Infrequent
	if c.terms.TTL == 0 {
		c.cfg.TTL = ev.TTL
	}
}

// agreed reports that a record is what the present terms would have written. A claim of an earlier
// acquisition need not be: it may land when another one waits, with the name, the meta data and
// the TTL of a user who is gone.
func (c *Candidate) agreed(r record.Record) bool {
	return r.Holder == c.cfg.Holder && r.TTL == c.cfg.TTL && maps.Equal(r.Meta, c.cfg.Meta)
}

// end is the reading of the clock at which a lease ends by its terms, if it was claimed at t0.
// Counted from there and not from the grant, it is early if anything.
func (t *Terms) end(t0 time.Duration) time.Duration {
	if t.MaxHold == 0 || t0 > Never-t.MaxHold {
		return Never
	}
	return t0 + t.MaxHold
}

// tooSlow is why an acquisition ends of which every claim was answered too late.
func (t *Terms) tooSlow() error {
	if t.MaxHold == 0 {
		return ErrSlowStore
	}
	return fmt.Errorf("%w, or than half of the longest hold, %v", ErrSlowStore, t.MaxHold)
}

// rest is what a release says of the time for which the lock is to be at rest, if the lease was
// granted at that reading of the clock, and nil if it is free at once. It counts from the grant, so
// it is late if anything.
func (t *Terms) rest(granted, now time.Duration, writeID string) *record.Rest {
	left := granted + t.HoldAtLeast - now
	if t.HoldAtLeast == 0 || left <= 0 {
		return nil
	}
	return &record.Rest{Milliseconds: (left + time.Millisecond - 1).Milliseconds(), WriteID: writeID}
}

// Expiry is why a lease of these terms and this TTL, which end it at that reading of the clock, has
// come to its deadline.
func (t *Terms) Expiry(clock, end, ttl time.Duration) error {
	switch {
	case t.NoRenewal && (t.MaxHold == 0 || Validity(ttl) < t.MaxHold): // which of the two ends it first
		return fmt.Errorf("%w: it was to last for one TTL of %v, and not to be renewed", ErrTimeUp, ttl)
	case clock >= end:
		return fmt.Errorf("%w: it was to be held for %v at most", ErrTimeUp, t.MaxHold)
	}
	return ErrExpired
}

// Terms are those of the lease that is held, and the reading of the clock at which they end it.
func (c *Candidate) Terms() (t Terms, end time.Duration) { return c.terms, c.lease.end }

// Rested is how much of its rest a record has behind it, if the store's own clock says that it is
// that old. Both times of that clock are whole seconds, so the difference may be a second too much.
func Rested(age time.Duration) time.Duration { return max(age-time.Second, 0) }
