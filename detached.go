package leasehold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// Detached is a lease that no process holds. [Lease.Detach] returns it, and [Lock.Attach],
// [Lock.RenewDetached] and [Lock.ReleaseDetached] use it. Store it as JSON, in a file that only
// its owner can read: anyone with write access to the store can use the lease with it.
//
// A Detached identifies one record of the lock, and each use of the lease replaces that record.
// So you can use a Detached once. If two processes have copies, one succeeds and the other gets
// an error that matches [ErrLost].
//
// A detached lease is not renewed in the background, and nothing stops the work under it. The
// work must have stopped by ExpiresAt; a [Token] protects a resource from work that has not.
type Detached struct {
	// Store is the store's name for itself. Only a lock in a store with this name takes the
	// lease; if Store is empty, any store will do.
	Store string
	// URL says how to open the store again. It is for your use: Detach leaves it empty, and
	// this package ignores it.
	URL    string
	Key    string
	Layout Layout
	// NoIfMatch is the lock's option.
	NoIfMatch bool
	Token     Token
	Holder    string
	TTL       time.Duration

	// AcquiredAt and ExpiresAt are times by the wall clock of the process that last wrote the
	// record. The lease is valid before ExpiresAt, which is TTL − margin after that write was
	// sent. If the store does not tell how old the record is, ExpiresAt decides whether the
	// lease can still be attached and renewed. Mutual exclusion does not depend on either time.
	AcquiredAt, ExpiresAt time.Time

	// Released reports that the lease was released and cannot be used. You may set it, so that
	// a second release fails without a request.
	Released bool

	writeID string   // of the record
	pending []string // incarnations that may have renewed the lease since
}

// detachedFormat is the JSON format of a Detached. Increase it for a field that older versions
// must not ignore.
const detachedFormat = 1

// maxPending bounds how many renewals with an unknown result a Detached remembers. If an
// earlier one lands after all, it is taken for another copy's.
const maxPending = 8

// ErrForeignLease: this is not a detached lease that this version understands, or it belongs to
// another lock. Use the result of the last Detach or RenewDetached, with its own lock.
var ErrForeignLease = errors.New("not a detached lease that this version understands")

// UnsettledError: the store did not say whether a write of a detached lease has landed. Continue
// with the Detached in it, which covers both cases. The Detached you passed covers only the case
// without the write.
type UnsettledError struct {
	Detached Detached
	Cause    error
}

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("it is not known whether the detached lease was renewed: %v", e.Cause)
}

// Unwrap returns Cause.
func (e *UnsettledError) Unwrap() error { return e.Cause }

// detachedOf returns a Detached for the lock's current record.
func (d *driver) detachedOf(r record.Record) Detached {
	return Detached{
		Store: d.st.String(), Key: d.key, Layout: d.opts.Layout, NoIfMatch: d.opts.NoIfMatch, Token: Token(r.Token), Holder: r.Holder, TTL: r.TTL,
		AcquiredAt: r.AcquiredAt, ExpiresAt: r.RenewedAt.Add(protocol.Validity(r.TTL)), writeID: r.WriteID,
	}
}

// proof returns the part that the protocol needs.
func (d *Detached) proof() candidate.Proof {
	return candidate.Proof{Token: int64(d.Token), WriteID: d.writeID, Marks: d.pending, Expires: d.ExpiresAt}
}

// with returns the Detached to use once a renewal by this incarnation may have landed.
func (d *Detached) with(incarnation string) Detached {
	next := *d
	if next.pending = slices.Clone(d.pending); !slices.Contains(next.pending, incarnation) {
		next.pending = append(next.pending, incarnation)
	}
	next.pending = next.pending[max(len(next.pending)-maxPending, 0):]
	return next
}

// suits returns why this lock cannot take the detached lease.
func (d *driver) suits(of *Detached) error {
	switch {
	case of.writeID == "" || of.Token == NoToken:
		return fmt.Errorf("%w: it was made neither by Detach nor from its JSON", ErrForeignLease)
	case d.opts.Session != nil:
		return errors.New("a lock under a session cannot take a detached lease: nobody renews that session for it")
	case of.Key != d.key:
		return fmt.Errorf("%w here: it is of the lock %q, not of %q", ErrForeignLease, of.Key, d.key)
	case of.Layout != d.opts.Layout:
		return fmt.Errorf("%w here: it has the layout %s, not %s", ErrForeignLease, of.Layout, d.opts.Layout)
	case of.NoIfMatch != d.opts.NoIfMatch:
		return fmt.Errorf("%w here: its lock has the option NoIfMatch %t, and this one %t", ErrForeignLease, of.NoIfMatch, d.opts.NoIfMatch)
	case of.Store != "" && of.Store != d.st.String():
		return fmt.Errorf("%w here: it is of a lock in %s, not in %s", ErrForeignLease, of.Store, d.st)
	case of.Released:
		return fmt.Errorf("%w: it was released already", ErrLost)
	}
	return nil
}

// detachedJSON is the JSON form of a Detached, with the fields in the order for people to read.
type detachedJSON struct {
	Format     int       `json:"format"`
	Key        string    `json:"key"`
	Holder     string    `json:"holder"`
	Token      int64     `json:"token"`
	TTL        int64     `json:"ttl_ms"`
	AcquiredAt time.Time `json:"acquired_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	Released   bool      `json:"released,omitempty"`
	Store      string    `json:"store"`
	URL        string    `json:"url,omitempty"`
	Layout     string    `json:"layout"`
	NoIfMatch  bool      `json:"no_if_match,omitempty"`
	WriteID    string    `json:"write_id"`
	Pending    []string  `json:"pending,omitempty"`
}

var detachedNames = []string{
	"format", "key", "holder", "token", "ttl_ms", "acquired_at", "expires_at", "released", "store", "url", "layout", "no_if_match", "write_id", "pending",
}

// MarshalJSON returns d as one JSON object.
func (d Detached) MarshalJSON() ([]byte, error) {
	return json.Marshal(detachedJSON{
		Format: detachedFormat, Key: d.Key, Holder: d.Holder, Token: int64(d.Token), TTL: d.TTL.Milliseconds(),
		AcquiredAt: d.AcquiredAt.UTC(), ExpiresAt: d.ExpiresAt.UTC(), Released: d.Released,
		Store: d.Store, URL: d.URL, Layout: string(d.Layout), NoIfMatch: d.NoIfMatch, WriteID: d.writeID, Pending: d.pending,
	})
}

// UnmarshalJSON reads the output of MarshalJSON. Every error matches [ErrForeignLease]. Unknown
// fields are ignored and not kept.
func (d *Detached) UnmarshalJSON(text []byte) error {
	read, err := parseDetached(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeignLease, err)
	}
	*d = read
	return nil
}

// ParseDetached is UnmarshalJSON for any bytes, such as a file's.
func ParseDetached(text []byte) (d Detached, err error) {
	err = d.UnmarshalJSON(text)
	return d, err
}

func parseDetached(text []byte) (Detached, error) {
	// The format comes first because the other fields may mean anything in another format.
	members, err := record.Members(text)
	if err != nil {
		return Detached{}, err
	}
	format := 0
	err = json.Unmarshal(members["format"], &format)
	switch {
	case members["format"] == nil:
		return Detached{}, errors.New("it has no format")
	case err != nil || format < 1:
		return Detached{}, fmt.Errorf("its format is %.40s, which does not exist", members["format"])
	case format > detachedFormat:
		return Detached{}, fmt.Errorf("it has format %d, made by a later version, and this one knows formats up to %d: upgrade leasehold", format, detachedFormat)
	}
	for _, name := range []string{"key", "token", "ttl_ms", "expires_at", "layout", "write_id"} {
		if members[name] == nil {
			return Detached{}, fmt.Errorf("it has no %s", name)
		}
	}
	// Package json would take "Token" for "token".
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool { return !slices.Contains(detachedNames, name) })
	known, err := json.Marshal(members)
	if err != nil {
		return Detached{}, err
	}
	var j detachedJSON
	if err = json.Unmarshal(known, &j); err != nil {
		return Detached{}, err
	}
	d := Detached{
		Store: j.Store, URL: j.URL, Key: j.Key, Layout: Layout(j.Layout), NoIfMatch: j.NoIfMatch, Token: Token(j.Token), Holder: j.Holder,
		TTL: time.Duration(j.TTL) * time.Millisecond, AcquiredAt: j.AcquiredAt, ExpiresAt: j.ExpiresAt,
		Released: j.Released, writeID: j.WriteID, pending: j.Pending,
	}
	return d, d.check()
}

// check returns what is invalid in any Detached.
func (d *Detached) check() error {
	switch {
	case d.Key == "":
		return errors.New("its key is empty")
	case d.Token < 1:
		return fmt.Errorf("its token %d is not a token", int64(d.Token))
	case d.TTL < MinTTL || d.TTL > MaxTTL:
		return fmt.Errorf("its TTL %v is not between %v and %v", d.TTL, MinTTL, MaxTTL)
	case !slices.Contains(Layouts, d.Layout) || !d.Layout.Tokens():
		return fmt.Errorf("its layout is %q, and none whose leases can be detached", d.Layout)
	case d.NoIfMatch && d.Layout == LayoutObject:
		return fmt.Errorf("its layout is %q, which needs If-Match", d.Layout)
	case d.writeID == "" || slices.Contains(d.pending, ""):
		return errors.New("it has an empty write ID")
	case d.ExpiresAt.IsZero():
		return errors.New("its expires_at is no time")
	case len(d.pending) > maxPending:
		return fmt.Errorf("it has %d pending renewals, more than %d", len(d.pending), maxPending)
	}
	return nil
}

// Detach ends the lease in this process without freeing the lock. The lock stays held until the
// lease's TTL and margin have passed, and another process can take over the lease with the
// result: see [Detached]. As for Release, all work under the lease in this process must have
// stopped.
//
// The lease is invalid from the call on, and its context ends with [ErrDetached]. Detach waits
// until no write of the lease is in flight or may still land. That takes one or two requests if
// a renewal has just failed, and none otherwise. After Detach, Release does nothing and returns
// nil.
//
// If the lease was lost, the error matches [ErrLost]; if ctx ends first, it matches ctx.Err().
// In both cases the lease is being freed, as by Release, and there is no Detached. If ctx ended
// before the call, Detach waits up to 5 s anyway. A lease of an [Election], under a [Session],
// or in a layout without tokens cannot be detached: Detach returns an error, and the lease
// stays valid.
func (l *Lease) Detach(ctx context.Context) (Detached, error) {
	d, ok := l.core.Of().(*driver)
	if !ok {
		return Detached{}, fmt.Errorf("a lease of %s cannot be detached: it ends with its session", l.core.Of().Where())
	}
	if err := d.detachable(); err != nil {
		return Detached{}, fmt.Errorf("lock %q: %w", d.key, err)
	}
	var done <-chan result
	l.core.Once(func() { done = d.detach(l) }) //nolint:contextcheck // a detach outlives the context of its caller
	if done == nil {
		return Detached{}, fmt.Errorf("the lease of the lock %v cannot be detached: %w", d.at, l.Err())
	}
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	r, err := lock.Wait(ctx, l.Context(), done)
	if err != nil {
		d.Cancel()
		r = <-done // there is an answer soon, because Cancel sends nothing
	}
	switch {
	case r.err == nil:
		return d.detachedOf(*r.record), nil
	case errors.Is(r.err, protocol.ErrCancelled):
		return Detached{}, fmt.Errorf("the lease of the lock %v is not detached, and is being released: %w", d.at, err)
	}
	return Detached{}, r.err
}

// detachable returns why leases of this candidate cannot be detached.
func (d *driver) detachable() (err error) {
	switch {
	case d.opts.Session != nil:
		return errors.New("a lease under a session cannot be detached: it ends with the session")
	case !d.opts.Layout.Tokens():
		return fmt.Errorf("a lease in the layout %s cannot be detached: it has no token by which to prove it", d.opts.Layout)
	}
	d.Enter()
	defer d.Leave()
	if d.now.changed != nil {
		return errors.New("a lease of an election cannot be detached: resign, and acquire the lock by NewLock")
	}
	return nil
}

// detach begins to detach the lease. The channel receives one answer.
func (d *driver) detach(l *Lease) <-chan result {
	waiter := make(chan result, 1)
	d.Detach(func() protocol.Event {
		if lost := context.Cause(l.Context()); lost != nil { // lost in the meantime: nothing is left to hand over
			waiter <- result{err: lost}
			return candidate.Release{}
		}
		d.now.waiter = waiter
		d.tracer().Releasing(d.tracer().Times())
		l.core.Finish(ErrDetached) // before another process can get the proof of the lease
		return candidate.Detach{}
	})
	return waiter
}

// detached processes the end of a Detach, or of a call for a lease that no process holds. It reports
// whether a lease has ended by it and nobody in this process waits for the lock.
func (d *driver) detached(a candidate.Detached) (unused bool) {
	r := result{record: &a.Record, err: a.Err}
	lease := d.lease
	if lease == nil {
		d.answer(r)
		return false
	}
	if a.Err != nil && !errors.Is(a.Err, protocol.ErrCancelled) {
		r.err = fmt.Errorf("the lease of the lock %v was lost before it was detached: %w: %w", d.at, ErrLost, a.Err)
	}
	if errors.Is(r.err, ErrLost) {
		d.tracer().Lost(&lease.core, d.tracer().Times(), r.err)
	}
	told := d.tracer().Released(&lease.core, d.tracer().Times(), r.err, r.err == nil)
	d.lease = nil
	unused = !d.queue.Leave()
	lease.core.Settle(r.err, d.Past(), told)
	d.answer(r)
	return unused
}

// Attach takes over a detached lease, which is renewed in this process from now on. It costs
// one read and one conditional write. The lease keeps its token, and its holder is this Lock's.
//
// If the lease has ended, the error matches [ErrLost] and says why, and nothing was written:
// another candidate has the lock, the lease was released or force-released, another copy of the
// Detached was used, or the lease has expired. An expired lease has ended even if the lock is
// free, because the work under it was not covered by a valid lease. If the store does not say
// whether the write landed, the error is an [*UnsettledError]. If this Lock is already held, it
// is a [*HeldError].
//
// Attach does not wait for other holders. If the store fails three times in a row or does not
// answer within a TTL, Attach returns the last reason. If ctx ends first, the error matches
// ctx.Err().
func (l *Lock) Attach(ctx context.Context, d Detached) (*Lease, error) {
	r, err := l.use(ctx, d, candidate.ToHold, nil)
	return r.lease, err // even if ctx has ended meanwhile: nothing else proves the lease now
}

// RenewDetached renews a detached lease once, for this Lock's TTL, with one read and one
// conditional write. The lease stays detached and is never valid in this process. RenewDetached
// returns the Detached to use next; errors are as for [Lock.Attach].
//
// Before it sends anything, RenewDetached calls keep with the Detached to use if this process
// ends before RenewDetached returns. It is usable whether or not the renewal lands. Without
// keep, the lease may be lost if the process ends. If keep fails, RenewDetached sends nothing
// and returns its error. keep may be nil.
func (l *Lock) RenewDetached(ctx context.Context, d Detached, keep func(Detached) error) (Detached, error) {
	r, err := l.use(ctx, d, candidate.ToRenew, keep)
	if err != nil {
		return Detached{}, err
	}
	next := l.d.detachedOf(*r.record)
	next.URL = d.URL
	return next, nil
}

// ReleaseDetached frees the lock held by a detached lease, with one read and one conditional
// write. It returns nil once the lease certainly no longer holds the lock. Errors are as for
// [Lock.Attach], with one exception: if the lease has expired but its record is still the
// current one, ReleaseDetached frees the lock and returns an error that matches [ErrLost].
func (l *Lock) ReleaseDetached(ctx context.Context, d Detached) error {
	_, err := l.use(ctx, d, candidate.ToRelease, nil)
	return err
}

// use is the common part of the calls for a detached lease.
func (l *Lock) use(ctx context.Context, d Detached, use candidate.Use, keep func(Detached) error) (result, error) {
	if err := l.d.suits(&d); err != nil {
		return result{}, err
	}
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	var a *lock.Acquisition
	if use == candidate.ToHold {
		ctx, a = l.d.traced(ctx, "", true)
	}
	r, err := l.useTraced(ctx, d, candidate.Attach{Proof: d.proof(), Use: use}, keep, a)
	a.End(l.d.Locked, err)
	return r, err
}

func (l *Lock) useTraced(ctx context.Context, d Detached, ev candidate.Attach, keep func(Detached) error, a *lock.Acquisition) (result, error) {
	if !l.d.queue.TryEnter() {
		return result{}, l.d.heldError(nil)
	}
	r, err := l.d.attach(ctx, d, ev, keep, a)
	if r.lease == nil {
		l.leave()
	}
	return r, err
}

// attach is for the goroutine that has the turn.
func (d *driver) attach(ctx context.Context, of Detached, ev candidate.Attach, keep func(Detached) error, a *lock.Acquisition) (result, error) {
	// An abandoned acquisition may still be in progress, and a candidate does one thing at a
	// time.
	select {
	case <-d.Settled():
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
	pending := of
	if ev.Use == candidate.ToRenew {
		pending = of.with(d.nextIncarnation())
		// A renewal may last less long than the current record (rule A7).
		if less := time.Now().Add(protocol.Validity(d.opts.TTL)); less.Before(pending.ExpiresAt) {
			pending.ExpiresAt = less
		}
	}
	if keep != nil {
		if err := keep(pending); err != nil {
			return result{}, err
		}
	}
	r := d.await(ctx, d.beginAttach(ctx, ev, a))
	err := r.err
	switch {
	case err == nil:
		return r, nil
	case endsLease(err):
		return result{}, fmt.Errorf("the detached lease of the lock %v, token %v: %w: %w", d.at, of.Token, ErrLost, err)
	case errors.Is(err, protocol.ErrCancelled):
		if err = ctx.Err(); r.trouble != nil {
			err = fmt.Errorf("%w; the store fails: %w", err, r.trouble)
		}
	default:
		err = d.explain(err)
	}
	if r.open != "" {
		err = &UnsettledError{pending.with(r.open), err}
	}
	return result{}, err
}

// endsLease reports whether err means that a detached lease has ended.
func endsLease(err error) bool {
	return slices.ContainsFunc([]error{
		protocol.ErrTaken, protocol.ErrBroken, protocol.ErrFreed, protocol.ErrVanished, protocol.ErrCopied, protocol.ErrExpired,
	}, func(kind error) bool { return errors.Is(err, kind) })
}

func (d *driver) nextIncarnation() string {
	d.Enter()
	defer d.Leave()
	return d.Candidate().NextIncarnation()
}

// beginAttach begins to use a detached lease. The channel receives one answer.
func (d *driver) beginAttach(ctx context.Context, ev candidate.Attach, a *lock.Acquisition) <-chan result {
	waiter := make(chan result, 1)
	d.Attach(ctx, ev, func() { d.asks(ctx, waiter, asked{trace: a}) })
	return waiter
}
