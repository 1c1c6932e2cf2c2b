package fence_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

var (
	histories = flag.Int("histories", 0, "how many histories to check; by default thousands of each kind")
	firstSeed = flag.Uint64("seed", 1, "seed of the first history")
)

// A command is what a client asked for, and outcome what it was told.
type command struct {
	op    string // of an object: "claim", "put", "delete", "get"; of a log: "open", "append", "read"
	token leasehold.Token
	value string
}

type outcome struct {
	value string
	is    verdict
}

type verdict int

const (
	done verdict = iota
	fenced
	unknown // it may have been done, or may yet be
	failed  // it was certainly not done
)

func (c command) String() string { return fmt.Sprintf("%s(%d, %q)", c.op, c.token, c.value) }

func (o outcome) String() string {
	return [...]string{"done", "fenced", "unknown", "failed"}[o.is] + fmt.Sprintf(" %q", o.value)
}

func judge(err error) verdict {
	switch {
	case err == nil:
		return done
	case errors.Is(err, store.ErrUnknownOutcome):
		return unknown
	case errors.Is(err, fence.ErrFenced):
		return fenced
	}
	return failed
}

// A history is what all clients did.
type history struct {
	mu  sync.Mutex
	ops []porcupine.Operation
}

// record runs one operation. Of what is unknown nobody can say when it ended.
func (h *history) record(t *testing.T, client int, c command, do func() (string, error)) verdict {
	t.Helper()
	begin := now()
	value, err := do()
	o := outcome{value, judge(err)}
	if by, ok := errors.AsType[*fence.FencedError](err); ok && (by.Token != c.token || by.Newest <= c.token) {
		t.Errorf("%v: %v", c, err)
	}
	if c.op == "open" && o.is != done { // perhaps it was, before a larger token came
		o.is = unknown
	}
	end := now()
	if o.is == unknown {
		end = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: begin, Output: o, Return: end})
	return o.is
}

// ticks gives each beginning and end a place of its own, since virtual time stands still
// while nobody waits.
var ticks struct {
	sync.Mutex
	n int64
}

func now() int64 {
	ticks.Lock()
	defer ticks.Unlock()
	ticks.n++
	return ticks.n
}

// register is what a fenced object must look like from outside: one value, and the
// largest token that was used.
type register struct {
	token leasehold.Token
	value string
}

var registerModel = model(func() any { return register{} }, func(s any, c command, o outcome) (bool, any) {
	r, _ := s.(register)
	switch {
	case c.op == "get":
		return o.is != done || o.value == r.value, r
	case o.is == failed:
		return true, r
	case c.token < r.token: // refused; what is unknown may have been, too
		return o.is != done, r
	case o.is == fenced:
		return false, r
	}
	r.token = c.token
	switch c.op {
	case "claim":
		return o.is == unknown || o.value == r.value, r
	case "put":
		r.value = c.value
	case "delete":
		r.value = ""
	}
	return true, r
})

// sequence is what a fenced log must look like.
type sequence struct {
	token  leasehold.Token
	values string
}

var logModel = model(func() any { return sequence{} }, func(s any, c command, o outcome) (bool, any) {
	l, _ := s.(sequence)
	switch {
	case c.op == "read":
		return o.is != done || o.value == l.values, l
	case o.is == failed:
		return true, l
	case c.op == "open" && c.token <= l.token, c.op == "append" && c.token != l.token:
		return o.is != done, l
	case o.is == fenced:
		return false, l
	case c.op == "open":
		l.token = c.token
	default:
		l.values += c.value + " "
	}
	return true, l
})

func model(initial func() any, step func(state any, c command, o outcome) (bool, any)) porcupine.Model {
	return porcupine.Model{
		Init: initial,
		Step: func(state, input, output any) (bool, any) {
			c, _ := input.(command)
			o, _ := output.(outcome)
			return step(state, c, o)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprint(input, " ", output) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
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
		result, info := porcupine.CheckOperationsVerbose(m, h.ops, time.Minute)
		if result == porcupine.Ok {
			continue
		}
		path := t.TempDir() + "/history.html"
		_ = porcupine.VisualizePath(m, info, path)
		for _, op := range h.ops {
			t.Logf("%d: %4d to %4d: %v %v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
		}
		t.Logf("%v", requests.Log())
		t.Fatalf("%v: the history of -seed %d -histories 1 is not that of the model", result, seed)
	}
}

func TestObjectHistories(t *testing.T) {
	t.Parallel()
	check(t, 3000, registerModel, func(t *testing.T, r *rand.Rand, st *faultstore.Store, h *history) {
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
		h.record(t, client, command{op: "claim", token: token.Token()}, func() (string, error) { return read(o.Claim(ctx, token)) })
	case k < 6:
		h.record(t, client, command{"put", token.Token(), value}, func() (string, error) {
			return "", o.Put(ctx, token, strings.NewReader(value))
		})
	case k < 7:
		h.record(t, client, command{op: "delete", token: token.Token()}, func() (string, error) { return "", o.Delete(ctx, token) })
	default:
		h.record(t, client, command{op: "get"}, func() (string, error) { return read(o.Get(ctx)) })
	}
}

func TestLogHistories(t *testing.T) {
	t.Parallel()
	check(t, 2000, logModel, func(t *testing.T, r *rand.Rand, st *faultstore.Store, h *history) {
		var all sync.WaitGroup
		for client := range 3 {
			own := rand.New(rand.NewPCG(r.Uint64(), 3))
			all.Go(func() { lead(t, own, st, h, client) })
		}
		all.Go(func() {
			for range 4 {
				time.Sleep(time.Duration(r.Int64N(int64(5 * time.Second))))
				h.record(t, 9, command{op: "read"}, func() (string, error) { return replay(t.Context(), newLog(t, st)) })
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
		if h.record(t, client, command{op: "open", token: token.Token()}, open) != done {
			continue
		}
		var calls sync.WaitGroup
		for i := range 3 {
			for j := range 1 + r.IntN(2) {
				value := fmt.Sprintf("%d.%d.%d", token, i, j)
				calls.Go(func() {
					h.record(t, 10*client+j, command{"append", token.Token(), value}, func() (string, error) {
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
		state, at, err := restoreOnce(ctx, l, to)
		if !errors.Is(err, fence.ErrTrimmed) && !errors.Is(err, fence.ErrReplaced) {
			return state, at, err
		}
	}
}

func restoreOnce(ctx context.Context, l *fence.Log, to fence.Position) (string, fence.Position, error) {
	c, err := l.Checkpoint(ctx)
	if err != nil {
		return "", 0, err
	}
	r, err := c.Open(ctx)
	if err != nil {
		return "", 0, err
	}
	state, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return "", 0, err
	}
	at := c.Position
	for e, err := range l.Read(ctx, c.Position) {
		if err != nil {
			return "", 0, err
		}
		if e.Position > to {
			break
		}
		at = e.Position
		state = append(append(state, bytes.Join(e.Records, []byte(" "))...), ' ')
	}
	return string(state), at, nil
}
