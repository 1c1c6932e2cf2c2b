// Package leaselitestream is a litestream.Leaser of github.com/benbjohnson/litestream over a lock of package leasehold,
// for one database that one process at a time may replicate. A lease's Generation is the lock's token: it grows with each
// acquisition, and a release, a takeover or a crash does not set it back.
//
//	leaser, err := leaselitestream.New(st, "my-db", nil)
//	lease, err := leaser.AcquireLease(ctx)
//	ctx := leaser.Context(lease) // ends when the lease does
//	lease, err = leaser.RenewLease(ctx, lease)
//
// It guarantees what leases do: see the documentation of package leasehold. The README says what happens when one is lost.
package leaselitestream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/benbjohnson/litestream"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// LeaserType is what [Leaser.Type] returns.
const LeaserType = "leasehold"

// Errors of calls that are not right, as litestream's package s3 has them. Nothing was sent.
var (
	ErrLeaseRequired     = errors.New("lease required")
	ErrLeaseETagRequired = errors.New("lease etag required: pass what AcquireLease or RenewLease returned")
	// ErrLeaseAlreadyReleased: ReleaseLease was called for this lease before.
	ErrLeaseAlreadyReleased = errors.New("lease already released")
)

// errSilent goes with leasehold.ErrLost.
var errSilent = errors.New("RenewLease was not called for a TTL")

// A Leaser has one lease at most, of the lock of one database. It is safe for concurrent use. Make one for each process,
// and release the lease before the process ends.
type Leaser struct {
	lock *leasehold.Lock
	ttl  time.Duration

	mu       sync.Mutex
	lease    *leasehold.Lease // nil: none, or it was released
	etag     string           // of the last litestream.Lease that was made of it
	guard    *time.Timer      // ends it if its owner says nothing for a TTL
	released string           // the etag of the last lease that was released
}

var _ litestream.Leaser = (*Leaser)(nil)

// New makes the leaser of the lock that lies in st under key. It sends nothing. LockOptions.TTL is 30 s by default, as in
// litestream; Holder is the leases' Owner. New fails as leasehold.NewLock does, and for a layout without tokens.
func New(st store.Store, key string, opts *leasehold.LockOptions) (*Leaser, error) {
	var o leasehold.LockOptions
	if opts != nil {
		o = *opts
	}
	if o.TTL == 0 {
		o.TTL = 30 * time.Second
	}
	if !o.Layout.Tokens() {
		return nil, fmt.Errorf("leaselitestream: the layout %s has no tokens for generations: use another", o.Layout)
	}
	lock, err := leasehold.NewLock(st, key, &o)
	if err != nil {
		return nil, fmt.Errorf("leaselitestream: %w", err)
	}
	return &Leaser{lock: lock, ttl: o.TTL}, nil
}

// Type returns [LeaserType].
func (l *Leaser) Type() string { return LeaserType }

// AcquireLease acquires the lease if it is free, and does not wait. If it is held, also by this Leaser, the error is a
// *litestream.LeaseExistsError with owner and expiry, and matches leasehold.ErrHeld. Of a holder that is gone it is
// acquired by the first call after this Leaser has seen it silent for its TTL and margin, so call it again every few
// seconds. What is left of a lease that this Leaser has lost is released first: the work under it must have stopped.
func (l *Leaser) AcquireLease(ctx context.Context) (*litestream.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease != nil && l.lease.Err() != nil {
		_ = l.drop(ctx) // that it was lost is known
	}
	lease, err := l.lock.TryAcquire(ctx)
	if held, ok := errors.AsType[*leasehold.HeldError](err); ok {
		return nil, fmt.Errorf("%w: %w", &litestream.LeaseExistsError{Owner: held.Info.Holder, ExpiresAt: held.Info.ExpiresAt}, err)
	}
	if err != nil {
		return nil, fmt.Errorf("acquire lease: %w", err)
	}
	l.lease = lease
	l.guard = time.AfterFunc(l.ttl, func() { lease.Abandon(errSilent) })
	return l.said(), nil
}

// RenewLease says until when the lease is valid by now: it is renewed in the background for as long as RenewLease is
// called at least once in a TTL. It sends nothing, and fails at once, with an error that matches
// litestream.ErrLeaseNotHeld, if the lease was lost (then it matches leasehold.ErrLost too), or is not the one that this
// Leaser returned last.
func (l *Leaser) RenewLease(_ context.Context, lease *litestream.Lease) (*litestream.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(lease); err != nil {
		return nil, err
	}
	err := l.lease.Err()
	if err == nil && !l.guard.Reset(l.ttl) { // it is ending the lease
		err = fmt.Errorf("%w: %w", leasehold.ErrLost, errSilent)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", litestream.ErrLeaseNotHeld, err)
	}
	return l.said(), nil
}

// ReleaseLease releases the lease, by one write. All work under it must have stopped. The error matches
// [ErrLeaseAlreadyReleased] if it was released before, and litestream.ErrLeaseNotHeld if it was lost, or is not the one
// that this Leaser returned last. If ctx ends first, it matches ctx.Err(), and the release goes on.
func (l *Leaser) ReleaseLease(ctx context.Context, lease *litestream.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease != nil && lease.ETag != "" && lease.ETag == l.released {
		return ErrLeaseAlreadyReleased
	}
	err := l.check(lease)
	if err != nil {
		return err
	}
	if err = l.drop(ctx); errors.Is(err, leasehold.ErrLost) {
		return fmt.Errorf("%w: %w", litestream.ErrLeaseNotHeld, err)
	}
	return err
}

// Context ends when the lease does: when it is lost, released, or not renewed by its owner for a TTL. Work under the lease
// takes it, and returns when it ends; context.Cause tells why. Of a lease that this Leaser does not hold it has ended.
func (l *Leaser) Context(lease *litestream.Lease) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease != nil && l.lease != nil && int64(l.lease.Token()) == lease.Generation {
		return l.lease.Context()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(litestream.ErrLeaseNotHeld)
	return ctx
}

// check says why lease is not the one that was returned last. It is called under mu, as all that follow.
func (l *Leaser) check(lease *litestream.Lease) error {
	switch {
	case lease == nil:
		return ErrLeaseRequired
	case lease.ETag == "":
		return ErrLeaseETagRequired
	case l.lease == nil || lease.ETag != l.etag:
		return litestream.ErrLeaseNotHeld
	}
	return nil
}

// said is what litestream is told of the lease, once: the one before is not good any more.
func (l *Leaser) said() *litestream.Lease {
	l.etag = rand.Text()
	return &litestream.Lease{Generation: int64(l.lease.Token()), ExpiresAt: l.lease.Deadline(), Owner: l.lease.Holder(), ETag: l.etag}
}

// drop releases the lease.
func (l *Leaser) drop(ctx context.Context) error {
	l.guard.Stop()
	lease := l.lease
	l.lease, l.released = nil, l.etag
	return lease.Release(ctx)
}
