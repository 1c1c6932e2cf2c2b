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

// ObjectOptions are the options of [NewObject]. The zero value, like nil, gives the
// defaults.
type ObjectOptions struct {
	// Apart keeps every value in an object of its own, whose bytes are exactly the
	// user's, as values too large for one object always are: for formats that bear
	// no blanks at their end. It costs one write more for each Put and one read more
	// for each value that is read. Default: only values over about 1 MiB.
	Apart bool

	// Adopt takes over an object that was written without a fence: it counts as
	// written with a token smaller than all. A later write past the fence makes the
	// fence forget its token again. Default: such an object is left alone, with
	// ErrForeign.
	Adopt bool

	// Logger is told when the bytes of a replaced value that lay apart cannot be deleted: they are
	// left, and the write that replaced them has landed all the same. Default: slog.Default().
	Logger *slog.Logger
}

// An Object is one guarded object in a store: every write of it carries a token, and
// once one with a larger token has landed, none with a smaller one will, whatever its
// age. It is a register in the sense of the protocol, changed by compare-and-swap
// alone; nothing rests on a clock or on a lease being valid.
//
// The store has under the key the user's own bytes and after them a line of 392
// blanks, the seal, which has the token; so a plain GET by other tools sees the value.
// A value over 1 MiB lies in an object of its own below KEY.data/, byte for byte, and
// a line of JSON under the key says where. A deleted object is a seal alone: it must
// stay, for it has the token. Deny DeleteObject on the key.
//
// Requests: Put, 1 PUT by the last writer, else 1 GET more; Claim, 1 GET, and 1 PUT
// unless its token was there; Get, 1 GET; Delete as Put. A value that lies apart takes
// 1 PUT (or the parts of a multipart upload) and 1 DELETE more to put, and 1 GET more
// to read. A lost race costs a GET and a PUT, a lost answer a GET.
//
// An Object is safe for concurrent use. Its own writes go one after the other. Two
// writers with the same token are not fenced from each other: the last one wins.
type Object struct {
	st   store.Store
	key  string
	opts ObjectOptions
	turn chan struct{} // has an element while a write is under way

	mu    sync.Mutex
	known *state // as last seen; nil: not seen yet
}

// NewObject guards the object that lies in st under key. It sends nothing.
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

// Key is the name of the object in its store.
func (o *Object) Key() string { return o.key }

func (o *Object) String() string { return o.st.String() + " " + o.key }

// Get reads the object, whatever its token. It returns [store.ErrNotExist] if there
// is no value: never written, or deleted.
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

// Claim seals the object with the holder's token and returns its value, of which
// [Value.Exists] says whether there is one. From then on no write with a smaller token
// can succeed, and so the value stays what it is until this holder writes. A holder
// that has just got its lease claims first, and then reads: what it read before
// claiming a former holder may yet change.
//
// It returns a [*FencedError], and ends the holder's lease, if a larger token was
// there. Any other error may leave the claim landed or not; to claim again is safe.
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

// Put replaces the value by the bytes of r, to its end. A value larger than the store
// keeps in one body needs a store that is a [store.Large].
//
// It returns a [*FencedError], and ends the holder's lease, if a larger token was
// there: then nothing has changed, unless the error matches [store.ErrUnknownOutcome]
// too, as any other error may: the value may have been written, and may yet be. A write
// that the store refused counts as such, since the network may have delivered it twice.
// Failures of the store are retried for half a minute. ctx bounds the call; if it ends
// while a write is under way, the outcome is unknown. To delete what it has written of a
// value that lies apart it may take 10 s longer; the error says what is left of it.
func (o *Object) Put(ctx context.Context, h Holder, r io.Reader) error { return o.put(ctx, h, r, nil) }

// PutOver is Put on the condition that the object is what it was when Get or Claim has returned v. If it has
// changed since, even by a claim, the error matches [ErrReplaced], and nothing was written, unless the error matches
// [store.ErrUnknownOutcome] too. So writers with one token, which are not fenced from each other, lose none of their changes if each writes over what it has read.
//
// Get returns no Value of an object that has none; Claim always does.
func (o *Object) PutOver(ctx context.Context, h Holder, v *Value, r io.Reader) error {
	return o.put(ctx, h, r, v)
}

// put is Put, or with a Value PutOver.
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

// Delete removes the value. The seal stays, so that former holders cannot write the
// object anew. Errors are as for Put; that there was no value is none.
func (o *Object) Delete(ctx context.Context, h Holder) error {
	_, err := o.replace(ctx, h, content{kind: nothing}, nil)
	return err
}

// replace writes c, over that value if it is one, and then removes what the old value kept elsewhere.
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

// A state is what one version of the object says.
type state struct {
	version store.Version // none: there is no object
	seal    seal
	body    []byte // before the seal
}

// content is what a change writes.
type content struct {
	kind kind
	body []byte
}

// read reads the object, anew if it has changed since it was last seen.
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

// parse makes a state of what lies in the store.
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
