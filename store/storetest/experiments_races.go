package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/store"
)

// lanes is how many races are run at a time, so that a run on a distant store does not
// take minutes, and enough is how many that go wrong say all.
const (
	lanes  = 8
	enough = 5
)

// races are what came of many.
type races struct {
	run, wrong, unclear atomic.Int64

	mu     sync.Mutex
	detail string // of the first that went wrong
	err    error  // that ends them
}

func (r *races) fail(detail string) {
	r.wrong.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.detail == "" {
		r.detail = detail
	}
}

func (r *races) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *races) stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err != nil || r.wrong.Load() >= enough
}

// inLanes calls race until as many races were run as there should be.
func (s *survey) inLanes(race func(r *races, lane int, n int64)) (Result, string, error) {
	r := new(races)
	s.each(r, s.opts.Races, func(lane int, n int64) { race(r, lane, n) })
	run, wrong, unclear := r.run.Load(), r.wrong.Load(), r.unclear.Load()
	switch {
	case r.err != nil:
		return Unknown, "", r.err
	case wrong > 0:
		return Bad, fmt.Sprintf("%d of %d races went wrong: %s", wrong, run, r.detail), nil
	case unclear > run/10:
		return Unknown, fmt.Sprintf("the store gave no clear answer in %d of %d races", unclear, run), nil
	case unclear > 0:
		return OK, fmt.Sprintf("%d races of two: never two winners; %d without a clear answer", run, unclear), nil
	}
	return OK, fmt.Sprintf("%d races of two, each with one winner", run), nil
}

// each runs so many races, several at a time, unless enough of them go wrong before.
func (s *survey) each(r *races, limit int, race func(lane int, n int64)) {
	s.setRacing(true)
	defer s.setRacing(false)
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for s.ctx.Err() == nil && !r.stopped() {
				n := r.run.Add(1)
				if n > int64(limit) {
					r.run.Add(-1)
					return
				}
				race(lane, n)
			}
		})
	}
	all.Wait()
}

func (s *survey) setRacing(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples.racing = yes
}

// A duel is one race of two writes on the same condition.
type duel struct {
	made    [2]*store.Object
	errs    [2]error
	winners int
	refused int
}

func (s *survey) duel(key string, only store.Condition) (d duel) {
	together(2, func(i int) {
		d.made[i], d.errs[i] = s.either(i).Put(s.ctx, s.prefix+key, s.body(), only)
	})
	for _, err := range d.errs {
		switch {
		case err == nil:
			d.winners++
		case isAny(err, store.ErrPrecondition, store.ErrNotExist):
			d.refused++
		}
	}
	return d
}

// judge reports whether the race was clear, and ends all if it cannot be run.
func (d *duel) judge(r *races) bool {
	for _, err := range d.errs {
		if err != nil && !transient(err) && !isAny(err, store.ErrPrecondition, store.ErrNotExist) {
			r.stop(err)
			return false
		}
		if errors.Is(err, store.ErrThrottled) {
			time.Sleep(200 * time.Millisecond) // it asks for that
		}
	}
	switch {
	case d.winners == 2:
		r.fail("both of two writes on the same condition were told that they had landed")
	case d.refused == 2:
		r.fail("both of two writes were refused, although the condition held")
	case d.winners == 1:
		return true
	default:
		r.unclear.Add(1)
	}
	return false
}

func (s *survey) racingCreates() (Result, string, error) {
	return s.inLanes(func(r *races, _ int, n int64) {
		key := fmt.Sprintf("race-%d", n) // beside an object that stays: some servers delete empty directories
		d := s.duel(key, store.IfAbsent())
		d.judge(r)
		if err := s.remove(s.a, key); err != nil && !transient(err) {
			r.stop(err)
		}
	})
}

// spread is over how many keys of each lane updates race in turn: some stores take one
// write of a key in a second.
const spread = 40

func (s *survey) racingUpdates() (Result, string, error) {
	var current [lanes][spread]store.Version
	var given [lanes][spread]int // how many keys were given up
	var turn [lanes]int
	return s.inLanes(func(r *races, lane int, _ int64) {
		at := turn[lane] % spread
		turn[lane]++
		key := fmt.Sprintf("lane-%d-%d-%d", lane, at, given[lane][at])
		version := &current[lane][at]
		if *version == "" {
			o, err := s.object(key)
			switch {
			case transient(err):
				r.unclear.Add(1)
				return
			case err != nil:
				r.stop(err)
				return
			}
			*version = o.Version
		}
		d := s.duel(key, store.IfMatch(*version))
		*version = "" // unless it is clear, what is there now decides how it goes on
		clear := d.judge(r)
		switch {
		case isAny(errors.Join(d.errs[:]...), store.ErrUnknownOutcome):
			given[lane][at]++ // what has no answer yet may land in the next race
		case clear:
			for i, err := range d.errs {
				if err == nil {
					*version = d.made[i].Version
				}
			}
		}
	})
}

// deletes is how often deletes race with updates, and rivals how many of each.
const (
	deletes = 25 * lanes
	rivals  = 2
)

func (s *survey) conditionalDeletes() (Result, string, error) {
	if s.look == nil {
		return Note, "unsafe: a delete removes whatever is there; no lock rests on it", nil
	}
	was, err := s.object("doomed")
	if err != nil {
		return Unknown, "", err
	}
	if _, err = s.write(s.a, "doomed", s.body(), store.IfMatch(was.Version)); err != nil {
		return Unknown, "", err
	}
	var said []string
	switch err = s.deleteIf("doomed", was.Version); {
	case err == nil:
		said = append(said, "it removes an object of another version")
	case !isAny(err, store.ErrPrecondition, store.ErrNotExist, store.ErrConflict):
		return Unknown, "", err
	}
	both, run := s.racingDeletes()
	if both > 0 {
		said = append(said, fmt.Sprintf("in %d of %d races both a delete and an update succeeded", both, run))
	}
	if said == nil {
		return Note, fmt.Sprintf("it was obeyed, also in %d races with updates; no lock rests on it", run), nil
	}
	return Note, "unsafe: " + strings.Join(said, ", and ") + "; no lock rests on it", nil
}

// racingDeletes counts the races in which both won. They are many at a time, because a
// server that looks first and then deletes leaves little time between the two.
func (s *survey) racingDeletes() (both, run int64) {
	r := new(races)
	var judged atomic.Int64
	s.each(r, deletes, func(lane int, _ int64) {
		key := fmt.Sprintf("doomed-%d", lane)
		o, err := s.object(key)
		if err != nil {
			return // what the last round has left may not be clear
		}
		judged.Add(1)
		var puts, removals atomic.Int64
		together(2*rivals, func(i int) {
			if i%2 == 1 {
				if s.deleteIf(key, o.Version) == nil {
					removals.Add(1)
				}
			} else if _, err := s.either(i/2).Put(s.ctx, s.prefix+key, s.body(), store.IfMatch(o.Version)); err == nil {
				puts.Add(1)
			}
		})
		if puts.Load() > 0 && removals.Load() > 0 {
			r.wrong.Add(1)
		}
	})
	return r.wrong.Load(), judged.Load()
}

func (s *survey) deleteIf(key string, v store.Version) error {
	if err := s.count(&s.report.Requests.Delete, 1); err != nil {
		return err
	}
	ctx, cancel := bounded(s.ctx)
	defer cancel()
	return s.look.DeleteIf(ctx, s.prefix+key, v)
}
