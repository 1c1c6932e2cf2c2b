package leasehold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// SessionOptions are the options of [NewSession]. The zero value, like nil, gives the
// defaults.
type SessionOptions struct {
	// TTL, Holder, Address, Meta, Proof and Logger are as in [LockOptions]. The TTL is
	// that of all leases under the session.
	TTL     time.Duration
	Holder  string
	Address string
	Meta    map[string]string
	Proof   Proof
	Logger  *slog.Logger

	// Prefix is where the session's object lies: PREFIX/ and 128 random bits. Default
	// "sessions".
	Prefix string
}

// ErrSessionOver: the session that the lease was under, or was to be under, is over. The
// cause that goes with it says why.
var ErrSessionOver = errors.New("the session is over")

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
	heartbeat      *Lock
	lease          *Lease // of the heartbeat
	sessionReapers sessionReapers
	ctx            context.Context
	cancel         context.CancelCauseFunc
	ended          atomic.Bool // nothing under it is valid any more

	mu     sync.Mutex
	under  protocol.Membership[*driver]
	unused chan struct{} // closed when it is over and nothing is under it any more
}

// NewSession begins a session: it makes the session's object, and returns when that is
// confirmed. From then on the heartbeat is sent in the background until the session is
// closed or lost. It fails like [Lock.Acquire], and with the end of ctx; the session
// outlives ctx.
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
		TTL: so.TTL, Holder: so.Holder, Address: so.Address, Meta: so.Meta, Proof: so.Proof, Logger: so.Logger, Layout: LayoutObject,
	}
	s := &Session{unused: make(chan struct{})}
	lo.OnRenew = func(*Lease) { s.renewed() }
	o, err := lo.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if err = errors.Join(o.encodable(), o.proven(st)); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	for try := 1; ; try++ {
		key := so.Prefix + "/" + newIncarnation() // a name that is used once (rule D1)
		if err = store.CheckKey("session", key); err != nil {
			return nil, err
		}
		at := layout.Heartbeat{Store: st, Key: key, Freed: s.announce}
		s.heartbeat = heartbeat(at, o, func(cfg *protocol.Config) { cfg.Fresh = true })
		s.lease, err = s.heartbeat.Acquire(ctx)
		// The object may be confirmed too late for a session to begin; then there is another name.
		if !errors.Is(err, protocol.ErrUsed) || try == 3 {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot begin a session: %w", err)
	}
	s.sessionReapers = sessionReapers{st: st, opts: o.quiet()}
	context.AfterFunc(s.lease.Context(), func() { s.end(context.Cause(s.lease.Context())) })
	return s, nil
}

// heartbeat makes a candidate for a session's object.
func heartbeat(at layout.Heartbeat, o *LockOptions, tune func(*protocol.Config)) *Lock {
	cfg := o.config(newIncarnation())
	tune(&cfg)
	return makeLock(at.Store, at.Key, at, cfg, o)
}

// Key is the name of the session's object in its store.
func (s *Session) Key() string { return s.heartbeat.key }

// Valid looks at the clock and reports whether the session is valid now: see [Lease.Valid].
func (s *Session) Valid() bool { return !s.ended.Load() && s.lease.Valid() }

// until is the reading of the clock from which on nothing under the session is valid.
func (s *Session) until() time.Duration {
	if s.ended.Load() {
		return 0
	}
	return s.lease.until()
}

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
func (s *Session) Leases() []*Lease {
	var leases []*Lease
	s.mu.Lock()
	members := s.under.Members()
	s.mu.Unlock()
	for _, d := range members {
		d.mu.Lock()
		if d.lease != nil {
			leases = append(leases, d.lease)
		}
		d.mu.Unlock()
	}
	slices.SortFunc(leases, func(a, b *Lease) int { return strings.Compare(a.Key(), b.Key()) })
	return leases
}

// errClosed: who made the session has closed it.
var errClosed = errors.New("it was closed")

// Close ends the session and with it all its leases: first their validity and their
// contexts; then, when each lease has been released, which says that its work has stopped,
// the session, by one write. To release a lease costs nothing any more. The next holder of
// one of its locks takes it over by one write, without a wait.
//
// If ctx ends first, Close returns its error, the heartbeat is not sent any more, and the
// others wait the TTL out; if ctx has ended before the call, Close waits up to 5 s all the
// same. A session that was lost must be closed too; then the error matches [ErrLost].
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	s.end(errClosed)
	select {
	case <-s.unused:
	case <-ctx.Done():
		err := fmt.Errorf("%d leases of the session %v have not been released: %w", len(s.Leases()), s.heartbeat.d.at, ctx.Err())
		s.lease.Abandon(err)
		return err
	}
	return s.lease.Release(ctx)
}

// end ends all leases, their contexts before anything is sent (rule D7).
func (s *Session) end(why error) {
	why = fmt.Errorf("%w: %w", ErrSessionOver, why)
	s.mu.Lock()
	members, first := s.under.End(why)
	s.ended.Store(true)
	s.mu.Unlock()
	if !first {
		return
	}
	for _, d := range members {
		d.endLease(why)
	}
	s.cancel(why)
	for _, d := range members {
		d.sessionOver(s, why)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freeIfUnused()
}

// enter adds a candidate whose lease is to be under the session.
func (s *Session) enter(d *driver) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under.Over() == nil && !s.Valid() {
		return s.Err()
	}
	return s.under.Enter(d)
}

// leave takes it out again, when nothing of it can be under the session any more.
func (s *Session) leave(d *driver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under.Leave(d)
	s.freeIfUnused()
}

// freeIfUnused frees the session's object when it is over and its last lease was released.
// s.mu is locked.
func (s *Session) freeIfUnused() {
	if s.under.Unused() {
		close(s.unused)
		go s.lease.beginRelease("")
	}
}

// over is why the session is over, and nil while it goes on.
func (s *Session) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under.Over()
}

// released takes in that a lock does not name the session any more.
func (s *Session) released(key string) {
	s.mu.Lock()
	soon := s.under.Released(key)
	s.mu.Unlock()
	s.renewIf(soon)
}

// announce is what a heartbeat says of the locks that were released.
func (s *Session) announce() *record.Freed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under.Announce()
}

// renewed takes in that a heartbeat was confirmed.
func (s *Session) renewed() {
	s.mu.Lock()
	soon := s.under.Renewed()
	s.mu.Unlock()
	s.renewIf(soon)
}

func (s *Session) renewIf(soon bool) {
	if soon {
		s.heartbeat.d.step(protocol.RenewSoon{})
	}
}

// underSession says why the lock cannot be acquired under its session, if it has one.
func (l *Lock) underSession() error {
	if s := l.d.opts.Session; s != nil && s.Err() != nil {
		return fmt.Errorf("the lock %v: %w", l.d.at, s.Err())
	}
	return nil
}

// suits says why locks in that store, with that layout, cannot be under the session.
func (s *Session) suits(st store.Store, l Layout) error {
	switch {
	case s == nil:
		return nil
	case !l.Tokens():
		return fmt.Errorf("a lock of the layout %s has no record that can name a session", l)
	case st.String() != s.heartbeat.st.String():
		return fmt.Errorf("its session is in another store: %v", s.heartbeat.st)
	}
	return nil
}

// endLease ends the lease that this driver holds, if it does: it is under the session.
func (d *driver) endLease(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.lease; l != nil && l.ctx.Err() == nil {
		l.end(fmt.Errorf("%w: %w", ErrLost, why))
	}
}

// sessionOver tells the candidate of the end of a session that it is or was under.
func (d *driver) sessionOver(s *Session, why error) {
	d.step(protocol.SessionOver{Session: s.Key(), Err: why})
}

// orphaned ends the session, since the lock may name it for ever (rule D6).
func (d *driver) orphaned() {
	s := d.opts.Session
	d.opts.Logger.Warn("the store does not say what became of a write, so the session ends", "lock", d.at.String(), "session", s.Key())
	go s.end(fmt.Errorf("the store does not say whether the lock %v names it", d.at))
}

// check finds out whether the session of the holder goes on.
func (d *driver) check(ctx context.Context, cancel context.CancelFunc, session string) {
	s, err := layout.Heartbeat{Store: d.lock.st, Key: session}.Look(ctx, "")
	cancel()
	d.enter()
	defer d.leave()
	d.quit = nil
	checked := layout.Checked(session, s, err)
	checked.Abandoned = describe(session, s).Abandoned
	d.stepLocked(checked)
}

// breakSession ends a session by hand.
func breakSession(ctx context.Context, st store.Store, session string) error {
	at := layout.Heartbeat{Store: st, Key: session}
	for try := 1; ; try++ {
		s, err := at.Look(ctx, "")
		if !s.Record.Held { // nor is it if there is none, or if that is not known
			return err
		}
		// Its holder may be faster than we are.
		if _, err = at.Write(ctx, broken(s)); err == nil || try == 3 {
			return err
		}
	}
}

// judged completes what is known of a lock by whether the session of its holder goes on. It
// costs one read if there is a session. Where the session's object is none, or lies outside
// of the store as it was opened, the holder is taken for one that is there, as it is by who
// waits for the lock.
func judged(ctx context.Context, st store.Store, i Info) (Info, error) {
	if !i.Held || i.Session == "" {
		return i, nil
	}
	s, err := layout.Heartbeat{Store: st, Key: i.Session}.Look(ctx, "")
	if errors.Is(err, ErrForeignObject) || errors.Is(err, store.ErrInvalid) {
		return i, nil
	}
	if err != nil {
		return i, fmt.Errorf("whether the session %s of the holder of %s goes on is not known: %w", i.Session, i.Key, err)
	}
	i.Abandoned = !s.Exists || !s.Record.Held || describe(i.Session, s).Abandoned
	return i, nil
}
