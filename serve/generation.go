package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/semaphore"
)

// A generation is one session and all leases under it. When the session is lost, another
// generation follows.
type generation struct {
	s       *Server
	session *leasehold.Session
	locks   *leasehold.Locks

	mu         sync.Mutex
	semaphores map[semaphoreKey]*part
}

// semaphoreKey identifies a semaphore. Callers that expect another size get their own, and the store
// decides which size is right.
type semaphoreKey struct {
	key  string
	size int
}

// part is this process's part in a semaphore.
type part struct {
	*semaphore.Semaphore
	users int
	used  time.Time // when the last user left
}

// begin begins a session, retrying while the store fails temporarily.
func (s *Server) begin(ctx context.Context) (*generation, error) {
	session, err := leasehold.NewSession(ctx, s.st, &leasehold.SessionOptions{
		TTL: s.opts.TTL, Holder: s.opts.Holder, Address: s.opts.Address, Proof: s.opts.Proof, Logger: s.log,
		Trace: s.trace,
	})
	if err != nil {
		return nil, err
	}
	opts := s.opts.lockOptions()
	opts.Session, opts.Trace = session, s.trace
	locks, err := leasehold.NewLocks(s.st, opts)
	if err != nil {
		return nil, errors.Join(err, session.Close(ctx))
	}
	return &generation{s: s, session: session, locks: locks, semaphores: map[semaphoreKey]*part{}}, nil
}

// ownTrace keeps why the store fails, until the session has been renewed.
func (s *Server) ownTrace() *locktrace.Trace {
	return &locktrace.Trace{
		Trouble: func(_ context.Context, e locktrace.Trouble) {
			text := oneLine(e.Err)
			s.trouble.Store(&text)
		},
		Renewed: func(_ context.Context, e locktrace.Renewed) {
			if e.Kind == locktrace.Session {
				s.trouble.Store(nil)
			}
		},
	}
}

// Start begins the session of all leases, and returns when it exists. It fails as
// [leasehold.NewSession] does; the server is then unusable. Later, whenever a session is lost,
// the server begins another, waiting at most 4 s between attempts.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	if s.begun {
		s.mu.Unlock()
		return errors.New("the server was started before")
	}
	s.begun = true
	s.mu.Unlock()
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errStopping) })() //nolint:contextcheck // Stop ends it too
	g, err := s.begin(both)
	if err != nil {
		close(s.supervised)
		return err
	}
	s.setCurrent(g)
	go s.supervise(g) //nolint:contextcheck // it goes on until Stop
	return nil
}

// supervise replaces lost sessions until the server stops.
func (s *Server) supervise(g *generation) {
	defer close(s.supervised)
	sweep := time.NewTicker(time.Minute)
	defer sweep.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-sweep.C:
			g.sweep(4 * s.opts.TTL)
			continue
		case <-g.session.Done():
		}
		s.stats.sessionsLost.Add(1)
		why := oneLine(g.session.Err())
		s.trouble.Store(&why)
		s.log.Warn("the session is lost, and with it all leases: another is begun", "error", why)
		s.setCurrent(nil)
		s.endSoon(g)
		next, err := s.again()
		if err != nil {
			return // the server is stopping
		}
		g = next
		s.setCurrent(g)
		s.log.Info("there is a session again")
	}
}

// again begins another session, with as many attempts as that takes. It logs a failure once a
// minute at most, because every error names another session.
func (s *Server) again() (*generation, error) {
	var said time.Time
	for n := 1; ; n++ {
		g, err := s.begin(s.ctx)
		if err == nil {
			s.trouble.Store(nil)
			return g, nil
		}
		if s.ctx.Err() != nil {
			return nil, s.ctx.Err()
		}
		text := oneLine(err)
		s.trouble.Store(&text)
		if time.Since(said) >= time.Minute {
			said = time.Now()
			s.log.Warn("no session can be begun: it is tried again", "error", text)
		}
		pause := time.NewTimer(protocol.Pause(n, nil))
		select {
		case <-pause.C:
		case <-s.ctx.Done():
			pause.Stop()
			return nil, s.ctx.Err()
		}
	}
}

// endSoon cleans up after a lost session. Its leases release themselves.
func (s *Server) endSoon(g *generation) {
	s.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*s.opts.TTL)
		defer cancel()
		if err := g.close(ctx); err != nil && !errors.Is(err, leasehold.ErrLost) {
			s.log.Info("the session that was lost is not settled", "error", oneLine(err))
		}
	})
}

func (s *Server) setCurrent(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = g
	close(s.changed)
	s.changed = make(chan struct{})
}

var errNoSession = errors.New("there is no session now")

// generation returns the current generation. If there is none, or it is last, it waits for the
// next if wait is set.
func (s *Server) generation(ctx context.Context, last *generation, wait bool) (*generation, error) {
	for {
		s.mu.Lock()
		g, changed := s.current, s.changed
		s.mu.Unlock()
		switch {
		case s.ctx.Err() != nil:
			return nil, errStopping
		case g != nil && g != last && g.session.Err() == nil:
			return g, nil
		case !wait:
			if why := s.trouble.Load(); why != nil {
				return nil, fmt.Errorf("%w: %s", errNoSession, *why)
			}
			return nil, errNoSession
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if why := s.trouble.Load(); why != nil {
				return nil, fmt.Errorf("%w: %s", errNoSession, *why)
			}
			return nil, fmt.Errorf("%w: %w", errNoSession, context.Cause(ctx))
		case <-s.ctx.Done():
		}
	}
}

// A holding is a lease of a lock or of a semaphore.
type holding interface {
	Context() context.Context
	Token() leasehold.Token
	Holder() string
	Valid() bool
	Deadline() time.Time
	Err() error
	Release(ctx context.Context) error
}

// take acquires a lease. Call left when the lease has been released.
func (g *generation) take(ctx context.Context, key string, a *asked) (h holding, left func(), err error) {
	if a.size == 0 {
		opts := []leasehold.AcquireOption{leasehold.WithHolder(a.holder)}
		if a.meta != nil {
			opts = append(opts, leasehold.WithMeta(a.meta))
		}
		acquire := g.locks.TryAcquire
		if a.wait > 0 {
			acquire = g.locks.Acquire
		}
		h, err = acquire(ctx, key, opts...)
		return h, func() {}, err
	}
	sem, err := g.enter(semaphoreKey{key, a.size})
	if err != nil {
		return nil, nil, err
	}
	leave := func() { g.leave(sem) }
	acquire := sem.TryAcquire
	if a.wait > 0 {
		acquire = sem.Acquire
	}
	lease, err := acquire(ctx, a.weight, leasehold.WithHolder(a.holder))
	if err != nil {
		leave()
		return nil, nil, err
	}
	return lease, leave, nil
}

// enter returns the semaphore of a key. It is kept for a while after its last use.
func (g *generation) enter(k semaphoreKey) (*part, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.semaphores[k]
	if at == nil {
		if len(g.semaphores) > 2*(g.s.opts.Leases+g.s.opts.Waiting) {
			g.sweepLocked(0) // an unused one is kept only for what it has last read
		}
		o := &g.s.opts
		sem, err := semaphore.New(g.s.st, k.key, k.size, &semaphore.Options{
			TTL: o.TTL, Holder: o.Holder, Address: o.Address, Proof: o.Proof, Session: g.session,
			Logger: o.Logger, Trace: g.s.trace,
		})
		if err != nil {
			return nil, err
		}
		at = &part{Semaphore: sem}
		g.semaphores[k] = at
	}
	at.users++
	return at, nil
}

func (g *generation) leave(at *part) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at.users--
	at.used = time.Now()
}

// sweep drops semaphores not used for that long.
func (g *generation) sweep(unused time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweepLocked(unused)
}

func (g *generation) sweepLocked(unused time.Duration) {
	for k, at := range g.semaphores {
		if at.users == 0 && time.Since(at.used) >= unused {
			delete(g.semaphores, k)
		}
	}
}

// close waits until all leases have been released, and ends the session.
func (g *generation) close(ctx context.Context) error {
	errs := []error{g.locks.Close(ctx)}
	g.mu.Lock()
	var all []*part
	for _, at := range g.semaphores {
		all = append(all, at)
	}
	g.mu.Unlock()
	for _, at := range all {
		errs = append(errs, at.Close(ctx))
	}
	return errors.Join(append(errs, g.session.Close(ctx))...)
}
