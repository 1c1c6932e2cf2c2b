// Package shard divides named shards among workers, as consumers of a stream share its
// partitions. The division is even by weight, and few shards move when workers come and go. A
// hand-over is orderly: the new owner's work begins after the old owner's has returned.
//
//	w, err := shard.NewWorker(st, "streams/orders", names, nil)
//	err = w.Run(ctx, func(ctx context.Context, s shard.Shard) error {
//		return consume(ctx, s.Name, s.Token) // ctx ends before another worker can own the shard
//	})
//
// # The guarantee, and its limit
//
// Each shard is a [leasehold.Lock] under the worker's [leasehold.Session], with their
// guarantees: at most one valid lease at any instant, as long as clocks run at nearly the same
// rate, and a token that grows with each owner, for resources that refuse a smaller one after a
// larger one.
//
// An elected coordinator assigns shards in a plan, which is one object. The plan is advice. If
// it is wrong, late or lost, shards wait or stay where they are, but never get a second owner.
package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
)

// Options are the options of [NewWorker]. The zero value and nil mean the defaults.
type Options struct {
	// TTL, Holder, Address, Meta and Proof are as in [leasehold.SessionOptions]. Workers may
	// have different TTLs; each uses its own for what happens every TTL/3.
	TTL     time.Duration
	Holder  string
	Address string
	Meta    map[string]string
	Proof   store.Proof

	// Weight is this worker's capacity relative to the others: its share is Weight divided by
	// the sum of all weights, rounded down or up. Default 1; from 1 to 1000.
	Weight int

	// OnPlan is called on the coordinating worker after each plan it has written. The worker
	// does not poll until OnPlan returns, so it must be quick.
	OnPlan func(Plan)

	// Trace receives the events of the shards' locks, of their session, and of the
	// coordinator's election: see [locktrace.Trace]. Default: none.
	Trace *locktrace.Trace

	// Logger receives events that no error or callback reports. Default: slog.Default().
	Logger *slog.Logger
}

// A Shard is a shard the worker owns.
type Shard struct {
	Name  string
	Token leasehold.Token // larger than that of every earlier owner of the shard
	Lease *leasehold.Lease
}

// ErrMoved: the plan gives the shard to another worker. It is the cause of the end of the context
// of the work, which must stop.
var ErrMoved = errors.New("the shard is to go to another worker")

// A Worker owns its share of the shards while it runs. It is safe for concurrent use.
type Worker struct {
	*planStore
	opts  Options
	names map[string]bool
	list  string // the name of its list
	body  []byte // of its list
	locks store.Store
	trace *locktrace.Trace // of the locks of shards

	running sync.Mutex

	mu      sync.Mutex
	status  Status
	owned   map[string]Shard
	trouble struct{ plan, list, election, session string } // as last logged
}

// NewWorker returns a worker for shards. Their names must be valid in keys, and none may be
// below another ("a" and "a/b"). All shared objects of the workers are stored under prefix in
// st. NewWorker sends nothing.
//
// Workers should agree on the names. If they do not, as during a rolling deployment, a shard
// exists as long as a live worker names it, and is assigned only to workers that do.
func NewWorker(st store.Store, prefix string, shards []string, opts *Options) (*Worker, error) {
	if st == nil {
		return nil, errors.New("the store of a worker is nil")
	}
	w := &Worker{names: make(map[string]bool, len(shards)), owned: map[string]Shard{}, locks: gated{st, make(chan struct{}, abreast)}}
	w.planStore = newPlanStore(st, prefix)
	if opts != nil {
		w.opts = *opts
	}
	w.trace = ofShards(w.opts.Trace)
	if w.opts.Weight == 0 {
		w.opts.Weight = 1
	}
	if w.opts.Weight < 1 || w.opts.Weight > maxWeight {
		return nil, fmt.Errorf("the weight %d is not between 1 and %d", w.opts.Weight, maxWeight)
	}
	if w.opts.TTL == 0 {
		w.opts.TTL = leasehold.DefaultTTL
	}
	if w.opts.Logger == nil {
		w.opts.Logger = slog.Default()
	}
	if err := w.check(shards); err != nil {
		return nil, err
	}
	trial := w.lockOptions(nil) // NewLock checks the options of locks and sessions
	trial.Meta = w.opts.Meta
	if _, err := leasehold.NewLock(w.locks, w.coordinatorKey(), trial); err != nil {
		return nil, err
	}
	return w, nil
}

// check checks and records the shards' names.
func (w *Worker) check(shards []string) (err error) {
	for _, name := range shards {
		if err = store.CheckKey("shard", w.shardKey(name)); err != nil {
			return err
		}
		if w.names[name] {
			return fmt.Errorf("there are two shards %q", name)
		}
		w.names[name] = true
	}
	for name := range w.names {
		for i, r := range name {
			if r == '/' && w.names[name[:i]] {
				return fmt.Errorf("the shard %q lies below the shard %q, and some stores have no place for both", name, name[:i])
			}
		}
	}
	names := slices.Sorted(maps.Keys(w.names))
	if w.body, err = encodeList(names); err != nil {
		return err
	}
	if len(w.body) > store.MaxBody {
		return fmt.Errorf("the names of the %d shards have %d bytes together, more than %d", len(names), len(w.body), store.MaxBody)
	}
	w.list = nameOf(w.body)
	w.know(w.list, names)
	return store.CheckKey("worker", w.listKey(w.list))
}

func (w *Worker) lockOptions(s *leasehold.Session) *leasehold.LockOptions {
	return &leasehold.LockOptions{
		Session: s,
		TTL:     w.opts.TTL, Holder: w.opts.Holder, Address: w.opts.Address, Proof: w.opts.Proof,
		Layout: leasehold.LayoutObject, Logger: w.opts.Logger,
	}
}

// memberOptions returns the membership lock's options.
func (w *Worker) memberOptions(s *leasehold.Session) *leasehold.LockOptions {
	o := w.lockOptions(s)
	o.Meta = map[string]string{metaWeight: strconv.Itoa(w.opts.Weight), metaList: w.list}
	return o
}

func (w *Worker) sessionOptions() *leasehold.SessionOptions {
	return &leasehold.SessionOptions{
		TTL: w.opts.TTL, Holder: w.opts.Holder, Address: w.opts.Address, Meta: w.opts.Meta, Proof: w.opts.Proof,
		Trace: w.opts.Trace, Logger: w.opts.Logger, Prefix: w.prefix + "/sessions",
	}
}

// interval is how often a worker polls the plan, and a coordinator the workers.
func (w *Worker) interval() time.Duration { return w.opts.TTL / 3 }

// Run takes part until ctx ends. It calls work for each shard it owns, each on its own
// goroutine. The context passed to work carries the values of ctx. It ends, with a cause, when
// the shard must go to another worker ([ErrMoved]), when its lease is lost, or when ctx ends.
// Then work must return: the lease stays valid until it does, unless it was lost, and other
// workers wait.
//
// If work returns early, the worker keeps the shard and calls work again after TTL/2.
//
// When ctx ends, Run ends all work and waits for it, releases the shards and the session so
// that others need not wait for their expiry, and returns ctx.Err(). When the session is lost,
// Run ends all work, waits for it, and continues with a new session. It retries while the store
// cannot be reached. Run returns another error only if continuing is pointless: access is
// denied, the bucket does not exist, or the worker is already running. It leaves unrecognized
// objects as they are and continues: see [Status].
func (w *Worker) Run(ctx context.Context, work func(ctx context.Context, s Shard) error) error {
	if !w.running.TryLock() {
		return errors.New("the worker is running already")
	}
	defer w.running.Unlock()
	for failures := 1; ; failures++ {
		began := time.Now()
		err := w.term(ctx, work)
		if time.Since(began) > w.opts.TTL {
			failures = 1 // it worked at first
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if final(err) {
			return err
		}
		w.note(&w.trouble.session, "the worker begins anew", err)
		if !sleep(ctx, protocol.Pause(failures, nil)) {
			return ctx.Err()
		}
	}
}

// term runs one worker session.
func (w *Worker) term(ctx context.Context, work func(context.Context, Shard) error) error {
	if err := w.publish(ctx, w.list, w.body); err != nil {
		return err
	}
	session, err := leasehold.NewSession(ctx, w.st, w.sessionOptions())
	if err != nil {
		return err
	}
	w.begin(session)
	t := newTerm(ctx, w, session, work)
	err = t.run() //nolint:contextcheck // it has the context of the term
	last, cancel := cleanupContext(ctx, requestTimeout)
	defer cancel()
	if e := session.Close(last); e != nil && !errors.Is(e, leasehold.ErrLost) {
		w.opts.Logger.Warn("the session was not closed, and the others wait it out", "session", session.Key(), "error", e)
	}
	return err
}

// final is leasehold.Final for a worker: a new session can follow one that has ended for any
// reason, and unrecognized objects may be repaired.
func final(err error) bool {
	return store.Final(err) && !errors.Is(err, leasehold.ErrSessionOver)
}

// Status is a worker's state.
type Status struct {
	Session      string // the last part of its key; empty before the first
	Coordinating bool
	Token        leasehold.Token // of the plan that the worker follows
	Serial       int64           // of that plan; 0: none yet
	Shards       []Shard         // that it works on, by name

	// PlanErr is why the plan cannot be followed at present, or nil. Meanwhile the worker keeps
	// its shards.
	PlanErr error

	// ElectionErr is why no worker can become the coordinator at present, as far as this worker
	// knows: the object of the election, or of its leader's session, is not a record. Until
	// that is repaired, all workers keep their shards. ElectionErr is nil again when there is a
	// new plan.
	ElectionErr error
}

// Status returns the worker's state. It sends nothing.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	for _, name := range slices.Sorted(maps.Keys(w.owned)) {
		s.Shards = append(s.Shards, w.owned[name])
	}
	return s
}

func (w *Worker) begin(session *leasehold.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble.session = ""
	w.status = Status{Session: strings.TrimPrefix(session.Key(), w.sessionKey(""))}
}

// failing records why the plan cannot be followed or written, or with nil that it can.
func (w *Worker) failing(err error) {
	w.mu.Lock()
	w.status.PlanErr = err
	w.mu.Unlock()
	if err != nil && !errors.Is(err, ErrForeign) && !errors.Is(err, store.ErrNotExist) {
		w.opts.Logger.Debug("the plan could not be read or written", "prefix", w.prefix, "error", err)
		return // it is temporary
	}
	w.note(&w.trouble.plan, "the plan cannot be followed, and the worker keeps what it has", err)
}

// electing records why there can be no coordinator, or with nil that there is one.
func (w *Worker) electing(err error) {
	w.mu.Lock()
	w.status.ElectionErr = err
	w.mu.Unlock()
	w.note(&w.trouble.election, "nobody can become the coordinator, and the worker keeps what it has", err)
}

// note logs a problem when it begins or changes, and records its end.
func (w *Worker) note(last *string, what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	w.mu.Lock()
	same := *last == text
	*last = text
	w.mu.Unlock()
	if err != nil && !same {
		w.opts.Logger.Warn(what, "prefix", w.prefix, "error", err)
	}
}

// sleep waits for about d, and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d + rand.N(d/16+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// abreast is how many requests for locks a worker has in flight at a time, because it may have
// to take thousands of shards at once. Heartbeats are not limited.
const abreast = 64

// gated is a store with a limit on requests in flight.
type gated struct {
	store.Store
	slots chan struct{}
}

func (g gated) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := g.enter(ctx, "get", key); err != nil {
		return nil, err
	}
	defer func() { <-g.slots }()
	return g.Store.Get(ctx, key, unless)
}

func (g gated) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := g.enter(ctx, "put", key); err != nil {
		return nil, err
	}
	defer func() { <-g.slots }()
	return g.Store.Put(ctx, key, body, only)
}

func (g gated) enter(ctx context.Context, op, key string) error {
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &store.Error{Op: op, Key: key, Kind: store.ErrUnavailable, Cause: ctx.Err()}
	}
}

// cleanupContext returns a context for cleaning up after the context of the work may have
// ended.
func cleanupContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}
