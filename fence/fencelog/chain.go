package fencelog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// A chain reads entries in order and makes sure that none is missing or was replaced: each one
// names the one before it.
type chain struct {
	log    *Log
	last   Position // last position read
	id     string   // ID of that entry, if known
	newest leasehold.Token
}

// ahead is how many entries are fetched at a time.
const ahead = 8

// A fetch is an entry that is being fetched.
type fetch struct {
	at    Position
	found *found
	err   error
	done  chan struct{}
}

// read yields the existing entries, and reports whether reading may continue.
func (c *chain) read(ctx context.Context, yield func(*Entry, error) bool) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fetches := make(chan *fetch, ahead-2) // one is being sent, and one waited for
	var listing error
	go func() {
		defer close(fetches)
		for p, err := range c.log.positions(ctx, c.last) {
			if listing = err; err != nil {
				return
			}
			f := &fetch{at: p, done: make(chan struct{})}
			go func() {
				f.found, f.err = c.log.get(ctx, p)
				close(f.done)
			}()
			select {
			case fetches <- f:
			case <-ctx.Done():
				listing = ctx.Err()
				return
			}
		}
	}()
	for f := range fetches {
		<-f.done
		e, err := c.take(ctx, f)
		if errors.Is(err, errEnd) {
			return true
		}
		if err != nil {
			yield(nil, err)
			return false
		}
		if e != nil && !yield(e, nil) {
			return false
		}
	}
	if listing != nil {
		yield(nil, listing)
		return false
	}
	return true
}

// take moves to the entry, and returns it if it is for the reader. At the end of the log it
// returns errEnd.
func (c *chain) take(ctx context.Context, f *fetch) (*Entry, error) {
	gap := f.at != c.last+1 || errors.Is(f.err, store.ErrNotExist)
	switch {
	case !gap && f.err != nil:
		return nil, f.err
	case !gap && c.id != "" && f.found.header.Previous != "" && f.found.header.Previous != c.id:
		return nil, fmt.Errorf("%v: %w: %d is not what it was when %d was written", c.log, ErrTrimmed, c.last, f.at)
	case gap || f.found.header.Previous == "" && f.at > 1:
		// The entry was trimmed, or a claim has gone ahead. A late write to a trimmed position
		// could look like the original entry.
		trimmed, err := c.log.trimmed(ctx, f.at)
		if trimmed {
			err = fmt.Errorf("%v: %w: %d may not be there", c.log, ErrTrimmed, c.last+1)
		}
		if err == nil && gap {
			err = errEnd
		}
		if err != nil {
			return nil, err
		}
	}
	c.last, c.id = f.at, f.found.header.ID
	if f.found.Token < c.newest {
		return nil, nil //nolint:nilnil // it is left out
	}
	c.newest = f.found.Token
	if f.found.header.Kind == kindFence {
		return nil, nil //nolint:nilnil // it is left out
	}
	return &f.found.Entry, nil
}

// errEnd means that there are no more entries.
var errEnd = errors.New("the end of the log")

// poll polls for the next entry until there is one, or until it is time to list: only a listing
// can tell the end of the log from trimmed entries.
func (c *chain) poll(ctx context.Context, every time.Duration, yield func(*Entry, error) bool) bool {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for empty := 0; empty < 20; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			yield(nil, ctx.Err())
			return false
		}
		for {
			found, err := c.log.get(ctx, c.last+1)
			if errors.Is(err, store.ErrNotExist) {
				break
			}
			e, err := c.take(ctx, &fetch{at: c.last + 1, found: found, err: err})
			if err != nil {
				yield(nil, err)
				return false
			}
			if empty = 0; e != nil && !yield(e, nil) {
				return false
			}
		}
		empty++
		timer.Reset(every)
	}
	return true
}
