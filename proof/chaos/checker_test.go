package chaos_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// A word is what a job says each time it does something.
type word struct {
	Worker        int
	PID, Guardian int // the job's process, and the one that started it; the same: a tenant
	Watcher       int // the process that started the guardian
	Lock          string
	Token         int64
	At            time.Duration // when it was done: a reading of package clock, the same for all
}

// A term is all that one job does, or a tenant under one lease: it begins with the first
// word.
type term struct {
	word // the last one

	begun time.Duration
	ended bool // its process is gone
	// frozen: it was stopped, and so was all that could have ended it. Of what it does
	// later only the token can keep others from harm.
	frozen bool
	denied bool // it was told that its token is too old
}

// late reports that it worked on after another one of its lock had begun, and that nothing excuses it.
func (t term) late(other *term) bool {
	return t.Lock == other.Lock && t.Token < other.Token && t.At > other.begun && !t.frozen
}

// tenant reports that it is no job's: its process holds the lease itself.
func (t term) tenant() bool { return t.PID == t.Guardian }

// A checker is the resource that all jobs write to. It refuses a token once it has
// seen a greater one, as a fence does, and it judges: nothing may be done under a
// token after a job with a greater one of the same lock has begun, and no two jobs have
// one token. As tokens grow with each holder, that is mutual exclusion, and it is judged
// by when things were done, not by when they were heard of.
//
// Where there are several slots, a job that works after one with a greater token has begun has had its slot
// since before that, even if it began later. So fewer of these may be than there are slots. A token fences
// nothing there, so none is refused.
type checker struct {
	slots int // of theLock; all others have one

	mu         sync.Mutex
	terms      []*term
	newest     map[string]int64 // the greatest token of each lock so far
	refused    int              // words with a smaller one
	violations []string
}

// hear judges a word of the term t, which is new if it has no token yet, and reports
// whether the token is still good.
func (c *checker) hear(t *term, w word) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := t.Token == 0
	t.word = w
	if first {
		t.begun = w.At
		c.terms = append(c.terms, t)
	}
	for _, o := range c.terms {
		switch {
		case o != t && o.Lock == t.Lock && o.Token == t.Token && first:
			c.violate("workers %d and %d both have token %d of %s", o.Worker, t.Worker, t.Token, t.Lock)
		case o == t && first, t.late(o):
			c.judge(o)
		}
	}
	if c.newest == nil {
		c.newest = map[string]int64{}
	}
	c.newest[t.Lock] = max(c.newest[t.Lock], t.Token)
	if t.Token < c.newest[t.Lock] && c.room(t.Lock) == 1 {
		c.refused++
		t.denied = true
	}
	return !t.denied
}

// room is how many may hold a lock at a time.
func (c *checker) room(lock string) int {
	if lock == theLock {
		return c.slots
	}
	return 1
}

// judge compares what older terms did last with the beginning of a newer one.
func (c *checker) judge(newer *term) {
	var late []string
	for _, o := range c.terms {
		if o.late(newer) {
			late = append(late, fmt.Sprintf("worker %d worked under token %d, %v", o.Worker, o.Token, o.At-newer.begun))
		}
	}
	if len(late) >= c.room(newer.Lock) {
		c.violate("%s after worker %d had begun under token %d of %s", strings.Join(late, ", "), newer.Worker, newer.Token, newer.Lock)
	}
}

func (c *checker) violate(format string, args ...any) {
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}

// holders gives the terms of those who hold a lock, as far as is known.
func (c *checker) holders() (holders []term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.terms {
		if (t.Token == c.newest[t.Lock] || c.room(t.Lock) > 1 && !t.frozen) && !t.ended {
			holders = append(holders, *t)
		}
	}
	return holders
}

// holder gives the term of who holds the lock, or of one of those who do.
func (c *checker) holder(lock string) (term, bool) {
	holders := c.holders()
	i := slices.IndexFunc(holders, func(t term) bool { return t.Lock == lock })
	if i < 0 {
		return term{}, false
	}
	return holders[i], true
}

// now gives what has become of a term.
func (c *checker) now(t term) term {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.terms, func(o *term) bool { return o.PID == t.PID && o.Lock == t.Lock && o.Token == t.Token })
	return *c.terms[i]
}

// freeze notes that only the token protects from what the job does from now on.
func (c *checker) freeze(t term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.terms {
		o.frozen = o.frozen || o.PID == t.PID
	}
}

// replaced reports that others than the term's work, and have since the instant, in as many slots as there are: so
// it has none.
func (c *checker) replaced(t term, since time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	others := 0
	for _, o := range c.terms {
		if o.Lock == t.Lock && o.Token != t.Token && o.At > since && !o.ended && !o.frozen && !o.denied {
			others++
		}
	}
	return others >= c.room(t.Lock)
}

// waiting are the locks under which fewer have begun after the instant than can hold them.
func (c *checker) waiting(at time.Duration) (locks []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for lock := range c.newest {
		begun := 0
		for _, t := range c.terms {
			if t.Lock == lock && t.begun > at {
				begun++
			}
		}
		if begun < c.room(lock) {
			locks = append(locks, lock)
		}
	}
	return locks
}

// idle is the longest time in which a slot of the lock was free, and nobody worked in it.
func (c *checker) idle(lock string) (longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type change struct {
		at    time.Duration
		slots int
	}
	var changes []change
	for _, t := range c.terms {
		if t.Lock == lock {
			changes = append(changes, change{t.begun, 1}, change{t.At, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.slots, a.slots)) })
	taken, last := 0, time.Duration(0) // last: since when one has been free
	for _, ch := range changes {
		if taken += ch.slots; taken == c.room(lock) && ch.slots > 0 && last > 0 {
			longest = max(longest, ch.at-last)
		}
		if taken == c.room(lock)-1 && ch.slots < 0 {
			last = ch.at
		}
	}
	return longest
}

// serve listens to jobs until the listener is closed.
func (c *checker) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go c.attend(conn)
	}
}

// attend listens to one job until its process is gone.
func (c *checker) attend(conn net.Conn) {
	defer conn.Close()
	t, in, out := &term{}, json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var w word
		if in.Decode(&w) != nil || out.Encode(c.hear(t, w)) != nil {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.ended = true
}
