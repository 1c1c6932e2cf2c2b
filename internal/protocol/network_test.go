package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// A bucket is a store as the protocol has to expect it: a version is a hash of the
// body, so it comes back with the body, and a listing has pages, each of its own time.
type bucket map[string]object

type object struct {
	body    []byte
	version store.Version
	written time.Time
}

// pageSize is how many objects a page of a listing shows.
const pageSize = 3

// A call is one call of a layout, or a collection. It is a coroutine that stops at each
// of its requests, which are what the network delays, loses and doubles.
type call struct {
	from    *member         // nil: a collection
	write   *protocol.Write // nil: a look, or a collection
	next    func() (*request, bool)
	stop    func()
	yield   func(*request) bool
	waits   *request // for the answer to this
	over    bool     // nobody waits any more
	reading layout.Snapshot
	err     error
}

// A request is on its way to the store, or its answer on the way back.
type request struct {
	from       *call
	op, key    string
	after      string // of a list
	unless     store.Version
	body       []byte
	only       store.Condition
	copies     int           // how often it may still be delivered
	slow       bool          // it comes only by chance
	expires    time.Duration // when it is dropped; 0: never
	to         *request      // of an answer: what it answers
	object     *store.Object
	entries    []store.Entry
	truncated  bool
	answeredBy error
}

var errLost = errors.New("no answer")

// begin starts a call. Its first request is what resume returns.
func begin(from *member, write *protocol.Write, run func(c *call)) *call {
	c := &call{from: from, write: write}
	c.next, c.stop = iter.Pull(func(yield func(*request) bool) {
		c.yield = yield
		run(c)
	})
	return c
}

// ask sends a request and waits for its answer. Who has given up sends nothing.
func (c *call) ask(r *request) *request {
	r.from = c
	if !c.over && c.yield(r) && !c.over {
		return c.waits
	}
	kind := store.ErrUnavailable
	if r.op == "put" || r.op == "delete" {
		kind = store.ErrUnknownOutcome
	}
	return &request{answeredBy: &store.Error{Op: r.op, Key: r.key, Kind: kind, Cause: errLost}}
}

func (c *call) String() string { return "sim://" }

func (c *call) Get(_ context.Context, key string, unless store.Version) (*store.Object, error) {
	a := c.ask(&request{op: "get", key: key, unless: unless})
	return a.object, a.answeredBy
}

func (c *call) Put(_ context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	a := c.ask(&request{op: "put", key: key, body: body, only: only})
	return a.object, a.answeredBy
}

func (c *call) Delete(_ context.Context, key string) error {
	return c.ask(&request{op: "delete", key: key}).answeredBy
}

func (c *call) List(_ context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for {
			a := c.ask(&request{op: "list", key: prefix, after: after})
			for _, e := range a.entries {
				if after = e.Key; !yield(e, nil) {
					return
				}
			}
			if a.answeredBy != nil {
				yield(store.Entry{}, a.answeredBy)
			}
			if a.answeredBy != nil || !a.truncated {
				return
			}
		}
	}
}

// serve carries out a request, and makes its answer.
func (b bucket) serve(r *request, now time.Time) *request {
	a := &request{from: r.from, to: r, copies: 1}
	o, exists := b[r.key]
	fail := func(kind error) { a.answeredBy = &store.Error{Op: r.op, Key: r.key, Kind: kind, Date: now} }
	switch {
	case r.op == "list":
		a.entries, a.truncated = b.page(r.key, r.after)
	case r.op == "delete":
		delete(b, r.key)
	case r.op == "get" && !exists:
		fail(store.ErrNotExist)
	case r.op == "get" && o.version == r.unless:
		fail(store.ErrNotModified)
	case r.op == "get":
		a.object = &store.Object{Key: r.key, Body: o.body, Version: o.version, LastModified: o.written, Date: now}
	case exists == r.only.Absent() || o.version != r.only.Match():
		fail(store.ErrPrecondition)
	default:
		hash := fnv.New64a()
		_, _ = hash.Write(r.body)
		o = object{r.body, store.Version(fmt.Sprintf("%x", hash.Sum64())), now}
		b[r.key] = o
		a.object = &store.Object{Key: r.key, Version: o.version, LastModified: now, Date: now}
	}
	return a
}

func (b bucket) page(prefix, after string) (entries []store.Entry, truncated bool) {
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if key <= after || !strings.HasPrefix(key, prefix) {
			continue
		}
		if len(entries) == pageSize {
			return entries, true
		}
		o := b[key]
		entries = append(entries, store.Entry{Key: key, Version: o.version, Size: int64(len(o.body)), LastModified: o.written})
	}
	return entries, false
}

// highest is the number of the highest epoch, and 0 if there is none.
func (b bucket) highest() (top int64) {
	for key := range b {
		if _, n, ok := layout.Epoch(key); ok {
			top = max(top, n)
		}
	}
	return top
}

// end leaves nothing of the call behind. What it has sent stays on its way.
func (c *call) end() {
	c.over = true
	c.stop()
}
