package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// A term is one worker session, with all its work.
type term struct {
	*Worker
	session *leasehold.Session
	me      string // the last part of its key
	work    func(context.Context, Shard) error
	ctx     context.Context // ends with Run's and with the session
	stop    context.CancelCauseFunc
	news    chan struct{} // has an element if there is something to reconcile

	mu       sync.Mutex
	plan     *Plan     // to follow; nil: none yet
	named    time.Time // when a plan last named this worker
	version  store.Version
	lead     bool // this worker writes the plan itself
	holdings map[string]*holding
}

// A holding is a shard the worker should own, owns, or is about to release.
type holding struct {
	ctx  context.Context // ends when the shard must be released
	stop context.CancelCauseFunc
}

// unnamed is after how many TTLs without being named in a plan a worker starts over, because
// its membership may have been deleted.
const unnamed = 4

var errUnnamed = errors.New("the plan does not name this worker")

func newTerm(ctx context.Context, w *Worker, s *leasehold.Session, work func(context.Context, Shard) error) *term {
	t := &term{Worker: w, session: s, me: w.Status().Session, work: work, named: time.Now(), holdings: map[string]*holding{}, news: make(chan struct{}, 1)}
	t.ctx, t.stop = context.WithCancelCause(ctx)
	return t
}

// run works until the context or the session ends, and then until all work has returned.
func (t *term) run() error {
	defer t.stop(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-t.session.Done():
			t.stop(t.session.Err())
		case <-ended:
		}
	}()
	lock, err := leasehold.NewLock(t.st, t.workerKey(t.me), t.memberOptions(t.session))
	if err != nil {
		return err
	}
	membership, err := lock.Acquire(t.ctx)
	switch over := t.session.Err(); {
	case err != nil && over != nil:
		return over
	case err != nil:
		return fmt.Errorf("the worker cannot be made known to the others: %w", err)
	}
	var all sync.WaitGroup
	all.Go(t.campaign)
	t.follow(&all)
	t.release(membership) // before all else, so that the others begin to wait for its shards
	all.Wait()
	return context.Cause(t.ctx)
}

// release releases a lease whose work has returned.
func (t *term) release(l *leasehold.Lease) {
	last, cancel := cleanupContext(t.ctx, t.opts.TTL)
	defer cancel()
	if err := l.Release(last); err != nil && !errors.Is(err, leasehold.ErrLost) {
		t.opts.Logger.Warn("a lease was not released", "key", l.Key(), "error", err)
	}
}

// campaign takes part in the coordinator's election.
func (t *term) campaign() {
	opts := t.lockOptions(t.session)
	opts.Trace = t.opts.Trace
	election, err := leasehold.NewElection(t.st, t.coordinatorKey(), &leasehold.ElectionOptions{LockOptions: *opts})
	if err != nil {
		t.stop(err)
		return
	}
	for {
		err = election.Run(t.ctx, t.leads)
		if !errors.Is(err, leasehold.ErrForeignObject) || t.ctx.Err() != nil {
			break
		}
		// Without a coordinator, all workers keep their shards, and the object may be repaired.
		t.electing(err)
		sleep(t.ctx, t.opts.TTL)
	}
	if over := t.session.Err(); over != nil { // which ended the election too
		t.stop(over)
	}
	t.stop(fmt.Errorf("the worker cannot take part in the election of a coordinator: %w", err)) // unless it has ended already
	last, cancel := cleanupContext(t.ctx, requestTimeout)
	defer cancel()
	_ = election.Settle(last)
}

// leads is the coordinator's work.
func (t *term) leads(ctx context.Context, lease *leasehold.Lease) error {
	leading := func(on bool) {
		t.mu.Lock()
		t.lead = on
		t.mu.Unlock()
		t.Worker.mu.Lock()
		t.status.Coordinating = on
		t.Worker.mu.Unlock()
	}
	defer leading(false)
	return t.coordinate(ctx, lease, func(p *Plan) {
		leading(true)
		t.told(p, "")
	})
}

// told records a plan: the worker's own, or with a version, another one's. While it leads, it
// ignores plans it read earlier.
func (t *term) told(p *Plan, version store.Version) {
	t.mu.Lock()
	if version != "" && t.lead {
		t.mu.Unlock()
		return
	}
	t.plan, t.version = p, version
	t.mu.Unlock()
	t.Worker.mu.Lock()
	t.status.Token, t.status.Serial = p.Token, p.Serial
	t.Worker.mu.Unlock()
	t.electing(nil) // the plan has a coordinator
	t.poke()
}

func (t *term) poke() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// follow carries out the plan.
func (t *term) follow(all *sync.WaitGroup) {
	all.Go(func() {
		for {
			t.mu.Lock()
			lead := t.lead
			t.mu.Unlock()
			if !lead {
				t.look()
			}
			if t.unknown() {
				t.stop(errUnnamed)
			}
			if !sleep(t.ctx, t.interval()) {
				return
			}
		}
	})
	for {
		select {
		case <-t.news:
			t.reconcile(all)
		case <-t.ctx.Done():
			t.mu.Lock()
			for _, h := range t.holdings {
				h.stop(context.Cause(t.ctx))
			}
			t.mu.Unlock()
			return
		}
	}
}

// look reads the plan, if it has changed.
func (t *term) look() {
	t.mu.Lock()
	unless := t.version
	t.mu.Unlock()
	wire, version, err := t.readPlan(t.ctx, unless)
	var owners map[string]string
	if wire != nil {
		owners, err = t.resolve(t.ctx, wire)
	}
	if errors.Is(err, store.ErrNotModified) {
		err = nil
	}
	if t.ctx.Err() != nil {
		return
	}
	t.failing(err)
	if owners == nil {
		return
	}
	t.told(wire.named(owners), version)
}

// unknown reports whether no plan has named this worker for too long.
func (t *term) unknown() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.plan == nil || slices.ContainsFunc(t.plan.Workers, func(m Member) bool { return m.Session == t.me }) {
		t.named = time.Now()
	}
	return time.Since(t.named) > unnamed*t.opts.TTL
}

// reconcile begins missing holdings and ends surplus ones.
func (t *term) reconcile(all *sync.WaitGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, h := range t.holdings {
		if t.plan.Owners[name] != t.me {
			h.stop(ErrMoved)
		}
	}
	for name := range t.names {
		// A holding that is ending begins again afterwards.
		if t.plan.Owners[name] == t.me && t.holdings[name] == nil {
			h := t.holding()
			t.holdings[name] = h
			all.Go(func() { t.hold(name, h) })
		}
	}
}

// holding returns a holding that outlives the term's context, until the work has returned.
func (t *term) holding() *holding {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(t.ctx))
	return &holding{ctx, stop}
}

// hold owns a shard until it must be released.
func (t *term) hold(name string, h *holding) {
	defer func() {
		h.stop(nil)
		t.mu.Lock()
		delete(t.holdings, name)
		t.mu.Unlock()
		t.poke()
	}()
	opts := t.lockOptions(t.session)
	opts.Trace = t.trace
	lock, err := leasehold.NewLock(t.locks, t.shardKey(name), opts)
	if err != nil {
		t.opts.Logger.Warn("a shard cannot be owned", "shard", name, "error", err)
		<-h.ctx.Done()
		return
	}
	for h.ctx.Err() == nil {
		lease, err := lock.Acquire(h.ctx)
		switch {
		case err == nil:
			t.own(Shard{Name: name, Token: lease.Token(), Lease: lease}, h)
			sleep(h.ctx, t.interval()) // if h has not ended, the lease was abandoned
		case h.ctx.Err() != nil:
		case errors.Is(err, leasehold.ErrSessionOver):
			<-h.ctx.Done()
		default:
			t.opts.Logger.Warn("a shard cannot be owned at present", "shard", name, "error", err)
			sleep(h.ctx, t.opts.TTL)
		}
	}
	last, cancel := cleanupContext(t.ctx, t.opts.TTL)
	defer cancel()
	_ = lock.Settle(last)
}

// own works on a shard under its lease, and then releases it.
func (t *term) own(s Shard, h *holding) {
	ctx, cancel := context.WithCancelCause(h.ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.Lease.Context(), func() { cancel(context.Cause(s.Lease.Context())) })()
	t.owns(s, true)
	for ctx.Err() == nil {
		if err := t.work(ctx, s); ctx.Err() == nil {
			t.opts.Logger.Warn("the work on a shard has returned, and will begin again", "shard", s.Name, "error", err)
			sleep(ctx, t.opts.TTL/2)
		}
	}
	t.owns(s, false)
	t.release(s.Lease)
}

func (t *term) owns(s Shard, yes bool) {
	t.Worker.mu.Lock()
	defer t.Worker.mu.Unlock()
	if yes {
		t.owned[s.Name] = s
		return
	}
	delete(t.owned, s.Name)
}
