package leasehold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
)

// SessionOptions are the options of [NewSession]. The zero value and nil mean the defaults.
// Consider a longer TTL than for single locks, because a late heartbeat ends every lease under
// the session.
type SessionOptions struct {
	// As in [LockOptions]. The TTL applies to all leases under the session.
	TTL     time.Duration
	Holder  string
	Address string
	Meta    map[string]string
	Proof   store.Proof
	Trace   *locktrace.Trace // receives the session as a lease that is renewed
	Logger  *slog.Logger

	// Prefix is the prefix of the session's object, whose key is Prefix, a slash and 128
	// random bits. Default "sessions".
	Prefix string
}

// A Session is one heartbeat for any number of leases: one object, written every TTL/3. A lock
// with a [LockOptions.Session] refers to the session and is written only when it changes hands.
// So ten thousand leases cost as much as one, and they end together.
//
// The guarantee is the same as for a lease. Waiters for a lock under a session watch the
// session. If its heartbeat does not change for its TTL and margin, a waiter ends the session
// with a conditional write, and then takes over its locks with one write each: see
// docs/protocol-sessions.md. The idea is from Chubby, ZooKeeper, etcd and Consul. A Session is
// safe for concurrent use.
type Session struct {
	heartbeat *Lock
	lease     *Lease // of the heartbeat
	inner     *engine.Session
	ctx       context.Context
	cancel    context.CancelCauseFunc
	unused    chan struct{} // closed when the session has ended and no lease is left under it
}

// NewSession creates the session's object and returns when the store has confirmed it. From
// then on the heartbeat is sent in the background until the session is closed or lost. The
// session outlives ctx. NewSession fails like [Lock.Acquire], or if ctx ends; an object that
// may have been created anyway is freed in the background.
func NewSession(ctx context.Context, st store.Store, opts *SessionOptions) (*Session, error) {
	var so SessionOptions
	if opts != nil {
		so = *opts
	}
	if so.Prefix == "" {
		so.Prefix = "sessions"
	}
	if st == nil {
		return nil, errors.New("the store of a session is nil")
	}
	lo := &LockOptions{
		TTL: so.TTL, Holder: so.Holder, Address: so.Address, Meta: so.Meta, Proof: so.Proof,
		Trace: so.Trace, Logger: so.Logger, Layout: LayoutObject, kind: locktrace.Session,
	}
	s := &Session{unused: make(chan struct{})}
	o, err := lo.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if err = errors.Join(o.encodable(), o.proven(st, so.Prefix)); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	for try := 1; ; try++ {
		key := so.Prefix + "/" + newIncarnation() // a name that is used once (rule D1)
		if err = store.CheckKey("session", key); err != nil {
			return nil, err
		}
		s.begin(st, key, o)
		s.lease, err = s.heartbeat.Acquire(ctx)
		// The object may be confirmed too late for a session to begin; then try another name.
		if !errors.Is(err, protocol.ErrUsed) || try == 3 {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot begin a session: %w", err)
	}
	return s, nil
}

// begin creates the candidate for the session's object.
func (s *Session) begin(st store.Store, key string, o *LockOptions) {
	inner := new(engine.Session)
	l := &Lock{driver{st: st, key: key, at: layout.Heartbeat{Store: st, Key: key, Freed: inner.Announce}, opts: o}}
	inner.Init(heartbeat{&l.d, s}, &l.d.Engine, o.config(newIncarnation()), 0)
	s.heartbeat, s.inner = l, inner
}

// A heartbeat owns the engine of a session.
type heartbeat struct {
	*driver
	s *Session
}

// Over ends the session's context, after all its leases have ended.
func (h heartbeat) Over(why error) { h.s.cancel(why) }

// Unused frees the session's object. Close may have given up, or may never be called for a lost
// session, so the release begins here. If Close is still waiting, it waits for this release.
func (h heartbeat) Unused() {
	close(h.s.unused)
	var lease *Lease
	h.Locked(func() { lease = h.lease })
	if lease != nil {
		lease.core.BeginRelease("")
	}
}

// engineOf returns the session's engine, or nil if there is no session.
func (s *Session) engineOf() *engine.Session {
	if s == nil {
		return nil
	}
	return s.inner
}

// Key returns the key of the session's object in its store.
func (s *Session) Key() string { return s.heartbeat.d.key }

// Done returns a channel that is closed when the session is lost or closed: see [Lease.Done].
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Err returns nil while the session is valid, and then an error that matches [ErrSessionOver] and
// says why it ended. It reads the clock, as [Lease.Valid] does.
func (s *Session) Err() error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	if !s.inner.Valid() {
		return fmt.Errorf("%w: %w", ErrSessionOver, protocol.ErrExpired)
	}
	return nil
}

// Leases returns a snapshot of the leases under the session that have not been released,
// sorted by key.
func (s *Session) Leases() []*Lease {
	var leases []*Lease
	for _, owner := range s.inner.Members() {
		if d, ok := owner.(*driver); ok {
			d.Locked(func() {
				if d.lease != nil {
					leases = append(leases, d.lease)
				}
			})
		}
	}
	slices.SortFunc(leases, func(a, b *Lease) int { return strings.Compare(a.Key(), b.Key()) })
	return leases
}

// Close ends the session and all its leases. It first ends their validity and contexts. When
// every lease has been released, which tells that its work has stopped, it ends the session
// with one write; the releases cost none. The next holder of each lock takes it over without
// waiting. Do not call Close from work under the session.
//
// If ctx ends first, Close returns its error and the heartbeat stops; others must then wait
// until the session has expired. If ctx ended before the call, Close waits up to 5 s anyway. A
// session that has ended by itself must be closed too; then the error matches [ErrLost].
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	s.inner.End(engine.ErrClosed)
	err := s.free(ctx)
	// If the session had to end because of one lock, its heartbeat was not lost, but its leases were.
	if over := s.inner.Over(); !errors.Is(over, engine.ErrClosed) && !errors.Is(err, ErrLost) {
		err = errors.Join(fmt.Errorf("%w: %w", ErrLost, over), err)
	}
	return err
}

// free waits until each lease has been released and frees the object of a session that has ended.
func (s *Session) free(ctx context.Context) error {
	select {
	case <-s.unused:
	case <-ctx.Done():
		err := fmt.Errorf("%d leases of the session %v have not been released: %w", len(s.Leases()), s.heartbeat.d.at, ctx.Err())
		s.lease.Abandon(err)
		return err
	}
	return s.lease.Release(ctx)
}

// underSession returns why the lock cannot be acquired if its session has ended.
func (l *Lock) underSession() error {
	if s := l.d.opts.Session; s != nil && s.Err() != nil {
		return fmt.Errorf("the lock %v: %w", l.d.at, s.Err())
	}
	return nil
}

// suits returns why locks in that store, with that layout, cannot be under the session. It compares
// the stores' names, because two clients of one bucket are the same store.
func (s *Session) suits(st store.Store, l Layout) error {
	switch {
	case s == nil:
		return nil
	case !l.Tokens():
		return fmt.Errorf("a lock of the layout %s has no record that can name a session", l)
	case st.String() != s.heartbeat.d.st.String():
		return fmt.Errorf("its session is in another store: %v", s.heartbeat.d.st)
	}
	return nil
}
