package probe

import (
	"context"
	"errors"
	"iter"
	"net/http/httptrace"
	"time"

	"github.com/leasehold/leasehold/store"
)

// counted is a store whose requests are counted, bounded, timed and followed to their
// end.
type counted struct {
	store.Store
	s *survey
}

// count takes note of requests that send so many bytes of bodies, unless there must be no
// more.
func (s *survey) count(n *int, requests, bytes int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	if r.Requests.Total()+requests > r.Limit-s.reserve || r.Sent+int64(bytes) > r.SentLimit {
		return errNoBudget
	}
	*n += requests
	r.Sent += int64(bytes)
	if s.opts.OnProgress != nil && time.Since(s.told) >= progressEvery {
		s.told = time.Now()
		s.opts.OnProgress(Progress{s.doing, r.Requests.Total(), r.Limit})
	}
	return nil
}

// extra is how many HTTP requests one call may make beyond those that it should: net/http
// repeats a read whose connection broke, and credentials may have to be fetched.
const extra = 8

// errManyRequests is the cause of an error of a call that was cut off.
var errManyRequests = errors.New("the store made many requests of one: is it redirected to itself?")

// A request that has left is waited for: one that is given up may land after the probe
// has cleaned up.
func (s *survey) bounded(n *int, expected, most int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), limit)
	ctx, stop := s.metered(ctx, n, expected, most)
	return ctx, func() { stop(); cancel() }
}

// metered counts the HTTP requests of one call. A store may make more of one than it
// should: it follows redirects, say, or reads page after page. Each beyond the expected
// ones counts in n. The call is cut off when it has made most of these, or when the probe may
// send no more.
func (s *survey) metered(ctx context.Context, n *int, expected, most int) (context.Context, context.CancelFunc) {
	made := 0
	ctx, cut := context.WithCancelCause(ctx)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if made++; made <= expected {
			return
		}
		switch {
		case made > expected+most:
			cut(errManyRequests)
		case s.report.Requests.Total() >= s.report.Limit-s.reserve:
			cut(errNoBudget)
		default:
			*n++
		}
	}})
	return ctx, func() { cut(nil) }
}

// cutOff gives the error of a call, or says why it was cut off. Then the call is not worth
// another one.
func cutOff(ctx context.Context, op, key string, err error) error {
	why := context.Cause(ctx)
	if err == nil || !errors.Is(why, errManyRequests) {
		return err
	}
	kind := store.ErrRefused
	if errors.Is(err, store.ErrUnknownOutcome) {
		kind = store.ErrUnknownOutcome
	}
	return &store.Error{Op: op, Key: key, Kind: kind, Cause: why}
}

// sends tells the witness of a request.
func (s *survey) sends(key string) sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.witness.sends(key)
}

func (c *counted) Get(_ context.Context, key string, unless store.Version) (*store.Object, error) {
	n := &c.s.report.Requests.Get
	if err := c.s.count(n, 1, 0); err != nil {
		return nil, err
	}
	ctx, cancel := c.s.bounded(n, 1, extra)
	defer cancel()
	before := c.s.sends(key)
	o, err := c.Store.Get(ctx, key, unless) //nolint:contextcheck // the survey has one for all
	err = cutOff(ctx, "get", key, err)      //nolint:contextcheck // the same
	op := "get"
	c.s.mu.Lock()
	switch {
	case err == nil:
		c.s.bodies.saw(o, key)
		c.s.witness.read(key, before, o.Version, o)
	case errors.Is(err, store.ErrNotModified):
		op = "get, unchanged"
		c.s.witness.read(key, before, unless, nil)
	case errors.Is(err, store.ErrNotExist):
		c.s.witness.readNothing(key, before)
	}
	c.s.mu.Unlock()
	c.s.answered(op, before.sent, o, err)
	return o, err
}

func (c *counted) Put(_ context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	n := &c.s.report.Requests.Put
	if err := c.s.count(n, 1, len(body)); err != nil {
		return nil, err
	}
	ctx, cancel := c.s.bounded(n, 1, extra)
	defer cancel()
	before := c.s.sends(key)
	o, err := c.Store.Put(ctx, key, body, only) //nolint:contextcheck // see Get
	err = cutOff(ctx, "put", key, err)          //nolint:contextcheck // see Get
	c.s.expect(key, err)
	if err == nil {
		c.s.mu.Lock()
		c.s.wrote = true
		c.s.bodies.wrote(key, o.Version, body)
		c.s.witness.wrote(key, before, only, o.Version, body)
		c.s.mu.Unlock()
	}
	op := "update"
	switch {
	case errors.Is(err, store.ErrPrecondition):
		op = "put, refused"
	case only.Absent():
		op = "create"
	}
	c.s.answered(op, before.sent, o, err)
	return o, err
}

func (c *counted) Delete(_ context.Context, key string) error {
	return c.s.delete(key, "", c.Store.Delete) //nolint:contextcheck // see Get
}

// delete deletes an object, or its version only.
func (s *survey) delete(key string, only store.Version, send func(ctx context.Context, key string) error) error {
	n := &s.report.Requests.Delete
	if err := s.count(n, 1, 0); err != nil {
		return err
	}
	ctx, cancel := s.bounded(n, 1, extra)
	defer cancel()
	s.mu.Lock()
	ends := s.witness.removes(key, only)
	s.mu.Unlock()
	sent := time.Now()
	err := cutOff(ctx, "delete", key, send(ctx, key))
	s.mu.Lock()
	s.witness.removed(key, ends, err)
	s.mu.Unlock()
	if err != nil {
		s.doubt(key, err)
	} else if only == "" {
		s.forget(key)
	}
	if only == "" {
		s.answered("delete", sent, nil, err)
	}
	return err
}

// pages is how many requests one listing may make beyond the first.
const pages = 20

func (c *counted) List(_ context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) { //nolint:contextcheck // see Get
		n := &c.s.report.Requests.List
		if err := c.s.count(n, 1, 0); err != nil {
			yield(store.Entry{}, err)
			return
		}
		ctx, cancel := c.s.bounded(n, 1, pages)
		defer cancel()
		before := c.s.sends(prefix)
		var last error
		for e, err := range c.Store.List(ctx, prefix, after) {
			err = cutOff(ctx, "list", prefix, err)
			if last = err; err == nil {
				c.s.mu.Lock()
				c.s.witness.listed(e, before.moment)
				c.s.mu.Unlock()
			}
			if !yield(e, err) {
				break
			}
		}
		c.s.answered("list", before.sent, nil, last)
	}
}

// expect and forget know the objects that are to be removed: those of writes that have
// landed or may have.
func (s *survey) expect(key string, err error) {
	s.doubt(key, err)
	if err != nil && !errors.Is(err, store.ErrUnknownOutcome) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = true
}

// doubt takes note of a request that may yet arrive.
func (s *survey) doubt(key string, err error) {
	if !errors.Is(err, store.ErrUnknownOutcome) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.witness.of(key).doubted = true
}

// settled reports that no request for the object may yet arrive.
func (s *survey) settled(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.witness.of(s.path(key)).doubted
}

func (s *survey) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
	delete(s.bodies.written, key)
}

// answered notes how long an answer took and the time that it states; of a failed
// request it notes the kind.
func (s *survey) answered(op string, sent time.Time, o *store.Object, err error) {
	received := time.Now()
	date := store.DateOf(err)
	if o != nil {
		date = o.Date
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range []error{store.ErrConflict, store.ErrThrottled, store.ErrUnknownOutcome, store.ErrUnavailable} {
		if errors.Is(err, kind) {
			s.busy[kind]++
			return
		}
	}
	s.samples.add(op, sent, received, date)
}
