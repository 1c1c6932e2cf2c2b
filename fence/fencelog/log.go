// Package fencelog is a log in a store that only its newest appender can append to. Use it as
// the write-ahead log of a database, or as the outbox of a service. It is fenced as in package
// fence: the store rejects the former appender, independently of clocks.
package fencelog

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/internal/request"
	"github.com/leasehold/leasehold/store"
)

// A Position is the number of an entry in a log, from 1 and without gaps. An entry is the
// result of one write, with one record or many. 0 is before the first.
type Position int64

// ErrTrimmed: the requested entries are no longer in the log. Start again from [Log.Checkpoint].
var ErrTrimmed = errors.New("these entries of the log were trimmed")

// An Entry is one write of a log.
type Entry struct {
	Position Position
	Token    leasehold.Token
	Records  [][]byte
}

// A Log is an append-only sequence of entries in a store. Each entry is an object, with keys
// KEY/0000000000000000001 and so on, created with If-None-Match. Only the newest [Appender] can
// append: a claim puts a fence entry after the last one, at the position the former appender
// must write next. This depends only on If-None-Match, not on clocks. Fence entries are never
// deleted, because a former appender's late request would then succeed.
//
// KEY/checkpoint is a [fence.Object]. A Log is safe for concurrent use, has no goroutines, and
// needs no closing.
type Log struct {
	st         store.Store
	key        string
	checkpoint *fence.Object

	mu     sync.Mutex
	claims map[leasehold.Token]string // not successful yet
}

// New returns the log stored in st under KEY/. It sends nothing.
func New(st store.Store, key string) (*Log, error) {
	checkpoint, err := fence.NewObject(st, key+"/checkpoint", nil)
	if err != nil {
		return nil, err
	}
	return &Log{st: st, key: key, checkpoint: checkpoint, claims: map[leasehold.Token]string{}}, nil
}

// Key returns the prefix of the log's keys.
func (l *Log) Key() string { return l.key }

func (l *Log) String() string { return l.st.String() + " " + l.key }

func (l *Log) at(p Position) string { return fmt.Sprintf("%s/%019d", l.key, int64(p)) }

// position returns the entry's position under key.
func (l *Log) position(key string) (Position, bool) {
	p, _ := strconv.ParseInt(strings.TrimPrefix(key, l.key+"/"), 10, 64) // the comparison below rejects what is not a number
	return Position(p), p > 0 && l.at(Position(p)) == key
}

// A found is an entry with its header.
type found struct {
	Entry
	header header
}

// get reads one entry.
func (l *Log) get(ctx context.Context, p Position) (*found, error) {
	object, err := request.Get(ctx, l.st, l.at(p), "")
	if err != nil {
		return nil, err
	}
	h, records, err := decode(object.Body)
	if err != nil {
		return nil, fmt.Errorf("%v: the entry %d: %w: %w", l, p, fence.ErrForeign, err)
	}
	return &found{Entry{p, h.Token, records}, h}, nil
}

// positions lists the entries after a position.
func (l *Log) positions(ctx context.Context, after Position) iter.Seq2[Position, error] {
	return func(yield func(Position, error) bool) {
		for entry, err := range l.st.List(ctx, l.key+"/", l.at(after)) {
			p, ok := l.position(entry.Key)
			if err == nil && !ok {
				continue // the checkpoint
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// tail returns the last entry without a gap since the checkpoint. Entries behind a gap belong
// to an unfinished claim.
func (l *Log) tail(ctx context.Context, checkpoint Position) (*found, error) {
	last, seen := max(checkpoint-1, 0), false
	for p, err := range l.positions(ctx, last) {
		if err != nil {
			return nil, err
		}
		if seen = true; p != last+1 {
			break
		}
		last = p
	}
	switch {
	case last < checkpoint, last == 0 && seen:
		return nil, fmt.Errorf("%v: %w: the entry %d is missing: was it deleted?", l, fence.ErrForeign, last+1)
	case last == 0:
		return &found{}, nil
	}
	return l.get(ctx, last)
}

// errRefused means an entry was refused, and its position could not be read to see whether an
// earlier copy had landed.
var errRefused = fmt.Errorf("its place is taken, and may have been taken by this entry: %w", store.ErrUnknownOutcome)

// place creates an entry and returns the entry at its position: this one, or an earlier one.
// Only that settles a create whose answer was lost. An error matches store.ErrUnknownOutcome if
// the entry has landed or may still land.
func (l *Log) place(ctx context.Context, h fence.Holder, e *entry) (*found, error) {
	var err, unknown error
	for pause := range request.Pauses(ctx) {
		if err != nil && !pause() {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
			break
		}
		if err = fence.Admit(h); err != nil {
			break
		}
		_, err = request.Put(ctx, l.st, l.at(e.at), e.body, store.IfAbsent())
		if err == nil {
			return &found{Entry{Position: e.at, Token: e.header.Token}, e.header}, nil
		}
		if errors.Is(err, store.ErrUnknownOutcome) {
			unknown = err
		}
		if errors.Is(err, store.ErrPrecondition) {
			var f *found
			// Rule A6: the network may have delivered the entry twice, so a refusal does not
			// prove that it is missing. Only the object decides.
			if f, err = l.get(ctx, e.at); err == nil {
				return f, nil
			}
			unknown = cmp.Or(unknown, errRefused)
		}
		if !request.Transient(err) {
			break
		}
	}
	if unknown != nil && !errors.Is(err, store.ErrUnknownOutcome) {
		err = fmt.Errorf("%w; before that: %w", err, unknown)
	}
	return nil, err
}

// trimmed reports whether entries below p may have been deleted.
func (l *Log) trimmed(ctx context.Context, p Position) (bool, error) {
	c, err := l.Checkpoint(ctx)
	if err != nil {
		return false, err
	}
	return c.Position >= p, nil
}

// Read yields the entries after a position, in order, up to the last one when it began. It
// skips fence entries. If the entries were trimmed, it yields [ErrTrimmed], perhaps after some
// of them. Any error is the last. Read sends 1 LIST per 1000 entries and 1 GET for each,
// several at a time.
//
// Read skips an entry with a smaller token than an earlier one, because the protocol never
// appends one.
func (l *Log) Read(ctx context.Context, after Position) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		c := chain{log: l, last: after}
		c.read(ctx, yield)
	}
}

// Follow is Read without an end: after the last entry, it polls for the next one at the given
// interval (0: 1 s) until ctx ends, and then yields its error. A poll is 1 GET; after each 20
// polls without a new entry, Follow sends 1 LIST.
func (l *Log) Follow(ctx context.Context, after Position, every time.Duration) iter.Seq2[*Entry, error] {
	if every <= 0 {
		every = time.Second
	}
	return func(yield func(*Entry, error) bool) {
		c := chain{log: l, last: after}
		for c.read(ctx, yield) && c.poll(ctx, every, yield) {
		}
	}
}

// A Checkpoint is the state that results from a log's entries up to a position.
type Checkpoint struct {
	Position Position // 0: there is none, replay from the beginning
	Token    leasehold.Token

	object *fence.Object
	value  *fence.Value // set unless Position is 0
}

// marks is a checkpoint's first line.
type marks struct {
	Position Position `json:"position"`
	// Trimmed: below it there are only fence entries.
	Trimmed Position `json:"trimmed"`
}

// Checkpoint reads the newest checkpoint with 1 GET: see [Appender.Checkpoint].
func (l *Log) Checkpoint(ctx context.Context) (*Checkpoint, error) {
	v, err := l.checkpoint.Get(ctx)
	if errors.Is(err, store.ErrNotExist) {
		return new(Checkpoint), nil
	}
	if err != nil {
		return nil, err
	}
	c, _, err := l.marked(ctx, v)
	return c, err
}

// marked reads a checkpoint's first line.
func (l *Log) marked(ctx context.Context, v *fence.Value) (*Checkpoint, marks, error) {
	c := &Checkpoint{Token: v.Token, object: l.checkpoint, value: v}
	if !v.Exists {
		return c, marks{}, nil
	}
	_, m, err := c.open(ctx)
	c.Position = m.Position
	return c, m, err
}

// Open reads the state as a stream: see [fence.Value.Open].
func (c *Checkpoint) Open(ctx context.Context) (io.ReadCloser, error) {
	if c.Position == 0 {
		return io.NopCloser(strings.NewReader("")), nil
	}
	r, _, err := c.open(ctx)
	return r, err
}

// open reads the first line, and returns a reader for the rest.
func (c *Checkpoint) open(ctx context.Context) (io.ReadCloser, marks, error) {
	r, err := c.value.Open(ctx)
	if err != nil {
		return nil, marks{}, err
	}
	buffered := bufio.NewReader(r)
	line, err := buffered.ReadBytes('\n')
	var m marks
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err == nil && (m.Position <= 0 || m.Trimmed < 0 || m.Trimmed > m.Position) {
		err = fmt.Errorf("it says %q", line)
	}
	if err != nil {
		return nil, m, errors.Join(fmt.Errorf("%v: %w: its first line is not that of a checkpoint: %w", c.object, fence.ErrForeign, err), r.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{buffered, r}, m, nil
}
