package cost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// Measured is the requests counted while a plan ran.
type Measured struct {
	Locks   int           // number of the plan's locks that ran
	For     time.Duration // a multiple of the renewal interval
	Changes int           // locks that changed hands meanwhile, which should be 0
	Holders Requests      // of all locks
	Others  Requests
}

// Parts returns the counted requests, scaled to a month and all locks of the plan.
func (m *Measured) Parts(p Plan) []Part {
	times := float64(p.Locks) / float64(m.Locks) * float64(Month) / float64(m.For)
	parts := p.Parts()[:2]
	parts[0].Requests, parts[1].Requests = m.Holders.Times(times), m.Others.Times(times)
	return parts
}

// Measure runs some locks of a plan in st and counts their requests for d, rounded up to whole
// renewal intervals. Nothing else may use the prefix. No holder resigns meanwhile. Measure starts
// to count two TTLs after the locks are held, when followers know when their leaders renew.
// Waiters poll as after hours of waiting. Peers ask each other within this process, without
// requests to the store. In the end, even if ctx ends first, Measure releases all locks and deletes
// the objects under prefix.
func Measure(ctx context.Context, st store.Store, prefix string, p Plan, locks int, d time.Duration) (*Measured, error) {
	if p.Mode == Wait {
		p.Infrequent = p.interval()
	}
	t, err := newTrial(st, prefix, p, locks)
	if err != nil {
		return nil, err
	}
	// An election would wait out an outage, but here the caller waits for the result.
	switch _, err = st.Get(ctx, prefix, ""); {
	case err == nil:
		return nil, fmt.Errorf("there is an object %q already", prefix)
	case !errors.Is(err, store.ErrNotExist):
		return nil, err
	}
	m, err := t.measure(ctx, d)
	return m, errors.Join(err, t.end(ctx))
}

// A trial is a running plan.
type trial struct {
	st        store.Store
	prefix    string
	plan      Plan
	locks     [][]*competitor
	processes []*process // with the modes Session and Fair
	stopped   chan error // why a candidate stopped by itself
	gate      gate
}

// A process has a session, and a candidate for each lock.
type process struct {
	requests *counter
	session  *leasehold.Session
}

// A competitor is a candidate for a lock or in an election.
type competitor struct {
	requests *counter
	process  *process            // nil: no session
	election *leasehold.Election // nil: a candidate for a lock
	held     chan struct{}       // closed when it holds the lock for the first time
	holds    func() bool
	run      func(context.Context) error
	stop     context.CancelFunc
	done     chan struct{}
}

func newTrial(st store.Store, prefix string, p Plan, locks int) (*trial, error) {
	t := &trial{st: st, prefix: prefix, plan: p, stopped: make(chan error, 1)}
	if p.Mode == Session {
		for range p.Candidates {
			requests, err := newCounter(st, &t.gate)
			if err != nil {
				return nil, err
			}
			t.processes = append(t.processes, &process{requests: requests})
		}
	}
	for i := range locks {
		key := t.key(i)
		friends := &friends{elections: map[string]*leasehold.Election{}}
		var all []*competitor
		for n := range p.Candidates {
			requests, err := newCounter(st, &t.gate)
			if err != nil {
				return nil, err
			}
			c := &competitor{requests: requests, held: make(chan struct{}), done: make(chan struct{})}
			join := c.elect
			switch p.Mode {
			case Wait:
				join = c.lock
			case Fair:
				c.process = &process{requests: c.requests}
				t.processes, join = append(t.processes, c.process), c.fair
			case Session: // the locks are spread over the processes
				c.process = t.processes[(i+n)%p.Candidates]
				c.requests, join = c.process.requests, c.lock
			}
			if err := join(key, p, fmt.Sprintf("candidate %d of lock %d", n+1, i+1), friends); err != nil {
				return nil, err
			}
			all = append(all, c)
		}
		t.locks = append(t.locks, all)
	}
	return t, nil
}

// key returns the i-th lock's key.
func (t *trial) key(i int) string { return fmt.Sprintf("%s/%04d", t.prefix, i) }

// elect makes c a candidate in an election.
func (c *competitor) elect(key string, p Plan, name string, friends *friends) error {
	opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: p.TTL, Holder: name, Layout: p.Layout, NoIfMatch: p.NoIfMatch}, Infrequent: p.Infrequent}
	if p.Mode == Peer {
		opts.Address, opts.Peers = name, friends
	}
	e, err := leasehold.NewElection(c.requests, key, &opts)
	if err != nil {
		return err
	}
	friends.elections[name] = e
	first := sync.OnceFunc(func() { close(c.held) })
	c.election, c.holds = e, e.IsLeader
	c.run = func(ctx context.Context) error {
		return e.Run(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
			first()
			<-ctx.Done()
			return nil
		})
	}
	return nil
}

// lock makes c a candidate for a lock.
func (c *competitor) lock(key string, p Plan, name string, _ *friends) error {
	opts := &leasehold.LockOptions{TTL: p.TTL, Holder: name, Layout: p.Layout, NoIfMatch: p.NoIfMatch, PollInterval: p.Infrequent}
	if _, err := leasehold.NewLock(c.requests, key, opts); err != nil {
		return err
	}
	c.holdOn(func() (acquire, error) {
		if c.process != nil { // which has a session by now
			opts.Session = c.process.session
		}
		l, err := leasehold.NewLock(c.requests, key, opts)
		return func(ctx context.Context) (lease, error) { return l.Acquire(ctx) }, err
	})
	return nil
}

// fair makes c a candidate for a fair lock.
func (c *competitor) fair(key string, p Plan, name string, _ *friends) error {
	c.holdOn(func() (acquire, error) { // its process has a session by now
		l, err := semaphore.NewLock(c.requests, key, &semaphore.Options{TTL: p.TTL, Holder: name, Session: c.process.session})
		return func(ctx context.Context) (lease, error) { return l.Acquire(ctx) }, err
	})
	return nil
}

// An acquire acquires a lock of either kind.
type acquire func(context.Context) (lease, error)

// A lease is a lease of either kind of lock.
type lease interface {
	Valid() bool
	Done() <-chan struct{}
	Release(ctx context.Context) error
}

// holdOn makes the candidate, once started, open its lock, acquire it and hold it as long as it can.
func (c *competitor) holdOn(open func() (acquire, error)) {
	opened := sync.OnceValues(open)
	var now atomic.Pointer[lease]
	first := sync.OnceFunc(func() { close(c.held) })
	c.holds = func() bool { l := now.Load(); return l != nil && (*l).Valid() }
	c.run = func(ctx context.Context) error {
		acquire, err := opened()
		if err != nil {
			return err
		}
		for {
			l, err := acquire(ctx)
			if err != nil {
				return err
			}
			now.Store(&l)
			first()
			select {
			case <-l.Done(): // lost: another candidate may hold it
			case <-ctx.Done():
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			_ = l.Release(last) // end deletes what is left
			cancel()
		}
	}
}

// patience bounds the clean-up.
const patience = 30 * time.Second

func (t *trial) measure(ctx context.Context, d time.Duration) (*Measured, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	renewal := protocol.Renewal(t.plan.TTL)
	// Halfway between two renewals, no renewal or poll is in flight.
	if err := t.wait(ctx, 2*t.plan.TTL+renewal/2); err != nil {
		return nil, err
	}
	m := &Measured{Locks: len(t.locks), For: (d + renewal - 1) / renewal * renewal}
	holders := t.holders()
	heldBefore, othersBefore := t.count(holders)
	if err := t.wait(ctx, m.For); err != nil {
		return nil, err
	}
	heldAfter, othersAfter := t.count(holders)
	m.Holders, m.Others = heldAfter.Plus(heldBefore.Times(-1)), othersAfter.Plus(othersBefore.Times(-1))
	for _, holder := range holders {
		if holder == nil || !holder.holds() {
			m.Changes++
		}
	}
	return m, nil
}

// errNotHeld means that the store is too slow or unavailable.
var errNotHeld = errors.New("the locks could not be acquired in time")

// begin starts the holders and, once they hold their locks, the other candidates.
func (t *trial) begin(ctx context.Context) error {
	for _, p := range t.processes {
		var err error
		if p.session, err = leasehold.NewSession(ctx, p.requests, &leasehold.SessionOptions{TTL: t.plan.TTL, Prefix: t.prefix + "/sessions"}); err != nil {
			return err
		}
	}
	if t.plan.Mode == Fair {
		if err := t.known(ctx); err != nil {
			return err
		}
	}
	for _, all := range t.locks {
		t.start(ctx, all[0])
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for _, all := range t.locks {
		select {
		case <-all[0].held:
		case err := <-t.stopped:
			return err
		case <-late.C:
			return errNotHeld
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, all := range t.locks {
		for _, c := range all[1:] {
			t.start(ctx, c)
		}
	}
	return nil
}

// known creates each fair lock with the mean length of its turns, as after a day of use. Waiters poll
// accordingly.
func (t *trial) known(ctx context.Context) error {
	body, err := record.Table{Size: 1, WriteID: "planned", Turn: time.Duration(float64(24*time.Hour) / max(t.plan.Changes, 1))}.Encode()
	for i := range t.locks {
		if err == nil {
			_, err = t.st.Put(ctx, t.key(i), body, store.IfAbsent())
		}
	}
	return err
}

// start runs a candidate until end stops it.
func (t *trial) start(ctx context.Context, c *competitor) {
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(c.done)
		if err := c.run(ctx); ctx.Err() == nil {
			select {
			case t.stopped <- err:
			default: // one is enough
			}
		}
	}()
}

func (t *trial) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case err := <-t.stopped:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holders returns each lock's holder, or nil if it has none now.
func (t *trial) holders() []*competitor {
	holders := make([]*competitor, len(t.locks))
	for i, all := range t.locks {
		for _, c := range all {
			if c.holds() {
				holders[i] = c
			}
		}
	}
	return holders
}

// count returns the requests of the holders and of the others so far.
func (t *trial) count(holders []*competitor) (held, others Requests) {
	for _, p := range t.processes { // heartbeats are writes, and watches are reads
		all := p.requests.count()
		held.Put += all.Put
		all.Put = 0
		others = others.Plus(all)
	}
	if t.processes != nil {
		return held, others
	}
	for i, all := range t.locks {
		for _, c := range all {
			if c == holders[i] {
				held = held.Plus(c.requests.count())
			} else {
				others = others.Plus(c.requests.count())
			}
		}
	}
	return held, others
}

// end stops all candidates, the holders last so that none takes over, and deletes all objects.
func (t *trial) end(ctx context.Context) error {
	for _, holding := range []bool{false, true} {
		var stopping []*competitor
		for _, all := range t.locks {
			for _, c := range all {
				if c.stop != nil && c.holds() == holding {
					c.stop()
					stopping = append(stopping, c)
				}
			}
		}
		for _, c := range stopping {
			<-c.done
		}
	}
	for _, all := range t.locks { // those that took over in between
		for _, c := range all {
			if c.stop != nil {
				c.stop()
				<-c.done
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for _, p := range t.processes {
		if p.session != nil {
			_ = p.session.Close(ctx) // what is left is deleted below
		}
	}
	t.gate.close()
	for e, err := range t.st.List(ctx, t.prefix+"/", "") {
		if err == nil {
			err = t.st.Delete(ctx, e.Key)
		}
		if err != nil {
			return fmt.Errorf("what lies under %s was not deleted: %w", t.prefix, err)
		}
	}
	if quorum, ok := t.st.(*quorumstore.Store); ok { // it remembers deletions
		if err := quorum.Forget(ctx, t.prefix); err != nil {
			return fmt.Errorf("what lies under %s was not deleted in each member: %w", t.prefix, err)
		}
	}
	return nil
}

// friends are the candidates in one election, which ask each other without a network.
type friends struct {
	elections map[string]*leasehold.Election
}

func (f *friends) Ask(ctx context.Context, address string, q lock.Question) (lock.Leadership, error) {
	e, ok := f.elections[address]
	if !ok {
		return lock.Leadership{}, fmt.Errorf("nobody is at %q", address)
	}
	return leasehold.Internal.Attend(ctx, e, q)
}
