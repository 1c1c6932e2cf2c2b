// Package histories plays what clients do to a fenced resource over a bad network, and has it
// checked against a model.
package histories

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/internal/linear"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

func judge(err error) linear.Verdict {
	switch {
	case err == nil:
		return linear.Done
	case errors.Is(err, store.ErrUnknownOutcome):
		return linear.Unknown
	case errors.Is(err, fence.ErrFenced):
		return linear.Refused
	}
	return linear.Failed
}

// A History is what all clients did.
type History struct {
	mu  sync.Mutex
	ops []linear.Op
}

// Record runs one operation of a client.
func (h *History) Record(t *testing.T, client int, c linear.Command, do func() (string, error)) linear.Verdict {
	t.Helper()
	begin := now()
	value, err := do()
	o := linear.Outcome{Is: judge(err), Value: value}
	if by, ok := errors.AsType[*fence.FencedError](err); ok && (int64(by.Token) != c.Token || int64(by.Newest) <= c.Token) {
		t.Errorf("%v: %v", c, err)
	}
	if c.Op == "open" && o.Is != linear.Done { // perhaps it was, before a larger token came
		o.Is = linear.Unknown
	}
	end := now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, linear.Op{Client: client, Asked: c, Told: o, Begin: begin, End: end})
	return o.Is
}

// ticks gives each beginning and end a place of its own, since virtual time stands still
// while nobody waits.
var ticks struct {
	sync.Mutex
	n time.Duration
}

func now() time.Duration {
	ticks.Lock()
	defer ticks.Unlock()
	ticks.n++
	return ticks.n
}

// badNetwork are all kinds of fault, before the request and after.
func badNetwork(r *rand.Rand) []faultstore.Fault {
	p := func() float64 { return r.Float64() * r.Float64() * 0.3 }
	return []faultstore.Fault{
		{Kind: faultstore.LostRequest, Probability: p()},
		{Kind: faultstore.LostAnswer, Probability: p()},
		{Kind: faultstore.Unavailable, Probability: p()},
		{Kind: faultstore.Throttled, Probability: p()},
		{Kind: faultstore.Conflict, Probability: p()},
		{Kind: faultstore.LateLanding, Probability: p(), Jitter: 20 * time.Second},
		{Kind: faultstore.LateDuplicate, Probability: p(), Jitter: 20 * time.Second},
		{Kind: faultstore.SecondAnswer, Probability: p()},
		{Kind: faultstore.DelayBefore, Probability: p(), Jitter: 3 * time.Second},
		{Kind: faultstore.DelayAfter, Probability: p(), Jitter: 3 * time.Second},
	}
}

// Check runs histories of clients against one resource over a bad network, from a seed
// on, and has each checked against the model.
func Check(t *testing.T, first uint64, count int, m porcupine.Model, clients func(t *testing.T, r *rand.Rand, st *faultstore.Store, h *History)) {
	t.Helper()
	operations := 0
	defer func() {
		t.Logf("figures: %d histories of %d operations, all linearizable: %t", count, operations, !t.Failed())
	}()
	for seed := first; seed < first+uint64(count); seed++ {
		h := new(History)
		var requests *faultstore.Store
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			st := fencecheck.NewStore(seed, badNetwork(r)...)
			clients(t, r, st, h)
			st.Wait()
			requests = st
		})
		operations += len(h.ops)
		if err := linear.Check(m, h.ops, t.ArtifactDir()); err != nil {
			t.Fatalf("the history of -seed %d -histories 1: %v\n%v", seed, err, requests.Log())
		}
	}
}
