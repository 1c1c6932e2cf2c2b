package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/lockjson"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/locktrace"
)

// A held is a lease of a lock, or one of slots in a semaphore: what a job asks of what it runs under.
type held interface {
	Holder() string
	Token() leasehold.Token
	Context() context.Context
	Done() <-chan struct{}
	Deadline() time.Time
	Valid() bool
	Err() error
	Abandon(cause error)
	Release(ctx context.Context) error
}

// leased has an acquisition of either kind give a held: none is nil then.
func leased[L held](acquire func(context.Context) (L, error)) func(context.Context) (held, error) {
	return func(ctx context.Context) (held, error) {
		lease, err := acquire(ctx)
		if err != nil {
			return nil, err
		}
		return lease, nil
	}
}

// endOf is when a lease ends however often it is renewed; zero: it does not.
func endOf(lease held) time.Time {
	if l, ok := lease.(*leasehold.Lease); ok {
		return leasehold.Internal.Core(l).End()
	}
	return time.Time{}
}

// A contest is what a run gets its lease from: a lock, or a semaphore.
type contest interface {
	acquire(ctx context.Context) (held, error)
	try(ctx context.Context) (held, error)
	// gone says who looks to be gone of those because of whom a try has failed with err; nil: nobody.
	gone(ctx context.Context, err error) *gone
	Settle(ctx context.Context) error
}

// gone is a holder that looks to be gone.
type gone struct {
	party
	holder string
	ttl    time.Duration
}

// A lockContest is for a lock.
type lockContest struct {
	*leasehold.Lock
	terms   []leasehold.AcquireOption
	patient bool // a holder that is gone leaves a marker that has to be deleted
}

func (c *lockContest) acquire(ctx context.Context) (held, error) {
	return leased(func(ctx context.Context) (*leasehold.Lease, error) { return c.Acquire(ctx, c.terms...) })(ctx)
}

func (c *lockContest) try(ctx context.Context) (held, error) {
	return leased(func(ctx context.Context) (*leasehold.Lease, error) { return c.TryAcquire(ctx, c.terms...) })(ctx)
}

func (c *lockContest) gone(_ context.Context, err error) *gone {
	held, ok := errors.AsType[*leasehold.HeldError](err)
	if !ok || !held.Info.Abandoned || c.patient {
		return nil
	}
	return &gone{lockjson.PartyOf(held.Info), held.Info.Holder, held.Info.TTL}
}

// A blocker is whom a wait is for.
type blocker struct {
	party
	who   string // "held by web-1", or why a lock that is free is not to be had; "": nobody is known
	token leasehold.Token
	ahead *int   // in a queue: how many are before this process
	place string // that, for people
}

// blockerOf is the holder that keeps the lock from others, be it the last one.
func blockerOf(i leasehold.Info, now time.Time) *blocker {
	b := &blocker{party: party{Holder: i.Holder, Address: i.Address, Token: i.Token}, token: i.Token}
	switch {
	case i.Rest > 0:
		b.party, b.who = lockjson.PartyOf(i), "which "+rests(i, now)
	case i.Holder != "":
		b.who = "held by " + plain.Word(i.Holder)
	}
	return b
}

// blockerOn returns the holders that an acquisition waits for.
func blockerOn(e locktrace.Waiting) *blocker {
	held, _ := errors.AsType[*leasehold.HeldError](e.Held)
	if held.Info.Size > 0 {
		return semaphoreBlocker(held.Info, e.Ahead)
	}
	return blockerOf(held.Info, e.Time)
}

// firstOf is the holder of a lock, or the first one of a semaphore.
func firstOf(i leasehold.Info) party {
	switch {
	case i.Size == 0:
		return party{Holder: i.Holder, Token: i.Token}
	case len(i.Holders) == 0:
		return party{}
	}
	return party{Holder: i.Holders[0].Holder, Token: i.Holders[0].Token}
}

// rests says of a lock that its last holder keeps it from others, as it was told then.
func rests(i leasehold.Info, then time.Time) string {
	return fmt.Sprintf("rests until %s, as %s has asked", then.Add(i.Rest).Local().Format(time.DateTime), plain.Word(i.Holder))
}

// known reports that it is known whom the wait is for.
func (b *blocker) known() bool { return b != nil && b.who != "" }

// waitingFor is a wait for a lock, for people.
func (b *blocker) waitingFor(lock string) string {
	if !b.known() {
		return "waiting for " + lock
	}
	return "waiting for " + lock + ", " + b.who + b.place
}

// inFull is that with the token of whom it is for, if it is one.
func (b *blocker) inFull(lock string) string {
	if !b.known() {
		return b.waitingFor(lock)
	}
	return "waiting for " + lock + ", " + b.who + withToken(b.token) + b.place
}
