package probe

import (
	"context"
	"errors"
	"iter"
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

// A request that has left is waited for: one that is given up may land after the probe
// has cleaned up.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

func (c *counted) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := c.s.count(&c.s.report.Requests.Get, 1, 0); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	sent := time.Now()
	o, err := c.Store.Get(ctx, key, unless)
	op := "get"
	if errors.Is(err, store.ErrNotModified) {
		op = "get, unchanged"
	}
	if err == nil {
		c.s.mu.Lock()
		c.s.bodies.saw(o, key)
		c.s.mu.Unlock()
	}
	c.s.answered(op, sent, o, err)
	return o, err
}

func (c *counted) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := c.s.count(&c.s.report.Requests.Put, 1, len(body)); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	sent := time.Now()
	o, err := c.Store.Put(ctx, key, body, only)
	c.s.expect(key, err)
	if err == nil {
		c.s.mu.Lock()
		c.s.wrote = true
		c.s.bodies.wrote(key, o.Version, body)
		c.s.mu.Unlock()
	}
	op := "update"
	switch {
	case errors.Is(err, store.ErrPrecondition):
		op = "put, refused"
	case only.Absent():
		op = "create"
	}
	c.s.answered(op, sent, o, err)
	return o, err
}

func (c *counted) Delete(ctx context.Context, key string) error {
	if err := c.s.count(&c.s.report.Requests.Delete, 1, 0); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	sent := time.Now()
	err := c.Store.Delete(ctx, key)
	if err == nil {
		c.s.forget(key)
	} else {
		c.s.doubt(key, err)
	}
	c.s.answered("delete", sent, nil, err)
	return err
}

func (c *counted) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if err := c.s.count(&c.s.report.Requests.List, 1, 0); err != nil {
			yield(store.Entry{}, err)
			return
		}
		limited, cancel := bounded(ctx)
		defer cancel()
		sent := time.Now()
		var last error
		for e, err := range c.Store.List(limited, prefix, after) {
			last = err
			if !yield(e, err) {
				break
			}
		}
		c.s.answered("list", sent, nil, last)
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
	s.shaky[key] = true
}

// settled reports that no request for the object may yet arrive.
func (s *survey) settled(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.shaky[s.path(key)]
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
