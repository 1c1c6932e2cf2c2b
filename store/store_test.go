package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/store"
)

// TestConditions: a condition is one of the two that a lock can mean, or not valid.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		only          store.Condition
		absent, valid bool
		match         store.Version
		text          string
	}{
		{store.IfAbsent(), true, true, "", "if absent"},
		{store.IfMatch("v1"), false, true, "v1", "if version v1"},
		{store.IfMatch(""), false, false, "", "no condition"},
		{store.Condition{}, false, false, "", "no condition"},
	} {
		if c.only.Absent() != c.absent || c.only.Match() != c.match || c.only.Valid() != c.valid || c.only.String() != c.text {
			t.Errorf("%q: absent %v, match %q, valid %v; want %+v", c.only, c.only.Absent(), c.only.Match(), c.only.Valid(), c)
		}
	}
}

// TestError: an error tells its call, its kind and its cause, and matches the two, the kind first.
func TestError(t *testing.T) {
	for _, c := range []struct {
		err  *store.Error
		text string
		is   []error
	}{
		{&store.Error{Op: "get", Key: "a/b", Kind: store.ErrNotExist}, `get "a/b": object does not exist`, []error{store.ErrNotExist}},
		{
			&store.Error{Op: "put", Key: "k", Kind: store.ErrUnavailable, Cause: io.ErrUnexpectedEOF, RequestID: "r1"},
			`put "k": store unavailable: unexpected EOF`,
			[]error{store.ErrUnavailable, io.ErrUnexpectedEOF},
		},
	} {
		if c.err.Error() != c.text || !slices.Equal(c.err.Unwrap(), c.is) {
			t.Errorf("the error is %q, and of %v; want %q and %v", c.err, c.err.Unwrap(), c.text, c.is)
		}
	}
}

// TestFinal: only what a person has to change is final, and never a write that may have landed.
func TestFinal(t *testing.T) {
	for kind, final := range map[error]bool{
		store.ErrDenied: true, store.ErrNoBucket: true, store.ErrInvalid: true, store.ErrRefused: true,
		store.ErrNotExist: false, store.ErrNotModified: false, store.ErrPrecondition: false, store.ErrConflict: false,
		store.ErrThrottled: false, store.ErrUnknownOutcome: false, store.ErrTooLarge: false, store.ErrUnavailable: false,
		io.EOF: false,
	} {
		if err := fmt.Errorf("acquire: %w", &store.Error{Kind: kind}); store.Final(err) != final {
			t.Errorf("Final(%v) is %v", err, !final)
		}
		if err := errors.Join(kind, store.ErrUnknownOutcome); store.Final(err) {
			t.Errorf("Final(%v) is true", err)
		}
	}
	if store.Final(nil) {
		t.Error("no error is final")
	}
}

// TestAnswerOfError: an error, however wrapped, gives the date and the request ID of its answer.
func TestAnswerOfError(t *testing.T) {
	date := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	answered := &store.Error{Op: "get", Key: "k", Kind: store.ErrNotExist, Date: date, RequestID: "r1"}
	for _, c := range []struct {
		err  error
		date time.Time
		id   string
	}{
		{answered, date, "r1"},
		{fmt.Errorf("acquire: %w", answered), date, "r1"},
		{io.EOF, time.Time{}, ""},
		{nil, time.Time{}, ""},
	} {
		if got, id := store.DateOf(c.err), store.RequestIDOf(c.err); !got.Equal(c.date) || id != c.id {
			t.Errorf("%v: %v and %q, want %v and %q", c.err, got, id, c.date, c.id)
		}
	}
}

// TestCheckKey: what one store takes for a key every store does, and the error says what is wrong with another.
func TestCheckKey(t *testing.T) {
	long := strings.Repeat(strings.Repeat("x", 127)+"/", 6)
	for key, why := range map[string]string{
		"a": "", "a/b.c/ü €": "", ".a/b./...": "", strings.Repeat("x", 200): "", "a/" + strings.Repeat("x", 200) + "/b": "", long[1:] + "x": "",
		"":                                     "the key is empty",
		long + "x":                             "the key has 769 bytes, more than 768",
		"a\xffb":                               "the key is not valid UTF-8",
		"a\nb":                                 "the key has a control character or a backslash",
		"a\x7f":                                "the key has a control character or a backslash",
		`a\b`:                                  "the key has a control character or a backslash",
		"/a":                                   "the key begins or ends with a slash, or has two in a row",
		"a/":                                   "the key begins or ends with a slash, or has two in a row",
		"a//b":                                 "the key begins or ends with a slash, or has two in a row",
		"./a":                                  `the key has a segment "." or ".."`,
		"a/../b":                               `the key has a segment "." or ".."`,
		"a/./b":                                `the key has a segment "." or ".."`,
		"a/..":                                 `the key has a segment "." or ".."`,
		"a/" + strings.Repeat("x", 201) + "/b": "the key has a segment of 201 bytes, more than 200",
	} {
		checkRefusal(t, store.CheckKey("list", key), "list", key, store.ErrInvalid, why)
	}
}

// TestCheckPut: what cannot be a write of a lock is refused before the context is looked at.
func TestCheckPut(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	most, more := make([]byte, 1<<20), make([]byte, 1<<20+1)
	for _, c := range []struct {
		ctx  context.Context
		key  string
		body []byte
		only store.Condition
		kind error
		why  string
	}{
		{t.Context(), "k", most, store.IfAbsent(), nil, ""},
		{t.Context(), "k", nil, store.IfMatch("v1"), nil, ""},
		{ended, "", more, store.Condition{}, store.ErrInvalid, "the key is empty"},
		{ended, "k", more, store.Condition{}, store.ErrInvalid, "a write needs a condition: IfAbsent or IfMatch with a version"},
		{ended, "k", more, store.IfAbsent(), store.ErrTooLarge, "1048577 bytes, more than 1048576"},
		{ended, "k", most, store.IfAbsent(), store.ErrUnavailable, "context canceled"},
	} {
		checkRefusal(t, store.CheckPut(c.ctx, c.key, c.body, c.only), "put", c.key, c.kind, c.why)
	}
	if err := store.CheckPut(ended, "k", nil, store.IfAbsent()); !errors.Is(err, context.Canceled) {
		t.Errorf("the error of a context that has ended is %v", err)
	}
}

// TestCheckDeleteIf: so is what cannot be a deletion on a condition.
func TestCheckDeleteIf(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		key  string
		v    store.Version
		kind error
		why  string
	}{
		{t.Context(), "k", "v1", nil, ""},
		{ended, "a//b", "", store.ErrInvalid, "the key begins or ends with a slash, or has two in a row"},
		{ended, "k", "", store.ErrInvalid, "a deletion on a condition needs a version"},
		{ended, "k", "v1", store.ErrUnavailable, "context canceled"},
	} {
		checkRefusal(t, store.CheckDeleteIf(c.ctx, c.key, c.v), "delete", c.key, c.kind, c.why)
	}
	if err := store.CheckDeleteIf(ended, "k", "v1"); !errors.Is(err, context.Canceled) {
		t.Errorf("the error of a context that has ended is %v", err)
	}
}

// checkRefusal compares all that a refusal says; no reason means that there is to be none.
func checkRefusal(t *testing.T, err error, op, key string, kind error, why string) {
	t.Helper()
	if why == "" {
		if err != nil {
			t.Errorf("%s %q: %v, want no error", op, key, err)
		}
		return
	}
	e, ok := errors.AsType[*store.Error](err)
	if !ok || e.Op != op || e.Key != key || e.Kind != kind || e.Cause == nil || e.Cause.Error() != why { //nolint:errorlint // the kind itself
		t.Errorf("%s %q: %v, want %v: %s", op, key, err, kind, why)
	}
}
