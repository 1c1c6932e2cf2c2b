package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasehold/leasehold"
)

// A Gate lets the work on a resource begin only after all work with an older token has
// come to its end. A [Checker] alone does not: (1) A request with token 1 is admitted,
// and is paused before it writes. (2) One with token 2 is admitted and writes. (3) The
// first goes on, and overwrites what the second wrote.
//
// Work with equal tokens goes on together. A newer token is recorded first, from when
// on older ones are refused; then the contexts of the work with older tokens are
// cancelled, with a [*FencedError] as cause; then the newer work waits until that has
// ended. Work that heeds its context so keeps the newer waiting for an instant, work
// that does not for as long as it takes.
//
// A Gate sees one process. Where several processes serve one resource, a request in
// one of them knows nothing of those inside the others, even if the Checker is shared:
// then the write itself has to carry the token, as with package fencesql or [Object].
//
// All work on a resource must go through the one Gate. It keeps nothing about a
// resource with nobody inside; the Checker remembers. It is safe for concurrent use.
type Gate struct {
	checker Checker

	mu        sync.Mutex
	resources map[string]*resourceState // those with requests that are admitted or wait
}

// A resourceState is what the gate knows of a resource in use. It is made before the Checker
// is asked: otherwise a request that was admitted long ago could find nothing there, and
// not learn that a newer one has come and gone.
type resourceState struct {
	requests int // admitted and waiting
	newest   leasehold.Token
	admitted map[*entrant]struct{}
}

// An entrant is one piece of work, and the Holder by which it writes on: once the work is
// fenced it can send no more, and a resource that it writes to can fence it.
type entrant struct {
	Holder
	ctx    context.Context
	cancel context.CancelCauseFunc
	left   chan struct{} // closed when the work has ended
}

func (v *entrant) Err() error {
	if cause := context.Cause(v.ctx); cause != nil {
		return cause
	}
	return Admit(v.Holder)
}

func (v *entrant) Abandon(cause error) {
	v.cancel(cause)
	if l, ok := v.Holder.(interface{ Abandon(error) }); ok {
		l.Abandon(cause)
	}
}

// NewGate makes a gate that admits by the tokens that the Checker remembers.
func NewGate(c Checker) *Gate { return &Gate{checker: c, resources: make(map[string]*resourceState)} }

// Enter waits until the work of h on the resource may begin. The work then runs with
// the context that Enter returns, which comes from ctx, ends when a newer token comes,
// and carries a Holder for [HolderFrom]. leave must be called once the work has ended,
// goroutines that it started included; further calls do nothing.
//
// Enter returns a [*FencedError] if the Checker has seen a larger token, or sees one
// while Enter waits; what [Admit] says; what the Checker says; or, if ctx ends first,
// its cause. After an error nothing may be done and there is nothing to leave, but
// the token may have been recorded.
func (g *Gate) Enter(ctx context.Context, resource string, h Holder) (inner context.Context, leave func(), err error) {
	if err := Admit(h); err != nil {
		return nil, nil, err
	}
	v := &entrant{Holder: h, left: make(chan struct{})}
	ctx, v.cancel = context.WithCancelCause(ctx)
	v.ctx = WithHolder(ctx, v)

	r := g.approach(resource)
	out := sync.OnceFunc(func() { g.leave(resource, r, v) })
	inside := false
	defer func() { // a Checker that panics must not leave a request waiting either
		if !inside {
			out()
		}
	}()
	if err := g.enter(resource, r, v); err != nil {
		return nil, nil, err
	}
	inside = true
	return v.ctx, out, nil
}

func (g *Gate) enter(resource string, r *resourceState, v *entrant) error {
	if err := g.checker.Check(v.ctx, resource, v.Holder); err != nil {
		if fenced, ok := errors.AsType[*FencedError](err); ok {
			// Another process has let a newer one in.
			older, _ := g.raise(r, nil, fenced.Newest)
			evict(older, resource, fenced.Newest)
		}
		return err
	}
	older, newest := g.raise(r, v, v.Token())
	if newest > v.Token() {
		return Refuse(v.Holder, resource, newest)
	}
	evict(older, resource, newest)
	for _, o := range older {
		select {
		case <-o.left:
		case <-v.ctx.Done():
		}
	}
	if cause := context.Cause(v.ctx); cause != nil {
		return fmt.Errorf("enter %s: %w", resource, cause)
	}
	return nil
}

// approach takes note of a request that waits.
func (g *Gate) approach(resource string) *resourceState {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.resources[resource]
	if r == nil {
		r = &resourceState{admitted: make(map[*entrant]struct{})}
		g.resources[resource] = r
	}
	r.requests++
	return r
}

// raise takes note of a token that the Checker admits, and returns the admitted requests with
// older tokens, and the newest token of all. If that is the token itself, v is admitted from
// now on, and no older request will be.
func (g *Gate) raise(r *resourceState, v *entrant, token leasehold.Token) (older []*entrant, newest leasehold.Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.newest = max(r.newest, token)
	for o := range r.admitted {
		if o.Token() < token {
			older = append(older, o)
		}
	}
	if v != nil && r.newest == token {
		r.admitted[v] = struct{}{}
	}
	return older, r.newest
}

// evict tells requests that they are fenced. It holds no lock of the gate: to abandon a
// lease runs code that is not ours.
func evict(requests []*entrant, resource string, newest leasehold.Token) {
	for _, v := range requests {
		_ = Refuse(v, resource, newest) // it is told by its context
	}
}

func (g *Gate) leave(resource string, r *resourceState, v *entrant) {
	v.cancel(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(r.admitted, v)
	close(v.left)
	if r.requests--; r.requests == 0 {
		delete(g.resources, resource)
	}
}

type holderKey struct{}

// WithHolder returns a context that carries h to the functions that are called with it: a
// fencehttp.Transport without a Holder of its own, or any caller of [HolderFrom].
func WithHolder(ctx context.Context, h Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// HolderFrom returns the Holder that the context carries, or nil, by which nothing can
// be written. Within a [Gate] it is the one of the request that is being served: it
// has the request's token, it ends when the request is fenced, and a resource that
// refuses it ends the request's context.
func HolderFrom(ctx context.Context) Holder {
	h, _ := ctx.Value(holderKey{}).(Holder)
	return h
}
