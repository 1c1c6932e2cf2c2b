package probe

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/leasehold/leasehold/store"
)

// A witness judges every answer of the probe against all answers before it, whichever
// experiment asked: a promise that the store breaks once in a thousand requests is seldom
// broken in the few that an experiment judges. It says nothing about an object with a
// request that may yet arrive.
type witness struct {
	moment  int // grows with each answer that changes something
	objects map[string]*witnessed

	creates, updates, reads, lists count

	older time.Duration // how much older than it can be an object looked at most, by the store's clock
}

// A count is how many answers were judged, and how many were false.
type count struct {
	all, wrong int
	first      string // what the first false one was
}

func (c *count) fault(format string, args ...any) {
	c.wrong++
	c.first = cmp.Or(c.first, fmt.Sprintf(format, args...))
}

// result is Bad if an answer was false.
func (c *count) result(what string) (Result, string, error) {
	if c.wrong > 0 {
		return Bad, fmt.Sprintf("%d of %d %s went wrong: %s", c.wrong, c.all, what, c.first), nil
	}
	return OK, fmt.Sprintf("%d %s", c.all, what), nil
}

// witnessed is what is known of one object.
type witnessed struct {
	exists   bool // it was created, and no delete has been sent since
	doubted  bool // a request for it may yet arrive
	deletes  int  // how many were sent
	deleting int  // how many of them have no answer yet
	states   map[store.Version]*state
}

// A state of an object is one version of it.
type state struct {
	sum     uint32
	sent    time.Time // when the write was, that was told to have made it
	over    int       // the moment from which nothing may show it, or 0
	deleted bool      // what ended it was a delete
}

func (w *witness) of(key string) *witnessed {
	if w.objects == nil {
		w.objects = map[string]*witnessed{}
	}
	o := w.objects[key]
	if o == nil {
		o = &witnessed{states: map[store.Version]*state{}}
		w.objects[key] = o
	}
	return o
}

// A sighting is what was known of an object when a request was sent.
type sighting struct {
	sent     time.Time
	moment   int
	exists   bool
	deletes  int
	deleting int
}

func (w *witness) sends(key string) sighting {
	o := w.of(key)
	return sighting{time.Now(), w.moment, o.exists, o.deletes, o.deleting}
}

// over reports that the state had ended before the request was sent.
func (s sighting) over(t *state) bool { return t != nil && t.over > 0 && t.over <= s.moment }

// record is the size of the largest record: what is wrong with larger bodies only, the experiments
// on them tell.
const record = 64 << 10

// wrote takes in the answer to a write that landed.
func (w *witness) wrote(key string, before sighting, only store.Condition, v store.Version, body []byte) {
	w.moment++
	o, sum := w.of(key), crc32.ChecksumIEEE(body)
	if only.Absent() {
		w.creates.all++
	} else {
		w.updates.all++
	}
	if was := o.states[only.Match()]; !o.doubted && len(body) <= record {
		switch {
		case only.Absent() && o.exists && before.deletes == o.deletes:
			w.creates.fault("a create was told that it had landed, over an object that there was")
		case was == nil || was.over == 0:
		case !was.deleted:
			w.updates.fault("two updates of one version were told that they had landed")
		case before.over(was):
			w.updates.fault("an update of a deleted version was told that it had landed")
		}
	}
	if was := o.states[v]; was != nil && was.sum != sum && !o.doubted {
		w.creates.fault("the version %s came again for another body", v)
	}
	if was := o.states[only.Match()]; was != nil {
		was.over, was.deleted = w.moment, false
	}
	if was := o.states[v]; was == nil || before.over(was) {
		o.states[v] = &state{sum: sum, sent: before.sent}
	}
	o.exists = before.deletes == o.deletes && before.deleting == 0 && o.deleting == 0
}

// removes takes in a delete that is sent, and gives the states that it may end: all, or
// the one of a version.
func (w *witness) removes(key string, only store.Version) (ends []*state) {
	o := w.of(key)
	o.exists = false
	o.deletes++
	o.deleting++
	for v, t := range o.states {
		if t.over == 0 && (only == "" || v == only) {
			ends = append(ends, t)
		}
	}
	return ends
}

// removed takes in the answer to a delete.
func (w *witness) removed(key string, ends []*state, err error) {
	w.moment++
	w.of(key).deleting--
	for _, t := range ends {
		if err == nil && t.over == 0 {
			t.over, t.deleted = w.moment, true
		}
	}
}

// read takes in the answer to a read: an object, or the version that is said to be unchanged.
func (w *witness) read(key string, before sighting, v store.Version, o *store.Object) {
	w.reads.all++
	of := w.of(key)
	was := of.states[v]
	if before.over(was) && !of.doubted {
		w.reads.fault("version %s was shown as the current one after %s", v, was.end())
	}
	if o != nil && was != nil && !of.doubted && !was.sent.After(before.sent) && !o.Date.IsZero() && !o.LastModified.IsZero() {
		w.older = max(w.older, o.Date.Sub(o.LastModified)-time.Since(was.sent))
	}
}

// readNothing takes in the answer that there is no object.
func (w *witness) readNothing(key string, before sighting) {
	w.reads.all++
	if o := w.of(key); before.exists && before.deletes == o.deletes && !o.doubted {
		w.reads.fault("an object was said not to exist that was written and not deleted")
	}
}

// listed takes in an entry of a listing that was sent at a moment.
func (w *witness) listed(e store.Entry, moment int) {
	w.lists.all++
	o := w.objects[e.Key]
	if o == nil || o.doubted {
		return
	}
	if was := o.states[e.Version]; (sighting{moment: moment}).over(was) {
		w.lists.fault("version %s was listed after %s", e.Version, was.end())
	}
}

// end says what ended a state.
func (t *state) end() string {
	if t.deleted {
		return "its delete was answered"
	}
	return "a write over it was answered"
}

// judgement is one of the witness's, as an experiment.
func judgement(what string, of func(*witness) *count) func(*survey) (Result, string, error) {
	return func(s *survey) (Result, string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return of(&s.witness).result(what)
	}
}
