package chaos_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
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

// tenant reports that it is no job's: its process holds the lease itself.
func (t term) tenant() bool { return t.PID == t.Guardian }

// A checker is the resource that all jobs write to. It refuses a token once it has
// seen a greater one, as a fence does, and it judges: nothing may be done under a
// token after a job with a greater one of the same lock has begun, and no two jobs have
// one token. As tokens grow with each holder, that is mutual exclusion, and it is judged
// by when things were done, not by when they were heard of.
type checker struct {
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
		case o == t || o.Lock != t.Lock:
		case o.Token == t.Token && first:
			c.violate("workers %d and %d both have token %d of %s", o.Worker, t.Worker, t.Token, t.Lock)
		case o.Token < t.Token && first:
			c.judge(o, t)
		case o.Token > t.Token:
			c.judge(t, o)
		}
	}
	if c.newest == nil {
		c.newest = map[string]int64{}
	}
	c.newest[t.Lock] = max(c.newest[t.Lock], t.Token)
	if t.Token < c.newest[t.Lock] {
		c.refused++
		t.denied = true
	}
	return !t.denied
}

// judge compares what the older of two terms did last with the beginning of the newer.
func (c *checker) judge(older, newer *term) {
	if late := older.At - newer.begun; late > 0 && !older.frozen {
		c.violate("worker %d worked under token %d of %s, %v after worker %d had begun under token %d",
			older.Worker, older.Token, older.Lock, late, newer.Worker, newer.Token)
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
		if t.Token == c.newest[t.Lock] && !t.ended {
			holders = append(holders, *t)
		}
	}
	return holders
}

// holder gives the term of who holds the lock.
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

// waiting are the locks under which nobody has begun after the instant.
func (c *checker) waiting(at time.Duration) (locks []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for lock := range c.newest {
		if !slices.ContainsFunc(c.terms, func(t *term) bool { return t.Lock == lock && t.begun > at }) {
			locks = append(locks, lock)
		}
	}
	return locks
}

// idle is the longest time in which nobody worked under the lock.
func (c *checker) idle(lock string) (longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	terms := slices.SortedFunc(slices.Values(c.terms), func(a, b *term) int { return cmp.Compare(a.begun, b.begun) })
	last := time.Duration(0)
	for _, t := range terms {
		if t.Lock != lock {
			continue
		}
		if last > 0 {
			longest = max(longest, t.begun-last)
		}
		last = max(last, t.At)
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
