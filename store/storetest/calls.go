package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold/leasehold/store"
)

var kinds = []error{
	store.ErrNotExist, store.ErrNotModified, store.ErrPrecondition, store.ErrConflict,
	store.ErrThrottled, store.ErrDenied, store.ErrUnknownOutcome, store.ErrTooLarge,
	store.ErrInvalid, store.ErrNoBucket, store.ErrRefused, store.ErrUnavailable,
}

var errNothing = errors.New("neither an object nor an error")

// put calls Put and checks what is true of each of its answers.
func (p *trial) put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	o, err := p.st.Put(ctx, key, body, only)
	switch {
	case err != nil:
		p.typed("put", key, err)
		return nil, err
	case o == nil:
		p.report(putWrites, "put %q %v returned %v", key, only, errNothing)
		return nil, errNothing
	case o.Key != key || o.Body != nil:
		p.report(putWrites, "put %q returned the key %q and %d bytes of body", key, o.Key, len(o.Body))
	case o.Version == "":
		p.report(zeroVersion, "put %q returned no version", key)
	}
	return o, nil
}

// read calls Get and checks what is true of each of its answers.
func (p *trial) read(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, err := p.st.Get(ctx, key, unless)
	switch {
	case err != nil:
		p.typed("get", key, err)
		return nil, err
	case o == nil:
		p.report(getReads, "get %q returned %v", key, errNothing)
		return nil, errNothing
	case o.Key != key:
		p.report(getReads, "get %q returned the key %q", key, o.Key)
	case o.Version == "":
		p.report(zeroVersion, "get %q returned no version", key)
	}
	return o, nil
}

// delete calls Delete and checks what is true of each of its answers.
func (p *trial) delete(ctx context.Context, key string) error {
	err := p.st.Delete(ctx, key)
	p.typed("delete", key, err)
	return err
}

func (p *trial) typed(op, key string, err error) {
	if err == nil {
		return
	}
	e, ok := errors.AsType[*store.Error](err)
	switch {
	case !ok:
		p.report(errorsTyped, "%s %q gave a %T: %v", op, key, err, err)
	case e.Op != op || e.Key != key:
		p.report(errorsTyped, "%s %q gave an error of %s %q: %v", op, key, e.Op, e.Key, err)
	case !slices.Contains(kinds, e.Kind):
		p.report(errorsTyped, "%s %q gave an error of the kind %v", op, key, e.Kind)
	}
}

// create puts an object where there is none, with nobody else about.
func (p *trial) create(key string, body []byte) *store.Object {
	return p.mustPut(key, body, store.IfAbsent())
}

// update puts an object over the version v, with nobody else about.
func (p *trial) update(key string, body []byte, v store.Version) *store.Object {
	return p.mustPut(key, body, store.IfMatch(v))
}

func (p *trial) mustPut(key string, body []byte, only store.Condition) *store.Object {
	o, err := p.put(p.ctx, key, body, only)
	if err == nil {
		return o
	}
	// A store that repeats a write which landed is told 412 by itself.
	landed := !errors.Is(err, store.ErrUnknownOutcome)
	if landed {
		now, getErr := p.read(p.ctx, key, "")
		landed = getErr == nil && bytes.Equal(now.Body, body)
	}
	if landed {
		p.stop(landedIsUnknown, "put %q %v landed, with nobody else about, and said: %v", key, only, err)
	}
	p.stop(putWrites, "put %q %v, which holds, said: %v", key, only, err)
	return nil
}

// mustRead gets an object that is there.
func (p *trial) mustRead(key string) *store.Object {
	o, err := p.read(p.ctx, key, "")
	if err != nil {
		p.stop(getReads, "get %q, which is there, said: %v", key, err)
	}
	return o
}

// absent checks that there is no object.
func (p *trial) absent(key, sentence, after string) {
	switch o, err := p.read(p.ctx, key, ""); {
	case err == nil:
		p.report(sentence, "after %s, %q is there: version %q, body %s", after, key, o.Version, brief(o.Body))
	case !errors.Is(err, store.ErrNotExist):
		p.report(getNotExist, "after %s, get %q said: %v", after, key, err)
	}
}

// unchanged checks that the object is what it was.
func (p *trial) unchanged(was *store.Object, body []byte, sentence, after string) {
	o, err := p.read(p.ctx, was.Key, "")
	switch {
	case err != nil:
		p.report(sentence, "after %s, get %q said: %v", after, was.Key, err)
	case !bytes.Equal(o.Body, body):
		p.report(sentence, "after %s, %q is %s; it was %s", after, was.Key, brief(o.Body), brief(body))
	case o.Version != was.Version:
		p.report(sentence, "after %s, %q has the version %q; it was %q", after, was.Key, o.Version, was.Version)
	}
}

// refused checks that err is of one of the kinds.
func (p *trial) refused(err error, sentence, what string, kinds ...error) {
	switch {
	case err == nil:
		p.report(sentence, "%s succeeded", what)
	case !isAny(err, kinds...):
		p.report(sentence, "%s said: %v", what, err)
	}
}

// entries reads a listing to its end.
func (p *trial) entries(prefix, after string) []store.Entry {
	var entries []store.Entry
	for e, err := range p.st.List(p.ctx, prefix, after) {
		if err != nil {
			p.typed("list", prefix, err)
			p.stop(listYields, "list %q after %q said: %v", prefix, after, err)
		}
		entries = append(entries, e)
	}
	return entries
}

func isAny(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// brief shows a body, or of a long one its beginning and length.
func brief(body []byte) string {
	if len(body) <= 40 {
		return fmt.Sprintf("%q", body)
	}
	return fmt.Sprintf("%q… (%d bytes)", body[:20], len(body))
}
