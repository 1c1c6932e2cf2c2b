package lock

import (
	"context"
	"time"
)

// A session is what a Lazy keeps.
type session interface {
	comparable
	Err() error // why it has ended, or nil
}

// A Lazy session is begun when the first caller needs it, shared by all, and closed a while after the last
// one has dropped it. Calls that begin or end it wait for each other.
type Lazy[S session] struct {
	rest   time.Duration // how long it stays open without users
	close  func(S)       // closes a session that nobody waits for
	turn   chan struct{} // a mutex that can be waited for: it has one element while it is free
	open   S             // the zero S: none
	users  int
	unused []chan struct{} // closed when users is 0
	late   *time.Timer     // closes the session when it is due
}

// NewLazy returns a session that has not begun. It is closed rest after its last use, by close, which must
// not wait for the leases under it.
func NewLazy[S session](rest time.Duration, close func(S)) *Lazy[S] {
	z := &Lazy[S]{rest: rest, close: close, turn: make(chan struct{}, 1)}
	z.turn <- struct{}{}
	return z
}

// Use returns the session, and begins one if there is none or it has ended. Drop must follow.
func (z *Lazy[S]) Use(ctx context.Context, begin func() (S, error)) (s S, err error) {
	select {
	case <-z.turn:
	case <-ctx.Done():
		return s, ctx.Err()
	}
	defer z.leave()
	var none S
	if z.open != none && z.open.Err() != nil {
		z.close(z.open)
		z.open = none
	}
	if z.open == none {
		if s, err = begin(); err != nil {
			return none, err
		}
		z.open = s
	}
	if z.late != nil {
		z.late.Stop()
	}
	z.users++
	return z.open, nil
}

func (z *Lazy[S]) leave() { z.turn <- struct{}{} }

// Drop ends one use. It may wait while a session begins.
func (z *Lazy[S]) Drop() {
	<-z.turn
	defer z.leave()
	if z.users--; z.users > 0 {
		return
	}
	for _, c := range z.unused {
		close(c)
	}
	z.unused = nil
	var none S
	if z.open != none {
		z.late = time.AfterFunc(z.rest, z.expire)
	}
}

// expire closes the session if it is still unused.
func (z *Lazy[S]) expire() {
	<-z.turn
	defer z.leave()
	var none S
	if z.users == 0 && z.open != none {
		z.close(z.open)
		z.open = none
	}
}

// Take returns the session for its last user to close, or the zero S if none is open. If others use it, Take
// returns a channel that is closed when they have dropped it, and leaves the session to them.
func (z *Lazy[S]) Take(ctx context.Context) (s S, unused <-chan struct{}, err error) {
	select {
	case <-z.turn:
	case <-ctx.Done():
		return s, nil, ctx.Err()
	}
	defer z.leave()
	var none S
	if z.open != none && z.users > 0 {
		c := make(chan struct{})
		z.unused = append(z.unused, c)
		return none, c, nil
	}
	s, z.open = z.open, none
	if z.late != nil {
		z.late.Stop()
	}
	return s, nil, nil
}
