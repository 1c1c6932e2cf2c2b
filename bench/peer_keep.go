package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// A grant is a lock that a peer holds.
type grant interface {
	renew(context.Context) error
	release(context.Context) error
}

// A keeper renews what is held, for the peers that leave this to their users.
type keeper struct {
	ctx   context.Context // until the candidate is closed
	end   context.CancelFunc
	every time.Duration // 0: it stays held until it is released
}

func newKeeper(every time.Duration) keeper {
	ctx, end := context.WithCancel(context.Background())
	return keeper{ctx, end, every}
}

// keep renews h until it is released by the function that it returns.
func (k *keeper) keep(h grant) func(context.Context) error {
	if k.every == 0 {
		return h.release
	}
	var mu sync.Mutex // a release names the version that the last renewal was given
	var timer *time.Timer
	released := false
	mu.Lock()
	timer = time.AfterFunc(k.every, func() {
		mu.Lock()
		defer mu.Unlock()
		if released || k.ctx.Err() != nil {
			return
		}
		ctx, cancel := context.WithTimeout(k.ctx, k.every)
		defer cancel()
		_ = h.renew(ctx) // an error may pass; a holder that has lost the lock is refused the next time too
		timer.Reset(k.every)
	})
	mu.Unlock()
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		released = true
		timer.Stop()
		return h.release(ctx)
	}
}

// A poller waits for a lock by trying again after a pause. So must the users of peers that
// only say whether a lock is free.
type poller struct {
	keeper
	take  func(ctx context.Context, name string) (grant, error) // or errHeld
	pause func() time.Duration
}

func (p *poller) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	for {
		release, err := p.try(ctx, name)
		if !errors.Is(err, errHeld) {
			return release, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(p.pause()):
		}
	}
}

func (p *poller) try(ctx context.Context, name string) (func(context.Context) error, error) {
	h, err := p.take(ctx, name)
	if err != nil {
		return nil, err
	}
	return p.keep(h), nil
}

func (p *poller) close() { p.end() }

// newPoller is for those that name no interval. It renews every third of the TTL and looks
// as often on average, as docs/cost-formulas.md assumes, and its pauses are spread as leasehold's are.
func newPoller(ttl time.Duration, take func(context.Context, string) (grant, error)) *poller {
	return &poller{newKeeper(ttl / 3), take, func() time.Duration { return ttl/4 + rand.N(ttl/6) }}
}
