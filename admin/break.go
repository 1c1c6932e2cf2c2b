package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

var (
	// ErrTokenChanged: the lock's token is not the one that was named.
	ErrTokenChanged = errors.New("the token is another")
	// ErrNoTokens: the layout of the lock has no tokens.
	ErrNoTokens = errors.New("the layout marker has no tokens")
)

// Break frees a lock by hand, if its token is still token, and returns what is
// there then. A lock that is free already is no error; one whose token is another
// gives [ErrTokenChanged], one whose layout has none [ErrNoTokens], and none at all
// store.ErrNotExist. The former holder, if it is alive, notices at its next renewal and
// works on until then: only what checks the token is protected from that. Its lease ends with
// [leasehold.ErrBroken]. It costs one read and one write.
//
// A lock that rests ([leasehold.WithHoldAtLeast]) is free at once then; those who wait for it notice
// within about a minute.
//
// A lock under a session is broken by ending the session first, as [BreakSession] does, since
// its holder looks at nothing else: that ends all its other leases too, and costs a read and a
// write more.
func Break(ctx context.Context, lock *leasehold.Lock, token leasehold.Token) (leasehold.Info, error) {
	p := root.Parts(lock)
	s, info, err := root.Look(ctx, lock)
	switch {
	case err != nil:
		return info, err
	case !info.Exists:
		return info, fmt.Errorf("the lock %v: %w", p.Layout, store.ErrNotExist)
	case !info.Layout.Tokens() || token == leasehold.NoToken:
		return info, fmt.Errorf("the lock %v: %w to break it by: if its holder is gone, delete its object by hand", p.Layout, ErrNoTokens)
	case info.Token != token:
		return info, fmt.Errorf("the lock %v: %w: it is %d, not %d", p.Layout, ErrTokenChanged, info.Token, token)
	case !info.Held && s.Record.Resting() == 0:
		return info, nil
	}
	if info.Session != "" {
		if err = BreakSession(ctx, p.Store, info.Session); err != nil {
			return info, fmt.Errorf("the lock %v was not freed, because its session goes on: %w", p.Layout, err)
		}
	}
	written, lost := p.Layout.Write(ctx, broken(s))
	if lost == nil {
		return root.Describe(lock.Key(), written), nil
	}
	// Our write may have landed, or the holder have renewed since: look.
	// A look that fails shows no token.
	if _, now, _ := root.Look(ctx, lock); now.Token == token && !now.Held && now.Rest == 0 {
		return now, nil
	}
	return leasehold.Info{}, fmt.Errorf("the lock %v was not freed, try again: %w", p.Layout, lost)
}

// BreakSession ends a session by hand, with all the leases under it; [leasehold.Info.Session]
// names it. Its holder, if it is alive, notices at its next heartbeat and works on until then;
// others take the locks over at once. A session that is over, or is not there, holds nothing
// and is no error. It costs one read and one write, and up to three of each if the holder is
// faster with its heartbeats.
func BreakSession(ctx context.Context, st store.Store, session string) error {
	at := layout.Heartbeat{Store: st, Key: session}
	for try := 1; ; try++ {
		s, err := at.Look(ctx, "")
		if !s.Record.Held { // nor is it if there is none, or if that is not known
			return err
		}
		// Its holder may be faster than we are.
		if _, err = at.Write(ctx, broken(s)); err == nil || try == 3 {
			return err
		}
	}
}

// BreakSeat frees the seats of one lease of a semaphore by hand: of the holder with that token. It
// returns what is there then. It ends the session of that holder, as [BreakSession] does, and with it
// whatever else is under it; then it takes out of the object all that was under the session, so that those
// who wait have the seats at once.
//
// A semaphore that nobody holds is no error; one that others hold, and nobody with that token, gives
// [ErrTokenChanged], and none at all store.ErrNotExist. The former holder, if it is alive, notices at its next
// heartbeat and works on until then. It costs two reads and two writes, and up to three times that if
// others are faster.
func BreakSeat(ctx context.Context, st store.Store, key string, token leasehold.Token) (Entry, error) {
	at := layout.Table{Store: st, Key: key}
	for over, try := "", 1; ; try++ {
		s, err := at.Look(ctx, "")
		if err != nil {
			return Entry{}, fmt.Errorf("the semaphore %v: %w", at, err)
		}
		i := slices.IndexFunc(s.Table.Holders, func(h record.Seat) bool { return leasehold.Token(h.Token) == token })
		seen := tableEntry(key, s.Table, s.Version)
		switch {
		case i < 0 && over == "" && len(s.Table.Holders) > 0:
			return seen, fmt.Errorf("the semaphore %v: %w: no holder has %d", at, ErrTokenChanged, token)
		case i < 0: // by now, if it was there
			return seen, nil
		case over == "":
			over = s.Table.Holders[i].Session
			if err = BreakSession(ctx, st, over); err != nil {
				return seen, fmt.Errorf("the seats in %v were not freed, because their session goes on: %w", at, err)
			}
		}
		next := protocol.Without(s.Table, over, newWriteID(), time.Now())
		v, err := at.Write(ctx, protocol.WriteTable{Table: next, Expect: s.Version})
		switch {
		case err == nil:
			return tableEntry(key, next, v), nil
		case try == 3:
			return seen, fmt.Errorf("the session of that holder was ended, but the seats in %v are its own until somebody waits for them, try again: %w", at, err)
		}
	}
}

// tableEntry is what is known of a table that was seen, or written.
func tableEntry(key string, t record.Table, v protocol.Version) Entry {
	return entryOf(key, layout.Snapshot{Exists: true, Record: layout.RecordOf(t), Version: v, Table: &t})
}

// broken is the write that frees what was seen.
func broken(s layout.Snapshot) protocol.Write {
	w := protocol.Write{Op: protocol.Free, Record: s.Record, Expect: s.Version}
	if s.Record.Held {
		w.Record.Ended = record.EndedByHand // of a lease that was released only its rest ends
	}
	w.Record.Held, w.Record.Session, w.Record.Rest, w.Record.WriteID, w.Record.RenewedAt = false, "", nil, newWriteID(), time.Now()
	return w
}
