package probe

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/together"
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
	skipped             atomic.Int64 // of those that were run: they were not to be had

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
func (s *survey) inLanes(count int, race func(r *races, lane int, n int64)) (Result, string, error) {
	r := new(races)
	s.each(r, count, func(lane int, n int64) { race(r, lane, n) })
	return r.result("races of two")
}

func (r *races) result(what string) (Result, string, error) {
	run, wrong, unclear := r.run.Load()-r.skipped.Load(), r.wrong.Load(), r.unclear.Load()
	switch {
	case wrong > 0:
		return Bad, fmt.Sprintf("%d of %d races went wrong: %s", wrong, run, r.detail), nil
	case r.err != nil:
		return Unknown, "", r.err
	case run < r.skipped.Load():
		return Unknown, fmt.Sprintf("only %d races could be run, of %d: the store gave no clear answers", run, run+r.skipped.Load()), nil
	case unclear > max(run/10, min(2, run/2)):
		return Unknown, fmt.Sprintf("the store gave no clear answer in %d of %d races", unclear, run), nil
	case unclear > 0:
		return OK, fmt.Sprintf("%d %s: never two winners; %d without a clear answer", run, what, unclear), nil
	}
	return OK, fmt.Sprintf("%d %s, each with one winner", run, what), nil
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
	s       *survey
	key     string
	bodies  [2][]byte
	made    [2]*store.Object
	errs    [2]error
	winner  int // if there is one
	winners int
	refused int
	doubted bool // one had no answer, and may yet land
}

// duel races two writes of bodies of up to that size over what was there, or over nothing.
func (s *survey) duel(key string, size int, was []byte, only store.Condition) *duel {
	d := &duel{s: s, key: key}
	d.bodies[0] = s.bodyOver(was, size)
	if was == nil || rand.IntN(2) == 0 {
		was = d.bodies[0]
	}
	d.bodies[1] = s.bodyOver(was, size)
	together.Run(2, func(i int) {
		d.made[i], d.errs[i] = s.either(i).Put(s.ctx, s.path(key), d.bodies[i], only)
	})
	for i, err := range d.errs {
		switch {
		case err == nil:
			d.winners++
			d.winner = i
		case errors.Is(err, store.ErrUnknownOutcome):
			d.doubted = true
		case isAny(err, store.ErrPrecondition, store.ErrNotExist):
			d.refused++
		}
	}
	return d
}

// judge reports whether the race was clear, and ends all races if it cannot be run. It
// compares the winner's answer with a read over other connections.
func (d *duel) judge(r *races) (clear bool) {
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
		return d.landed(r)
	default:
		r.unclear.Add(1)
	}
	return false
}

// landed reads what the race has left.
func (d *duel) landed(r *races) bool {
	o, err := d.s.read(d.s.either(d.winner+1), d.key, "")
	switch {
	case errors.Is(err, store.ErrNotExist):
		r.fail("a write was told that it had landed, and there was no object after it")
	case errors.Is(err, store.ErrNotModified):
		r.fail("a read that asked for no version was told that the object had it")
	case transient(err):
		r.unclear.Add(1)
	case err != nil:
		r.stop(err)
	case bytes.Equal(o.Body, d.bodies[1-d.winner]):
		r.fail("one write was told that it had landed, and after it the other one's body was there")
	case !bytes.Equal(o.Body, d.bodies[d.winner]):
		r.fail("a write was told that it had landed, and after it another body was there")
	default:
		return true
	}
	return false
}

// leave lets the object be read again in the end, if there is room for it and nothing but
// the duel's own writes is still on its way. before is the body that was there, if any.
func (d *duel) leave(before []byte) bool {
	w := watch{key: d.key, told: "a race with one winner"}
	switch {
	case d.winners == 1:
		w.allowed = d.bodies[d.winner : d.winner+1]
		if d.doubted {
			w.told = "a race in which one write landed and the other had no answer"
		}
	case d.winners == 0 && d.doubted:
		w.told = "a race in which a write had no answer"
		w.maybe = before == nil
		if before != nil {
			w.allowed = append(w.allowed, before)
		}
		for i, err := range d.errs {
			if errors.Is(err, store.ErrUnknownOutcome) {
				w.allowed = append(w.allowed, d.bodies[i])
			}
		}
	default:
		return false
	}
	return d.s.watch(w, d.doubted)
}

// watchEvery is one of how many clear races is read again in the end.
const watchEvery = 10

// dressed makes one key in ten long and of many alphabets, where the store takes such keys.
func (s *survey) dressed(key string, n int64) string {
	const most, letters = 190, "-ключ-锁-🔒"
	if n%10 != 1 || s.report.Finding(oddKeys).Result != OK || s.keyed.refused != nil {
		return key
	}
	return key + strings.Repeat(letters, max(most-len(key), 0)/len(letters))
}

// racingCreates races count creates of bodies of a size. It removes their objects again
// if delete was seen to work, but for up to keep of those that are there for certain: it gives
// their keys, and whether they may be removed.
func (s *survey) racingCreates(name string, size, count, keep int) (kept map[string]bool, result Result, detail string, err error) {
	kept = map[string]bool{}
	result, detail, err = s.inLanes(count, func(r *races, _ int, n int64) {
		key := s.dressed(fmt.Sprintf("%s-%d", name, n), n) // beside an object that stays: some servers delete empty directories
		d := s.duel(key, size, nil, store.IfAbsent())
		clear := d.judge(r)
		watched := (d.doubted || clear && n%watchEvery == 1) && d.leave(nil)
		r.mu.Lock()
		stays := clear && !d.doubted && len(kept) < keep
		if stays {
			kept[key] = !watched
		}
		r.mu.Unlock()
		if watched || stays {
			return
		}
		if wrong := s.remove(s.a, key); wrong != nil && !transient(wrong) {
			r.stop(wrong)
		}
	})
	return kept, result, detail, err
}

// racingAndListing races creates, and lists what many of them have left before it removes that.
func (s *survey) racingAndListing() (Result, string, error) {
	kept, result, detail, err := s.racingCreates("race", smallBody, s.opts.Races, s.opts.kept())
	if s.report.Finding(canList).Result == OK && s.ctx.Err() == nil {
		s.longLists.add(s.listsAll("race-", kept))
	}
	maps.DeleteFunc(kept, func(_ string, removable bool) bool { return !removable })
	s.setRacing(true)
	defer s.setRacing(false)
	s.inParallel(slices.Collect(maps.Keys(kept)), func(key string) {
		if s.ctx.Err() == nil {
			_ = s.remove(s.a, key) // else it is removed in the end
		}
	})
	return result, detail, err
}

// A lane has keys over which updates race in turn: some stores take one write of a key in
// a second.
type lane struct {
	name  string
	turn  int
	slots []slot
}

type slot struct {
	given   int // how many keys were given up
	version store.Version
	body    []byte
}

func newLanes(name string, spread int) (all [lanes]lane) {
	for i := range all {
		all[i] = lane{name: fmt.Sprintf("%s-%d", name, i), slots: make([]slot, spread)}
	}
	return all
}

// next gives the slot whose turn it is, and the key in it.
func (l *lane) next() (*slot, string) {
	at := l.turn % len(l.slots)
	l.turn++
	return &l.slots[at], fmt.Sprintf("%s-%d-%d", l.name, at, l.slots[at].given)
}

// fill finds out what is in the slot, unless that is known, and reports whether it is now.
func (s *survey) fill(r *races, t *slot, key string) bool {
	if t.version != "" {
		return true
	}
	o, err := s.object(key)
	switch {
	case transient(err):
		t.given++
		r.skipped.Add(1)
	case contradicts(err):
		r.fail("an object could neither be read nor created: " + err.Error())
	case err != nil:
		r.stop(err)
	default:
		t.version, t.body = o.Version, o.Body
		return true
	}
	return false
}

// spread is how many keys each lane of the racing updates has, and spreadLess where there
// are few races.
const (
	spread     = 40
	spreadLess = 4
)

func (s *survey) racingUpdates(name string, size, count, spread int) (Result, string, error) {
	all := newLanes(name, spread)
	return s.inLanes(count, func(r *races, n int, _ int64) {
		t, key := all[n].next()
		key = s.dressed(key, int64(all[n].turn%len(all[n].slots)))
		if !s.fill(r, t, key) {
			return
		}
		d := s.duel(key, size, t.body, store.IfMatch(t.version))
		clear := d.judge(r)
		if d.doubted {
			d.leave(t.body)
			t.given++ // what has no answer yet may land in the next race
			t.version = ""
			return
		}
		t.version = "" // unless the race is clear, the object is read before the next one
		if clear {
			t.version, t.body = d.made[d.winner].Version, d.bodies[d.winner]
			if all[n].turn%watchEvery == 1 && d.leave(nil) {
				t.given++
				t.version = ""
			}
		}
	})
}

// racingAgain races creates where an object has just been deleted, as the holders of the
// layout marker do at each hand-over.
func (s *survey) racingAgain(count int) (Result, string, error) {
	all := newLanes("again", spreadLess)
	return s.inLanes(count, func(r *races, n int, round int64) {
		t, key := all[n].next()
		if !s.fill(r, t, key) {
			return
		}
		if err := s.remove(s.a, key); err != nil && !transient(err) {
			r.stop(err)
			return
		}
		t.version = ""
		if !s.settled(key) { // what has no answer may undo what comes now
			r.skipped.Add(1)
			t.given++
			return
		}
		d := s.duel(key, smallBody, nil, store.IfAbsent())
		clear := d.judge(r)
		if clear && !d.doubted {
			t.version, t.body = d.made[d.winner].Version, d.bodies[d.winner]
		}
		if (d.doubted || clear && round%watchEvery == 1) && d.leave(nil) || d.doubted {
			t.given++
			t.version = ""
		}
	})
}
