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

// margin is how much longer a lease is kept than its caller was told: how far two clocks can
// drift apart that run 1/12 faster or slower than real time, plus 10 ms.
func margin(d time.Duration) time.Duration { return d/12 + 10*time.Millisecond }

// A lease is a holding of a caller, who keeps it by keepalives.
type lease struct {
	s        *Server
	id, key  string
	wants    fingerprint // of the requests with its ID, if its caller has chosen one
	ttl      time.Duration
	held     holding
	left     func()        // called when it has been released
	election bool          // it was acquired by campaign
	over     chan struct{} // closed when it has ended for its caller
	settled  chan struct{} // closed when it has been released
	unwatch  func() bool

	mu    sync.Mutex
	heard time.Duration // clock reading at the caller's last request
	told  time.Duration // clock reading until which the caller was told it is valid
	timer *time.Timer   // ends it when the caller is silent
	why   string        // the reason for its end; empty: it has not ended
	last  bool          // the server is stopping: keepalives no longer extend it
}

// admit makes a lease of a holding, and returns the answer for its caller.
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
	// Whatever ends it waits for this mutex, so it cannot be removed from s.leases before it is
	// added.
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

// tell returns the answer for the caller, who relies on it. It returns false if the lease is
// not valid, or is about to be released: then no answer may outlast it.
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

// keepalive notes a sign of life of the caller.
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

// check ends the lease if it has expired by the clock, even if no timer has fired yet.
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

// silent ends the lease if the caller has been silent for too long, and otherwise sets the
// timer again.
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

func (l *lease) lost() {
	err := l.held.Err()
	if err == nil || errors.Is(err, leasehold.ErrReleased) {
		return
	}
	if l.end(oneLine(err)) {
		l.s.stats.lost.Add(1)
	}
}

// end ends the lease for its caller, and releases it in the background, closing settled. It
// reports whether this call ended it.
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

// give releases the holding, and forgets the lease except for why it ended. It returns after
// two TTLs at most, whatever the store answers.
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
	close(l.settled) // whoever waits for this must see the end
}

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

// find returns the lease with that ID, or an error if it has ended or is unknown.
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

// stopped refuses what would extend a lease while the server is stopping.
func (s *Server) stopped() error {
	if s.ctx.Err() != nil {
		return refuse(wordOver, "the server stops: end the work, and release the lease")
	}
	return nil
}

// endings remembers why leases have ended: only the most recent ones, and only for some time.
type endings struct {
	most  int
	of    map[string]ending
	order []string // oldest first
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

// gone returns why the lease has ended, or is about to.
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

// answer returns the state of the lease, and extends nothing.
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

// watchEnd waits until the lease ends, the wait is over or the caller leaves.
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
	case <-c.r.Context().Done(): // the release continues
	}
	return http.StatusAccepted, nil, nil
}

// Stop refuses new requests, ends all waits, and tells callers waiting for the end of their
// leases. It releases each lease when its caller does, or at the end of the time that the
// caller was told. Then it ends the session. Stop takes up to a TTL while callers finish their
// work, and the handler must keep answering them meanwhile.
//
// If ctx ends first, Stop returns an error that matches ctx.Err(). Locks not yet released are
// free for others one TTL after the last heartbeat.
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
		l.endWhenTold() //nolint:contextcheck // this continues even if ctx ends
	}
	select {
	case <-empty:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	begun := s.begun
	s.begun = true // it can no longer be started
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

// endWhenTold ends the lease when its caller no longer relies on it.
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
