package fence_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
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

var (
	histories = flag.Int("histories", 0, "how many histories to check; by default thousands of each kind")
	firstSeed = flag.Uint64("seed", 1, "seed of the first history")
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

// A history is what all clients did.
type history struct {
	mu  sync.Mutex
	ops []linear.Op
}

// record runs one operation.
func (h *history) record(t *testing.T, client int, c linear.Command, do func() (string, error)) linear.Verdict {
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
		{Kind: faultstore.DelayBefore, Probability: p(), Jitter: 3 * time.Second},
		{Kind: faultstore.DelayAfter, Probability: p(), Jitter: 3 * time.Second},
	}
}

// check runs histories of clients against one resource over a bad network, and has each
// checked against the model.
func check(t *testing.T, count int, m porcupine.Model, clients func(t *testing.T, r *rand.Rand, st *faultstore.Store, h *history)) {
	t.Helper()
	if *histories > 0 {
		count = *histories
	}
	operations := 0
	defer func() {
		t.Logf("figures: %d histories of %d operations, all linearizable: %t", count, operations, !t.Failed())
	}()
	for seed := *firstSeed; seed < *firstSeed+uint64(count); seed++ {
		h := new(history)
		var requests *faultstore.Store
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			st := newStore(seed, badNetwork(r)...)
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

func TestObjectHistories(t *testing.T) {
	t.Parallel()
	check(t, 3000, linear.Object, func(t *testing.T, r *rand.Rand, st *faultstore.Store, h *history) {
		var all sync.WaitGroup
		for client := range 4 {
			o := newObject(t, st, &fence.ObjectOptions{Apart: r.IntN(4) == 0})
			token := fence.Token(1 + r.IntN(4))
			own := rand.New(rand.NewPCG(r.Uint64(), 2))
			all.Go(func() {
				for range 5 {
					time.Sleep(time.Duration(own.Int64N(int64(2 * time.Second))))
					use(t, own, h, client, o, token)
				}
			})
		}
		all.Wait()
	})
}

// use does one operation. The few values come again and again, and with them the bytes.
func use(t *testing.T, r *rand.Rand, h *history, client int, o *fence.Object, token fence.Token) {
	t.Helper()
	ctx := t.Context()
	value := []string{"x", "y"}[r.IntN(2)]
	read := func(v *fence.Value, err error) (string, error) {
		if errors.Is(err, store.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		b, err := v.ReadAll(ctx)
		if err != nil { // of a claim that was done
			err = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
		}
		return string(b), err
	}
	switch k := r.IntN(10); {
	case k < 2:
		h.record(t, client, linear.Command{Op: "claim", Token: int64(token)}, func() (string, error) { return read(o.Claim(ctx, token)) })
	case k < 6:
		h.record(t, client, linear.Command{Op: "put", Token: int64(token), Value: value}, func() (string, error) {
			return "", o.Put(ctx, token, strings.NewReader(value))
		})
	case k < 7:
		h.record(t, client, linear.Command{Op: "delete", Token: int64(token)}, func() (string, error) { return "", o.Delete(ctx, token) })
	default:
		h.record(t, client, linear.Command{Op: "get"}, func() (string, error) { return read(o.Get(ctx)) })
	}
}

func TestLogHistories(t *testing.T) {
	t.Parallel()
	check(t, 2000, linear.Log, func(t *testing.T, r *rand.Rand, st *faultstore.Store, h *history) {
		var all sync.WaitGroup
		for client := range 3 {
			own := rand.New(rand.NewPCG(r.Uint64(), 3))
			all.Go(func() { lead(t, own, st, h, client) })
		}
		all.Go(func() {
			for range 4 {
				time.Sleep(time.Duration(r.Int64N(int64(5 * time.Second))))
				h.record(t, 9, linear.Command{Op: "read"}, func() (string, error) { return replay(t.Context(), newLog(t, st)) })
			}
		})
		all.Wait()
	})
}

// lead is one client of the log: it claims, and then appends, checkpoints and trims.
func lead(t *testing.T, r *rand.Rand, st store.Store, h *history, client int) {
	t.Helper()
	ctx := t.Context()
	for term := range 2 {
		time.Sleep(time.Duration(r.Int64N(int64(4 * time.Second))))
		token := fence.Token(1 + client + 3*term) // a token claims once
		l := newLog(t, st)
		var a *fence.Appender
		open := func() (_ string, err error) {
			a, err = l.Claim(ctx, token)
			return "", err
		}
		if h.record(t, client, linear.Command{Op: "open", Token: int64(token)}, open) != linear.Done {
			continue
		}
		var calls sync.WaitGroup
		for i := range 3 {
			for j := range 1 + r.IntN(2) {
				value := fmt.Sprintf("%d.%d.%d", token, i, j)
				calls.Go(func() {
					h.record(t, 10*client+j, linear.Command{Op: "append", Token: int64(token), Value: value}, func() (string, error) {
						_, err := a.Append(ctx, []byte(value))
						return "", err
					})
				})
			}
			calls.Wait()
			if r.IntN(2) == 0 {
				compact(ctx, l, a)
			}
		}
		time.Sleep(time.Minute) // for what is stuck
		a.Close()
	}
}

// compact makes a checkpoint of what is in the log so far, and trims it. That must
// change nothing for who reads.
func compact(ctx context.Context, l *fence.Log, a *fence.Appender) {
	last := a.Last()
	state, at, err := restore(ctx, l, last)
	if err != nil || at == 0 || a.Checkpoint(ctx, at, strings.NewReader(state)) != nil {
		return
	}
	_, _ = a.Trim(ctx)
}

// replay reads the whole log.
func replay(ctx context.Context, l *fence.Log) (string, error) {
	state, _, err := restore(ctx, l, math.MaxInt64)
	return state, err
}

// restore reads the log up to an entry: the checkpoint, and what comes after it.
func restore(ctx context.Context, l *fence.Log, to fence.Position) (string, fence.Position, error) {
	for {
		state, at, err := fencecheck.Restore(ctx, l, to)
		if !errors.Is(err, fence.ErrTrimmed) && !errors.Is(err, fence.ErrReplaced) {
			return state, at, err
		}
	}
}
