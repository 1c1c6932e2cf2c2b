package sim

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A call is a call of a layout, or a collection of epochs. It is a coroutine, and stops at each
// request to its store, the remote.
type call struct {
	by          *process         // nil: a collection
	on          *machine         // of by
	from        *member          // nil: a collection, or a part of the semaphore
	part        *part            // nil: none
	to          *flights         // to the object; nil: a collection
	write       *candidate.Write // nil: a read, or no candidate's call
	change      *record.Table    // a part writes it; nil: none
	done        func()           // called at its end
	begun       bool
	finished    bool
	number      int            // of the claim
	acquisition int            // the acquisition that made it
	struck      bool           // the lasting failure hit its last request
	absent      time.Duration  // the sender's, when it was made
	vanished    []record.Entry // the sender's, when it was made
	next        func() (*request, bool)
	stop        func()
	yield       func(*request) bool
	waits       *request // for its answer
	answer      answer   // to the last one
	over        bool     // no caller waits any more

	lateRequest, lateAnswer bool
	err                     error
}

type request struct {
	from    *call
	op, key string
	after   string // of a listing
	page    int    // of a listing, from 1
	unless  store.Version
	body    []byte
	version store.Version // of a quorum's write; empty: a hash

	register *keyed // of a quorum, which carries it out
	number   int    // its number there
	only     store.Condition
	expires  time.Duration // when it is dropped; 0: never
	arrived  bool          // once already
	hit      bool          // by the lasting failure
}

// An answer is a response to a request.
type answer struct {
	object    *store.Object
	entries   []store.Entry
	truncated bool
	err       *store.Error
	at        time.Duration // when the store gave it
}

func (a answer) error() error {
	if a.err == nil {
		return nil
	}
	return a.err
}

func (r *request) writes() bool { return r.op == "put" || r.op == "delete" }

func (r *request) claims() bool {
	c := r.from
	return r.op == "put" && (c.change != nil || c.write != nil && c.write.Op == candidate.Claim)
}

func (r *request) fails(kind error) *store.Error {
	return &store.Error{Op: r.op, Key: r.key, Kind: kind}
}

// traffic counts requests. Only the first page of a listing counts, because a page has few
// objects here and a thousand elsewhere.
type traffic struct{ reads, writes int }

func (t *traffic) add(r *request) {
	switch {
	case r.writes():
		t.writes++
	case r.page <= 1:
		t.reads++
	}
}

var errLost = errors.New("no answer")

// begin starts a call. resume sends its first request.
func begin(by *process, from *member, run func(context.Context)) *call {
	c := &call{by: by, from: from}
	if from != nil {
		c.to = &from.on.flights
	}
	if by != nil {
		c.on = by.machine
		by.calls = append(slices.DeleteFunc(by.calls, func(c *call) bool { return c.finished }), c)
	}
	c.next, c.stop = iter.Pull(func(yield func(*request) bool) {
		c.yield = yield
		run(context.WithValue(context.Background(), calling{}, c))
	})
	return c
}

// calling is the context key of a call.
type calling struct{}

func (c *call) String() string {
	if c.part != nil {
		return c.part.String()
	}
	return c.from.String()
}

// end stops the call. Its requests stay in flight.
func (c *call) end() {
	c.over = true
	c.stop()
}

func (p *process) end() {
	for _, c := range p.calls {
		c.end()
	}
	p.calls = nil
}

// ask sends a request and waits for its answer. A cancelled call sends nothing.
func ask(ctx context.Context, r *request) answer {
	c, _ := ctx.Value(calling{}).(*call)
	r.from = c
	if !c.over && c.yield(r) && !c.over {
		return c.answer
	}
	kind := store.ErrUnavailable
	if r.writes() {
		kind = store.ErrUnknownOutcome
	}
	lost := r.fails(kind)
	lost.Cause = errLost
	return answer{err: lost}
}

// A remote is the store as the layouts see it. It routes requests to their calls.
type remote struct{}

func (remote) String() string { return "sim://" }

func (remote) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	a := ask(ctx, &request{op: "get", key: key, unless: unless})
	return a.object, a.error()
}

func (remote) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	a := ask(ctx, &request{op: "put", key: key, body: body, only: only})
	return a.object, a.error()
}

func (remote) Delete(ctx context.Context, key string) error {
	return ask(ctx, &request{op: "delete", key: key}).error()
}

func (remote) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for page := 1; ; page++ {
			a := ask(ctx, &request{op: "list", key: prefix, after: after, page: page})
			for _, e := range a.entries {
				if after = e.Key; !yield(e, nil) {
					return
				}
			}
			if a.err != nil {
				yield(store.Entry{}, a.err)
			}
			if a.err != nil || !a.truncated {
				return
			}
		}
	}
}

func is(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}
