package fencelog

import (
	"context"
	"fmt"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/internal/request"
)

// An entry is an entry to be written.
type entry struct {
	at     Position
	header header
	body   []byte
}

// newEntry returns the entry for position at.
func newEntry(after *found, at Position, token leasehold.Token, claim, kind string, records [][]byte) *entry {
	e := &entry{at: at, header: header{Kind: kind, Token: token, Claim: claim, ID: request.NewID().String()}}
	if at == after.Position+1 {
		e.header.Previous = after.header.ID
	}
	e.body = e.header.encode(records)
	return e
}

// Claim makes the holder the only appender, with a fence entry at the position the former
// appender must write next. From then on, the log up to [Appender.Last] does not change until
// this appender appends: so claim first, then read, then append. The token must be larger than
// all before it, because a token can claim a log only once.
//
// If the log has an equal or larger token, Claim returns a [*fence.FencedError] and ends the
// holder's lease. After any other error, the log may have been claimed, and you may call Claim
// again with the same token on the same Log. Claim sends 3 GETs, 1 LIST per 1000 entries since
// the last checkpoint, and 2 PUTs, of which one seals the checkpoint; more if the former
// appender is still writing.
func (l *Log) Claim(ctx context.Context, h fence.Holder) (*Appender, error) {
	v, err := l.checkpoint.Claim(ctx, h)
	if err != nil {
		return nil, err
	}
	c, m, err := l.marked(ctx, v)
	if err != nil {
		return nil, err
	}
	claim := l.claiming(h.Token())
	last, err := l.fence(ctx, h, claim, c.Position)
	// If a larger token sealed the checkpoint meanwhile, the apparent end of the log could be
	// the position of a trimmed entry.
	if _, again := l.checkpoint.Claim(ctx, h); again != nil {
		return nil, again
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	delete(l.claims, h.Token())
	l.mu.Unlock()
	a := &Appender{log: l, h: h, claim: claim, last: last, marks: m}
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return a, nil
}

// claiming returns the mark of the claim with a token. It stays the same until the claim
// succeeds, so it can be retried.
func (l *Log) claiming(token leasehold.Token) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	claim, ok := l.claims[token]
	if !ok {
		claim = request.NewID().String()
		l.claims[token] = claim
	}
	return claim
}

// passes returns an error if a claim cannot follow an entry.
func (l *Log) passes(h fence.Holder, claim string, f *found) error {
	if f.Token > h.Token() || f.Token == h.Token() && f.header.Claim != claim {
		return fence.Refuse(h, l.String(), f.Token)
	}
	return nil
}

// fence writes a fence entry at the end of the log.
//
// An active former appender writes one entry after the other, and has written more by the time
// the last one has been read. So a claim that loses a race writes its fence further ahead and
// then closes the gap, where the appender meets the first entry it did not write.
func (l *Log) fence(ctx context.Context, h fence.Holder, claim string, from Position) (*found, error) {
	for ahead := Position(1); ; ahead *= 4 {
		tail, err := l.tail(ctx, from)
		if err != nil {
			return nil, err
		}
		if err = l.passes(h, claim, tail); err != nil {
			return nil, err
		}
		if tail.Position == 0 {
			ahead = 1 // the first entry never has a gap before it
		}
		goal, err := l.place(ctx, h, newEntry(tail, tail.Position+ahead, h.Token(), claim, kindFence, nil))
		if err != nil {
			return nil, err
		}
		if goal.header.Claim != claim {
			if err = l.passes(h, claim, goal); err != nil {
				return nil, err
			}
			if ahead > 1<<20 {
				return nil, fmt.Errorf("%v: token %v: the log grows faster than it can be claimed", l, h.Token())
			}
			continue
		}
		for tail.Position < goal.Position-1 {
			tail, err = l.place(ctx, h, newEntry(tail, tail.Position+1, h.Token(), claim, kindFence, nil))
			if err == nil {
				err = l.passes(h, claim, tail)
			}
			if err != nil {
				return nil, err
			}
		}
		return goal, nil
	}
}
