//go:build unix

package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// A scissor cuts a process off from all members after so many writes.
type scissor struct {
	after int // 0: never

	mu     sync.Mutex
	writes int
}

var errCut = errors.New("cut off by the test")

// let reports whether a request is let through.
func (c *scissor) let(write bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.after > 0 && c.writes >= c.after {
		return false
	}
	if write {
		c.writes++
	}
	return true
}

// cut reports whether it has happened.
func (c *scissor) cut() bool { return !c.let(false) }

// A member is a store that can be cut off.
type member struct {
	store.Store
	*scissor
}

func (m member) refuse(op, key string) error {
	return &store.Error{Op: op, Key: key, Kind: store.ErrUnavailable, Cause: errCut}
}

func (m member) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if !m.let(false) {
		return nil, m.refuse("get", key)
	}
	return m.Store.Get(ctx, key, unless)
}

// Put: the answer to the last write is lost.
func (m member) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if !m.let(true) {
		return nil, m.refuse("put", key)
	}
	o, err := m.Store.Put(ctx, key, body, only)
	if m.cut() {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome, Cause: errCut}
	}
	return o, err
}

func (m member) Delete(ctx context.Context, key string) error {
	if !m.let(true) {
		return m.refuse("delete", key)
	}
	return m.Store.Delete(ctx, key)
}

func (m member) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	if !m.let(false) {
		return func(yield func(store.Entry, error) bool) { yield(store.Entry{}, m.refuse("list", prefix)) }
	}
	return m.Store.List(ctx, prefix, after)
}

// A changing quorum is one whose members are replaced. Processes are told of none of it.
type changing struct {
	t       *testing.T
	mu      sync.Mutex
	all     []*place // that were ever members
	members []*place
}

func (c *changing) known() []*place {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// TestReplaceUnderLoad: candidates fight for locks while one member after another is replaced, and each change is
// interrupted after another of its writes, and then finished. Nobody notices, and who was replaced is not asked any
// more, and goes.
func TestReplaceUnderLoad(t *testing.T) {
	t.Parallel()
	const keys = 12
	const interruptions = 10
	seed := newSeed()
	c := &changing{t: t, members: start(t)}
	c.all = slices.Clone(c.members)
	first := open(t, c.members, process{known: c.known})
	if err := first.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if _, err := first.Put(t.Context(), fmt.Sprintf("others/%d", i), fmt.Append(nil, i), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	var stores []store.Store
	for range 3 {
		stores = append(stores, open(t, c.members, process{known: c.known}))
	}
	f := fought(t, seed, stores)
	defer f.judge(t)
	t.Logf("-seed %d", seed)
	f.goesOn(t, "at first", 1)

	writes := c.replace(f, "a change that is not interrupted", 0, 0, false)
	t.Logf("figures: a change is %d writes, with %d objects and two locks that are fought for", writes, keys)
	for i := range interruptions {
		after := 1 + i*(writes-1)/(interruptions-1)
		what := fmt.Sprintf("change %d, seed %d: interrupted after %d of %d writes", i+1, seed, after, writes)
		c.replace(f, what, i+1, after, i%2 == 0)
		if t.Failed() {
			return
		}
	}
	last := open(t, c.members, process{known: c.known})
	for i := range keys {
		o, err := last.Get(t.Context(), fmt.Sprintf("others/%d", i), "")
		if err != nil || string(o.Body) != fmt.Sprint(i) {
			t.Errorf("object %d, after all changes: %v, %v", i, o, err)
		}
	}
}

// replace replaces the n-th member by a new place, interrupts that after so many writes, and finishes it by Repair,
// or by Replace again. It returns how many writes that was, without what finishes it.
func (c *changing) replace(f *fight, what string, n, after int, repair bool) int {
	t := c.t
	t.Helper()
	f.meets(fmt.Sprint("change ", n))
	began := time.Now()
	var took []time.Duration
	lap := func() { took = append(took, time.Since(began).Round(time.Millisecond)) }
	old := c.members[n%len(c.members)]
	by := newPlace(t, old.server)
	next := slices.Clone(c.members)
	next[n%len(c.members)] = by
	c.mu.Lock()
	c.all = append(c.all, by)
	c.mu.Unlock()

	s := &scissor{after: after}
	wrap := func(st store.Store) store.Store { return member{st, s} }
	begins := open(t, c.members, process{known: c.known, wrap: wrap})
	err := begins.Replace(t.Context(), old.name, wrap(by.open(t.Context())))
	interrupted := s.cut()
	lap()
	if err != nil && !interrupted {
		t.Errorf("%s: it says %v", what, err)
	}
	f.goesOn(t, "while there is "+what, 0)
	lap()
	finished := "by itself"
	if err != nil && repair {
		finished = "by Repair"
		if failed := open(t, c.members, process{known: c.known}).Repair(t.Context()); failed != nil {
			t.Errorf("%s: repair: %v", what, failed)
		}
		if in, failed := among(t, open(t, c.members, process{known: c.known}), by); !in && failed == nil {
			repair, finished = false, "by Repair, for which it was too early, and Replace"
		}
	}
	if err != nil && !repair {
		if finished == "by itself" {
			finished = "by Replace"
		}
		again := open(t, c.members, process{known: c.known})
		if err := again.Replace(t.Context(), old.name, by.open(t.Context())); err != nil {
			t.Errorf("%s: run again: %v", what, err)
		}
	}
	c.members = next
	lap()
	operator := open(t, c.members, process{known: c.known})
	if err := voting(t.Context(), operator); err != nil {
		t.Errorf("%s: when it is finished %s, %v", what, finished, err)
	}
	if in, err := among(t, operator, by); !in {
		t.Errorf("%s: when it is finished %s, %s is no member: %v", what, finished, by.name, err)
	}
	lap()
	// Each candidate finds out by itself. Then the old place may go for good.
	asked := int64(-1)
	tries := 0
	for now := old.came.Load(); now != asked; now = old.came.Load() {
		if tries++; tries > 20 {
			t.Fatalf("%s: the old member is still asked: %d requests", what, now)
		}
		asked = now
		f.goesOn(t, "without the old member after "+what, 0)
	}
	old.proxy.Refuse()
	lap()
	t.Logf("%s (%t); the locks went on; finished %s; looked at; the old member left alone: after %v",
		what, interrupted, finished, took)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// among reports whether the place is a member, by the quorum's own word.
func among(t *testing.T, st *quorumstore.Store, p *place) (bool, error) {
	t.Helper()
	_, members, err := st.Status(t.Context())
	return slices.ContainsFunc(members, func(m quorumstore.MemberStatus) bool { return m.Place == p.name }), err
}
