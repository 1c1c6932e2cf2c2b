package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
)

// margin is how much longer than its caller was told a lease is kept: as much as two clocks may go apart that
// run a twelfth faster or slower than real time, and 10 ms.
func margin(d time.Duration) time.Duration { return d/12 + 10*time.Millisecond }

// A lease is a holding that a caller has, who keeps it by telling that it is still there.
type lease struct {
	s        *Server
	id, key  string
	wants    fingerprint // of the requests that its ID answers, if its caller has chosen that
	ttl      time.Duration
	held     holding
	left     func()        // to be called when it has been released
	election bool          // it was campaigned for
	over     chan struct{} // closed when it is over for its caller
	settled  chan struct{} // closed when it has been released
	unwatch  func() bool

	mu    sync.Mutex
	heard time.Duration // reading of the clock when the caller was last heard of
	told  time.Duration // and until which it was told that the lease is valid
	timer *time.Timer   // ends it when the caller is not heard of
	why   string        // it is over
	last  bool          // the server stops: no keepalive prolongs it
}

// admit makes a lease of a holding, and tells its caller.
func (s *Server) admit(a *asked, h holding, left func()) (*lease, LeaseAnswer, error) {
	id := a.id
	if id == "" {
		id = randomHex()
	}
	l := &lease{
		s: s, id: id, wants: a.wants, key: a.key, ttl: a.ttl, held: h, left: left, election: a.election,
		over: make(chan struct{}), settled: make(chan struct{}), heard: clock.Now(),
	}
	answer, valid := l.tell()
	if !valid {
		return nil, LeaseAnswer{}, l.held.Err()
	}
	// Whatever ends it waits for this mutex, so that it is not forgotten before it is known.
	l.mu.Lock()
	defer l.mu.Unlock()
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return nil, LeaseAnswer{}, errStopping
	}
	s.leases[l.id] = l
	s.useLocked(l.key, 1, 0, a.election)
	s.mu.Unlock()
	s.stats.acquired.Add(1)
	s.watch.touched(l.key)
	l.timer = time.AfterFunc(l.ttl+margin(l.ttl), l.silent)
	l.unwatch = context.AfterFunc(h.Context(), l.lost)
	return l, answer, nil
}

// tell gives the answer to the caller, which relies on it. It is false if the lease is not valid, or is about to be
// released: no answer may then outlast it.
func (l *lease) tell() (LeaseAnswer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != "" || l.last {
		return LeaseAnswer{}, false
	}
	now, wall := clock.Now(), time.Now()
	until := l.heard + l.ttl
	if deadline := l.held.Deadline(); deadline.IsZero() {
		until = 0
	} else {
		until = min(until, now+deadline.Sub(wall))
	}
	left := (until - now).Truncate(time.Millisecond)
	if left <= 0 || !l.held.Valid() {
		return LeaseAnswer{}, false
	}
	l.told = max(l.told, now+left)
	return LeaseAnswer{
		Lease: l.id, Key: l.key, Token: l.held.Token(), Holder: l.held.Holder(), TTL: l.ttl.Milliseconds(),
		Left: left.Milliseconds(), Deadline: wall.Add(left).UTC().Truncate(time.Millisecond),
	}, true
}

// keepalive takes in that the caller is still there.
func (l *lease) keepalive() (LeaseAnswer, bool) {
	l.mu.Lock()
	if l.why == "" {
		if now := clock.Now(); now < l.heard+l.ttl+margin(l.ttl) {
			l.heard = now
		}
	}
	l.mu.Unlock()
	answer, valid := l.tell()
	if !valid {
		l.check()
	}
	return answer, valid
}

// check ends the lease if it is over by the clock, though no timer has said so yet.
func (l *lease) check() {
	l.mu.Lock()
	silent := clock.Now() >= l.heard+l.ttl+margin(l.ttl)
	l.mu.Unlock()
	switch {
	case silent:
		l.end("its caller has not been heard of for its TTL")
	case !l.held.Valid():
		l.lost()
	}
}

// silent ends the lease if the caller has not been heard of for so long, and otherwise looks again later.
func (l *lease) silent() {
	l.mu.Lock()
	rest := l.heard + l.ttl + margin(l.ttl) - clock.Now()
	if rest > 0 || l.last || l.why != "" {
		if !l.last && l.why == "" {
			l.timer.Reset(rest)
		}
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	if l.end("its caller has not been heard of for its TTL") {
		l.s.stats.silent.Add(1)
	}
}

// lost ends a lease that has ended by itself.
func (l *lease) lost() {
	err := l.held.Err()
	if err == nil || errors.Is(err, leasehold.ErrReleased) {
		return
	}
	if l.end(oneLine(err)) {
		l.s.stats.lost.Add(1)
	}
}

// end ends the lease for its caller, and has it released in the background: settled is closed then. It reports
// that this call did it, and not one before.
func (l *lease) end(why string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != "" {
		return false
	}
	l.why = why
	close(l.over)
	l.timer.Stop()
	l.unwatch()
	l.s.background.Go(func() {
		l.s.gate <- struct{}{}
		defer func() { <-l.s.gate }()
		l.give()
	})
	return true
}

// give releases the holding, and forgets the lease but for how it ended. It returns after two TTLs at most,
// whatever the store says.
func (l *lease) give() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*l.s.opts.TTL)
	defer cancel()
	if err := l.held.Release(ctx); err != nil && !errors.Is(err, leasehold.ErrLost) {
		l.s.log.Warn("a lock was not released: others may take it for held for its TTL", "lock", l.s.opts.URL(l.s.inside(l.key)), "error", oneLine(err))
	}
	l.left()
	l.mu.Lock()
	why := l.why
	l.mu.Unlock()
	l.s.forget(l, why)
	close(l.settled) // who is told of it and looks then sees it
}

// forget drops a lease, and remembers how it ended.
func (s *Server) forget(l *lease, why string) {
	s.mu.Lock()
	delete(s.leases, l.id)
	s.ended.add(l.id, why)
	s.useLocked(l.key, -1, 0, false)
	if len(s.leases) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
	s.mu.Unlock()
	s.watch.touched(l.key)
}

// find is the lease of an ID that is not over, or why there is none.
func (s *Server) find(id string) (*lease, error) {
	s.mu.Lock()
	l := s.leases[id]
	why, ended := s.ended.why(id)
	s.mu.Unlock()
	switch {
	case l == nil && ended:
		return nil, refuse(wordOver, "%s", why)
	case l == nil:
		return nil, refuse(wordUnknown, "there is no such lease: it never was, or has been over for long")
	}
	l.check()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != "" {
		return nil, refuse(wordOver, "%s", l.why)
	}
	return l, nil
}

// stopped refuses what would prolong a lease when the server stops.
func (s *Server) stopped() error {
	if s.ctx.Err() != nil {
		return refuse(wordOver, "the server stops: end the work, and release the lease")
	}
	return nil
}

// endings remembers how leases have ended: the last ones, and for some time.
type endings struct {
	most  int
	of    map[string]ending
	order []string // from the first to the last
}

type ending struct {
	at  time.Time
	why string
}

func (e *endings) add(id, why string) {
	if e.of == nil {
		e.of = map[string]ending{}
	}
	e.prune()
	if len(e.order) >= e.most {
		e.drop(1)
	}
	e.of[id] = ending{time.Now(), why}
	e.order = append(e.order, id)
}

func (e *endings) why(id string) (string, bool) {
	e.prune()
	end, is := e.of[id]
	return end.why, is
}

func (e *endings) prune() {
	n := 0
	for n < len(e.order) && time.Since(e.of[e.order[n]].at) > keepEnded {
		n++
	}
	e.drop(n)
}

func (e *endings) drop(n int) {
	for _, id := range e.order[:n] {
		delete(e.of, id)
	}
	e.order = e.order[n:]
}

func (s *Server) postKeepalive(c *call) (int, any, error) {
	if err := c.decode(&struct{}{}); err != nil {
		return 0, nil, err
	}
	l, err := s.find(c.param)
	if err != nil {
		return 0, nil, err
	}
	if err := s.stopped(); err != nil {
		return 0, nil, err
	}
	answer, valid := l.keepalive()
	if !valid {
		return 0, nil, l.gone()
	}
	return http.StatusOK, answer, nil
}

// gone says why the lease is over, or is as good as that.
func (l *lease) gone() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.why != "":
		return refuse(wordOver, "%s", l.why)
	case l.last:
		return l.s.stopped()
	}
	return refuse(wordOver, "the lease is not valid now")
}

func (s *Server) getLease(c *call) (int, any, error) {
	wait, err := c.wait()
	if err != nil {
		return 0, nil, err
	}
	l, err := s.find(c.param)
	if err != nil {
		return 0, nil, err
	}
	if wait > 0 {
		if err := s.watchEnd(c, l, wait); err != nil {
			return 0, nil, err
		}
	}
	return l.answer()
}

// answer tells how the lease stands, which prolongs nothing.
func (l *lease) answer() (int, any, error) {
	if err := l.s.stopped(); err != nil {
		return 0, nil, err
	}
	answer, valid := l.tell()
	if !valid {
		l.check()
		return 0, nil, l.gone()
	}
	return http.StatusOK, answer, nil
}

// watchEnd waits for the end of the lease, or of the caller's patience.
func (s *Server) watchEnd(c *call, l *lease, wait time.Duration) error {
	s.mu.Lock()
	if s.looking >= s.opts.Waiting {
		s.mu.Unlock()
		return refuse(wordTooMany, "%d callers wait for the end of leases, and no more may", s.opts.Waiting)
	}
	s.looking++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.looking--
	}()
	c.patient()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-l.over:
		return l.gone()
	case <-s.ctx.Done():
		return s.stopped()
	case <-timer.C:
	case <-c.r.Context().Done():
	}
	return nil
}

// releaseWithin is how long the answer to a release waits for the store.
const releaseWithin = 5 * time.Second

func (s *Server) deleteLease(c *call) (int, any, error) {
	if err := c.decode(&struct{}{}); err != nil {
		return 0, nil, err
	}
	l, err := s.find(c.param)
	if err != nil {
		return 0, nil, err
	}
	if !l.end("its caller has released it") {
		return 0, nil, l.gone()
	}
	c.patient()
	timer := time.NewTimer(releaseWithin)
	defer timer.Stop()
	select {
	case <-l.settled:
		return http.StatusNoContent, nil, nil
	case <-timer.C:
	case <-c.r.Context().Done(): // the release goes on
	}
	return http.StatusAccepted, nil, nil
}

// Stop refuses what is asked for from now on, ends the waits, tells those who wait for the end of their leases
// that this is it, and releases each lease when its caller does, or when the time is over that the caller was
// told. Then it ends the session. So it takes up to a TTL, while callers end their work; the handler must go on
// answering them meanwhile.
//
// If ctx ends first, Stop returns an error that matches ctx.Err(), and what is left is free for others a TTL
// after the last heartbeat.
func (s *Server) Stop(ctx context.Context) error {
	s.cancel(errStopping)
	s.mu.Lock()
	empty := make(chan struct{})
	if len(s.leases) == 0 {
		close(empty)
	} else {
		s.empty = empty
	}
	var all []*lease
	for _, l := range s.leases {
		all = append(all, l)
	}
	s.mu.Unlock()
	for _, l := range all {
		l.endWhenTold() //nolint:contextcheck // which happens whatever becomes of ctx
	}
	select {
	case <-empty:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	begun := s.begun
	s.begun = true // it cannot be started any more
	s.mu.Unlock()
	if begun {
		select {
		case <-s.supervised:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.mu.Lock()
	g := s.current
	s.mu.Unlock()
	s.setCurrent(nil)
	s.watch.stop()
	var err error
	if g != nil {
		err = g.close(ctx)
	}
	done := make(chan struct{})
	go func() {
		s.background.Wait()
		close(done)
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return errors.Join(err, context.Cause(ctx))
	}
}

// endWhenTold ends the lease when the time is over that its caller relies on.
func (l *lease) endWhenTold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != "" {
		return
	}
	left := max(l.told-clock.Now(), 0)
	l.last = true
	l.timer.Stop() // which waits for silence, and would come later
	l.timer = time.AfterFunc(left+margin(left), func() { l.end("the server stops, and the time is over that its caller was told") })
}
