package leasehold

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// An AcquireOption is an option of [Lock.Acquire], [Lock.TryAcquire] and [Lock.Do]. It
// applies to that acquisition and its lease only, not to other leases of the Lock. If an
// option is invalid, the call returns an error and sends nothing.
type AcquireOption func(*acquisition) error

// acquisition collects the options of one acquisition.
type acquisition struct{ terms candidate.Terms }

// WithHolder sets the holder's name for this lease instead of [LockOptions.Holder], for
// example to a job's name if many jobs share one Lock.
func WithHolder(name string) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.Holder = name; name == "" {
			return errors.New("WithHolder: the name is empty")
		}
		return nil
	}
}

// WithMeta sets the record's metadata for this lease instead of [LockOptions.Meta], until
// [Lease.SetMeta] changes it. The map is copied; nil and an empty map mean no metadata. The
// acquisition fails if the record becomes too large.
func WithMeta(meta map[string]string) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.Meta = maps.Clone(meta); meta == nil {
			a.terms.Meta = map[string]string{}
		}
		return nil
	}
}

// WithTTL sets the TTL of this lease instead of [LockOptions.TTL]: from 1 s to 24 h. Under a
// [Session] it is an error, because all leases have the session's TTL.
func WithTTL(ttl time.Duration) AcquireOption {
	return func(a *acquisition) error {
		// The record keeps whole milliseconds, and both sides must count the same.
		if a.terms.TTL = ttl.Truncate(time.Millisecond); a.terms.TTL == 0 {
			return fmt.Errorf("WithTTL: %v is not between %v and %v", ttl, MinTTL, MaxTTL)
		}
		return nil
	}
}

// WithoutRenewal makes a lease that is not renewed. It ends with [ErrTimeUp] when its TTL
// less the margin has passed, and costs no write between the claim and the release. Under a
// [Session] it is an error, because those leases are not renewed anyway: use WithMaxHold.
func WithoutRenewal() AcquireOption {
	return func(a *acquisition) error {
		a.terms.NoRenewal = true
		return nil
	}
}

// WithMaxHold ends this lease with [ErrTimeUp] at the latest d after its claim was sent, even
// if the work takes longer. The lease is renewed until then. Others can take the lock when
// the lease is released or when the TTL after the last renewal has passed; under a
// [Session], only when it is released. At least 1 s.
func WithMaxHold(d time.Duration) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.MaxHold = d; d <= 0 {
			return fmt.Errorf("WithMaxHold: %v is not a time to hold a lock for", d)
		}
		return nil
	}
}

// WithHoldAtLeast keeps all candidates, including those of this process, from taking the lock
// for d after the acquisition, even if the lease is released earlier. The release then
// records a cooldown. Use it for jobs that must run once per period on one of several
// machines, if a run is shorter than the difference between their clocks. At most 24 h, and
// at most the limit of WithMaxHold.
//
// No guarantee rests on the cooldown. If the holder dies or its release fails, the lock is
// held until its TTL has passed, and no longer. Candidates measure the cooldown by the
// store's clock or, if it has none, from when they first see it, so a restarted candidate
// waits for all of it. `leasehold break` ends it. Layouts without tokens cannot record it:
// there the option is an error.
func WithHoldAtLeast(d time.Duration) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.HoldAtLeast = d; d < 0 {
			return fmt.Errorf("WithHoldAtLeast: %v is negative", d)
		}
		return nil
	}
}

// terms returns what the options ask for, or which option is invalid.
func (d *driver) terms(opts []AcquireOption) (candidate.Terms, error) {
	if len(opts) == 0 {
		return candidate.Terms{}, nil
	}
	var a acquisition
	for _, option := range opts {
		if option == nil {
			continue
		}
		if err := option(&a); err != nil {
			return a.terms, fmt.Errorf("the lock %v: %w", d.at, err)
		}
	}
	t := a.terms
	err := t.Check(d.opts.Session != nil)
	if err == nil && t.HoldAtLeast > 0 && !d.opts.Layout.Tokens() {
		err = fmt.Errorf("the layout %s cannot keep a shortest hold: a lock that is free has no record", d.opts.Layout)
	}
	if err == nil {
		with := *d.opts
		if t.Holder != "" {
			with.Holder = t.Holder
		}
		if t.Meta != nil {
			with.Meta = t.Meta
		}
		err = with.encodable()
	}
	if err != nil {
		err = fmt.Errorf("the lock %v: %w", d.at, err)
	}
	return t, err
}

// leaseTerms are the terms of a lease with options, and the reading of the clock at which they end it.
type leaseTerms struct {
	candidate.Terms
	end time.Duration
}

func termsOf(c *candidate.Machine) *leaseTerms {
	t, end := c.Terms()
	if t.None() {
		return nil
	}
	return &leaseTerms{t, end}
}
