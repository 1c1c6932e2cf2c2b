package probe

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/together"
)

// A crowd is many writes at once, all on conditions: a server may drop what it has no time
// to check. In turn there are many keys with two rivals each, and few with many.
const (
	crowd      = 128 // writes at a time
	fewRivals  = 2
	manyRivals = 16
	crowdKeys  = crowd / fewRivals
	crowdAsks  = 2*(crowd+crowdKeys) + crowdKeys // requests of creates, of updates and of deletes
	perCrowd   = 250                             // races, of those that there are
	crowds     = 2                               // at least
)

// crowding races many creates at once, and then updates of what they have left.
func (s *survey) crowding() (Result, string, error) {
	s.setRacing(true)
	defer s.setRacing(false)
	creates, updates := new(races), &s.crowdUpdates
	for n := range max(s.opts.Races/perCrowd, crowds) {
		rivals := fewRivals
		if n%2 == 1 {
			rivals = manyRivals
		}
		on := map[string]*store.Object{}
		for at := range crowd / rivals {
			on[fmt.Sprintf("crowd-%d-%d", n, at)] = nil
		}
		left := s.race(creates, on, rivals)
		if s.report.Finding(updateStale).Result == OK {
			updates.skipped.Add(int64(len(on) - len(left)))
			updates.run.Add(int64(len(on) - len(left)))
			s.race(updates, left, rivals)
		}
		keys := slices.Collect(maps.Keys(on))
		together.Run(len(keys), func(at int) {
			if err := s.remove(s.a, keys[at]); err != nil && !transient(err) {
				creates.stop(err)
			}
		})
		if s.ctx.Err() != nil || creates.stopped() || updates.stopped() {
			break
		}
	}
	return creates.result(atATime)
}

var atATime = fmt.Sprintf("races, %d writes at a time", crowd)

// race sends so many rivals for each key at once, over what is there or over nothing,
// judges them, and gives what is there now where that is clear.
func (s *survey) race(r *races, on map[string]*store.Object, rivals int) map[string]*store.Object {
	type rival struct {
		body []byte
		err  error
	}
	keys := slices.Collect(maps.Keys(on))
	all := make([]rival, len(keys)*rivals)
	together.Run(len(all), func(i int) {
		key := keys[i/rivals]
		only := store.IfAbsent()
		if was := on[key]; was != nil {
			all[i].body, only = s.bodyOver(was.Body, smallBody), store.IfMatch(was.Version)
		} else {
			all[i].body = s.body()
		}
		_, all[i].err = s.either(i).Put(s.ctx, s.path(key), all[i].body, only)
	})
	now := make([]*store.Object, len(keys))
	together.Run(len(keys), func(at int) {
		r.run.Add(1)
		winner, winners, refused := 0, 0, 0
		some := all[at*rivals : (at+1)*rivals]
		for i, w := range some {
			switch {
			case w.err == nil:
				winner = i
				winners++
			case isAny(w.err, store.ErrPrecondition, store.ErrNotExist):
				refused++
			case !transient(w.err):
				r.stop(w.err)
			}
		}
		switch {
		case winners > 1:
			r.fail(fmt.Sprintf("%d of %d writes on the same condition were told that they had landed", winners, rivals))
			return
		case refused == rivals:
			r.fail(fmt.Sprintf("all of %d writes were refused, although the condition held", rivals))
			return
		case winners == 0:
			r.unclear.Add(1)
			return
		}
		o, err := s.read(s.either(winner+1), keys[at], "")
		switch {
		case errors.Is(err, store.ErrNotExist):
			r.fail("a write was told that it had landed, and there was no object after it")
		case transient(err):
			r.unclear.Add(1)
		case err != nil:
			r.stop(err)
		case !bytes.Equal(o.Body, some[winner].body):
			r.fail("a write was told that it had landed, and after it another body was there")
		case s.settled(keys[at]):
			now[at] = o
		}
	})
	left := map[string]*store.Object{}
	for at, o := range now {
		if o != nil {
			left[keys[at]] = o
		}
	}
	return left
}
