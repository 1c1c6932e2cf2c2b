package serve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"
)

// The length of an ID chosen by a caller. A UUID fits, and 128 bits or more in base64.
const (
	minID = 22
	maxID = 64
)

// checkID reports why an ID is invalid. The error does not repeat the ID, which is a secret.
func checkID(id string) error {
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_' {
			return refuse(wordValue, "id may have letters, digits, - and _ only")
		}
	}
	if len(id) < minID || len(id) > maxID {
		return refuse(wordValue, "id has %d characters, and may have %d to %d: choose it at random", len(id), minID, maxID)
	}
	return nil
}

// A fingerprint identifies what a request with an ID asks for. Keeping the requests themselves
// would take up to 16 KiB of meta data for each lease.
type fingerprint [sha256.Size]byte

// fingerprint returns the hash of everything in the request except the wait.
func (a *asked) fingerprint() fingerprint {
	text, err := json.Marshal([]any{a.key, a.election, a.holder, a.ttl, a.meta, a.size, a.weight})
	if err != nil {
		panic(err) // strings and numbers do not fail
	}
	return sha256.Sum256(text)
}

// A claim is an acquisition under an ID chosen by its caller. All requests with that ID share
// it, and it continues while one of them waits. So a caller whose connection broke keeps its
// position in the queue if it repeats the request before the server notices.
type claim struct {
	wants   fingerprint
	until   time.Time          // the end of the first request's wait
	asking  int                // requests that wait for it; guarded by Server.mu
	abandon context.CancelFunc // called when no request waits

	done      chan struct{} // closed when the fields below are set
	lease     *lease        // nil if it failed
	err       error
	abandoned bool // it ended because no request waited for it
}

// acquireByID answers an acquisition whose caller has chosen the lease's ID. The lease is kept
// even if the caller has left, because it can repeat the request within the TTL.
func (s *Server) acquireByID(c *call, a *asked) (int, any, error) {
	s.mu.Lock()
	l, err := s.byIDLocked(a)
	s.mu.Unlock()
	if l == nil && err == nil {
		if err = s.enterWait(a); err != nil {
			return 0, nil, err
		}
		defer s.leaveWait(a)
		c.patient()
		l, err = s.claim(c.r.Context(), a)
	}
	if err != nil {
		return 0, nil, s.refusalOf(a.key, err)
	}
	return l.answer()
}

// byIDLocked returns the lease with the ID in a, or nil if the ID is unused. It refuses an ID
// whose lease has ended, or that was used for another request, without details of that request.
// The mutex is locked.
func (s *Server) byIDLocked(a *asked) (*lease, error) {
	l, c := s.leases[a.id], s.claims[a.id]
	_, over := s.ended.why(a.id)
	if l != nil {
		select {
		case <-l.over: // it is being released
			over = true
		default:
		}
	}
	switch {
	case over:
		return nil, refuse(wordOver, "the lease with this id has ended: choose another id to acquire again")
	case l != nil && l.wants != a.wants, c != nil && c.wants != a.wants:
		return nil, refuse(wordValue, "id was used with another lock, or with other options: choose another id")
	}
	return l, nil
}

// claim waits for the lease with the ID in a, with all other requests for it, but at most for
// the wait of this request.
func (s *Server) claim(ctx context.Context, a *asked) (*lease, error) {
	until := time.Now().Add(a.wait)
	for {
		c, begins, l, err := s.join(ctx, a, until)
		if c == nil {
			return l, err
		}
		var timeout <-chan time.Time
		if !begins && (a.wait > 0 || c.until.After(until)) { // the first request's wait is also that of the claim
			timeout = time.After(time.Until(until))
		}
		select {
		case <-c.done:
		case <-timeout:
		case <-ctx.Done():
		}
		s.part(c)
		select {
		case <-c.done:
		default: // others still wait for it
			if ctx.Err() != nil {
				return nil, left()
			}
			return nil, s.overdue(ctx, a, context.DeadlineExceeded)
		}
		waits := time.Now().Before(until)
		switch {
		case c.lease != nil:
			return c.lease, nil
		case ctx.Err() != nil:
			return nil, left()
		case c.abandoned && (waits || a.wait == 0), waits && !time.Now().Before(c.until):
			// It ended too early for this request, which continues on its own.
			if a.wait > 0 {
				rest := *a
				rest.wait = max(time.Until(until), 1) // 0 would mean not to wait
				a = &rest
			}
		case c.abandoned:
			return nil, s.overdue(ctx, a, context.DeadlineExceeded)
		default:
			return nil, c.err
		}
	}
}

// join adds a request to the claim with its ID, and begins one if needed. If it returns no
// claim, it returns the lease with that ID, or an error.
func (s *Server) join(ctx context.Context, a *asked, until time.Time) (c *claim, begins bool, l *lease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, err = s.byIDLocked(a); l != nil || err != nil {
		return nil, false, l, err
	}
	c = s.claims[a.id]
	if begins = c == nil; begins {
		own, abandon := context.WithCancel(context.WithoutCancel(ctx))
		c = &claim{wants: a.wants, until: until, abandon: abandon, done: make(chan struct{})}
		s.claims[a.id] = c
		go func() {
			c.lease, _, c.err = s.get(own, a)
			c.abandoned = own.Err() != nil
			s.mu.Lock()
			delete(s.claims, a.id) // only after its lease is in s.leases
			s.mu.Unlock()
			close(c.done)
		}()
	}
	c.asking++
	return c, begins, nil, nil
}

// part removes a request from its claim. The last one ends the claim and waits until it has
// ended, so there are never more claims than waiting requests.
func (s *Server) part(c *claim) {
	s.mu.Lock()
	c.asking--
	last := c.asking == 0
	s.mu.Unlock()
	if last {
		c.abandon()
		<-c.done
	}
}
