package protocol

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// A Membership is the knowledge that a session of ours has of the candidates under it:
// their set, whether the session is over for them, and the locks that do not name it
// any more, which its heartbeat tells the others. It is not safe for concurrent use.
type Membership[M comparable] struct {
	// Last bounds how many released locks a heartbeat names. Zero: 64. Those that miss
	// more look at all of theirs.
	Last int

	members   set[M]
	over      error
	closed    bool // Unused has said so
	released  record.Freed
	announced int64 // released.Count, when the heartbeat was last written
}

// Over is why the session is over, and nil while it goes on.
func (s *Membership[M]) Over() error { return s.over }

// Members are those that are under the session, or may yet be.
func (s *Membership[M]) Members() []M { return slices.Clone(s.members.all) }

// Enter adds a member that is to be under the session. It fails if that is over.
// A member that came after the end would not be told of it, and its lease would go on (rule D7).
func (s *Membership[M]) Enter(m M) error {
	if s.over == nil {
		s.members.add(m)
	}
	return s.over
}

// Leave takes out a member that nothing of is under the session any more, as its candidate
// has said by Left.
// A member that left too early would be missed where it matters: Unused would have the session's
// object freed while work under it goes on.
func (s *Membership[M]) Leave(m M) { s.members.remove(m) }

// End ends the session, once, and returns the members to be told. Their leases are to end
// before anything is sent (rule D7), then each candidate gets SessionOver.
func (s *Membership[M]) End(why error) (members []M, first bool) {
	if s.over != nil {
		return nil, false
	}
	s.over = why
	return s.Members(), true
}

// Unused reports, once, that the session is over and that nothing is under it any more:
// then its object may be freed. It is asked when the members have been told of the end,
// and when one has left.
// While a member has work that has not stopped, its lock must not be free for others. They take
// a session whose object is freed for over, and its locks with it.
func (s *Membership[M]) Unused() bool {
	if s.over == nil || len(s.members.all) > 0 || s.closed {
		return false
	}
	s.closed = true
	return true
}

// Released takes in that a lock does not name the session any more. The heartbeat tells of
// it, and is to come soon if it still comes at all.
func (s *Membership[M]) Released(key string) (renewSoon bool) {
	last := s.Last
	if last == 0 {
		last = MaxFreed
	}
	s.released.Count++
	s.released.Last = append(s.released.Last, KeyHash(key))
	s.released.Last = s.released.Last[max(0, len(s.released.Last)-last):]
	return s.over == nil
}

// Announce gives the list of released locks for a heartbeat that is written now.
// It is a hint and rests on nothing: others look at a lock that it names, and would find out
// without it when the session ends. The count tells those that missed a heartbeat that they did.
func (s *Membership[M]) Announce() *record.Freed {
	if s.announced = s.released.Count; s.announced == 0 {
		return nil
	}
	return &record.Freed{Count: s.announced, Last: slices.Clone(s.released.Last)}
}

// Renewed takes in that a heartbeat was confirmed. There may be more to tell since it was
// written.
func (s *Membership[M]) Renewed() (renewSoon bool) { return s.released.Count > s.announced }

// MaxFreed is how many of the locks that were released last a heartbeat names.
const MaxFreed = 64

// KeyHash stands for a lock in a heartbeat. Where two have the same, one is looked at in
// vain.
func KeyHash(key string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return strconv.FormatUint(h.Sum64(), 36)
}

// A SessionWatch is what candidates of one process share that wait for the end of the same
// session of others: one of them, a Reaper, looks at its heartbeat, and the watch says
// which to tell of the result. It is not safe for concurrent use.
type SessionWatch[M comparable] struct {
	waiters  set[M]
	released int64         // Freed.Count, by the last heartbeat
	news     time.Duration // when that last grew
	trouble  error         // why it is not known whether the session goes on; nil: it is
}

// Join adds a candidate that has last looked at its lock at that reading of the clock, and
// reports that the others have been told of a release since: then it gets a Recheck.
// A release that was told of between its look and its joining would else be told to nobody.
func (w *SessionWatch[M]) Join(m M, looked time.Duration) (recheck bool) {
	w.waiters.add(m)
	return w.news >= looked
}

// Leave takes out a candidate, and reports that it was the last: then the session need not
// be watched any more.
func (w *SessionWatch[M]) Leave(m M) (last bool) {
	w.waiters.remove(m)
	return len(w.waiters.all) == 0
}

// Waiters are all that wait.
func (w *SessionWatch[M]) Waiters() []M { return slices.Clone(w.waiters.all) }

// Beat takes in a heartbeat, and returns those that get a Recheck: they wait for a lock that
// it tells the release of, or may have told of in one that was missed.
func (w *SessionWatch[M]) Beat(record record.Record, now time.Duration, key func(M) string) (rechecks []M) {
	w.trouble = nil
	f := record.Freed
	if f == nil || f.Count <= w.released {
		return nil
	}
	missed := f.Count - w.released
	w.released, w.news = f.Count, now
	// The list has left some out. Any of the waiters may be concerned, so all look: one look too
	// many costs a read, one too few a wait for the session's end.
	if missed > int64(len(f.Last)) {
		return w.Waiters()
	}
	last := f.Last[len(f.Last)-int(missed):]
	for _, m := range w.waiters.all {
		if slices.Contains(last, KeyHash(key(m))) {
			rechecks = append(rechecks, m)
		}
	}
	return rechecks
}

// Troubled takes in why the store does not say whether the session goes on.
func (w *SessionWatch[M]) Troubled(err error) { w.trouble = err }

// Trouble is why it is not known whether the session goes on, and nil if it is.
func (w *SessionWatch[M]) Trouble() error { return w.trouble }

// A set keeps what was added in an order that depends on nothing but the calls.
// A map alone would iterate in another order each time, and the simulation could not replay.
type set[M comparable] struct {
	all   []M
	index map[M]int // of each in all
}

func (s *set[M]) add(m M) {
	if _, in := s.index[m]; in {
		return
	}
	if s.index == nil {
		s.index = map[M]int{}
	}
	s.index[m] = len(s.all)
	s.all = append(s.all, m)
}

// remove puts the last one in its place.
func (s *set[M]) remove(m M) {
	i, in := s.index[m]
	if !in {
		return
	}
	last := len(s.all) - 1
	s.all[i] = s.all[last]
	s.index[s.all[i]] = i
	delete(s.index, m)
	var none M
	s.all[last] = none
	s.all = s.all[:last]
}

// An Await is a session whose end is waited for.
type Await struct {
	Session string
	Seldom  bool // a look every [SeldomWatch] is enough
}

// SeldomWatch is how often a waiter whose turn is far away looks at the session of the one before it. It is longer
// than a session that died is waited for, so the second look that shows the same heartbeat shows a dead session.
func SeldomWatch(ttl time.Duration) time.Duration { return ttl * 8 / 5 }
