package session

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// A Membership is what a session of this process knows of the candidates under it: who they are,
// whether the session has ended for them, and which locks no longer name it, so that its heartbeat
// can tell others. It is not safe for concurrent use.
type Membership[M comparable] struct {
	// Last bounds how many released locks a heartbeat names. Zero: 64. Waiters that miss more
	// poll all of their locks.
	Last int

	members   set[M]
	over      error
	closed    bool // Unused has said so
	released  record.Freed
	announced int64 // released.Count, when the heartbeat was last written
}

// Over returns why the session has ended, or nil.
func (s *Membership[M]) Over() error { return s.over }

// Members returns those that are under the session, or may still be.
func (s *Membership[M]) Members() []M { return slices.Clone(s.members.all) }

// Enter adds a member that wants to be under the session. It fails if the session has ended: a member
// that came later would not be told, and its lease would go on (rule D7).
func (s *Membership[M]) Enter(m M) error {
	if s.over == nil {
		s.members.add(m)
	}
	return s.over
}

// Leave removes a member that has nothing under the session any more, as its candidate said by Left.
// If a member left too early, Unused would let the session's object be freed while work under it
// goes on.
func (s *Membership[M]) Leave(m M) { s.members.remove(m) }

// End ends the session, once, and returns the members to tell. Their leases must end before anything
// is sent (rule D7). Then each candidate gets a SessionOver.
func (s *Membership[M]) End(why error) (members []M, first bool) {
	if s.over != nil {
		return nil, false
	}
	s.over = why
	return s.Members(), true
}

// Unused reports, once, that the session has ended and nothing is under it any more, so its object
// may be freed. Ask it when the members have been told of the end, and whenever one has left. While
// a member's work has not stopped, its lock must not be free for others, and they take a freed
// session's locks for free.
func (s *Membership[M]) Unused() bool {
	if s.over == nil || len(s.members.all) > 0 || s.closed {
		return false
	}
	s.closed = true
	return true
}

// Released notes that a lock no longer names the session. The next heartbeat says so, and should come
// soon unless the session has ended.
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

// Announce returns the list of released locks for a heartbeat that is written now. It is a hint:
// others poll a lock that it names, and would find out without it when the session ends. The count
// shows others that they have missed a heartbeat.
func (s *Membership[M]) Announce() *record.Freed {
	if s.announced = s.released.Count; s.announced == 0 {
		return nil
	}
	return &record.Freed{Count: s.announced, Last: slices.Clone(s.released.Last)}
}

// Renewed notes that a heartbeat was confirmed, and reports whether there is more to announce since it
// was written.
func (s *Membership[M]) Renewed() (renewSoon bool) { return s.released.Count > s.announced }

// MaxFreed is how many released locks a heartbeat names by default.
const MaxFreed = 64

// KeyHash returns the name of a lock in a heartbeat. If two locks have the same hash, one is polled in
// vain.
func KeyHash(key string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return strconv.FormatUint(h.Sum64(), 36)
}

// A Watch is shared by the candidates of a process that wait for the end of the same session of
// another process. A Reaper polls that session's heartbeat, and the Watch says whom to tell. It is
// not safe for concurrent use.
type Watch[M comparable] struct {
	waiters  set[M]
	released int64         // Freed.Count, by the last heartbeat
	news     time.Duration // when that last grew
	trouble  error         // why it is not known whether the session goes on; nil: it is
}

// Join adds a candidate that last polled its lock at that reading of the clock, and reports whether the
// others have heard of a release since. Then it gets a Recheck: otherwise nobody would tell it of
// that release.
func (w *Watch[M]) Join(m M, looked time.Duration) (recheck bool) {
	w.waiters.add(m)
	return w.news >= looked
}

// Leave removes a candidate, and reports whether it was the last, so the session need not be watched any
// more.
func (w *Watch[M]) Leave(m M) (last bool) {
	w.waiters.remove(m)
	return len(w.waiters.all) == 0
}

// Waiters returns all that wait.
func (w *Watch[M]) Waiters() []M { return slices.Clone(w.waiters.all) }

// Beat notes a heartbeat, and returns those that get a Recheck: they wait for a lock whose release it
// announces, or may have announced in a heartbeat that was missed.
func (w *Watch[M]) Beat(record record.Record, now time.Duration, key func(M) string) (rechecks []M) {
	w.trouble = nil
	f := record.Freed
	if f == nil || f.Count <= w.released {
		return nil
	}
	missed := f.Count - w.released
	w.released, w.news = f.Count, now
	// The list does not have all of them. It may concern any waiter, so all poll: a poll too many
	// costs a read, one too few a wait until the session ends.
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

// Troubled notes why it is unknown whether the session goes on.
func (w *Watch[M]) Troubled(err error) { w.trouble = err }

// Trouble returns why it is unknown whether the session goes on, or nil.
func (w *Watch[M]) Trouble() error { return w.trouble }

// A set iterates in an order that depends only on the calls, so that the simulation can replay.
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

// remove puts the last member in its place.
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
