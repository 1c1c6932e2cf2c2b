package leasehold

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// An AcquireOption is what one acquisition asks for its own lease: [Lock.Acquire],
// [Lock.TryAcquire] and [Lock.Do] take them. It holds from the acquisition until that lease is
// released, and for no other lease of the Lock, whichever goroutine has that. An option that
// cannot be had is an error of the call, which then sends nothing.
type AcquireOption func(*acquisition) error

// acquisition is what all the options of one make.
type acquisition struct{ terms protocol.Terms }

// WithHolder names the holder of this lease to people, in place of [LockOptions.Holder]: the job, for
// one, where one Lock serves many.
func WithHolder(name string) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.Holder = name; name == "" {
			return errors.New("WithHolder: the name is empty")
		}
		return nil
	}
}

// WithMeta is kept in the record of this lease, in place of [LockOptions.Meta], until [Lease.SetMeta]
// changes it. The map is copied; an empty one is none. The call fails if it makes the record too
// large.
func WithMeta(meta map[string]string) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.Meta = maps.Clone(meta); meta == nil {
			a.terms.Meta = map[string]string{}
		}
		return nil
	}
}

// WithTTL gives this lease another TTL than [LockOptions.TTL]: from 1 s to 24 h. Under a
// [Session] it is an error, since the session has the TTL of all its leases.
func WithTTL(ttl time.Duration) AcquireOption {
	return func(a *acquisition) error {
		// The record keeps whole milliseconds, and both sides must count the same.
		if a.terms.TTL = ttl.Truncate(time.Millisecond); a.terms.TTL == 0 {
			return fmt.Errorf("WithTTL: %v is not between %v and %v", ttl, MinTTL, MaxTTL)
		}
		return nil
	}
}

// WithoutRenewal makes a lease of a fixed length: it is not renewed, and ends a little before its TTL
// is over, with [ErrTimeUp]. It costs no write between the claim and the release. Under a [Session]
// it is an error, since such a lease is not renewed anyway: use WithMaxHold.
func WithoutRenewal() AcquireOption {
	return func(a *acquisition) error {
		a.terms.NoRenewal = true
		return nil
	}
}

// WithMaxHold ends this lease d after the acquisition at the latest, with [ErrTimeUp], however
// long its work takes: it is renewed until then and no more. It counts from the moment at which the
// acquisition was sent. The lock is free for others when the lease is released, or at the end of the
// TTL after the last renewal; under a [Session] only when it is released. At least 1 s.
func WithMaxHold(d time.Duration) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.MaxHold = d; d <= 0 {
			return fmt.Errorf("WithMaxHold: %v is not a time to hold a lock for", d)
		}
		return nil
	}
}

// WithHoldAtLeast keeps the lock from all others for d after the acquisition, also when the lease is
// released sooner: the release says for how long the lock is to rest, and candidates wait, those of
// this process included. It is for jobs that are to run once a period on any of several machines,
// and are done sooner than their clocks differ. At most 24 h, and not more than WithMaxHold.
//
// It is a courtesy, and no lease is valid because of it: a version that does not know rests does not
// wait, and neither does anybody if the holder dies or its release does not land; then the lock is
// held until the end of its TTL, and no longer. Candidates count by the store's own clock, or, where
// it has none, from the moment in which they first see the rest: so one that starts anew waits it out
// from its start.
// `leasehold break` ends it. Layouts without tokens cannot keep it: there it is an error.
func WithHoldAtLeast(d time.Duration) AcquireOption {
	return func(a *acquisition) error {
		if a.terms.HoldAtLeast = d; d < 0 {
			return fmt.Errorf("WithHoldAtLeast: %v is negative", d)
		}
		return nil
	}
}

// terms are what the options ask for. An error says which cannot be had, and sends nothing.
func (d *driver) terms(opts []AcquireOption) (protocol.Terms, error) {
	if len(opts) == 0 {
		return protocol.Terms{}, nil
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

// leaseTerms are the terms of a lease that has some, and the reading of the clock at which they end
// it.
type leaseTerms struct {
	protocol.Terms
	end time.Duration
}

func termsOf(c *protocol.Candidate) *leaseTerms {
	t, end := c.Terms()
	if t.None() {
		return nil
	}
	return &leaseTerms{t, end}
}
