package storetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/store"
)

// scratch is how the prefixes of all probes begin.
const scratch = "leasehold-probe-"

// tries is how often an experiment asks a server that fails, and limit how long one
// request may take.
const (
	tries = 4
	limit = 30 * time.Second
)

// A survey is one probe under way.
type survey struct {
	ctx     context.Context // its end is noticed between two requests
	opts    ProbeOptions
	a, b    *counted // two sets of connections
	look    store.Inspection
	prefix  string
	purge   bool // the store keeps past versions
	report  *Report
	reserve int // requests that are kept for cleaning up
	began   time.Time
	samples samples
	spells  spells // objects whose age is asked for in the end

	mu   sync.Mutex
	keys map[string]bool // that may exist
	busy map[error]int   // answers that were none, by kind
}

var errNoBudget = errors.New("the store failed so often that the requests are used up")

func newSurvey(ctx context.Context, st store.Store, opts *ProbeOptions) (*survey, error) {
	s := &survey{ctx: ctx, began: time.Now(), keys: map[string]bool{}, busy: map[error]int{}}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.Races = opts.races()
	if s.opts.Races < 1 {
		return nil, fmt.Errorf("%w: %d races", store.ErrInvalid, s.opts.Races)
	}
	other := st
	if s.opts.Open != nil {
		var err error
		if other, err = s.opts.Open(ctx); err != nil {
			return nil, err
		}
		if other.String() != st.String() {
			return nil, fmt.Errorf("%w: the store is %s, and Open opens %s", store.ErrInvalid, st, other)
		}
	}
	s.connect(st, other)
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails, see crypto/rand
	s.prefix = scratch + hex.EncodeToString(random[:]) + "/"
	s.report = &Report{Format: 1, Store: st.String(), At: s.began.UTC().Truncate(time.Second), Limit: opts.Requests()}
	s.reserve = cleaning
	return s, nil
}

func (s *survey) connect(st, other store.Store) {
	s.a, s.b = &counted{Store: st, s: s}, &counted{Store: other, s: s}
	if i, ok := st.(store.Inspector); ok {
		s.look = i.Inspect()
	}
}

// either gives the one or the other set of connections.
func (s *survey) either(n int) *counted {
	if n%2 == 0 {
		return s.a
	}
	return s.b
}

// run makes the experiments. What follows from one that failed is not tried.
func (s *survey) run() error {
	for _, e := range experiments {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		f := Finding{Name: e.name, Result: Unknown}
		if i := slices.IndexFunc(e.after, func(name string) bool { return s.report.Finding(name).Result != OK }); i >= 0 {
			f.Detail = fmt.Sprintf("not tried, because of %q", e.after[i])
		} else {
			var err error
			if f.Result, f.Detail, err = e.run(s); err != nil {
				f.Result, f.Detail = Unknown, err.Error()
			}
			if err != nil && e.vital {
				return err
			}
		}
		if err := s.ctx.Err(); err != nil {
			return err // it cut the experiment short
		}
		s.found(f)
	}
	return nil
}

func (s *survey) found(f Finding) {
	s.report.Findings = append(s.report.Findings, f)
	if s.opts.OnFinding != nil {
		s.opts.OnFinding(f)
	}
}

// counted is a store whose requests are counted, bounded, timed and followed to their
// end.
type counted struct {
	store.Store
	s *survey
}

// count takes note of a request, unless there must be no more.
func (s *survey) count(n *int, requests int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.report.Requests.Total()+requests > s.report.Limit-s.reserve {
		return errNoBudget
	}
	*n += requests
	return nil
}

// A request that has left is waited for: one that is given up may land after the probe
// has cleaned up.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

func (c *counted) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := c.s.count(&c.s.report.Requests.Get, 1); err != nil {
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
	c.s.answered(op, sent, o, err)
	return o, err
}

func (c *counted) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := c.s.count(&c.s.report.Requests.Put, 1); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	sent := time.Now()
	o, err := c.Store.Put(ctx, key, body, only)
	c.s.expect(key, err)
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
	if err := c.s.count(&c.s.report.Requests.Delete, 1); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	sent := time.Now()
	err := c.Store.Delete(ctx, key)
	if err == nil {
		c.s.forget(key)
	}
	c.s.answered("delete", sent, nil, err)
	return err
}

func (c *counted) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if err := c.s.count(&c.s.report.Requests.List, 1); err != nil {
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
	if err != nil && !errors.Is(err, store.ErrUnknownOutcome) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = true
}

func (s *survey) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
}

// answered takes note of how long an answer took, what it says of the time, and of
// those that are none.
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

// transient reports that the error is an answer that is none.
func transient(err error) bool {
	return !errors.Is(err, store.ErrUnordered) && isAny(err, store.ErrThrottled, store.ErrConflict, store.ErrUnavailable, store.ErrUnknownOutcome)
}

// again calls ask until it has an answer.
func (s *survey) again(ask func() error) error {
	pause := 50 * time.Millisecond
	for n := 1; ; n++ {
		err := ask()
		if !transient(err) || n == tries {
			return err
		}
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
		pause *= 4
	}
}

// certain runs an experiment on a key again, on another one, while a write of it has had
// no answer: such a write may land at any time, after a delete too.
func (s *survey) certain(key string, run func(key string) (Result, string, error)) (result Result, detail string, err error) {
	for n := range tries {
		before := s.doubts()
		result, detail, err = run(fmt.Sprintf("%s-%d", key, n))
		if s.doubts() == before || err != nil {
			return result, detail, err
		}
	}
	return Unknown, "too many writes had no answer", nil
}

func (s *survey) doubts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy[store.ErrUnknownOutcome]
}

// write puts an object, until it is known what became of it. Of what is told 412 it finds
// out whether it landed, if an earlier try may have.
func (s *survey) write(c *counted, key string, body []byte, only store.Condition) (o *store.Object, err error) {
	unsure := false
	err = s.again(func() error {
		o, err = c.Put(s.ctx, s.prefix+key, body, only)
		if unsure && isAny(err, store.ErrPrecondition, store.ErrNotExist) {
			now, readErr := c.Get(s.ctx, s.prefix+key, "")
			if readErr == nil && string(now.Body) == string(body) {
				o, err = now, nil
			}
		}
		unsure = unsure || errors.Is(err, store.ErrUnknownOutcome)
		return err
	})
	return o, err
}

func (s *survey) read(c *counted, key string, unless store.Version) (o *store.Object, err error) {
	err = s.again(func() error {
		o, err = c.Get(s.ctx, s.prefix+key, unless)
		return err
	})
	return o, err
}

func (s *survey) remove(c *counted, key string) error {
	return s.again(func() error { return c.Delete(s.ctx, s.prefix+key) })
}

// list gives the entries of the scratch objects that begin with prefix.
func (s *survey) list(c *counted, prefix, after string) (entries []store.Entry, err error) {
	if after != "" {
		after = s.prefix + after
	}
	err = s.again(func() error {
		entries = nil
		for e, listErr := range c.List(s.ctx, s.prefix+prefix, after) {
			if listErr != nil {
				return listErr
			}
			e.Key = e.Key[min(len(s.prefix), len(e.Key)):]
			entries = append(entries, e)
		}
		return nil
	})
	return entries, err
}

// body is one that no object had before.
func (s *survey) body() []byte {
	var random [16]byte
	_, _ = rand.Read(random[:])
	return []byte(`{"leasehold-probe":"` + hex.EncodeToString(random[:]) + `"}`)
}

// clean removes what the probe has made, whatever has ended it.
func (s *survey) clean() {
	s.ctx = context.WithoutCancel(s.ctx)
	s.reserve = 0
	var failed error
	for range 3 {
		s.removeAll()
		failed = s.purgeAll()
		if !s.seekLeft() {
			break // else the server has lost count of what it deleted
		}
	}
	if failed != nil {
		s.found(Finding{"past versions removed", Unknown, "those of the probe's own objects stay: " + failed.Error()})
	}
	s.report.Left = len(s.keys)
}

// removeAll deletes the objects that are known.
func (s *survey) removeAll() {
	var workers sync.WaitGroup
	keys := make(chan string)
	for range lanes {
		workers.Go(func() {
			for key := range keys {
				_ = s.again(func() error { return s.a.Delete(s.ctx, key) })
			}
		})
	}
	for _, key := range s.sorted() {
		keys <- key
	}
	close(keys)
	workers.Wait()
}

// purgeAll deletes what deletes leave.
func (s *survey) purgeAll() error {
	purger, ok := s.a.Store.(store.Purger)
	if s.purge {
		purger, ok = s.look, true
	}
	if !ok {
		return nil
	}
	requests, err := purger.Purge(s.ctx, strings.TrimSuffix(s.prefix, "/"))
	s.report.Requests.Inspect += requests
	return err
}

// seekLeft looks, where it may, for objects that are there all the same.
func (s *survey) seekLeft() (any bool) {
	if s.report.Finding(canDelete).Result != OK {
		return false
	}
	left, err := s.list(s.a, "", "")
	for _, e := range left {
		s.expect(s.prefix+e.Key, nil)
	}
	return err == nil && len(left) > 0
}

func (s *survey) sorted() (keys []string) {
	for key := range s.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
