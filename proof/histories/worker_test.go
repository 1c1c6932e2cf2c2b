//go:build unix

package histories_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/linear"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/storeurl"
)

// A worker is what a process has to know.
type worker struct {
	Client    int
	Kind, URL string
	Seed      uint64
	Faulty    bool
	Start     time.Duration // of the history
}

// A line is what a process says: an operation as it begins, with an outcome that is
// unknown, and again when it has ended.
type line struct {
	N int
	linear.Op
}

// A client does the work of one process.
type client struct {
	worker
	st   store.Store
	key  string
	rand *rand.Rand

	mu  sync.Mutex
	out *json.Encoder
	n   int
}

// run works to the end, and tells it to out.
func (w worker) run(ctx context.Context, out io.Writer) error {
	st, key, err := storeurl.OpenLock(ctx, w.URL)
	if err != nil {
		return err
	}
	if w.Faulty {
		st = faultstore.Wrap(st, &faultstore.Options{Seed: w.Seed, Faults: faults})
	}
	return kinds[w.Kind].work(ctx, &client{
		worker: w, st: st, key: key, rand: rand.New(rand.NewPCG(w.Seed, 1)), out: json.NewEncoder(out),
	})
}

// faults are those on this side of the network. The proxy has others.
var faults = []faultstore.Fault{
	{Kind: faultstore.LostRequest, Op: "put", Probability: 0.02},
	{Kind: faultstore.LostAnswer, Op: "put", Probability: 0.03},
	{Kind: faultstore.LateLanding, Op: "put", Probability: 0.02, Jitter: time.Second},
	{Kind: faultstore.LateDuplicate, Op: "put", Probability: 0.05, Jitter: time.Second},
	{Kind: faultstore.Conflict, Probability: 0.02},
	{Kind: faultstore.Throttled, Probability: 0.02},
	{Kind: faultstore.Unavailable, Probability: 0.02},
	{Kind: faultstore.DelayBefore, Probability: 0.05, Jitter: 50 * time.Millisecond},
	{Kind: faultstore.DelayAfter, Probability: 0.05, Jitter: 50 * time.Millisecond},
}

// do runs one operation.
func (c *client) do(cmd linear.Command, f func() linear.Outcome) linear.Outcome {
	tell := c.begun(cmd)
	told := f()
	tell(told)
	return told
}

// begun tells that an operation begins. Call the returned function with its outcome.
func (c *client) begun(cmd linear.Command) func(linear.Outcome) {
	l := line{Op: linear.Op{Client: c.Client, Asked: cmd, Begin: clock.Now()}, N: c.next()}
	c.say(l)
	return func(told linear.Outcome) {
		l.Told, l.End = told, clock.Now()
		c.say(l)
	}
}

// note tells of what happened just now.
func (c *client) note(cmd linear.Command) {
	now := clock.Now()
	c.say(line{Op: linear.Op{Client: c.Client, Asked: cmd, Told: linear.Outcome{Is: linear.Done}, Begin: now, End: now}, N: c.next()})
}

func (c *client) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

func (c *client) say(l line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(l)
}

// pause lets the others go on for a moment of at most d.
func (c *client) pause(d time.Duration) { time.Sleep(time.Duration(c.rand.Int64N(int64(d)))) }

// token is one that no client has used, and larger than all that were used before.
func (c *client) token() fence.Token {
	return fence.Token((clock.Now()-c.Start).Milliseconds()<<8 + int64(c.Client))
}

// judge is the outcome of an operation that has no value.
func judge(err error) linear.Outcome {
	switch {
	case err == nil:
		return linear.Outcome{Is: linear.Done}
	case errors.Is(err, store.ErrUnknownOutcome):
		return linear.Outcome{Is: linear.Unknown}
	case errors.Is(err, store.ErrPrecondition), errors.Is(err, fence.ErrFenced):
		return linear.Outcome{Is: linear.Refused}
	}
	return linear.Outcome{Is: linear.Failed}
}

// judged is the outcome of an operation that gives a value.
func judged(value string, err error) linear.Outcome {
	o := judge(err)
	if err == nil {
		o.Value = value
	}
	return o
}
