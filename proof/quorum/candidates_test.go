//go:build unix

package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

const ttl = 2 * time.Second

// takeover is for how long a lock may be without a holder, whatever happens to a minority: the others wait for
// TTL + TTL/5, and the rest is for what a busy machine does.
const takeover = ttl + ttl/5 + 2*time.Second

// A referee sees who holds one lock, by the holders' own leases and one clock.
type referee struct {
	what  string
	began time.Time

	mu     sync.Mutex
	leases map[int]*leasehold.Lease // of the candidates that work under one
	last   leasehold.Token
	seen   time.Time // when a lease was last seen to be valid; zero: none was yet
	fault  string    // what is wrong with the quorum
	gaps   map[string]time.Duration
	steady bool // nobody lets go
	terms  int
	renews int
	lost   int            // leases, of those who were not gone
	losses map[string]int // the same by fault
	wrong  int
	story  []string
}

func newReferee(what string) *referee {
	return &referee{
		what: what, began: time.Now(),
		leases: map[int]*leasehold.Lease{}, gaps: map[string]time.Duration{}, losses: map[string]int{},
	}
}

// tells is called under the mutex.
func (r *referee) tells(format string, args ...any) {
	r.story = append(r.story, fmt.Sprintf("%8.3f %s", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...)))
}

// accuses is called under the mutex.
func (r *referee) accuses(format string, args ...any) {
	r.wrong++
	r.tells("WRONG, with %s: %s", r.fault, fmt.Sprintf(format, args...))
}

// begins: a candidate has acquired the lock.
func (r *referee) begins(who int, lease *leasehold.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !lease.Valid() {
		r.tells("candidate %d had token %d, which is not valid any more", who, lease.Token())
		return
	}
	if lease.Token() <= r.last {
		r.accuses("token %d after %d", lease.Token(), r.last)
	}
	r.idle(time.Now())
	r.last, r.leases[who] = lease.Token(), lease
	r.terms++
	r.tells("candidate %d has token %d", who, lease.Token())
	r.looks(who)
}

// looks looks at the lease that a candidate works under, and at the others'. Called under the mutex.
func (r *referee) looks(who int) (valid bool) {
	lease, now := r.leases[who], time.Now()
	if lease == nil || !lease.Valid() {
		return false
	}
	for other, o := range r.leases {
		if other != who && o.Valid() && lease.Valid() { // and so it was in between
			r.accuses("candidate %d with token %d and candidate %d with token %d at once", who, lease.Token(), other, o.Token())
		}
	}
	r.seen = now
	return true
}

// idle notes that nobody has had the lock until now, since a lease was last seen to be valid. Called under the mutex.
func (r *referee) idle(now time.Time) {
	if !r.seen.IsZero() {
		r.gaps[r.fault] = max(r.gaps[r.fault], now.Sub(r.seen))
	}
}

// works reports whether a candidate's lease is still valid.
func (r *referee) works(who int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looks(who)
}

// ends: the candidate works under its lease no longer.
func (r *referee) ends(who int, why string, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks(who)
	lease := r.leases[who]
	if lease == nil {
		return
	}
	delete(r.leases, who)
	err := lease.Err()
	r.tells("candidate %d %s, token %d: %v", who, why, lease.Token(), err)
	switch {
	case err == nil:
	case errors.Is(err, leasehold.ErrLost) && gone:
	case errors.Is(err, leasehold.ErrLost):
		r.lost++
		r.losses[r.fault]++
	default:
		r.accuses("the lease of token %d has ended, and says %v", lease.Token(), err)
	}
}

// trace counts renewals.
func (r *referee) trace() *locktrace.Trace {
	return &locktrace.Trace{Renewed: func(context.Context, locktrace.Renewed) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.renews++
	}}
}

// counts are the terms, renewals and lost leases so far.
func (r *referee) counts() (terms, renews, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms, r.renews, r.lost
}

// holds reports whether somebody holds the lock.
func (r *referee) holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder() != leasehold.NoToken
}

// holder is the token of who holds the lock. Called under the mutex.
func (r *referee) holder() leasehold.Token {
	for _, lease := range r.leases {
		if lease.Valid() {
			return lease.Token()
		}
	}
	return leasehold.NoToken
}

// holdsOn waits for a holder that has renewed its lease twice since, and so has neither let go nor gone.
func (r *referee) holdsOn(t *testing.T) {
	t.Helper()
	token, since := leasehold.NoToken, 0
	until(t, "the "+r.what+" is held on to", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if now := r.holder(); now != token {
			token, since = now, r.renews
		}
		return token != leasehold.NoToken && r.renews >= since+2
	})
}

// meets says what goes wrong with the quorum from now on.
func (r *referee) meets(fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holder() == leasehold.NoToken {
		r.idle(time.Now())
	}
	r.fault = fault
	r.tells("--- %s", fault)
}

func rounded(gaps map[string]time.Duration) map[string]time.Duration {
	gaps = maps.Clone(gaps)
	for fault, gap := range gaps {
		gaps[fault] = gap.Round(time.Millisecond)
	}
	return gaps
}

// keep has holders keep what they have, or not.
func (r *referee) keep(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steady = on
}

func (r *referee) keeps() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.steady
}

// judge tells the test what was wrong.
func (r *referee) judge(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for fault, gap := range r.gaps {
		if gap > takeover && fault != majorityDown {
			r.accuses("%v without a holder, with %s", gap, fault)
		}
	}
	t.Logf("figures: %s: %d terms, %d renewals, %d leases lost, %v; the longest without a holder: %v",
		r.what, r.terms, r.renews, r.lost, r.losses, rounded(r.gaps))
	if r.wrong > 0 || t.Failed() {
		t.Errorf("%s: %d are wrong:\n%s", r.what, r.wrong, strings.Join(r.story[max(0, len(r.story)-400):], "\n"))
	}
}

// A fight is three candidates, each with a client of its own, that want a lock and to lead an election.
type fight struct {
	referees []*referee // of the lock and of the election
	stop     func()
}

// fought begins a fight in the stores of the candidates.
func fought(t *testing.T, seed uint64, stores []store.Store) *fight {
	t.Helper()
	lock, election := newReferee("lock"), newReferee("election")
	f := &fight{referees: []*referee{lock, election}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for who, st := range stores {
		opts := leasehold.LockOptions{TTL: ttl, Holder: fmt.Sprint("candidate ", who)}
		c := candidate{who, faultstore.Wrap(st, nil), lock, rand.New(rand.NewPCG(seed, uint64(2*who)))}
		opts.Trace = lock.trace()
		l, err := leasehold.NewLock(c.st, "fight/lock", &opts)
		if err != nil {
			t.Fatal(err)
		}
		d := candidate{who, faultstore.Wrap(st, nil), election, rand.New(rand.NewPCG(seed, uint64(2*who+1)))}
		opts.Trace = election.trace()
		e, err := leasehold.NewElection(d.st, "fight/election", &leasehold.ElectionOptions{LockOptions: opts})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			c.run(ctx, func(ctx context.Context) (*leasehold.Lease, error) { return l.Acquire(ctx) })
		})
		all.Go(func() { d.run(ctx, e.Campaign) })
	}
	f.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(f.stop)
	return f
}

// A candidate wants one lock.
type candidate struct {
	who  int
	st   *faultstore.Store
	seen *referee
	rand *rand.Rand
}

// run holds the lock again and again: for less than a renewal or for several, and lets it go, or is gone.
func (c candidate) run(ctx context.Context, acquire func(context.Context) (*leasehold.Lease, error)) {
	for ctx.Err() == nil {
		lease, err := acquire(ctx)
		if err != nil {
			c.seen.mu.Lock()
			c.seen.tells("candidate %d does not get it: %v", c.who, err)
			c.seen.mu.Unlock()
			pause(ctx, 50*time.Millisecond)
			continue
		}
		c.seen.begins(c.who, lease)
		gone := c.rand.IntN(6) == 0 && !c.seen.keeps()
		why := "lets go"
		if gone {
			c.st.Partition(true)
			why = "is gone"
		}
		end := time.Now().Add(time.Duration(c.rand.Int64N(int64(ttl * 2 / 3))))
		for ctx.Err() == nil && (gone || c.seen.keeps() || time.Now().Before(end)) {
			if !c.seen.works(c.who) {
				if !gone {
					why = "has lost it"
				}
				break
			}
			pause(ctx, 5*time.Millisecond)
		}
		c.seen.ends(c.who, why, gone)
		// Who was gone is not back before another has taken over, or could have.
		if gone {
			pause(ctx, ttl/2)
			c.st.Partition(false)
		}
		_ = lease.Release(ctx) // an error says that it was lost, or that nobody can be asked
		pause(ctx, time.Duration(c.rand.Int64N(int64(100*time.Millisecond))))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// goesOn waits until each lock has changed hands from now on, and for so many renewals.
func (f *fight) goesOn(t *testing.T, what string, renews int) {
	t.Helper()
	var before [2][2]int
	for i, r := range f.referees {
		before[i][0], before[i][1], _ = r.counts()
	}
	for i, r := range f.referees {
		until(t, fmt.Sprintf("the %s goes on %s", r.what, what), func() bool {
			now, renewed, _ := r.counts()
			return now > before[i][0] && renewed >= before[i][1]+renews
		})
	}
}

// meets tells both referees.
func (f *fight) meets(fault string) {
	for _, r := range f.referees {
		r.meets(fault)
	}
}

// judge ends the fight, and tells the test what was wrong.
func (f *fight) judge(t *testing.T) {
	t.Helper()
	f.stop()
	for _, r := range f.referees {
		r.judge(t)
	}
}
