// Package quorumstore combines three or five stores into one. They can be in different regions or
// at different providers, and one can be a directory. The quorum stays available and loses no data
// while a minority of its members is down, slow, partitioned or emptied.
//
// Each object is a compare-and-swap register of CASPaxos (Rystsov, 2018), with one object in
// each member as its acceptor; package register has the rules and decides. There is no server:
// each process that uses the store sends requests to the members itself.
//
// # What it costs
//
// The process that last wrote an object writes it again with one request to each member, all at
// once, and waits for the first majority. Other processes need three such rounds: a read, a
// promise and the write. A read is one request to each member, and waits for a majority with
// the same result.
//
// # What it requires
//
// It requires each member by itself to be a correct [store.Store], and nothing between them. No
// rule depends on a clock, except that of Collect. A member that has lost all its objects is
// detected by its missing marker, and does not vote until [Store.Replace] has replaced it. A
// member that has lost only some of its objects, or was restored from a backup, cannot be
// detected: you must replace such a member before it is used again.
//
// [Store.Collect] has one more requirement: a store must not carry out a request a day after it
// was sent.
//
// Versions identify values, not the members' objects. Answers have no times, because each
// member has its own clock. So features that use the store's clock, such as a fast start, are
// not available.
package quorumstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// Options are the options of [New]. The zero value means the defaults.
type Options struct {
	// Timeout bounds one request to one member. Default: 10 s. Calls wait for a slow member
	// only if they need it for a majority; its request continues until the timeout. For the
	// write of a body of more than 1 MiB, only the context is the limit.
	Timeout time.Duration

	// Prefix is put before all keys in the members. Default: none.
	Prefix string

	// Name is the quorum's name in String, instead of its members.
	Name string

	// Open opens the store at a location that was added by a later configuration and was not
	// passed to New. Without Open, such a change of the configuration causes an error with the
	// location.
	Open func(ctx context.Context, place string) (store.Store, error)

	// Logger gets a message when a member begins to fail, and when it answers again. Default:
	// none.
	Logger *slog.Logger
}

// DefaultTimeout is Options.Timeout's default.
const DefaultTimeout = 10 * time.Second

// Errors besides those of package store. Each also matches one of those.
var (
	// ErrNoQuorum: the members have no markers, so they are no quorum yet. Call [Store.Init] once.
	ErrNoQuorum = errors.New("these stores are no quorum yet")
	// ErrLost: the member has lost its objects, or has those of another quorum. Replace it with
	// [Store.Replace].
	ErrLost = register.ErrLost
	// ErrNoMajority: no majority of the members answers, or votes. Try again when more members can
	// be reached.
	ErrNoMajority = register.ErrNoMajority
)

// Store is a quorum. It is safe for concurrent use.
type Store struct {
	opts   Options
	given  []store.Store
	health health
	raced  int // races per test of a member

	decoded decoded

	mu      sync.Mutex
	current *view         // nil: not known yet
	last    *view         // the last known one
	loading *load         // nil: no search in progress
	more    []store.Store // passed to Replace
}

// New returns the store of a quorum of these members, which Init has made; their order does not
// matter. It sends nothing. If the configuration has changed since, the given members only need
// to be enough to find that out.
func New(members []store.Store, opts *Options) (*Store, error) {
	if n := len(members); n != 3 && n != 5 {
		return nil, &store.Error{Op: "open", Kind: store.ErrInvalid, Cause: fmt.Errorf("%d members: a quorum has 3 or 5", n)}
	}
	for i, m := range members {
		for _, o := range members[:i] {
			if o.String() == m.String() {
				return nil, &store.Error{Op: "open", Kind: store.ErrInvalid, Cause: fmt.Errorf("%s is a member twice", m)}
			}
		}
	}
	s := &Store{given: slices.Clone(members), raced: races}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Timeout <= 0 {
		s.opts.Timeout = DefaultTimeout
	}
	if s.opts.Prefix != "" {
		if err := check("open", s.opts.Prefix); err != nil {
			return nil, err
		}
		s.opts.Prefix += "/"
	}
	s.health = health{logger: s.opts.Logger, members: map[string]*memberHealth{}}
	return s, nil
}

// String returns quorum:// with the name, or with the members passed to New.
func (s *Store) String() string {
	u := url.URL{Scheme: "quorum", Host: s.opts.Name, Path: "/" + strings.TrimSuffix(s.opts.Prefix, "/")}
	if s.opts.Name != "" {
		u.Path = strings.TrimSuffix(u.Path, "/")
		return u.String()
	}
	// Colons and slashes need no escaping in a query, and are easier to read without.
	readable := strings.NewReplacer("%3A", ":", "%2F", "/")
	for i, m := range s.given {
		u.RawQuery += []string{"member=", "&member="}[min(i, 1)] + readable.Replace(url.QueryEscape(m.String()))
	}
	return u.String()
}

// Get reads the object.
func (s *Store) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := s.check("get", key); err != nil {
		return nil, err
	}
	a, v, err := s.call(ctx, "get", key, register.Call{Kind: register.Look})
	switch {
	case err != nil:
		return nil, err
	case !a.Value.Exists():
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
	case string(unless) == a.Value.Version:
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
	}
	text := a.Value.Body
	if a.Value.Beside > 0 {
		if a.Value.Beside > store.MaxBody {
			return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrTooLarge, Cause: fmt.Errorf("%d bytes", a.Value.Beside)}
		}
		r, err := v.beside(ctx, a.Value)
		if err == nil {
			text, err = io.ReadAll(r)
			_ = r.Close()
		}
		if err != nil {
			return nil, failed(ctx, "get", key, register.Failed, err)
		}
	}
	return &store.Object{Key: key, Body: slices.Concat([]byte{}, text), Version: store.Version(a.Value.Version)}, nil
}

// Put writes the object if the condition holds.
func (s *Store) Put(ctx context.Context, key string, text []byte, only store.Condition) (*store.Object, error) {
	if err := s.check("put", key); err != nil {
		return nil, err
	}
	if err := store.CheckPut(ctx, key, text, only); err != nil {
		return nil, err
	}
	value := register.Value{Version: rand.Text(), Body: slices.Clone(text)}
	discard := func() {}
	if len(text) > store.MaxBody-register.MaxHeader {
		b := body{bytes.NewReader(value.Body), int64(len(value.Body)), func() {}}
		var err error
		if discard, err = s.aside(ctx, "put", key, &value, b); err != nil {
			return nil, err
		}
	}
	a, _, err := s.call(ctx, "put", key, register.Call{Kind: register.Set, Over: string(only.Match()), Value: value})
	if a.Outcome == register.Mismatch || err != nil && !errors.Is(err, store.ErrUnknownOutcome) {
		discard()
	}
	switch {
	case err != nil:
		return nil, err
	case a.Outcome == register.Mismatch && !a.Value.Exists():
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrNotExist}
	case a.Outcome == register.Mismatch:
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
	}
	return &store.Object{Key: key, Version: store.Version(value.Version)}, nil
}

// Delete deletes the object, by writing that it does not exist.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.check("delete", key); err != nil {
		return err
	}
	_, _, err := s.call(ctx, "delete", key, register.Call{Kind: register.Remove, Value: register.Value{Version: rand.Text()}})
	return err
}

// List yields what a majority of the members has, each object confirmed by a read.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		keys, err := s.keys(ctx, prefix, after)
		if err != nil {
			yield(store.Entry{}, err)
			return
		}
		s.confirm(ctx, keys, yield)
	}
}

// check returns an error if the key, or the key with the prefix, is invalid.
func (s *Store) check(op, key string) error {
	if err := store.CheckKey(op, key); err != nil {
		return err
	}
	return check(op, s.opts.Prefix+key)
}

// check returns an error for invalid keys, and for those of the quorum itself.
func check(op, key string) error {
	if err := store.CheckKey(op, key); err != nil {
		return err
	}
	if strings.HasPrefix(key, reserved) {
		return &store.Error{Op: op, Key: key, Kind: store.ErrInvalid, Cause: fmt.Errorf("keys that begin with %q are the quorum's own", reserved)}
	}
	return nil
}

// call calls a key's register under the configuration in force.
func (s *Store) call(ctx context.Context, op, key string, c register.Call) (register.Answer, *view, error) {
	v, err := s.view(ctx)
	for err == nil {
		a := v.key(s.opts.Prefix+key).call(ctx, c)
		switch {
		case a.Outcome == register.Failed && errors.Is(a.Err, register.ErrMoved):
			v, err = s.follow(ctx, v)
			continue
		case a.Outcome == register.Failed, a.Outcome == register.Uncertain:
			return a, v, failed(ctx, op, key, a.Outcome, a.Err)
		}
		return a, v, nil
	}
	return register.Answer{}, nil, failed(ctx, op, key, register.Failed, err)
}

// failed returns the error of a call.
func failed(ctx context.Context, op, key string, outcome register.Outcome, err error) error {
	kind := kindOf(err)
	if outcome == register.Uncertain {
		kind = store.ErrUnknownOutcome
	}
	if e := ctx.Err(); e != nil && !errors.Is(err, e) {
		err = errors.Join(e, err)
	}
	return &store.Error{Op: op, Key: key, Kind: kind, Cause: hidden{err}}
}

// hidden joins errors from several members. It does not match their kinds: a caller that saw
// that one member denied access would give up, although another one was only slow.
type hidden struct{ err error }

func (h hidden) Error() string { return h.err.Error() }

// Is matches what is true of the whole quorum.
func (h hidden) Is(target error) bool {
	for _, e := range []error{
		ErrNoMajority, ErrNoQuorum, register.ErrContended, register.ErrMoved, context.Canceled, context.DeadlineExceeded,
	} {
		if target == e {
			return errors.Is(h.err, target)
		}
	}
	return false
}

// kindOf returns the kind for errors from several members: their common kind, or else a
// temporary one.
func kindOf(err error) error {
	var kinds []error
	var walk func(err error)
	walk = func(err error) {
		if e, ok := err.(*store.Error); ok { //nolint:errorlint // each of the joined ones is looked at
			kinds = append(kinds, e.Kind)
			return
		}
		switch err {
		case register.ErrContended: //nolint:errorlint // as above
			kinds = append(kinds, store.ErrConflict)
		case register.ErrForeign:
			kinds = append(kinds, store.ErrRefused)
		}
		switch u := err.(type) { //nolint:errorlint // as above
		case interface{ Unwrap() []error }:
			for _, e := range u.Unwrap() {
				walk(e)
			}
		case interface{ Unwrap() error }:
			walk(u.Unwrap())
		}
	}
	walk(err)
	for _, kind := range []error{store.ErrDenied, store.ErrNoBucket, store.ErrRefused, store.ErrInvalid, store.ErrConflict} {
		if len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k error) bool { return !errors.Is(k, kind) }) {
			return kind
		}
	}
	if slices.Contains(kinds, store.ErrThrottled) {
		return store.ErrThrottled
	}
	return store.ErrUnavailable
}
