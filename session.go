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
	"github.com/leasehold/leasehold/store"
)

// SessionOptions are the options of [NewSession]. The zero value, like nil, gives the
// defaults.
// A longer TTL than for single locks pays here, since a heartbeat that is late ends everything that
// is held under the session.
type SessionOptions struct {
	// These are as in [LockOptions]. The TTL is that of all leases under the session.
	TTL       time.Duration
	Holder    string
	Address   string
	Meta      map[string]string
	Proof     Proof
	OnTrouble func(error)
	Trace     *Trace // is told of the session as of a lease that is renewed
	Logger    *slog.Logger

	// OnRenew is called after each heartbeat, when the deadlines of the leases have moved. It is
	// called as the callbacks of a lock are, and a call that hangs delays no heartbeat.
	OnRenew func()

	// Prefix is where the session's object lies: PREFIX/ and 128 random bits. Default
	// "sessions".
	Prefix string
}

// A Session is one heartbeat for any number of leases: one object that is written every
// third of the TTL, whatever is held under it. A lock with a [LockOptions.Session] names
// the session and is written when it changes hands, and at no other time. So ten thousand
// leases cost what one costs, and they end together.
//
// The guarantee is that of a lease: when the session is over for its holder, nobody else
// takes it for over yet. A waiter for a lock under a session watches the session. When its
// heartbeat has not changed for its TTL and margin, the session is ended for good by a
// conditional write, and then its locks are taken over, each by one write. See
// docs/protocol.md, rules D1 to D8. The idea is Chubby's, and that of ZooKeeper, etcd and
// Consul; there a server keeps the time.
//
// A Session is safe for concurrent use.
type Session struct {
	heartbeat *Lock
	lease     *Lease // of the heartbeat
	inner     *engine.Session
	ctx       context.Context
	cancel    context.CancelCauseFunc
	unused    chan struct{} // closed when it is over and nothing is under it any more
}

// NewSession begins a session: it makes the session's object, and returns when that is
// confirmed. From then on the heartbeat is sent in the background until the session is
// closed or lost. It fails like [Lock.Acquire], and with the end of ctx; the session
// outlives ctx.
//
// An error says that there is no session. If the object may have been made all the same, it is
// freed in the background, as after [Lock.Acquire]. The options are copied.
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
		OnTrouble: so.OnTrouble, Trace: so.Trace, Logger: so.Logger, Layout: LayoutObject, kind: KindSession,
	}
	if so.OnRenew != nil {
		lo.OnRenew = func(*Lease) { so.OnRenew() }
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
		// The object may be confirmed too late for a session to begin; then there is another name.
		if !errors.Is(err, protocol.ErrUsed) || try == 3 {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot begin a session: %w", err)
	}
	return s, nil
}

// begin makes the candidate for the session's object.
func (s *Session) begin(st store.Store, key string, o *LockOptions) {
	inner := new(engine.Session)
	l := &Lock{driver{st: st, key: key, at: layout.Heartbeat{Store: st, Key: key, Freed: inner.Announce}, opts: o}}
	inner.Init(heartbeat{&l.d, s}, &l.d.Engine, o.config(newIncarnation()), 0)
	s.heartbeat, s.inner = l, inner
}

// A heartbeat is what the engine of a session works for.
type heartbeat struct {
	*driver
	s *Session
}

// Over ends what is left of the session, when all its leases have ended.
func (h heartbeat) Over(why error) { h.s.cancel(why) }

// Unused frees the session's object.
// Close may have given up, or may never be called for a session that was lost, so the release
// begins here. A lease has one release: where Close is still there, it waits for this one.
func (h heartbeat) Unused() {
	close(h.s.unused)
	var lease *Lease
	h.Locked(func() { lease = h.lease })
	if lease != nil {
		lease.beginRelease("")
	}
}

// engineOf is the session's engine; none has none.
func (s *Session) engineOf() *engine.Session {
	if s == nil {
		return nil
	}
	return s.inner
}

// Key is the name of the session's object in its store.
func (s *Session) Key() string { return s.heartbeat.d.key }

// Valid looks at the clock and reports whether the session is valid now: see [Lease.Valid].
func (s *Session) Valid() bool { return s.inner.Valid() }

// Done is closed when the session is lost or closed. A process that was suspended sees it
// up to a second after it wakes up; Valid tells at once.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Err is nil while the session goes on, and then matches [ErrSessionOver] and says why.
func (s *Session) Err() error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	if !s.Valid() {
		return fmt.Errorf("%w: %w", ErrSessionOver, protocol.ErrExpired)
	}
	return nil
}

// Leases are those that are held under the session and not released yet, in the order of
// their keys.
// The list is a snapshot: others may acquire and release meanwhile.
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

// Close ends the session and with it all its leases: first their validity and their
// contexts; then, when each lease has been released, which says that its work has stopped,
// the session, by one write. To release a lease costs nothing any more. The next holder of
// one of its locks takes it over by one write, without a wait.
//
// If ctx ends first, Close returns its error, the heartbeat is not sent any more, and the
// others wait the TTL out; if ctx has ended before the call, Close waits up to 5 s all the
// same. A session that has ended by itself must be closed too; then the error matches [ErrLost], also
// if the others need not wait it out.
//
// Work under the leases must stop when their contexts end, and release them: Close waits for
// that, so do not call it from such work. After Close every acquisition under the session fails
// with [ErrSessionOver].
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	s.inner.End(engine.ErrClosed)
	err := s.free(ctx)
	// A session that had to end because of one lock is no heartbeat that was lost, but its leases were.
	if over := s.inner.Over(); !errors.Is(over, engine.ErrClosed) && !errors.Is(err, ErrLost) {
		err = errors.Join(fmt.Errorf("%w: %w", ErrLost, over), err)
	}
	return err
}

// free frees the object of a session that is over when each lease has been released.
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

// underSession says why the lock cannot be acquired under its session, if it has one.
func (l *Lock) underSession() error {
	if s := l.d.opts.Session; s != nil && s.Err() != nil {
		return fmt.Errorf("the lock %v: %w", l.d.at, s.Err())
	}
	return nil
}

// suits says why locks in that store, with that layout, cannot be under the session.
// Two clients of one bucket are the same store, so it is the name that is compared.
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
