package s3lect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/leasehold/leasehold/store"
)

// A scripted storage does what the test says.
type scripted struct {
	get func() ([]byte, string, error)
	put func(data []byte, etag string) error
}

func (s scripted) Get(context.Context, string) ([]byte, string, error) { return s.get() }

func (s scripted) PutIfMatch(_ context.Context, _ string, data []byte, etag string) error {
	return s.put(data, etag)
}

var errOfTheSDK = errors.New("connection reset")

func TestGetOfAStorage(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		etag   string
		err    error
		unless store.Version
		kind   error
	}{
		{name: "quoted ETag", etag: `"0f9c"`},
		{name: "plain ETag", etag: "0f9c", unless: `"0f9c"`},
		{name: "same version", etag: `"0f9c"`, unless: `"0f9c"`, kind: store.ErrNotModified},
		{name: "no ETag", kind: store.ErrUnavailable},
		{name: "not found", err: fmt.Errorf("get: %w", ErrStorageNotFound), kind: store.ErrNotExist},
		{name: "unknown error", err: errOfTheSDK, kind: store.ErrUnavailable},
		{name: "misplaced error", err: ErrStoragePrecondition, kind: store.ErrUnavailable},
		{name: "context ended", ctx: ended, err: errOfTheSDK, kind: store.ErrUnavailable},
	} {
		ctx := tc.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		k := keeper{scripted{get: func() ([]byte, string, error) { return []byte("body"), tc.etag, tc.err }}}
		o, err := k.Get(ctx, "key", tc.unless)
		if tc.kind == nil && (err != nil || o.Version != store.Version(tc.etag) || string(o.Body) != "body" || o.Key != "key") {
			t.Errorf("%s: %+v, %v", tc.name, o, err)
		}
		checkError(t, tc.name, ctx, err, tc.kind, tc.err)
	}
}

// checkError checks the kind and the causes of an error.
func checkError(t *testing.T, name string, ctx context.Context, err, kind, cause error) { //nolint:revive // the context is an argument of the check
	t.Helper()
	e, ok := errors.AsType[*store.Error](err)
	switch {
	case kind == nil && err == nil:
	case !ok || e.Kind != kind: //nolint:errorlint // the kind itself is meant
		t.Errorf("%s: got %v and not %v", name, err, kind)
	case cause != nil && !errors.Is(err, cause), ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		t.Errorf("%s: %v does not say why", name, err)
	}
}

func TestPutOfAStorage(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	const body = "mine"
	match := store.IfMatch(`"1"`)
	for _, tc := range []struct {
		name  string
		ctx   context.Context
		only  store.Condition
		err   error  // of PutIfMatch
		there string // what Get shows then
		read  error  // of Get
		kind  error
	}{
		{name: "landed", only: match, there: body},
		{name: "created", only: store.IfAbsent(), there: body},
		{name: "overtaken", only: match, there: "another's", kind: store.ErrUnknownOutcome},
		{name: "not read back", only: match, read: errOfTheSDK, kind: store.ErrUnknownOutcome},
		{name: "deleted", only: match, read: ErrStorageNotFound, kind: store.ErrUnknownOutcome},
		{name: "refused", only: match, err: fmt.Errorf("put: %w", ErrStoragePrecondition), kind: store.ErrPrecondition},
		{name: "absent", only: match, err: ErrStorageNotFound, kind: store.ErrNotExist},
		{name: "no bucket", only: store.IfAbsent(), err: ErrStorageNotFound, kind: store.ErrUnknownOutcome},
		{name: "unknown error", only: match, err: errOfTheSDK, kind: store.ErrUnknownOutcome},
		{name: "context ended", ctx: ended, only: match, kind: store.ErrUnavailable},
	} {
		ctx := tc.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		asked := "never"
		k := keeper{scripted{
			get: func() ([]byte, string, error) { return []byte(tc.there), `"2"`, tc.read },
			put: func(data []byte, etag string) error {
				asked = string(data) + " over " + etag
				return tc.err
			},
		}}
		o, err := k.Put(ctx, "key", []byte(body), tc.only)
		if tc.kind == nil && (err != nil || o.Version != `"2"` || o.Key != "key" || o.Body != nil) {
			t.Errorf("%s: %+v, %v", tc.name, o, err)
		}
		want := body + " over " + string(tc.only.Match())
		if tc.ctx != nil {
			want = "never"
		}
		if asked != want {
			t.Errorf("%s: wrote %s, want %s", tc.name, asked, want)
		}
		checkError(t, tc.name, ctx, err, tc.kind, cmp.Or(tc.err, tc.read))
	}
}

// Operations that an election never uses are refused.
func TestALockfileIsNotDeletedOrListed(t *testing.T) {
	l := &lockfile{key: "key"}
	if err := l.Delete(t.Context(), "key"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	for _, err := range l.List(t.Context(), "", "") {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
}
