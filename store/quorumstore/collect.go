package quorumstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// keptFor is how long a member must have had an object's deletion unchanged: longer than any
// request can be in flight. Stores refuse requests signed long ago: S3 and Azure after a
// quarter of an hour, and with a token after some hours.
const keptFor = 24 * time.Hour

// CollectOptions are the options of [Store.Collect].
type CollectOptions struct {
	// DryRun deletes nothing, settles nothing, and makes no configuration. Collected then says what
	// would be done.
	DryRun bool
	// OnKey is called for each key that was removed completely, or with DryRun would be. Calls do
	// not overlap. Default: none.
	OnKey func(key string)
}

// Collected is the result of [Store.Collect].
type Collected struct {
	Gone    int // deleted objects that were removed completely
	Settled int // deletions that some members lacked: all have them now, and a collection a day later removes them
	Left    int // changed meanwhile
	Number  int // the configuration in force afterwards
}

// Collect garbage-collects deleted objects, which leave a small object in each member. If all
// members have had it for a day, by their own clocks, Collect deletes it in each of them, on
// the condition that it has not changed.
//
// All members must be available and whole, return times, and support conditional deletes.
// Collect first tests each one with scratch objects, and fails if one deletes an object that
// has changed. The quorum can be used meanwhile. If something to delete was last written under
// the present configuration, Collect makes a new configuration with the same members. You can
// interrupt Collect and run it again. Once a day is enough.
//
// Large bodies without an object stay: a process that has written one and was stopped may still
// write the object that names it, even a day later.
func (s *Store) Collect(ctx context.Context, opts *CollectOptions) (Collected, error) {
	if opts == nil {
		opts = &CollectOptions{}
	}
	v, err := s.anew(ctx)
	if err != nil {
		return Collected{}, err
	}
	c := &collection{s: s, opts: opts, did: Collected{Number: v.cfg.Number}}
	if c.clocks, err = v.tried(ctx); err != nil {
		return c.did, err
	}
	if err = v.taken(ctx, opts.DryRun); err != nil {
		return c.did, err
	}
	keys, err := c.list(ctx, v)
	if err != nil {
		return c.did, err
	}
	if opts.DryRun {
		_, err = c.collect(ctx, v, keys, register.Survey)
		return c.did, err
	}
	again, err := c.collect(ctx, v, keys, register.Collect)
	if err != nil || len(again) == 0 {
		return c.did, err
	}
	if v, err = s.renumber(ctx, v); err != nil {
		return c.did, err
	}
	c.did.Number = v.cfg.Number
	todo := len(again) + c.did.Gone + c.did.Settled
	_, err = c.collect(ctx, v, again, register.Collect)
	c.did.Left = todo - c.did.Gone - c.did.Settled
	return c.did, err
}

// A collection is one call of Collect.
type collection struct {
	s      *Store
	opts   *CollectOptions
	clocks []time.Time // of the members, when they were tested

	mu  sync.Mutex
	did Collected
}

// list returns the keys that may have something to delete: every member that has the object has
// had it for long enough.
func (c *collection) list(ctx context.Context, v *view) ([]string, error) {
	var mu sync.Mutex
	old := map[string]bool{}
	var all sync.WaitGroup
	errs := make([]error, len(v.members))
	for i, m := range v.members {
		all.Go(func() {
			errs[i] = at(m, c.s.listing(ctx, m, c.s.opts.Prefix, "", func(e store.Entry) {
				if strings.HasPrefix(e.Key, reserved) {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				others, seen := old[e.Key]
				old[e.Key] = (others || !seen) && c.clocks[i].Sub(e.LastModified) >= keptFor
			}))
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var keys []string
	for key, is := range old {
		if is {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

func (c *collection) gone(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.did.Gone++; c.opts.OnKey != nil {
		c.opts.OnKey(strings.TrimPrefix(key, c.s.opts.Prefix))
	}
}

// collect collects or surveys each key through its register, and returns the keys that need a new
// configuration.
func (c *collection) collect(ctx context.Context, v *view, keys []string, kind register.Kind) (again []string, err error) {
	v.clocks.Store(&c.clocks)
	call := register.Call{Kind: kind, Taken: 1<<len(v.members) - 1}
	err = each(ctx, keys, func(ctx context.Context, key string) error {
		switch a := v.key(key).call(ctx, call); {
		case a.Outcome == register.Done && a.Value.Version == "":
			c.gone(key)
		case a.Outcome == register.Done && a.Value.Deleted:
			c.mu.Lock()
			c.did.Settled++
			c.mu.Unlock()
		case a.Outcome == register.Mismatch && a.Value.Deleted:
			c.mu.Lock()
			again = append(again, key)
			c.mu.Unlock()
		case a.Outcome == register.Failed, a.Outcome == register.Uncertain:
			return failed(ctx, "collect", key, a.Outcome, a.Err)
		}
		return nil
	})
	return again, err
}

// renumber makes the next configuration, with the same members, and makes all of them take its
// number.
func (s *Store) renumber(ctx context.Context, v *view) (*view, error) {
	next := v.cfg
	next.Number++
	body, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	a := v.following().call(ctx, register.Call{Kind: register.Set, Value: register.Value{Version: rand.Text(), Body: body}})
	if a.Err != nil && !errors.Is(a.Err, register.ErrMoved) {
		return nil, failed(ctx, "collect", nextKey, a.Outcome, a.Err)
	}
	now, err := s.anew(ctx)
	switch {
	case err != nil:
		return nil, err
	case now.cfg.Number != next.Number || !slices.Equal(now.cfg.Members, next.Members):
		return nil, refusal("collect", "another change came first: configuration %d; try again when it is complete", now.cfg.Number)
	}
	return now, now.taken(ctx, false)
}

// taken makes every member take the configuration's number, unless dry. All must be available and whole.
func (v *view) taken(ctx context.Context, dry bool) error {
	for i, m := range v.members {
		marker, over, err := v.s.readMarker(ctx, m)
		switch of := v.cfg.Members[i]; {
		case err != nil:
			return at(m, err)
		case marker == nil || marker.Name != of.Marker:
			return refusal("collect", "%s has lost its objects: replace it first", of.Place)
		case !marker.Whole:
			return refusal("collect", "%s is being filled: leasehold quorum repair first", of.Place)
		case marker.Number > v.cfg.Number:
			return fmt.Errorf("%s: %w", of.Place, register.ErrMoved)
		case !dry && (marker.Number < v.cfg.Number || marker.Known.Number < v.cfg.Number):
			marker.Number, marker.Known = v.cfg.Number, v.cfg
			if err := v.s.writeMarker(ctx, m, *marker, over); err != nil {
				return at(m, err)
			}
		}
		v.sees(i, marker)
	}
	return nil
}

// tried tests that every member supports conditional deletes, and returns the time of each.
func (v *view) tried(ctx context.Context) ([]time.Time, error) {
	clocks := make([]time.Time, len(v.members))
	errs := make([]error, len(v.members))
	var all sync.WaitGroup
	for i, m := range v.members {
		all.Go(func() {
			clocks[i], errs[i] = try(ctx, v.s.timed(m), Scratch+"collect-"+strings.ToLower(rand.Text()), v.s.race)
		})
	}
	all.Wait()
	return clocks, errors.Join(errs...)
}

// races is how often a write and a delete race in a test. Among servers that do not check the
// condition atomically, the best one was detected in 28 of 100 races.
const races = 48

// try tests, with its own objects, whether a member deletes what has changed, and returns its
// time.
func try(ctx context.Context, m timed, key string, race func(context.Context, timed, string) error) (now time.Time, err error) {
	if _, ok := m.Store.(store.Conditional); !ok {
		return now, refusal("collect", "%s cannot delete on a condition, so what it has might be deleted while it is written: %s", m, onCareless)
	}
	defer func() {
		if left := m.Delete(context.WithoutCancel(ctx), key); err == nil {
			err = at(m, left)
		}
	}()
	first, err := m.Put(ctx, key, []byte("1"), store.IfAbsent())
	if err != nil {
		return now, at(m, err)
	}
	second, err := m.Put(ctx, key, []byte("2"), store.IfMatch(first.Version))
	if err != nil {
		return now, at(m, err)
	}
	refused := m.DeleteIf(ctx, key, first.Version)
	o, err := m.Get(ctx, key, "")
	switch {
	case errors.Is(err, store.ErrNotExist) || err == nil && refused == nil:
		return now, refusal("collect", "%s ignores the condition of a delete, and deleted what had changed: %s", m, onCareless)
	case err != nil:
		return now, at(m, err)
	case !errors.Is(refused, store.ErrPrecondition):
		return now, at(m, refused)
	case second.Date.IsZero() || o.LastModified.IsZero():
		return now, refusal("collect", "%s does not tell its time, so how old an object is cannot be known", m)
	}
	if err = race(ctx, m, key); err != nil {
		return now, err
	}
	return second.Date, at(m, m.DeleteIf(ctx, key, second.Version))
}

const onCareless = "nothing is collected in this quorum; what is left of deleted objects stays, and does no harm"

// race runs races between a write and a delete of the same version, each on its own key.
func (s *Store) race(ctx context.Context, m timed, key string) error {
	var rounds []string
	for i := range s.raced {
		rounds = append(rounds, key+"-"+strconv.Itoa(i))
	}
	return each(ctx, rounds, func(ctx context.Context, key string) error {
		o, err := m.Put(ctx, key, []byte("1"), store.IfAbsent())
		if err != nil {
			return at(m, err)
		}
		var put, del error
		var both sync.WaitGroup
		both.Go(func() { _, put = m.Put(ctx, key, []byte("2"), store.IfMatch(o.Version)) })
		both.Go(func() { del = m.DeleteIf(ctx, key, o.Version) })
		both.Wait()
		_, there := m.Get(ctx, key, "")
		if err := m.Delete(ctx, key); err != nil {
			return at(m, err)
		}
		if put == nil && (del == nil || errors.Is(there, store.ErrNotExist)) {
			return refusal("collect", "%s looks at the condition of a delete first and deletes later, whatever is there then: %s", m, onCareless)
		}
		return nil
	})
}
