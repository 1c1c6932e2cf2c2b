package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/lockjson"
	"github.com/leasehold/leasehold/store"
)

const (
	maxBreaks   = 4 // at a time
	breakWithin = 30 * time.Second
)

// A breakBody is the body of break.
type breakBody struct {
	Token *leasehold.Token `json:"token"`
}

// Broken is the state of a lock after it was broken.
type Broken struct {
	Freed bool `json:"freed"` // false: it was free already
	Report
}

// postBreak force-releases a lock. Its requests count against the budget of reads, so a caller
// that guesses tokens cannot send any number of requests to the store.
func (s *Server) postBreak(c *call) (int, any, error) {
	if !s.opts.AllowBreak {
		return 0, nil, refuse(wordBreak, "this server breaks no locks: it was started without --allow-break")
	}
	var body breakBody
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	if err := s.checkKey(c.param); err != nil {
		return 0, nil, err
	}
	if body.Token == nil || *body.Token <= leasehold.NoToken {
		return 0, nil, refuse(wordValue, "token is to be the one that the lock has now")
	}
	select {
	case s.brake <- struct{}{}:
		defer func() { <-s.brake }()
	default:
		return 0, nil, refuse(wordTooMany, "%d locks are being broken, and no more may be at a time", maxBreaks)
	}
	if pause := s.watch.budget.pause(); pause > 0 {
		return 0, nil, s.watch.errNoBudget(pause)
	}
	c.patient()
	// This continues if the caller leaves, or the session might end without the lock being freed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), breakWithin)
	defer cancel()
	broken, err := s.breakLock(ctx, c.param, *body.Token)
	if err != nil {
		return 0, nil, s.refusalOf(c.param, err)
	}
	return http.StatusOK, broken, nil
}

func (s *Server) breakLock(ctx context.Context, key string, token leasehold.Token) (Broken, error) {
	st, at := s.watch.looks, s.inside(key)
	url := s.opts.URL(at)
	defer s.watch.touched(key) // even if it failed
	ours, err := s.breakOurs(ctx, key, token)
	if err != nil {
		return Broken{}, err
	}
	e, err := admin.Inspect(ctx, st, at)
	switch {
	case err != nil:
		return Broken{}, err
	case !e.Exists:
		return Broken{}, refuse(wordUnknown, "there is no such lock")
	case ours:
		return Broken{true, lockjson.Describe(url, "", e.Info)}, nil
	case s.isOurs(e, token):
		return Broken{}, refuse(wordStore, "the lease is over, and its release is under way: ask again")
	}
	holder, held := holderOf(e, token)
	after := e
	if e.Size > 0 {
		after, err = admin.BreakHolder(ctx, st, at, token)
	} else {
		after.Info, err = s.breakThrough(ctx, st, e.Info, token)
	}
	switch {
	case errors.Is(err, admin.ErrTokenChanged) && after.Held:
		report := lockjson.Describe(url, "", after.Info)
		return Broken{}, &refusal{wordHeld, oneLine(err), &report}
	case errors.Is(err, admin.ErrTokenChanged): // it was freed meanwhile, by another process
		held = false
	case errors.Is(err, admin.ErrNoTokens):
		return Broken{}, refuse(wordForeign, "%s", oneLine(err))
	case err != nil:
		return Broken{}, err
	}
	if held {
		s.broke(url, holder, token)
	}
	return Broken{held, lockjson.Describe(url, "", after.Info)}, nil
}

func (s *Server) broke(url, holder string, token leasehold.Token) {
	s.stats.broken.Add(1)
	s.log.Warn("a lock was broken by hand: its holder may work on until it finds out", "lock", url, "holder", holder, "token", token)
}

// breakThrough breaks a lock, and retries if a renewal was faster. It leaves a free lock as it
// is, unless it is in cooldown.
func (s *Server) breakThrough(ctx context.Context, st store.Store, i leasehold.Info, token leasehold.Token) (leasehold.Info, error) {
	if !i.Held && i.Rest == 0 {
		return i, nil
	}
	lock, err := leasehold.NewLock(st, i.Key, &leasehold.LockOptions{Layout: i.Layout, NoIfMatch: i.NoIfMatch})
	if err != nil {
		return i, err
	}
	for range 3 {
		i, err = admin.Break(ctx, lock, token)
		if !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	return i, err
}

// holderOf returns the holder of a lock, or of a semaphore's slots, with that token.
func holderOf(e admin.Entry, token leasehold.Token) (string, bool) {
	if e.Size == 0 {
		return e.Holder, e.Held && e.Token == token
	}
	for _, h := range e.Holders {
		if h.Token == token {
			return h.Holder, true
		}
	}
	return "", false
}

// breakOurs ends the lease with that token if it is one of this server's, and waits for its
// release. admin.Break would end the session, and with it all leases of this server.
func (s *Server) breakOurs(ctx context.Context, key string, token leasehold.Token) (bool, error) {
	var found *lease
	s.mu.Lock()
	for _, l := range s.leases {
		if l.key == key && l.held.Token() == token {
			found = l
			break
		}
	}
	s.mu.Unlock()
	if found == nil || !found.end("it was broken by hand") { //nolint:contextcheck // it is released whatever becomes of ctx
		return false, nil
	}
	s.broke(s.opts.URL(s.inside(key)), found.held.Holder(), token)
	select {
	case <-found.settled:
		return true, nil
	case <-ctx.Done():
		return true, fmt.Errorf("the lease is over, and its release is under way: %w", context.Cause(ctx))
	}
}

// isOurs reports whether the token is of this server's session. Its lease has then ended, and
// is being released.
func (s *Server) isOurs(e admin.Entry, token leasehold.Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return false
	}
	session := s.current.session.Key()
	if e.Size == 0 {
		return e.Held && e.Token == token && e.Session == session
	}
	return slices.ContainsFunc(e.Holders, func(h leasehold.Entry) bool { return h.Token == token && h.Session == session })
}
