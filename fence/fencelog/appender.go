package fencelog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store"
)

// MaxRecord is the maximum size of a record in bytes, and of all records of one entry together.
const MaxRecord = store.MaxBody - roomForHeader

// ErrClosed: the appender was closed. Open another.
var ErrClosed = errors.New("the appender was closed")

// An Appender is the only writer of a [Log], until another one claims it. It is safe for
// concurrent use: records that are appended during a write are combined into the next entry, so
// many records need few writes.
type Appender struct {
	log    *Log
	h      fence.Holder
	claim  string
	ctx    context.Context //nolint:containedctx // ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex
	err     error  // why no more can be appended
	last    *found // of the log
	queue   []*addition
	running bool

	checkpointing sync.Mutex
	marks         marks
}

// An addition is one call of Append.
type addition struct {
	records [][]byte
	done    chan struct{}
	at      Position
	err     error
}

// A batch is the additions that go into one entry.
type batch struct {
	additions []*addition
	records   [][]byte
	entry     *entry
}

// Last returns the position of the last entry that is known to be in the log. Before the first
// append, that is this appender's fence entry.
func (a *Appender) Last() Position {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last.Position
}

// Err returns why no more can be appended, or nil: a [*fence.FencedError] after another
// appender was found, ErrClosed, or the error of the holder's lease.
func (a *Appender) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return a.err
	}
	return fence.Admit(a.h)
}

// Append appends records in one entry and in this order, and returns the entry's position once
// it is in the log. Concurrent calls share entries.
//
// If another appender has claimed the log, Append returns a [*fence.FencedError] and ends the
// holder's lease; nothing was appended. After an error that matches [store.ErrUnknownOutcome],
// the records may be in the log, or may still get there, but not after anything that is
// appended later. After any other error they are not in the log. ctx bounds the wait: if it
// ends during a write, the outcome is unknown to the caller, and the write continues.
func (a *Appender) Append(ctx context.Context, records ...[]byte) (Position, error) {
	size := 0
	for _, r := range records {
		size += len(r)
	}
	switch {
	case len(records) == 0:
		return 0, errors.New("there are no records to append")
	case size > MaxRecord, len(records) > maxRecords:
		return 0, &store.Error{
			Op: "append", Key: a.log.key, Kind: store.ErrTooLarge,
			Cause: fmt.Errorf("%d bytes in %d records, more than %d in %d", size, len(records), MaxRecord, maxRecords),
		}
	}
	if err := a.Err(); err != nil {
		return 0, err
	}
	add := &addition{records: records, done: make(chan struct{})}
	a.mu.Lock()
	a.queue = append(a.queue, add)
	if !a.running {
		a.running = true
		go a.run()
	}
	a.mu.Unlock()
	select {
	case <-add.done:
		return add.at, add.err
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.queue, add); i >= 0 {
		a.queue = slices.Delete(a.queue, i, i+1)
		return 0, ctx.Err()
	}
	return 0, fmt.Errorf("%v: the write is under way: %w: %w", a.log, ctx.Err(), store.ErrUnknownOutcome)
}

// run writes the queue until it is empty.
func (a *Appender) run() {
	for {
		a.mu.Lock()
		b := a.next()
		if b == nil {
			a.running = false
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		err := a.write(b)
		a.mu.Lock()
		for _, add := range b.additions {
			add.at, add.err = b.entry.at, err
			close(add.done)
		}
		if err != nil {
			a.fail(err)
		}
		a.mu.Unlock()
	}
}

// next returns the part of the queue that goes into one entry.
func (a *Appender) next() *batch {
	if a.err != nil {
		a.fail(a.err)
	}
	if len(a.queue) == 0 {
		return nil
	}
	b := new(batch)
	size := 0
	for _, add := range a.queue {
		for _, r := range add.records {
			size += len(r)
		}
		if size > MaxRecord || len(b.records)+len(add.records) > maxRecords {
			break
		}
		b.additions = append(b.additions, add)
		b.records = append(b.records, add.records...)
	}
	a.queue = slices.Delete(a.queue, 0, len(b.additions))
	b.entry = newEntry(a.last, a.last.Position+1, a.h.Token(), a.claim, kindData, b.records)
	_, b.records, _ = decode(b.entry.body) // a caller that gives up may reuse its bytes
	return b
}

// fail ends additions that were not sent. Their outcome is known, even if that of the sent ones
// is not.
func (a *Appender) fail(err error) {
	if errors.Is(err, store.ErrUnknownOutcome) {
		err = fmt.Errorf("%w: what was appended before: %v", store.ErrUnavailable, err) //nolint:errorlint // see above
	}
	for _, add := range a.queue {
		add.err = fmt.Errorf("%v: nothing was sent: %w", a.log, err)
		close(add.done)
	}
	a.queue = nil
}

// write appends the entry after the last one.
func (a *Appender) write(b *batch) error {
	for {
		f, err := a.log.place(a.ctx, a.h, b.entry)
		if err != nil {
			return err
		}
		mine := f.header.ID == b.entry.header.ID
		err = a.log.passes(a.h, a.claim, f)
		a.mu.Lock()
		if err != nil {
			a.err = err
		} else {
			a.last = f
		}
		a.mu.Unlock()
		if mine || err != nil {
			return err
		}
		// The entry is of a claim that went ahead and was fenced or had to be repeated, or it
		// was appended before and its answer was lost.
		b.entry = newEntry(f, f.Position+1, a.h.Token(), a.claim, kindData, b.records)
	}
}

// Checkpoint stores the state that results from the log's entries up to a position, for
// [Log.Checkpoint]. The state may have any size. The position must be in the log and not before
// that of the last checkpoint. Checkpoint uses [fence.Object.Put], so a former appender's
// checkpoint is rejected.
func (a *Appender) Checkpoint(ctx context.Context, at Position, state io.Reader) error {
	if err := a.Err(); err != nil {
		return err
	}
	a.checkpointing.Lock()
	defer a.checkpointing.Unlock()
	last := a.Last()
	if at < max(a.marks.Position, 1) || at > last {
		return fmt.Errorf("%v: a checkpoint at %d: it has to be from %d, the last one, to %d, the last entry", a.log, at, a.marks.Position, last)
	}
	m := marks{at, a.marks.Trimmed}
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := a.log.checkpoint.Put(ctx, a.h, io.MultiReader(bytes.NewReader(append(line, '\n')), state)); err != nil {
		return err
	}
	a.marks = m
	return nil
}

// Trim deletes the entries before the last checkpoint, except fence entries, and returns their
// number. It sends 1 LIST per 1000 entries not trimmed before, 1 GET for each of them, to
// detect fence entries, and 1 DELETE for each it deletes.
func (a *Appender) Trim(ctx context.Context) (deleted int, err error) {
	if err := a.Err(); err != nil {
		return 0, err
	}
	a.checkpointing.Lock()
	defer a.checkpointing.Unlock()
	for entry, err := range a.log.st.List(ctx, a.log.key+"/", a.log.at(max(a.marks.Trimmed-1, 0))) {
		if err != nil {
			return deleted, err
		}
		p, ok := a.log.position(entry.Key)
		if !ok {
			continue // not an entry
		}
		if p >= a.marks.Position {
			break
		}
		// Only the entry itself says what it is. Its size in the listing does not, because some
		// stores round it up.
		f, err := a.log.get(ctx, p)
		switch {
		case errors.Is(err, store.ErrNotExist): // a former appender deleted it first
			continue
		case err != nil:
			return deleted, err
		case f.header.Kind == kindFence:
			continue
		}
		if err := a.log.st.Delete(ctx, entry.Key); err != nil {
			return deleted, err
		}
		deleted++
	}
	a.marks.Trimmed = a.marks.Position
	return deleted, nil
}

// Close ends the appender. Waiting records are not sent, but a write in flight may land. The
// holder's lease stays valid.
func (a *Appender) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = ErrClosed
	}
	a.cancel()
}
