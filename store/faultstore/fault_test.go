package faultstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

const key = "jobs/backup"

// do makes one call on an object that is there.
func do(ctx context.Context, st store.Store, op string, v store.Version) error {
	switch op {
	case "get":
		_, err := st.Get(ctx, key, "")
		return err
	case "put":
		_, err := st.Put(ctx, key, []byte("second"), store.IfMatch(v))
		return err
	case "delete":
		return st.Delete(ctx, key)
	}
	for _, err := range st.List(ctx, key, "") {
		if err != nil {
			return err
		}
	}
	return nil
}

// begin gives a faulty store that holds one object, the store that it wraps, and the
// object's version.
func begin(t *testing.T, faults ...faultstore.Fault) (*faultstore.Store, *memstore.Store, store.Version) {
	t.Helper()
	inner := memstore.New()
	o, err := inner.Put(t.Context(), key, []byte("first"), store.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	return faultstore.Wrap(inner, &faultstore.Options{Faults: faults}), inner, o.Version
}

// state says what the store holds: "first", "second" or "" after a delete.
func state(t *testing.T, inner *memstore.Store) string {
	t.Helper()
	o, err := inner.Get(context.WithoutCancel(t.Context()), key, "")
	if err != nil {
		return ""
	}
	return string(o.Body)
}

// after says what the store holds when a call has landed.
var after = map[string]string{"get": "first", "list": "first", "put": "second", "delete": ""}

func wantError(t *testing.T, err error, op string, kind error) {
	t.Helper()
	if kind == nil {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	e, ok := errors.AsType[*store.Error](err)
	if !ok || e.Op != op || e.Key != key || !errors.Is(e.Kind, kind) {
		t.Errorf("got %v, want an error of %s %q of the kind %v", err, op, key, kind)
	}
}

func TestKinds(t *testing.T) {
	unknown := func(op string) error {
		if op == "put" || op == "delete" {
			return store.ErrUnknownOutcome
		}
		return store.ErrUnavailable
	}
	always := func(err error) func(string) error { return func(string) error { return err } }
	for _, test := range []struct {
		kind  faultstore.Kind
		ops   string
		lands bool
		err   func(op string) error
	}{
		{faultstore.Unavailable, "get put delete list", false, always(store.ErrUnavailable)},
		{faultstore.Throttled, "get put delete list", false, always(store.ErrThrottled)},
		{faultstore.Denied, "get put delete list", false, always(store.ErrDenied)},
		{faultstore.Conflict, "put", false, always(store.ErrConflict)},
		{faultstore.LostRequest, "get put delete list", false, unknown},
		{faultstore.LostAnswer, "get put delete list", true, unknown},
		{faultstore.DelayBefore, "get put delete list", true, always(nil)},
		{faultstore.DelayAfter, "get put delete list", true, always(nil)},
	} {
		for op := range strings.FieldsSeq(test.ops) {
			t.Run(fmt.Sprint(test.kind, " of ", op), func(t *testing.T) {
				st, inner, v := begin(t, faultstore.Fault{Kind: test.kind})
				wantError(t, do(t.Context(), st, op, v), op, test.err(op))
				want := "first"
				if test.lands {
					want = after[op]
				}
				if got := state(t, inner); got != want {
					t.Errorf("the store holds %q, want %q", got, want)
				}
				if log := st.Log(); len(log) != 1 || log[0].Fault != test.kind.String() || log[0].Op != op {
					t.Errorf("the log is %v", log)
				}
			})
		}
	}
}

func TestDelays(t *testing.T) {
	for _, test := range []struct {
		kind  faultstore.Kind
		lands bool // at once
	}{{faultstore.DelayBefore, false}, {faultstore.DelayAfter, true}} {
		for op, landed := range after {
			t.Run(fmt.Sprint(test.kind, " of ", op), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					st, inner, v := begin(t, faultstore.Fault{Kind: test.kind, Delay: time.Minute})
					begun := time.Now()
					done := make(chan error)
					go func() { done <- do(t.Context(), st, op, v) }()
					synctest.Wait()
					if got := state(t, inner); (got == landed) != (test.lands || landed == "first") {
						t.Errorf("before the delay the store holds %q", got)
					}
					wantError(t, <-done, op, nil)
					if took := time.Since(begun); took != time.Minute {
						t.Errorf("the call took %v", took)
					}
					if got := state(t, inner); got != landed {
						t.Errorf("the store holds %q, want %q", got, landed)
					}
				})
			})
		}
	}
}

// The context, or a partition, ends what is under way.
func TestInFlight(t *testing.T) {
	for _, test := range []struct {
		kind  faultstore.Kind
		lands bool
	}{{faultstore.DelayBefore, false}, {faultstore.DelayAfter, true}, {faultstore.Hang, false}} {
		for op, landed := range after {
			for _, end := range []string{"context", "partition"} {
				t.Run(fmt.Sprint(test.kind, " of ", op, " ended by ", end), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						st, inner, v := begin(t, faultstore.Fault{Kind: test.kind, Delay: time.Hour})
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						if end == "partition" {
							go func() {
								time.Sleep(time.Second)
								st.Partition(true)
								st.Partition(false)
							}()
						}
						err := do(ctx, st, op, v)
						want := store.ErrUnavailable
						if op == "put" || op == "delete" {
							want = store.ErrUnknownOutcome
						}
						wantError(t, err, op, want)
						if got := errors.Is(err, context.DeadlineExceeded); got != (end == "context") {
							t.Errorf("%v: that it matches the context's error is %v", err, got)
						}
						if !test.lands {
							landed = "first"
						}
						if got := state(t, inner); got != landed {
							t.Errorf("the store holds %q, want %q", got, landed)
						}
					})
				})
			}
		}
	}
}
