package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold/leasehold/fence/internal/request"
	"github.com/leasehold/leasehold/store"
)

// change writes what next makes of the state that it is shown, on the condition that it
// still is the state; if that is nothing, it writes nothing. With fresh that state is of
// an answer to this change, else the one last seen will do. It returns what lies in the
// store in the end.
func (o *Object) change(ctx context.Context, h Holder, fresh bool, next func(now *state) *content) (*state, error) {
	if err := Admit(h); err != nil {
		return nil, err
	}
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	a := attempt{o: o, h: h}
	if !fresh {
		o.mu.Lock()
		a.now = o.known
		o.mu.Unlock()
	}
	for pause := range request.Pauses(ctx) {
		if a.err != nil && !a.stale && !pause() {
			a.err = fmt.Errorf("%w: %w", ctx.Err(), a.err)
			break
		}
		if done, err := a.step(ctx, next); done {
			return a.now, err
		}
	}
	return nil, a.end(a.err)
}

// An attempt is one change on its way to the store.
type attempt struct {
	o   *Object
	h   Holder
	now *state       // nil: to be read
	ids []request.ID // of what was sent
	err error        // of the last step

	stale bool // only what was known was old: the next step need not wait

	unknown error         // why what was sent may have landed
	at      store.Version // what that was to replace
}

// step reads and writes once, and reports whether that was the end.
func (a *attempt) step(ctx context.Context, next func(*state) *content) (done bool, err error) {
	a.stale = false
	if a.now == nil {
		if a.now, a.err = a.o.read(ctx); a.err != nil {
			return !request.Transient(a.err), a.end(a.err)
		}
		if slices.Contains(a.ids, a.now.seal.id) { // rule A6: it landed, whatever the store said
			return true, nil
		}
	}
	switch {
	case a.now.seal.token > a.h.Token():
		return true, a.end(Refuse(a.h, a.o.String(), a.now.seal.token))
	case a.unknown != nil && a.now.version != a.at:
		// It landed and was replaced, or never will land. Nobody can tell which, and to
		// write again could do twice what was to be done once.
		return true, a.end(fmt.Errorf("%v: another with the same token has written meanwhile", a.o))
	}
	c := next(a.now)
	if c == nil {
		return true, nil
	}
	if err := Admit(a.h); err != nil {
		return true, a.end(err)
	}
	return a.write(ctx, c)
}

func (a *attempt) write(ctx context.Context, c *content) (done bool, err error) {
	s := &state{seal: seal{c.kind, a.h.Token(), request.NewID()}, body: c.body}
	only := store.IfAbsent()
	if a.now.version != "" {
		only = store.IfMatch(a.now.version)
	}
	a.ids = append(a.ids, s.seal.id)
	object, err := request.Put(ctx, a.o.st, a.o.key, s.seal.add(c.body), only)
	a.err = err
	switch {
	case err == nil:
		s.version = object.Version
		a.now = s
		a.o.remember(s)
		return true, nil
	case errors.Is(err, store.ErrUnknownOutcome):
		// While what it was to replace is there, it may yet land; the next write settles
		// that, since it is on the same condition.
		a.unknown, a.at, a.now = err, a.now.version, nil
	case errors.Is(err, store.ErrPrecondition), errors.Is(err, store.ErrNotExist):
		a.now, a.stale = nil, len(a.ids) == 1
	case !request.Transient(err):
		return true, a.end(err)
	}
	return false, nil
}

// end makes the error of the change: it also says if anything may have landed.
func (a *attempt) end(err error) error {
	if a.unknown == nil || errors.Is(err, store.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w; before that: %w", err, a.unknown)
}
