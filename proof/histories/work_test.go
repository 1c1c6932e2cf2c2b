//go:build unix

package histories_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/internal/linear"
	"github.com/leasehold/leasehold/store"
)

// A kind of history is what its processes do, and what that must look like.
type kind struct {
	model  porcupine.Model
	work   func(context.Context, *client) error
	writes string        // the operation that must come about
	stop   time.Duration // for which a process is stopped at most
}

var kinds map[string]kind

func init() {
	kinds = map[string]kind{ // it is used by what it names
		"register": {linear.Register, register, "put", 300 * time.Millisecond},
		"lock":     {linear.Lock, lock, "acquire", 2 * ttl},
		"election": {linear.Lock, election, "acquire", 2 * ttl},
		"session":  {linear.Lock, session, "acquire", 2 * ttl},
		"slots":    {linear.Semaphore(slotCount), slots, "acquire", 2 * ttl},
		"object":   {linear.Object, object, "put", 300 * time.Millisecond},
		"log":      {linear.Log, appends, "append", 300 * time.Millisecond},
	}
}

const ttl = leasehold.MinTTL

// register changes a few objects by compare-and-swap.
func register(ctx context.Context, c *client) error {
	type seen struct {
		version store.Version
		value   string
	}
	known := map[string]seen{}
	for i := range 60 {
		c.pause(10 * time.Millisecond)
		key := fmt.Sprintf("%s-%d", c.key, c.rand.IntN(3))
		was, ok := known[key]
		if !ok || c.rand.IntN(4) == 0 {
			c.do(linear.Command{Op: "get", Key: key}, func() linear.Outcome {
				o, err := c.st.Get(ctx, key, was.version)
				switch {
				case errors.Is(err, store.ErrNotModified):
					return judged(was.value, nil)
				case errors.Is(err, store.ErrNotExist):
					known[key] = seen{}
					return judged("", nil)
				case err == nil:
					known[key] = seen{o.Version, string(o.Body)}
				}
				return judged(known[key].value, err)
			})
			continue
		}
		delete(known, key)
		value, only := fmt.Sprintf("%d.%d", c.Client, i), store.IfAbsent()
		if was.version != "" {
			only = store.IfMatch(was.version)
		}
		c.do(linear.Command{Op: "put", Key: key, Expect: was.value, Value: value}, func() linear.Outcome {
			o, err := c.st.Put(ctx, key, []byte(value), only)
			if err == nil {
				known[key] = seen{o.Version, value}
			}
			return judge(err)
		})
	}
	return nil
}

// lock takes a lock again and again.
func lock(ctx context.Context, c *client) error {
	l, err := leasehold.NewLock(c.st, c.key, &leasehold.LockOptions{TTL: ttl})
	if err != nil {
		return err
	}
	for range 5 {
		c.pause(50 * time.Millisecond)
		c.hold(ctx, l, l.Acquire)
	}
	return nil
}

// election leads again and again, and follows meanwhile.
func election(ctx context.Context, c *client) error {
	e, err := leasehold.NewElection(c.st, c.key, &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: ttl}, Renewals: true})
	if err != nil {
		return err
	}
	l, err := leasehold.NewLock(c.st, c.key, nil) // to look
	if err != nil {
		return err
	}
	observing, stop := context.WithCancel(ctx)
	var last leasehold.Token
	followed := make(chan error, 1)
	go func() {
		for change := range e.Observe(observing) {
			if change.Kind == leasehold.Unreadable {
				continue
			}
			if change.Info.Token < last {
				followed <- fmt.Errorf("a follower is shown token %d after %d", change.Info.Token, last)
				return
			}
			last = change.Info.Token
			c.note(linear.Command{Op: "saw", Key: c.key, Token: int64(last)})
		}
		followed <- nil
	}()
	for range 5 {
		c.pause(50 * time.Millisecond)
		c.hold(ctx, l, func(ctx context.Context, _ ...leasehold.AcquireOption) (*leasehold.Lease, error) {
			return e.Campaign(ctx)
		})
	}
	stop()
	return <-followed
}

// hold gets a lease, uses it for a while, and releases it. Sometimes it looks at the
// lock first.
func (c *client) hold(ctx context.Context, l *leasehold.Lock, acquire func(context.Context, ...leasehold.AcquireOption) (*leasehold.Lease, error)) {
	if c.rand.IntN(2) == 0 {
		c.inspect(ctx, l)
	}
	var lease *leasehold.Lease
	c.do(linear.Command{Op: "acquire", Key: l.Key()}, func() linear.Outcome {
		var err error
		lease, err = acquire(ctx)
		return acquired(lease, err)
	})
	if lease == nil {
		return
	}
	use(c, lease)
	c.do(of("release", lease), func() linear.Outcome { return released(lease.Release(ctx)) })
}

func (c *client) inspect(ctx context.Context, l *leasehold.Lock) {
	c.do(linear.Command{Op: "inspect", Key: l.Key()}, func() linear.Outcome {
		info, err := l.Inspect(ctx)
		state := "free"
		if info.Held {
			state = "held"
		}
		o := judged(state, err)
		o.Token = int64(info.Token)
		return o
	})
}

// held is a lease of a lock, or of slots.
type held interface {
	Key() string
	Token() leasehold.Token
	Valid() bool
}

// use looks at leases for a while, as long as all are valid.
func use[L held](c *client, leases ...L) {
	looks := 2 + c.rand.IntN(4)
	if c.rand.IntN(4) == 0 {
		looks = 40 // until they have been renewed
	}
	for range looks {
		for _, lease := range leases {
			valid := c.do(of("valid", lease), func() linear.Outcome {
				if lease.Valid() {
					return linear.Outcome{Is: linear.Done}
				}
				return linear.Outcome{Is: linear.Failed}
			})
			if valid.Is != linear.Done {
				return
			}
		}
		c.pause(20 * time.Millisecond)
	}
}

// of is a command about a lease.
func of(op string, lease held) linear.Command {
	return linear.Command{Op: op, Key: lease.Key(), Token: int64(lease.Token())}
}

func acquired(lease *leasehold.Lease, err error) linear.Outcome {
	if err != nil {
		return linear.Outcome{Is: linear.Failed} // whatever was sent, nobody has a lease
	}
	return linear.Outcome{Is: linear.Done, Token: int64(lease.Token())}
}

func released(err error) linear.Outcome {
	if err != nil {
		return linear.Outcome{Is: linear.Unknown}
	}
	return linear.Outcome{Is: linear.Done}
}

// object writes a fenced object, with tokens that grow, and with old ones.
func object(ctx context.Context, c *client) error {
	o, err := fence.NewObject(c.st, c.key, &fence.ObjectOptions{Apart: c.rand.IntN(4) == 0})
	if err != nil {
		return err
	}
	get := func() linear.Outcome {
		v, err := o.Get(ctx)
		if errors.Is(err, store.ErrNotExist) {
			return judged("", nil)
		}
		return read(ctx, v, err)
	}
	token := c.token()
	for i := range 30 {
		c.pause(20 * time.Millisecond)
		if i%6 == 5 {
			token = c.token()
		}
		of := linear.Command{Token: int64(token)}
		switch k := c.rand.IntN(10); {
		case k < 2:
			of.Op = "claim"
			c.do(of, func() linear.Outcome {
				v, err := o.Claim(ctx, token)
				if err != nil {
					return judge(err)
				}
				if got := read(ctx, v, nil); got.Is == linear.Done {
					return got
				}
				return linear.Outcome{Is: linear.Unknown} // what it gave; it was done
			})
		case k < 5:
			of.Op, of.Value = "put", fmt.Sprintf("%d.%d", c.Client, i)
			c.do(of, func() linear.Outcome { return judge(o.Put(ctx, token, strings.NewReader(of.Value))) })
		case k < 6:
			of.Op = "delete"
			c.do(of, func() linear.Outcome { return judge(o.Delete(ctx, token)) })
		default:
			c.do(linear.Command{Op: "get"}, get)
		}
	}
	return nil
}

// read is the outcome of an operation that gives the value of an object.
func read(ctx context.Context, v *fence.Value, err error) linear.Outcome {
	if err != nil {
		return judge(err)
	}
	b, err := v.ReadAll(ctx)
	return judged(string(b), err)
}

// appends claims a log again and again, appends to it, and makes checkpoints.
func appends(ctx context.Context, c *client) error {
	l, err := fencelog.New(c.st, c.key)
	if err != nil {
		return err
	}
	for term := range 5 {
		c.pause(50 * time.Millisecond)
		token := c.token()
		var a *fencelog.Appender
		opened := c.do(linear.Command{Op: "open", Token: int64(token)}, func() linear.Outcome {
			if a, err = l.Claim(ctx, token); err != nil {
				return linear.Outcome{Is: linear.Unknown} // perhaps it was done, before a larger token came
			}
			return linear.Outcome{Is: linear.Done}
		})
		if opened.Is != linear.Done {
			continue
		}
		for i := range 4 {
			value := fmt.Sprintf("%d.%d.%d", c.Client, term, i)
			c.do(linear.Command{Op: "append", Token: int64(token), Value: value}, func() linear.Outcome {
				_, err := a.Append(ctx, []byte(value))
				return judge(err)
			})
			c.pause(20 * time.Millisecond)
		}
		if c.rand.IntN(2) == 0 { // which must change nothing for who reads
			if state, at, err := restore(ctx, l, a.Last()); err == nil && at > 0 && a.Checkpoint(ctx, at, strings.NewReader(state)) == nil {
				_, _ = a.Trim(ctx)
			}
		}
		a.Close()
		c.do(linear.Command{Op: "read"}, func() linear.Outcome {
			state, _, err := restore(ctx, l, math.MaxInt64)
			return judged(state, err)
		})
	}
	return nil
}

// restore reads a log up to an entry: the checkpoint, and what comes after it. There are
// many requests, of which one may fail, and the log may be trimmed meanwhile.
func restore(ctx context.Context, l *fencelog.Log, to fencelog.Position) (state string, at fencelog.Position, err error) {
	for range 20 {
		if state, at, err = fencecheck.Restore(ctx, l, to); err == nil {
			break
		}
	}
	return state, at, err
}
