package terraform

import (
	"context"
	"sync"
)

// turns lets one request at a time change the objects of a name. The zero value is ready to
// use.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	taken chan struct{}
	users int // that have it or wait for it
}

// enter waits until it is the caller's turn, or until ctx ends.
func (t *turns) enter(ctx context.Context, name string) (leave func(), err error) {
	mine, gone := t.join(name)
	select {
	case mine.taken <- struct{}{}:
		return func() {
			<-mine.taken
			gone()
		}, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}

// try is like enter, but does not wait: leave is nil if another caller has the turn.
func (t *turns) try(name string) (leave func()) {
	mine, gone := t.join(name)
	select {
	case mine.taken <- struct{}{}:
		return func() {
			<-mine.taken
			gone()
		}
	default:
		gone()
		return nil
	}
}

// join counts the caller among the users of a name's turn.
func (t *turns) join(name string) (mine *turn, gone func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*turn{}
	}
	if mine = t.of[name]; mine == nil {
		mine = &turn{taken: make(chan struct{}, 1)}
		t.of[name] = mine
	}
	mine.users++
	return mine, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(t.of, name)
		}
	}
}
