package fence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold/leasehold/fence/internal/request"
	"github.com/leasehold/leasehold/store"
)

// change writes the content that next makes of the present state, on the condition that the
// state has not changed. If next returns nil, it writes nothing. The state is read for this
// change, unless will accepts the one last seen. The attempt's now is the store's final state.
func (o *Object) change(ctx context.Context, h Holder, will func(seen *state) bool, next func(now *state) (*content, error)) (*attempt, error) {
	a := &attempt{o: o, h: h}
	if err := Admit(h); err != nil {
		return a, err
	}
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return a, ctx.Err()
	}
	o.mu.Lock()
	if o.known != nil && will(o.known) {
		a.now = o.known
	}
	o.mu.Unlock()
	for pause := range request.Pauses(ctx) {
		if a.err != nil && !a.stale && !pause() {
			a.err = fmt.Errorf("%w: %w", ctx.Err(), a.err)
			break
		}
		if done, err := a.step(ctx, next); done {
			return a, err
		}
	}
	return a, a.end(a.err)
}

// An attempt is one change in progress.
type attempt struct {
	o   *Object
	h   Holder
	now *state       // nil: must be read
	ids []request.ID // of the writes that were sent
	err error        // of the last step

	stale bool // only the known state was old: the next step need not wait

	open error  // why a write may have landed, if it may
	at   *state // the state that the last write was to replace
}

// errRefused: rule A6. The network may deliver a write twice, so the answer of a write that
// landed can be a refusal.
var errRefused = fmt.Errorf("a write was refused, and may have landed before that: %w", store.ErrUnknownOutcome)

// settle decides by the present state whether a write has landed, or can still land.
func (a *attempt) settle() (landed bool) {
	switch {
	case a.open == nil, a.now.version == a.at.version: // as long as this is the state, the next write settles it: it has the same condition
	case slices.Contains(a.ids, a.now.seal.id):
		return true
	case a.now.seal.token < a.h.Token(), a.now.seal.over == a.at.seal.id:
		// After our write, no smaller token could have landed; and only one write can replace a version.
		a.open, a.ids = nil, nil
	}
	return false
}

// mayPoint reports whether the store has, or may still get, pointer, which was sent.
func (a *attempt) mayPoint(pointer []byte) bool {
	if a.open == nil {
		return false
	}
	return a.now == nil || a.now.version == a.at.version || bytes.Equal(a.now.body, pointer) // a claim keeps it
}

// step reads and writes once, and reports whether the change is done.
func (a *attempt) step(ctx context.Context, next func(*state) (*content, error)) (done bool, err error) {
	a.stale = false
	if a.now == nil {
		if a.now, a.err = a.o.read(ctx); a.err != nil {
			return !request.Transient(a.err), a.end(a.err)
		}
		if a.settle() { // rule A6: it landed, whatever the store said
			return true, nil
		}
	}
	switch {
	case a.now.seal.token > a.h.Token():
		return true, a.end(Refuse(a.h, a.o.String(), a.now.seal.token))
	case a.open != nil && a.now.version != a.at.version:
		// The write has landed and was replaced, or never will land, and we cannot tell which.
		// Writing again could do a thing twice, or point to deleted data.
		return true, a.end(fmt.Errorf("%v: another with the same token has written meanwhile", a.o))
	}
	c, err := next(a.now)
	if c == nil {
		return true, a.end(err)
	}
	if err := Admit(a.h); err != nil {
		return true, a.end(err)
	}
	return a.write(ctx, c)
}

func (a *attempt) write(ctx context.Context, c *content) (done bool, err error) {
	s := &state{seal: seal{c.kind, a.h.Token(), request.NewID(), a.now.seal.id}, body: c.body}
	only := store.IfAbsent()
	if a.now.version != "" {
		only = store.IfMatch(a.now.version)
	}
	object, err := request.Put(ctx, a.o.st, a.o.key, s.seal.add(c.body), only)
	a.err = err
	switch {
	case err == nil:
		s.version = object.Version
		a.now = s
		a.o.remember(s)
		return true, nil
	case errors.Is(err, store.ErrUnknownOutcome):
		a.open = err
	case errors.Is(err, store.ErrPrecondition), errors.Is(err, store.ErrNotExist):
		a.stale = len(a.ids) == 0
		a.open = cmp.Or(a.open, errRefused)
	default: // nothing landed
		return !request.Transient(err), a.end(err)
	}
	a.ids = append(a.ids, s.seal.id)
	a.at, a.now = a.now, nil
	return false, nil
}

// end returns the error of the change, and adds that a write may have landed.
func (a *attempt) end(err error) error {
	if a.open == nil || errors.Is(err, store.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w; before that: %w", err, a.open)
}
