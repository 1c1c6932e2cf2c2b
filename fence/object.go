package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/leasehold/leasehold/fence/internal/request"
	"github.com/leasehold/leasehold/store"
)

// ObjectOptions are the options of [NewObject]. The zero value and nil mean the defaults.
type ObjectOptions struct {
	// Apart stores every value in a separate object with exactly your bytes, for formats that
	// do not allow trailing blanks. Values too large for one object are always stored like
	// this. It costs one more write for each Put and one more read for each value that is read.
	// Default: only values over about 1 MiB.
	Apart bool

	// Adopt accepts an object that was written without a fence, as if with a token smaller than
	// all others. If the object is later written past the fence again, the fence forgets its
	// token. Default: such an object is left alone, with ErrForeign.
	Adopt bool

	// Logger gets a warning when the separate bytes of a replaced value cannot be deleted. They
	// are left behind, although the write that replaced the value has landed. Default:
	// slog.Default().
	Logger *slog.Logger
}

// An Object is a fenced object in a store: every write carries a token, and after a write with
// a larger token has landed, no write with a smaller one can, however old it is. It is a
// register as in docs/protocol.md, changed only by compare-and-swap. Nothing depends on clocks
// or on the validity of leases.
//
// The object under the key has your bytes, followed by a line of 392 blanks: the seal, which
// contains the token. So other tools see the value with a plain GET. A value over 1 MiB is
// stored unchanged in a separate object below KEY.data/, and the object under the key has its
// location in a line of JSON. After Delete, the object is only a seal. It must stay, because it
// has the token: deny DeleteObject on the key.
//
// Put costs 1 PUT after this process's own last write, otherwise 1 more GET; Claim 1 GET, and 1
// PUT unless its token was there; Get 1 GET; Delete the same as Put. For a separate value, Put
// costs 1 more PUT (or the parts of a multipart upload) and 1 more DELETE, and reading it 1
// more GET. A lost race costs a GET and a PUT, a lost answer a GET.
//
// An Object is safe for concurrent use. Its own writes run one after the other. Two writers
// with the same token are not fenced from each other: the last one wins.
type Object struct {
	st   store.Store
	key  string
	opts ObjectOptions
	turn chan struct{} // has an element during a write

	mu    sync.Mutex
	known *state // as last seen; nil: not seen yet
}

// NewObject returns the Object stored in st under key. It sends nothing.
func NewObject(st store.Store, key string, opts *ObjectOptions) (*Object, error) {
	if st == nil {
		return nil, errors.New("the store of a guarded object is nil")
	}
	o := &Object{st: st, key: key, turn: make(chan struct{}, 1)}
	if opts != nil {
		o.opts = *opts
	}
	if o.opts.Logger == nil {
		o.opts.Logger = slog.Default()
	}
	for _, key := range []string{key, o.dataKey(1, request.NewID())} {
		if err := store.CheckKey("fence", key); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Key returns the object's name in its store.
func (o *Object) Key() string { return o.key }

func (o *Object) String() string { return o.st.String() + " " + o.key }

// Get reads the object, whatever its token. It returns [store.ErrNotExist] if there is no
// value, because it was never written or was deleted.
func (o *Object) Get(ctx context.Context) (*Value, error) {
	s, err := o.read(ctx)
	if err != nil {
		return nil, err
	}
	if s.seal.kind == nothing {
		return nil, &store.Error{Op: "get", Key: o.key, Kind: store.ErrNotExist}
	}
	return o.value(s)
}

// Claim seals the object with the holder's token and returns its value; [Value.Exists] is false
// if there is none. From then on, writes with smaller tokens fail, so the value does not change
// until this holder writes. After you acquire a lease, claim first and then use the value: a
// former holder may still change what you read before.
//
// If the object has a larger token, Claim returns a [*FencedError] and ends the holder's lease.
// After any other error the claim may or may not have landed; you can safely claim again.
func (o *Object) Claim(ctx context.Context, h Holder) (*Value, error) {
	a, err := o.change(ctx, h, func(*state) bool { return false }, func(now *state) (*content, error) {
		if now.seal.token == h.Token() {
			return nil, nil //nolint:nilnil // there is nothing to write
		}
		return &content{now.seal.kind, now.body}, nil
	})
	if err != nil {
		return nil, err
	}
	return o.value(a.now)
}

// Put replaces the value with the bytes of r, up to its end. A value larger than the store's
// maximum body needs a store that is a [store.Large].
//
// If the object has a larger token, Put returns a [*FencedError] and ends the holder's lease.
// Nothing has changed then, unless the error also matches [store.ErrUnknownOutcome]. With that
// error, the value may have been written, or may still be. A write the store refused counts as
// unknown too, because the network may have delivered it twice.
//
// Put retries store errors for half a minute. ctx bounds the call; if it ends during a write,
// the outcome is unknown. Put may take 10 s longer to delete a separate value it has written in
// vain; the error says what is left of it.
func (o *Object) Put(ctx context.Context, h Holder, r io.Reader) error { return o.put(ctx, h, r, nil) }

// PutOver is Put on the condition that the object has not changed since Get or Claim returned
// v. If it has changed, even by a claim, the error matches [ErrReplaced], and nothing was
// written, unless the error also matches [store.ErrUnknownOutcome]. Writers with the same
// token, which are not fenced from each other, can use PutOver to lose none of their changes.
//
// Get returns no Value if there is none; Claim always does.
func (o *Object) PutOver(ctx context.Context, h Holder, v *Value, r io.Reader) error {
	return o.put(ctx, h, r, v)
}

// put is Put, or PutOver if over is not nil.
func (o *Object) put(ctx context.Context, h Holder, r io.Reader, over *Value) error {
	if err := Admit(h); err != nil {
		return err
	}
	body, whole, err := head(r, store.MaxBody-sealSize)
	if err != nil {
		return err
	}
	if whole && !o.opts.Apart {
		_, err = o.replace(ctx, h, content{inline, body}, over)
		return err
	}
	return o.putApart(ctx, h, body, r, over)
}

// Delete removes the value. The seal stays, so former holders cannot create the object again.
// Errors are as for Put; a missing value is not an error.
func (o *Object) Delete(ctx context.Context, h Holder) error {
	_, err := o.replace(ctx, h, content{kind: nothing}, nil)
	return err
}

// replace writes c, only over the value over if it is not nil, and then deletes the separate
// data of the old value.
func (o *Object) replace(ctx context.Context, h Holder, c content, over *Value) (*attempt, error) {
	var before *state
	is := func(now *state) bool { return over == nil || now.version == over.version }
	a, err := o.change(ctx, h, is, func(now *state) (*content, error) {
		before = now
		if !is(now) {
			return nil, fmt.Errorf("%v: %w by another with the same token, or by a claim", o, ErrReplaced)
		}
		return &c, nil
	})
	if err == nil {
		o.removeData(ctx, before)
	}
	return a, err
}

// A state is the content of one version of the object.
type state struct {
	version store.Version // empty: there is no object
	seal    seal
	body    []byte // before the seal
}

// content is what a change writes.
type content struct {
	kind kind
	body []byte
}

// read reads the object, unless it has not changed since it was last seen.
func (o *Object) read(ctx context.Context) (*state, error) {
	o.mu.Lock()
	known := o.known
	o.mu.Unlock()
	var unless store.Version
	if known != nil {
		unless = known.version
	}
	object, err := request.Get(ctx, o.st, o.key, unless)
	var s *state
	switch {
	case errors.Is(err, store.ErrNotModified):
		s = known
	case errors.Is(err, store.ErrNotExist):
		s = &state{seal: seal{kind: nothing}}
	case errors.Is(err, store.ErrTooLarge):
		return nil, o.foreign(err)
	case err != nil:
		return nil, err
	default:
		if s, err = o.parse(object); err != nil {
			return nil, err
		}
	}
	o.remember(s)
	return s, nil
}

// parse returns the state of an object in the store.
func (o *Object) parse(object *store.Object) (*state, error) {
	body, fields, err := unseal(object.Body)
	if err != nil {
		if !o.opts.Adopt {
			return nil, o.foreign(err)
		}
		body, fields.kind = object.Body, inline
	}
	s := &state{object.Version, fields, body}
	if fields.kind == apart {
		if _, err := o.pointer(s); err != nil {
			return nil, o.foreign(err)
		}
	}
	return s, nil
}

func (o *Object) foreign(why error) error {
	return fmt.Errorf("%v: %w: %w: it is left as it is; adopt it if it is the right one, or use another key", o, ErrForeign, why)
}

func (o *Object) remember(s *state) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = s
}
