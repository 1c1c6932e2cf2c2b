package sim

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A call is one call of a layout, or a collection. It is a coroutine that stops at each of
// its requests, which it makes of the store that is called remote.
type call struct {
	by          *process        // nil: somebody collects
	on          *machine        // of that
	from        *member         // nil: a collection, or a part of the semaphore
	part        *part           // nil: none
	to          *flights        // to the object; nil: a collection
	write       *protocol.Write // nil: a look, or none of a candidate's
	change      *record.Table   // a part writes it; nil: none
	done        func()          // what is done about the end of it
	begun       bool
	finished    bool
	number      int           // of the claim
	acquisition int           // in which it was made
	struck      bool          // its last request was hit by the failure that lasts
	absent      time.Duration // as its sender's was
	vanished    []record.Seat // as its sender's were
	next        func() (*request, bool)
	stop        func()
	yield       func(*request) bool
	waits       *request // for the answer to this
	answer      answer   // to the last one
	over        bool     // nobody waits any more

	lateRequest, lateAnswer bool
	err                     error
}

// A request is on its way to the store.
type request struct {
	from    *call
	op, key string
	after   string // of a list
	page    int    // of a list, from 1
	unless  store.Version
	body    []byte
	version store.Version // of what a quorum writes; empty: a hash

	register *keyed // of a quorum, that does it
	number   int    // by this name
	only     store.Condition
	expires  time.Duration // when it is dropped; 0: never
	arrived  bool          // once already
	hit      bool          // by the failure that lasts
}

// An answer is on its way back.
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

// writes reports that the request may change something.
func (r *request) writes() bool { return r.op == "put" || r.op == "delete" }

func (r *request) claims() bool {
	c := r.from
	return r.op == "put" && (c.change != nil || c.write != nil && c.write.Op == protocol.Claim)
}

func (r *request) fails(kind error) *store.Error {
	return &store.Error{Op: r.op, Key: r.key, Kind: kind}
}

// traffic counts requests. Of a listing the first page counts, since a page shows few objects
// here and a thousand elsewhere.
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

// begin makes a call. Its first request is what resume sends.
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

// calling is where the context of a call has it.
type calling struct{}

// String names whoever makes it.
func (c *call) String() string {
	if c.part != nil {
		return c.part.String()
	}
	return c.from.String()
}

// end leaves nothing of the call behind. Its requests stay on their way.
func (c *call) end() {
	c.over = true
	c.stop()
}

// ask sends a request and waits for its answer. A call that was given up sends nothing.
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

// A remote is the store as the layouts see it: it routes requests to the call that makes them.
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
