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
// an answer to this change, else the one last seen will do. It returns the attempt, of
// which now is what the store has in the end.
func (o *Object) change(ctx context.Context, h Holder, fresh bool, next func(now *state) (*content, error)) (*attempt, error) {
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

	unknown error         // why what was sent may have landed
	refused bool          // a write was refused; a copy of it may have landed before
	at      store.Version // what was last sent was to replace this
}

// landed reports whether what was sent may be in the store, or may yet land.
func (a *attempt) landed(in func(now *state) bool) bool {
	if len(a.ids) == 0 {
		return false
	}
	// Everything that was sent is on the condition of at or of something older.
	return a.now == nil || a.now.version == a.at || in(a.now)
}

// step reads and writes once, and reports whether that was the end.
func (a *attempt) step(ctx context.Context, next func(*state) (*content, error)) (done bool, err error) {
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
		// It landed and was replaced, or never will land. Nothing tells which, and to
		// write again could do twice what was to be done once.
		return true, a.end(a.overtaken())
	}
	c, err := next(a.now)
	if c == nil {
		return true, a.end(err)
	}
	// The data of a value that is apart goes when its pointer is replaced. If the pointer
	// landed and was replaced, it must not come back.
	if c.kind == apart && a.refused && a.now.version != a.at && a.now.seal.token == a.h.Token() {
		return true, a.end(a.overtaken())
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
		// Rule A6: the network may deliver a write twice, and then a refusal answers one that
		// has landed.
		a.refused, a.at, a.now, a.stale = true, a.now.version, nil, len(a.ids) == 1
	default: // nothing landed
		a.ids = a.ids[:len(a.ids)-1]
		if !request.Transient(err) {
			return true, a.end(err)
		}
	}
	return false, nil
}

func (a *attempt) overtaken() error {
	return fmt.Errorf("%v: another with the same token has written meanwhile", a.o)
}

// end makes the error of the change: it also says if anything may have landed. While the
// token is smaller than the holder's, nothing of the holder's has.
func (a *attempt) end(err error) error {
	switch {
	case err == nil || errors.Is(err, store.ErrUnknownOutcome):
		return err
	case a.unknown != nil:
		return fmt.Errorf("%w; before that: %w", err, a.unknown)
	case a.refused && (a.now == nil || a.now.seal.token >= a.h.Token()):
		return unsettled{err}
	}
	return err
}

// unsettled is an error of a change that may have been made before it was refused.
type unsettled struct{ error }

func (e unsettled) Error() string { return e.error.Error() + " (this write may have landed before)" }

func (e unsettled) Unwrap() []error { return []error{e.error, store.ErrUnknownOutcome} }
