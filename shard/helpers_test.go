package shard_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

var long = flag.Bool("long", false, "run TestDay in full: 100 workers, 5,000 shards, a day")

const prefix = "streams/orders"

var bubble = leasetest.Bubble

func names(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%05d", i))
	}
	return all
}

// A fleet is workers of one prefix, and a record of which works on which shard.
type fleet struct {
	t      *testing.T
	st     *memstore.Store
	shards []string
	drain  time.Duration // how long work takes to return
	fickle bool          // work returns by itself, as fast as it can
	refuse string        // a shard whose work gives its lease up, once

	mu     sync.Mutex
	nodes  []*node
	at     map[string]running
	tokens map[string]leasehold.Token
	starts map[string]int
	plans  []shard.Plan // that were written, in order
	broken []string
}

// running is the work on one shard.
type running struct {
	node  *node
	lease *leasehold.Lease
	done  bool // it has returned
}

// A node is one process with one worker.
type node struct {
	name   string
	st     *faultstore.Store
	worker *shard.Worker
	weight int
	cancel context.CancelFunc
	gone   bool // stopped or crashed
	done   chan struct{}
	err    error
}

func newFleet(t *testing.T, shards int) *fleet {
	t.Helper()
	return &fleet{
		t: t, st: memstore.New(), shards: names(shards),
		at: map[string]running{}, tokens: map[string]leasehold.Token{}, starts: map[string]int{},
	}
}

// settledFleet is three workers that share thirty shards.
func settledFleet(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, 30)
	for _, name := range []string{"a", "b", "c"} {
		f.start(name, nil)
	}
	f.settle()
	return f
}

// start starts a worker; opts may be nil.
func (f *fleet) start(name string, opts *shard.Options) *node {
	f.t.Helper()
	return f.startWith(name, f.shards, opts)
}

func (f *fleet) startWith(name string, shards []string, opts *shard.Options) *node {
	f.t.Helper()
	return f.startOver(faultstore.Wrap(f.st, nil), name, shards, opts)
}

// startOver starts a worker over a store that may be in a bad way already.
func (f *fleet) startOver(st *faultstore.Store, name string, shards []string, opts *shard.Options) *node {
	f.t.Helper()
	var o shard.Options
	if opts != nil {
		o = *opts
	}
	o.Holder = name
	if o.Logger == nil && testing.Verbose() && !*long {
		o.Logger = slog.New(slog.NewTextHandler(f.t.Output(), nil)).With("worker", name)
	}
	o.OnPlan = func(p shard.Plan) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.plans = append(f.plans, p)
	}
	n := &node{name: name, st: st, weight: max(o.Weight, 1), done: make(chan struct{})}
	var err error
	if n.worker, err = shard.NewWorker(n.st, prefix, shards, &o); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	n.cancel = cancel
	f.mu.Lock()
	f.nodes = append(f.nodes, n)
	f.mu.Unlock()
	go func() {
		defer close(n.done)
		n.err = n.worker.Run(ctx, func(ctx context.Context, s shard.Shard) error { return f.work(ctx, n, s) })
	}()
	return n
}

// work checks at its beginning that nobody else is at it.
func (f *fleet) work(ctx context.Context, n *node, s shard.Shard) error {
	f.mu.Lock()
	before, again := f.at[s.Name]
	f.starts[s.Name]++
	switch same := again && before.lease == s.Lease; {
	case same && !before.done:
		f.fault("%s is worked on twice by %s", s.Name, n.name)
	case again && !same && before.lease.Valid():
		f.fault("%s has two owners: %s begins while the lease of %s is valid", s.Name, n.name, before.node.name)
	case again && !same && !before.done && !errors.Is(before.lease.Err(), leasehold.ErrLost):
		f.fault("%s: %s begins before the work of %s has returned", s.Name, n.name, before.node.name)
	case s.Token < f.tokens[s.Name] || s.Token == f.tokens[s.Name] && !same:
		f.fault("%s has token %v after %v", s.Name, s.Token, f.tokens[s.Name])
	}
	f.tokens[s.Name] = s.Token
	f.at[s.Name] = running{n, s.Lease, false}
	fickle := f.fickle
	if f.refuse == s.Name {
		f.refuse = ""
		s.Lease.Abandon(errors.New("the resource has refused the token"))
	}
	f.mu.Unlock()
	if !fickle {
		<-ctx.Done()
		f.mu.Lock()
		drain := f.drain
		f.mu.Unlock()
		time.Sleep(drain)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.at[s.Name]; now.lease == s.Lease {
		now.done = true
		f.at[s.Name] = now
	}
	return nil
}

func (f *fleet) fault(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

// check fails the test for what has gone wrong.
func (f *fleet) check() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, what := range f.broken {
		if i == 10 {
			f.t.Errorf("and %d more", len(f.broken)-i)
			break
		}
		f.t.Error(what)
	}
	f.broken = nil
}

// living are the workers that were not ended.
func (f *fleet) living() (all []*node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.nodes {
		if !n.gone {
			all = append(all, n)
		}
	}
	return all
}

// load is how many shards a worker works on.
func (f *fleet) load(n *node) (load int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.at {
		if r.node == n && !r.done && r.lease.Valid() {
			load++
		}
	}
	return load
}

// even says what is not as it is to be when all is calm, or nothing.
func (f *fleet) even() string {
	living := f.living()
	total, load, sum := 0, map[*node]int{}, 0
	for _, n := range living {
		total += n.weight
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.at {
		if !r.done && r.lease.Valid() {
			load[r.node]++
			sum++
		}
	}
	if sum != len(f.shards) {
		return fmt.Sprintf("%d of %d shards are worked on", sum, len(f.shards))
	}
	for _, n := range living {
		share := len(f.shards) * n.weight
		if got := load[n]; got < share/total || got > (share+total-1)/total {
			return fmt.Sprintf("%s has %d shards, and its share is %d/%d", n.name, got, share, total)
		}
	}
	return ""
}

// settle waits until all shards are worked on, evenly, and returns how long that took.
func (f *fleet) settle() time.Duration {
	f.t.Helper()
	begin := time.Now()
	for why := f.even(); why != ""; why = f.even() {
		if time.Since(begin) > 10*time.Minute {
			f.t.Fatalf("not within ten minutes: %s", why)
		}
		time.Sleep(100 * time.Millisecond)
	}
	f.check()
	return time.Since(begin)
}

// take takes a worker off.
func (f *fleet) take(n *node) {
	f.mu.Lock()
	n.gone = true
	f.mu.Unlock()
	n.cancel()
}

// stop ends a worker in order.
func (f *fleet) stop(n *node) {
	f.take(n)
	<-n.done
}

// crash takes a worker away: it has no more requests, and its work is gone.
func (f *fleet) crash(n *node) {
	n.st.Partition(true)
	f.take(n)
}

// end ends all workers.
func (f *fleet) end() {
	f.t.Helper()
	f.mu.Lock()
	all := f.nodes
	f.mu.Unlock()
	for _, n := range all {
		f.take(n)
	}
	for _, n := range all {
		<-n.done
		if n.err != context.Canceled { //nolint:errorlint // it is to be that very error
			f.t.Errorf("%s ended with %v", n.name, n.err)
		}
	}
	time.Sleep(2 * ttl) // for what goes on in the background, in vain or not
	for _, n := range all {
		n.st.Close()
	}
	f.check()
}

// coordinator is the worker that coordinates.
func (f *fleet) coordinator() *node {
	f.t.Helper()
	for {
		for _, n := range f.living() {
			if s := n.worker.Status(); s.Coordinating && s.PlanErr == nil {
				return n
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// other is a worker that does not coordinate.
func (f *fleet) other() *node {
	f.t.Helper()
	c := f.coordinator()
	for _, n := range f.living() {
		if n != c {
			return n
		}
	}
	f.t.Fatal("there is no other worker")
	return nil
}

// sent sums what was sent to the store, by what it was for.
func sent(n *node) map[string]int {
	all := map[string]int{}
	for _, e := range n.st.Log() {
		what, _, _ := strings.Cut(strings.TrimPrefix(e.Key, prefix+"/"), "/")
		all[e.Op+" "+what]++
	}
	return all
}

// put writes a body over whatever is there, once more if somebody else was faster.
func put(t *testing.T, st store.Store, key, body string) {
	t.Helper()
	for {
		only := store.IfAbsent()
		if obj, err := st.Get(t.Context(), key, ""); err == nil {
			only = store.IfMatch(obj.Version)
		}
		switch _, err := st.Put(t.Context(), key, []byte(body), only); {
		case err == nil:
			return
		case !errors.Is(err, store.ErrPrecondition):
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, st store.Store, key string) string {
	t.Helper()
	obj, err := st.Get(t.Context(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	return string(obj.Body)
}

// begun is how often work has begun on each shard.
func (f *fleet) begun() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.starts)
}

func (f *fleet) token(name string) leasehold.Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tokens[name]
}

// last is the last plan, and which it is.
func (f *fleet) last() (shard.Plan, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.plans[len(f.plans)-1], len(f.plans)
}

// set changes how work goes on from now.
func (f *fleet) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}
