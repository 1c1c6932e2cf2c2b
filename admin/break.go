package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

var (
	// ErrTokenChanged: the lock has another token than you named, so its holder has changed.
	// Inspect the lock again before you decide.
	ErrTokenChanged = errors.New("the token is another")
	// ErrNoTokens: the lock's layout has no tokens, so a break cannot name the holder. If the
	// holder is dead, delete the lock's object by hand.
	ErrNoTokens = errors.New("the layout marker has no tokens")
)

// Break force-releases a lock if its token is still token, and returns the new state. It does
// nothing if the lock is free. Break returns [ErrTokenChanged] if the lock has another token,
// [ErrNoTokens] if its layout has none, and store.ErrNotExist if there is no lock. It costs one
// read and one write.
//
// A former holder that is still alive continues until it notices at its next renewal. Until
// then, only resources that check the token are protected. Its lease ends with
// [leasehold.ErrBroken].
//
// Break also ends a cooldown ([leasehold.WithHoldAtLeast]) at once; waiters notice within about
// a minute.
//
// For a lock under a session, Break first ends the session as [BreakSession] does, because its
// holder polls nothing else. That ends all other leases of the session too, and costs one more
// read and write.
func Break(ctx context.Context, lock *leasehold.Lock, token leasehold.Token) (leasehold.Info, error) {
	at := leasehold.Internal.Layout(lock)
	s, info, err := leasehold.Internal.Look(ctx, lock)
	switch {
	case err != nil:
		return info, err
	case !info.Exists:
		return info, fmt.Errorf("the lock %v: %w", at, store.ErrNotExist)
	case !info.Layout.Tokens() || token == leasehold.NoToken:
		return info, fmt.Errorf("the lock %v: %w to break it by: if its holder is gone, delete its object by hand", at, ErrNoTokens)
	case info.Token != token:
		return info, fmt.Errorf("the lock %v: %w: it is %d, not %d", at, ErrTokenChanged, info.Token, token)
	case !info.Held && s.Record.Resting() == 0:
		return info, nil
	}
	if info.Session != "" {
		if err = BreakSession(ctx, leasehold.Internal.Store(lock), info.Session); err != nil {
			return info, fmt.Errorf("the lock %v was not freed, because its session goes on: %w", at, err)
		}
	}
	written, lost := at.Write(ctx, broken(s))
	if lost == nil {
		return leasehold.Internal.Describe(lock.Key(), written), nil
	}
	// Our write may have landed, or the holder may have renewed since. If this read fails, its
	// token is zero.
	if _, now, _ := leasehold.Internal.Look(ctx, lock); now.Token == token && !now.Held && now.Rest == 0 {
		return now, nil
	}
	return leasehold.Info{}, fmt.Errorf("the lock %v was not freed, try again: %w", at, lost)
}

// BreakSession ends a session, as named by [leasehold.Info.Session], and all its leases. A
// holder that is still alive continues until it notices at its next heartbeat; others take over
// the locks at once. BreakSession does nothing if the session has ended or does not exist. It
// costs one read and one write, and up to three of each if the holder's heartbeats come first.
func BreakSession(ctx context.Context, st store.Store, session string) error {
	at := layout.Heartbeat{Store: st, Key: session}
	for try := 1; ; try++ {
		s, err := at.Look(ctx, "")
		if !s.Record.Held { // also if there is no session, or if the read failed
			return err
		}
		// A heartbeat may come first.
		if _, err = at.Write(ctx, broken(s)); err == nil || try == 3 {
			return err
		}
	}
}

// BreakHolder force-releases the slots of the semaphore's holder with that token, and returns the
// new state. It ends the holder's session as [BreakSession] does, with all its other leases. It
// then removes all entries of that session from the object, so waiters get the slots at once.
//
// BreakHolder does nothing if the semaphore has no holders. It returns [ErrTokenChanged] if it
// has holders but none with that token, and store.ErrNotExist if there is no semaphore. A
// former holder that is still alive continues until it notices at its next heartbeat. The cost
// is two reads and two writes, and up to three times that if other writes come first.
func BreakHolder(ctx context.Context, st store.Store, key string, token leasehold.Token) (Entry, error) {
	at := layout.Table{Store: st, Key: key}
	for over, try := "", 1; ; try++ {
		s, err := at.Look(ctx, "")
		if err != nil {
			return Entry{}, fmt.Errorf("the semaphore %v: %w", at, err)
		}
		i := slices.IndexFunc(s.Table.Holders, func(h record.Entry) bool { return leasehold.Token(h.Token) == token })
		seen := entryOf(key, layout.SnapshotOf(s.Table, s.Version))
		switch {
		case i < 0 && over == "" && len(s.Table.Holders) > 0:
			return seen, fmt.Errorf("the semaphore %v: %w: no holder has %d", at, ErrTokenChanged, token)
		case i < 0: // gone by now, if it was there
			return seen, nil
		case over == "":
			over = s.Table.Holders[i].Session
			if err = BreakSession(ctx, st, over); err != nil {
				return seen, fmt.Errorf("the slots in %v were not freed, because their session goes on: %w", at, err)
			}
		}
		next := queue.Without(s.Table, over, newWriteID(), time.Now())
		v, err := at.Write(ctx, queue.Write{Table: next, Expect: s.Version})
		switch {
		case err == nil:
			return entryOf(key, layout.SnapshotOf(next, v)), nil
		case try == 3:
			return seen, fmt.Errorf("the session of that holder was ended, but the slots in %v are its own until somebody waits for them, try again: %w", at, err)
		}
	}
}

// broken returns the write that frees s.
func broken(s layout.Snapshot) candidate.Write {
	w := candidate.Write{Op: candidate.Free, Record: s.Record, Expect: s.Version}
	if s.Record.Held {
		w.Record.Ended = record.EndedByHand // a lease that was released was not broken: only its cooldown ends
	}
	w.Record.Held, w.Record.Session, w.Record.Rest, w.Record.WriteID, w.Record.RenewedAt = false, "", nil, newWriteID(), time.Now()
	return w
}
