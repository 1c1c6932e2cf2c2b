package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasehold/leasehold"
)

// A Gate lets work on a resource begin only after all work with older tokens has ended. A
// [Checker] alone does not: (1) A request with token 1 is admitted, and is suspended before it
// writes. (2) A request with token 2 is admitted and writes. (3) The first request resumes, and
// overwrites the second one's data.
//
// Work with equal tokens runs concurrently. For a newer token, the Gate first records it, so
// older ones are rejected from then on. It then cancels the contexts of work with older tokens,
// with a [*FencedError] as the cause, and waits until that work has ended. So work that stops
// when its context ends hardly delays newer work.
//
// A Gate works within one process. If several processes serve one resource, a Gate does not
// wait for requests in the other processes, even if they share the Checker: then the write
// itself must carry the token, as with package fencesql or [Object].
//
// All work on a resource must go through the same Gate. The Gate forgets a resource without
// work; the Checker remembers its token. A Gate is safe for concurrent use.
type Gate struct {
	checker Checker

	mu        sync.Mutex
	resources map[string]*resourceState // those with requests that are admitted or waiting
}

// A resourceState is the state of a resource in use. It is created before the Checker is
// called. Otherwise a request that was admitted long ago could find no state, and would miss
// that a newer request has come and gone.
type resourceState struct {
	requests int // admitted and waiting
	newest   leasehold.Token
	admitted map[*entrant]struct{}
}

// An entrant is one piece of work, and the Holder for its writes: fenced work can send nothing
// more, and a resource it writes to can fence it.
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

// NewGate returns a gate that admits by the Checker's tokens.
func NewGate(c Checker) *Gate { return &Gate{checker: c, resources: make(map[string]*resourceState)} }

// Enter waits until the work of h on the resource may begin. The work must use the context
// Enter returns. It is derived from ctx, ends when a newer token arrives, and carries a Holder
// for [HolderFrom]. Call leave once the work has ended, including the goroutines it started;
// further calls do nothing.
//
// Enter returns a [*FencedError] if the Checker has seen a larger token, or sees one while
// Enter waits; an error of [Admit] or of the Checker; or, if ctx ends first, its cause. After
// an error, do not start the work and do not call leave. The token may have been recorded.
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
	defer func() { // even if a Checker panics, the request must leave
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
			// Another process has admitted a newer token.
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

// approach records a waiting request.
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

// raise records a token that the Checker admits, and returns the admitted requests with older
// tokens and the newest token. If that is token, v is now admitted, and no older requests will
// be.
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

// evict tells requests they are fenced. It must not hold the gate's mutex, because abandoning a
// lease calls code of others.
func evict(requests []*entrant, resource string, newest leasehold.Token) {
	for _, v := range requests {
		_ = Refuse(v, resource, newest) // the request learns it from its context
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

// WithHolder returns a context that carries h, for a fencehttp.Transport without a Holder of
// its own and for callers of [HolderFrom].
func WithHolder(ctx context.Context, h Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// HolderFrom returns the Holder in the context, or nil, which cannot write. Within a [Gate], it
// is the Holder of the request being served: it has the request's token, it ends when the
// request is fenced, and a resource that rejects it ends the request's context.
func HolderFrom(ctx context.Context) Holder {
	h, _ := ctx.Value(holderKey{}).(Holder)
	return h
}
