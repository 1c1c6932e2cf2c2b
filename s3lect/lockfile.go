package s3lect

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// A place is where lockfiles lie, as they are. Its methods keep to the contract of
// [store.Store].
type place interface {
	Get(ctx context.Context, key string, unless store.Version) (*store.Object, error)
	Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error)
	String() string
}

// A lockfile is the store that an election has: one object, in which it finds and
// leaves records of leasehold, whatever it calls the object. It adds no rule of its
// own: every write is the election's, on the election's condition.
type lockfile struct {
	place place
	key   string

	mu  sync.Mutex
	ttl time.Duration // that an instance of the original package is given
	top int64         // the largest token seen
	old term
}

// A term is one time of leading, or of nobody's leading, by the lockfiles of the
// original package. It is given a token, so that it can be told from others.
type term struct {
	id    string // of the leader; empty: nobody
	token int64  // 0: the last lockfile seen was not of the original package
}

var _ store.Store = (*lockfile)(nil)

func (l *lockfile) Get(ctx context.Context, _ string, unless store.Version) (*store.Object, error) {
	o, err := l.place.Get(ctx, l.key, unless)
	if err != nil {
		return nil, err
	}
	record, err := l.record(o)
	if err != nil {
		return nil, &store.Error{Op: "get", Key: l.key, Kind: leasehold.ErrForeignObject, Cause: err, Date: o.Date}
	}
	shown := *o
	shown.Body = record
	return &shown, nil
}

// record is what an object says, as a record of leasehold.
func (l *lockfile) record(o *store.Object) ([]byte, error) {
	c, err := parse(o.Body)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Leasehold != nil {
		l.old = term{}
		l.top = max(l.top, tokenOf(c.Leasehold))
		return c.Leasehold, nil
	}
	id := c.LeaderID
	if c.free() {
		id = ""
	}
	if l.old.token == 0 || l.old.id != id {
		l.old = term{id, max(l.top+1, now(o).UnixMilli())}
		l.top = l.old.token
	}
	return adapt(c.LeaderRecord, l.old.token, l.ttl, o.Version)
}

// now is the time at which the tokens of a term begin, as those of a lock that is
// created do: the lockfile may have lost the token that was in it before, and what
// begins at the time in milliseconds is in practice above it.
func now(o *store.Object) time.Time {
	if o.Date.IsZero() {
		return time.Now()
	}
	return o.Date
}

func (l *lockfile) Put(ctx context.Context, _ string, record []byte, only store.Condition) (*store.Object, error) {
	body, err := encode(record)
	if err != nil {
		return nil, &store.Error{Op: "put", Key: l.key, Kind: store.ErrInvalid, Cause: err}
	}
	o, err := l.place.Put(ctx, l.key, body, only)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.old = term{}
		l.top = max(l.top, tokenOf(record))
	}
	return o, err
}

// original reports that the leader last seen is an instance of the original package.
func (l *lockfile) original() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.old.token != 0
}

func (l *lockfile) wait(ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ttl = ttl
}

var errNotForElections = errors.New("an election neither deletes nor lists")

func (l *lockfile) Delete(context.Context, string) error {
	return &store.Error{Op: "delete", Key: l.key, Kind: store.ErrInvalid, Cause: errNotForElections}
}

func (l *lockfile) List(_ context.Context, prefix, _ string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrInvalid, Cause: errNotForElections})
	}
}

func (l *lockfile) String() string { return l.place.String() }
