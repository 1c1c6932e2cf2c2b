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

// change writes what next makes of the state that it is shown, on the condition that it
// still is the state; if that is nothing, it writes nothing. That state is of an answer to
// this change, or the one last seen, if that will do. It returns the attempt, of which now
// is what the store has in the end.
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

// An attempt is one change on its way to the store.
type attempt struct {
	o   *Object
	h   Holder
	now *state       // nil: to be read
	ids []request.ID // of what was sent
	err error        // of the last step

	stale bool // only what was known was old: the next step need not wait

	open error  // why what was sent may have landed, if it may
	at   *state // what the last write was to replace
}

// errRefused: rule A6. The network may deliver a write twice, and then a refusal answers one that
// has landed.
var errRefused = fmt.Errorf("a write was refused, and may have landed before that: %w", store.ErrUnknownOutcome)

// settle finds out from what there is now whether what was sent has landed, or may yet land.
func (a *attempt) settle() (landed bool) {
	switch {
	case a.open == nil, a.now.version == a.at.version: // while that is there, the next write settles it: it is on the same condition
	case slices.Contains(a.ids, a.now.seal.id):
		return true
	case a.now.seal.token < a.h.Token(), a.now.seal.over == a.at.seal.id:
		// Nothing smaller lands after it, and only one write replaces a version.
		a.open, a.ids = nil, nil
	}
	return false
}

// mayPoint reports whether the store may have, or get, what was sent: pointer.
func (a *attempt) mayPoint(pointer []byte) bool {
	if a.open == nil {
		return false
	}
	return a.now == nil || a.now.version == a.at.version || bytes.Equal(a.now.body, pointer) // a claim keeps it
}

// step reads and writes once, and reports whether that was the end.
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
		// It landed and was replaced, or never will land. Nothing tells which, and to write
		// again could do twice what was to be done once, or point to data that is deleted.
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

// end makes the error of the change: it also says if anything may have landed.
func (a *attempt) end(err error) error {
	if a.open == nil || errors.Is(err, store.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w; before that: %w", err, a.open)
}
