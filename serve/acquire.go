package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
)

type acquireBody struct {
	ID     *string           `json:"id"`
	Wait   *string           `json:"wait"`
	TTL    *string           `json:"ttl"`
	Holder *string           `json:"holder"`
	Meta   map[string]string `json:"meta"`
	Slots  *int              `json:"slots"`
	Weight *int              `json:"weight"`
	Shared *bool             `json:"shared"`
	Fair   *bool             `json:"fair"`
}

type asked struct {
	id       string      // of the lease, if the caller has chosen one
	wants    fingerprint // of a request with an ID
	key      string      // the caller's, without the prefix
	holder   string
	ttl      time.Duration
	wait     time.Duration // 0: do not wait
	meta     map[string]string
	size     int // of the semaphore; 0: it is a lock
	weight   int
	election bool
}

// sessionsAt is the prefix of sessions. No lock may have it.
const sessionsAt = "sessions/"

// checkKey reports why a key is invalid.
func (s *Server) checkKey(key string) error {
	if err := store.CheckKey("lock", key); err != nil {
		return refuse(wordKey, "%s", oneLine(err))
	}
	if err := store.CheckKey("lock", s.inside(key)); err != nil {
		return refuse(wordKey, "with the prefix: %s", oneLine(err))
	}
	return nil
}

func (s *Server) check(key string, b *acquireBody, election bool) (*asked, error) {
	if err := s.checkKey(key); err != nil {
		return nil, err
	}
	if strings.HasPrefix(s.inside(key), sessionsAt) {
		return nil, refuse(wordKey, "sessions lie under %q, and no locks", sessionsAt)
	}
	a := &asked{key: key, holder: s.opts.Holder, ttl: defaultTTL, weight: 1, meta: b.Meta, election: election}
	var err error
	if b.TTL != nil {
		if a.ttl, err = durationOf("ttl", *b.TTL, leasehold.MinTTL, leasehold.MaxTTL); err != nil {
			return nil, err
		}
	}
	if b.Wait != nil {
		if a.wait, err = durationOf("wait", *b.Wait, 0, maxWait); err != nil {
			return nil, err
		}
	}
	if b.Holder != nil {
		a.holder = *b.Holder
		if err := checkText("holder", a.holder, 1, maxHolder); err != nil {
			return nil, err
		}
	}
	size := 0
	for name, value := range b.Meta {
		if err := checkText("a name in meta", name, 1, maxHolder); err != nil {
			return nil, err
		}
		if size += len(name) + len(value); size > maxMeta {
			return nil, refuse(wordValue, "meta has more than %d bytes", maxMeta)
		}
	}
	if err := a.checkSlots(b); err != nil {
		return nil, err
	}
	if b.ID != nil {
		a.id, a.wants = *b.ID, a.fingerprint()
		return a, checkID(a.id)
	}
	return a, nil
}

// checkSlots sets the size and weight of a semaphore, if the body asks for one.
func (a *asked) checkSlots(b *acquireBody) error {
	kinds := 0
	if b.Slots != nil {
		kinds++
		if a.size = *b.Slots; a.size < 1 || a.size > semaphore.MaxSize {
			return refuse(wordValue, "slots %d is not between 1 and %d", a.size, semaphore.MaxSize)
		}
	}
	if b.Fair != nil && *b.Fair {
		kinds++
		a.size = 1
	}
	if b.Shared != nil {
		kinds++
		a.size = semaphore.RWSize
		if !*b.Shared {
			a.weight = semaphore.RWSize
		}
	}
	if b.Weight != nil {
		if b.Slots == nil {
			return refuse(wordValue, "weight is for slots, and there are none")
		}
		if a.weight = *b.Weight; a.weight < 1 || a.weight > a.size {
			return refuse(wordValue, "weight %d is not between 1 and slots, %d", a.weight, a.size)
		}
	}
	switch {
	case kinds > 1:
		return refuse(wordValue, "slots, shared and fair exclude each other")
	case a.size > 0 && len(a.meta) > 0:
		return refuse(wordValue, "meta is kept for locks, and not for a semaphore, a fair or a reader/writer lock")
	case a.size > 0 && a.election:
		return refuse(wordValue, "one leads: an election has neither slots, nor shared, nor fair")
	}
	return nil
}

func durationOf(name, text string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, refuse(wordValue, "%s %q is not a duration such as \"30s\"", name, text)
	case d < least || d > most:
		return 0, refuse(wordValue, "%s %v is not between %v and %v", name, d, least, most)
	}
	return d, nil
}

func checkText(name, text string, least, most int) error {
	switch {
	case len(text) < least || len(text) > most:
		return refuse(wordValue, "%s has %d bytes, and may have %d to %d", name, len(text), least, most)
	case strings.ContainsFunc(text, unicode.IsControl):
		return refuse(wordValue, "%s has a control character", name)
	}
	return nil
}

func (s *Server) postAcquire(c *call) (int, any, error)  { return s.acquire(c, false) }
func (s *Server) postCampaign(c *call) (int, any, error) { return s.acquire(c, true) }

func (s *Server) acquire(c *call, election bool) (int, any, error) {
	var body acquireBody
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	a, err := s.check(c.param, &body, election)
	if err != nil {
		return 0, nil, err
	}
	if a.id != "" {
		return s.acquireByID(c, a)
	}
	if err = s.enterWait(a); err != nil {
		return 0, nil, err
	}
	defer s.leaveWait(a)
	c.patient()
	l, answer, err := s.get(c.r.Context(), a)
	if c.r.Context().Err() != nil { // takes precedence over the acquisition's own error
		if err == nil {
			l.end("its caller left before it was answered") // nobody else knows of it
		}
		return 0, nil, left()
	}
	if err != nil {
		return 0, nil, s.refusalOf(a.key, err)
	}
	c.done = true
	if err := s.write(c.w, c.r, http.StatusOK, "application/json", answer); err != nil {
		l.end("its caller could not be answered: " + oneLine(err))
	}
	return 0, nil, nil
}

// stateWithin is how long the answer to a failed wait may take to find out who holds the lock.
const stateWithin = 2 * time.Second

// overdue returns the error of a wait that has timed out, with the holder of the lock. The
// acquisition does not know the holder if the lock has just changed hands or the wait was
// shorter than a read. Nor does its error tell a store outage from a read cut off by the
// timeout. So overdue asks the store.
func (s *Server) overdue(ctx context.Context, a *asked, err error) error {
	if errors.Is(err, leasehold.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateWithin)
	defer cancel()
	o, unseen := s.watch.object(short, a.key)
	if unseen != nil || o.Error != "" {
		return err
	}
	detail := fmt.Sprintf("the wait of %v is over: the lock is %s", a.wait, o.State)
	if o.State == "held" && o.Holder != "" {
		detail += " by " + o.Holder
	} else if o.State != "held" {
		detail += " by now: ask again"
	}
	return &refusal{wordHeld, detail, &o.Report}
}

// enterWait counts a caller that waits, unless the limits on waiting callers or leases are
// reached.
func (s *Server) enterWait(a *asked) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return refuse(wordStopping, "the server stops")
	case s.waiting >= s.opts.Waiting:
		return refuse(wordTooMany, "%d callers wait for locks, and no more may", s.opts.Waiting)
	case len(s.leases)+s.waiting >= s.opts.Leases:
		return refuse(wordTooMany, "%d leases are held or wanted, and no more may be", s.opts.Leases)
	}
	s.waiting++
	s.useLocked(a.key, 0, 1, a.election)
	s.watch.counts()
	return nil
}

func (s *Server) leaveWait(a *asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	s.useLocked(a.key, 0, -1, false)
	s.watch.counts()
}

var errWaited = errors.New("the wait is over")

// get acquires the lock. If the session is lost meanwhile, it continues under the next one.
func (s *Server) get(ctx context.Context, a *asked) (*lease, LeaseAnswer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errStopping) })() //nolint:contextcheck // Stop ends it too
	if a.wait > 0 {
		timed, done := context.WithTimeoutCause(ctx, a.wait, errWaited)
		defer done()
		ctx = timed
	}
	var last *generation
	for {
		g, err := s.generation(ctx, last, a.wait > 0)
		if err != nil {
			return nil, LeaseAnswer{}, err
		}
		l, answer, err := s.getUnder(ctx, g, a)
		switch {
		case err == nil:
			return l, answer, nil
		case s.ctx.Err() != nil:
			return nil, LeaseAnswer{}, errStopping
		case a.wait > 0 && ctx.Err() == nil && g.session.Err() != nil:
			last = g // it is lost, and there will be another
		case errors.Is(context.Cause(ctx), errWaited):
			return nil, LeaseAnswer{}, s.overdue(ctx, a, err)
		default:
			return nil, LeaseAnswer{}, err
		}
	}
}

func (s *Server) getUnder(ctx context.Context, g *generation, a *asked) (*lease, LeaseAnswer, error) {
	h, left, err := g.take(ctx, s.inside(a.key), a)
	if err != nil {
		return nil, LeaseAnswer{}, err
	}
	l, answer, err := s.admit(a, h, left) //nolint:contextcheck // the lease outlives the request
	if err != nil {                       // it has ended already, or the server is stopping
		s.background.Go(func() {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.opts.TTL)
			defer cancel()
			_ = h.Release(last) // if this fails, the lock is free when the session ends
			left()
		})
		return nil, LeaseAnswer{}, err
	}
	return l, answer, nil
}
