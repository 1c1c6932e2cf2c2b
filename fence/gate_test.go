package fence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck"
)

// entry is a call of Enter that goes on in a goroutine of its own.
type entry struct {
	done  chan struct{} // closed when it has returned
	ctx   context.Context
	leave func()
	err   error
}

func enter(ctx context.Context, g *fence.Gate, h fence.Holder) *entry {
	e := &entry{done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.ctx, e.leave, e.err = g.Enter(ctx, "r", h)
	}()
	return e
}

// waits lets everything happen that can, and reports that the entry still waits.
func (e *entry) waits() bool {
	synctest.Wait()
	select {
	case <-e.done:
		return false
	default:
		return true
	}
}

// inside is an entry that must succeed at once.
func inside(t *testing.T, g *fence.Gate, h fence.Holder) *entry {
	t.Helper()
	e := enter(t.Context(), g, h)
	if e.waits() || e.err != nil {
		t.Fatalf("token %v is not let in: %v", h.Token(), e.err)
	}
	return e
}

func wantEmpty(t *testing.T, g *fence.Gate) {
	t.Helper()
	if n := g.Rooms(); n != 0 {
		t.Errorf("the gate keeps %d resources, with nobody inside", n)
	}
}

// The sequence that a check alone lets through.
func TestGateDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.NewGate(&fence.Memory{})
		first, second := inside(t, g, fence.Token(1)), inside(t, g, fence.Token(1))
		elsewhere, leaveElsewhere, err := g.Enter(t.Context(), "another", fence.Token(1))
		if err != nil {
			t.Fatal(err)
		}
		newer := enter(t.Context(), g, fence.Token(2))
		if !newer.waits() {
			t.Error("token 2 is inside, and two with token 1 have not left")
		}
		for _, old := range []*entry{first, second} {
			wantFenced(t, context.Cause(old.ctx), "r", 1, 2)
		}
		// Refused from now on, not only once the newer one is inside.
		_, _, err = g.Enter(t.Context(), "r", fence.Token(1))
		wantFenced(t, err, "r", 1, 2)

		first.leave()
		first.leave() // counts once
		if !newer.waits() {
			t.Error("token 2 is inside, and one with token 1 has not left")
		}
		second.leave()
		if newer.waits() || newer.err != nil || newer.ctx.Err() != nil {
			t.Errorf("token 2 is not let in: %v", newer.err)
		}
		if elsewhere.Err() != nil {
			t.Error("another resource is cancelled too")
		}
		newer.leave()
		if newer.ctx.Err() == nil {
			t.Error("the context goes on after the work")
		}
		leaveElsewhere()
		wantEmpty(t, g)
	})
}

// One that waits is overtaken by a newer one, which waits for all the others.
func TestGateOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.NewGate(&fence.Memory{})
		first := inside(t, g, fence.Token(1))
		second := enter(t.Context(), g, fence.Token(2))
		synctest.Wait()
		third := enter(t.Context(), g, fence.Token(3))
		if !third.waits() {
			t.Error("token 3 is inside, and token 1 has not left")
		}
		<-second.done
		wantFenced(t, second.err, "r", 2, 3)
		first.leave()
		if third.waits() || third.err != nil {
			t.Fatalf("token 3 is not let in: %v", third.err)
		}
		third.leave()
		wantEmpty(t, g)
	})
}

// slow admits, and then keeps the answer for one token back.
type slow struct {
	fence.Memory
	token leasehold.Token
	hold  chan struct{}
}

func (s *slow) Check(ctx context.Context, resource string, h fence.Holder) error {
	err := s.Memory.Check(ctx, resource, h)
	if h.Token() == s.token {
		<-s.hold
	}
	return err
}

// One who was admitted by the Checker, and comes to the gate after a newer one has
// come and gone, used to find nothing there.
func TestGateAfterSlowCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slow{token: 1, hold: make(chan struct{})}
		g := fence.NewGate(c)
		first := enter(t.Context(), g, fence.Token(1))
		synctest.Wait()
		inside(t, g, fence.Token(2)).leave()
		close(c.hold)
		<-first.done
		wantFenced(t, first.err, "r", 1, 2)
		wantEmpty(t, g)
	})
}

// A holder that another gate with the same Checker has admitted ends the older ones
// inside this gate, as soon as this one learns of it.
func TestGatesWithOneChecker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m fence.Memory
		here, there := fence.NewGate(&m), fence.NewGate(&m)
		first := inside(t, here, fence.Token(1))
		inside(t, there, fence.Token(3)).leave()
		_, _, err := here.Enter(t.Context(), "r", fence.Token(2))
		wantFenced(t, err, "r", 2, 3)
		wantFenced(t, context.Cause(first.ctx), "r", 1, 3)
		first.leave()
		wantEmpty(t, here)
	})
}

func TestGateContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.NewGate(&fence.Memory{})
		first := inside(t, g, fence.Token(1))
		ctx, cancel := context.WithCancelCause(t.Context())
		second := enter(ctx, g, fence.Token(2))
		synctest.Wait()
		enough := errors.New("enough")
		cancel(enough)
		if second.waits() || !errors.Is(second.err, enough) {
			t.Errorf("got %v, want the context's cause", second.err)
		}
		// It was recorded all the same.
		_, _, err := g.Enter(t.Context(), "r", fence.Token(1))
		wantFenced(t, err, "r", 1, 2)
		first.leave()
		if _, _, err := g.Enter(ctx, "r", fence.Token(2)); !errors.Is(err, enough) {
			t.Errorf("an ended context gets in: %v", err)
		}
		wantEmpty(t, g)
	})
}

type broken struct{ fail func() error }

func (b broken) Check(context.Context, string, fence.Holder) error { return b.fail() }

func TestGateCheckerFails(t *testing.T) {
	down := errors.New("the database is down")
	g := fence.NewGate(broken{func() error { return down }})
	if _, _, err := g.Enter(t.Context(), "r", fence.Token(1)); !errors.Is(err, down) {
		t.Errorf("got %v, want what the Checker said", err)
	}
	wantEmpty(t, g)

	g = fence.NewGate(broken{func() error { panic("a bug in the Checker") }})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_, _, _ = g.Enter(t.Context(), "r", fence.Token(1))
	}()
	wantEmpty(t, g)
}

// The Holder that work finds in its context stands for this piece of work: no more is
// sent once it is fenced, and a resource that it writes to can fence it.
func TestGateHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if h := fence.HolderFrom(t.Context()); h != nil {
			t.Errorf("a bare context carries %v", h)
		}
		g := fence.NewGate(&fence.Memory{})
		first := inside(t, g, fence.Token(1))
		h := fence.HolderFrom(first.ctx)
		if err := fence.Admit(h); h.Token() != 1 || err != nil {
			t.Errorf("the work carries token %v: %v", h.Token(), err)
		}
		newer := enter(t.Context(), g, fence.Token(2))
		synctest.Wait()
		wantFenced(t, fence.Admit(h), "r", 1, 2)
		first.leave()
		<-newer.done

		err := fence.Refuse(fence.HolderFrom(newer.ctx), "further on", 9)
		wantFenced(t, err, "further on", 2, 9)
		wantFenced(t, context.Cause(newer.ctx), "further on", 2, 9)
		newer.leave()
	})
}

// A lease that goes through a gate ends when it is refused: at the Checker, at the
// door, or inside.
func TestGateEndsLease(t *testing.T) {
	var m fence.Memory
	g := fence.NewGate(&m)
	lease := fencecheck.Lease(t)
	ctx, leave, err := g.Enter(t.Context(), "r", lease)
	if err != nil {
		t.Fatal(err)
	}
	newest := fence.Token(lease.Token() + 1)
	arrived := make(chan error, 1)
	go func() {
		_, out, refused := g.Enter(t.Context(), "r", newest)
		if refused == nil {
			out()
		}
		arrived <- refused
	}()
	<-ctx.Done()
	<-lease.Done()
	wantFenced(t, context.Cause(ctx), "r", fence.Token(lease.Token()), newest)
	fencecheck.Lost(t, lease, "r", newest.Token())
	leave()
	if err = <-arrived; err != nil {
		t.Error(err)
	}

	if err = m.Check(t.Context(), "r", newest+1<<40); err != nil {
		t.Fatal(err)
	}
	late := fencecheck.Lease(t)
	_, _, err = g.Enter(t.Context(), "r", late)
	wantFenced(t, err, "r", fence.Token(late.Token()), newest+1<<40)
	fencecheck.Lost(t, late, "r", (newest + 1<<40).Token())
}

// Many at once, in any order: nobody is inside together with a different token, and
// nobody begins after a newer one has begun. Without the gate both happen.
func TestGateRace(t *testing.T) {
	for _, gated := range []bool{true, false} {
		var m fence.Memory
		violations, worked, refused := race(t, &m, fence.NewGate(&m), gated)
		t.Logf("gate %t: %d worked, %d were refused, %d violations", gated, worked, refused, violations)
		if gated != (violations == 0) {
			t.Errorf("gate %t: %d violations", gated, violations)
		}
		if worked < 50 || refused < 50 {
			t.Errorf("gate %t: %d worked and %d were refused, too few to say anything", gated, worked, refused)
		}
	}
}

func race(t *testing.T, c fence.Checker, g *fence.Gate, gated bool) (violations, worked, refused int) {
	t.Helper()
	var mu sync.Mutex
	var next atomic.Int64
	var newest leasehold.Token
	inside := make(map[leasehold.Token]int)

	work := func(token leasehold.Token) {
		mu.Lock()
		worked++
		inside[token]++
		if newest = max(newest, token); token < newest || len(inside) > 1 {
			violations++
		}
		mu.Unlock()
		for range 20 {
			runtime.Gosched()
		}
		mu.Lock()
		if inside[token]--; inside[token] == 0 {
			delete(inside, token)
		}
		mu.Unlock()
	}
	var wg sync.WaitGroup
	for worker := range uint64(16) {
		random := rand.New(rand.NewPCG(1, worker))
		wg.Go(func() {
			for range 200 {
				token := fence.Token(1 + next.Add(1)/32 + random.Int64N(2)) // some come late
				leave := func() {}
				var err error
				if gated {
					_, leave, err = g.Enter(t.Context(), "r", token)
				} else {
					err = c.Check(t.Context(), "r", token)
				}
				if err != nil {
					mu.Lock()
					refused++
					mu.Unlock()
					continue
				}
				work(token.Token())
				leave()
			}
		})
	}
	wg.Wait()
	wantEmpty(t, g)
	return violations, worked, refused
}

// leaseOf is a holder that counts how often it is told that it is fenced.
type leaseOf struct{ abandoned int }

func (*leaseOf) Token() leasehold.Token { return 1 }

func (l *leaseOf) Abandon(error) { l.abandoned++ }

// Work that has ended is not fenced any more: its lease may be doing something else. No test
// noticed when it was, as long as somebody else was inside.
func TestGateForgetsWhoHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.NewGate(&fence.Memory{})
		left, stays := new(leaseOf), new(leaseOf)
		first, second := inside(t, g, left), inside(t, g, stays)
		first.leave()
		newer := enter(t.Context(), g, fence.Token(2))
		synctest.Wait()
		second.leave()
		<-newer.done
		newer.leave()
		if left.abandoned != 0 || stays.abandoned != 1 {
			t.Errorf("who has left is fenced %d times, and who is inside %d times", left.abandoned, stays.abandoned)
		}
	})
}
