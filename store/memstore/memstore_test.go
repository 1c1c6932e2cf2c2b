package memstore_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memstore.New() })
}

func TestConformanceInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, v := range storetest.Check(t.Context(), func() (store.Store, error) { return memstore.New(), nil }) {
			t.Errorf("%s: %v", v.Case, v)
		}
	})
}

func TestEndedContextReadsNothing(t *testing.T) {
	st := memstore.New()
	if _, err := st.Put(t.Context(), "k", nil, store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := st.Get(ctx, "k", "")
	errs := []error{getErr, st.Delete(ctx, "k")}
	for _, err := range st.List(ctx, "", "") {
		errs = append(errs, err)
	}
	if len(errs) != 3 {
		t.Errorf("the list yields %d errors, want 1", len(errs)-2)
	}
	for _, err := range errs {
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want it to match %v and %v", err, store.ErrUnavailable, context.Canceled)
		}
	}
	if _, err := st.Get(t.Context(), "k", ""); err != nil {
		t.Error(err)
	}
}

func TestVersionsNeverComeBack(t *testing.T) {
	st := memstore.New()
	seen := make(map[store.Version]bool)
	for range 10 {
		o, err := st.Put(t.Context(), "k", []byte("the same body"), store.IfAbsent())
		if err != nil {
			t.Fatal(err)
		}
		if seen[o.Version] {
			t.Errorf("the version %q came back", o.Version)
		}
		seen[o.Version] = true
		if err := st.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnswers: every answer has all its fields, with the time of the write and that of the answer, and so do the errors.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, ctx := memstore.New(), t.Context()
		written := time.Now()
		put, err := st.Put(ctx, "k", []byte("body"), store.IfAbsent())
		if want := (&store.Object{Key: "k", Version: "1", LastModified: written, Date: written}); err != nil || !reflect.DeepEqual(put, want) {
			t.Errorf("the put gives %+v, %v; want %+v", put, err, want)
		}
		time.Sleep(1500 * time.Millisecond)
		now := time.Now()
		got, err := st.Get(ctx, "k", "")
		if want := (&store.Object{Key: "k", Body: []byte("body"), Version: "1", LastModified: written, Date: now}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("the get gives %+v, %v; want %+v", got, err, want)
		}
		for e, err := range st.List(ctx, "", "") {
			if want := (store.Entry{Key: "k", Version: "1", Size: 4, LastModified: written}); err != nil || e != want {
				t.Errorf("the list gives %+v, %v; want %+v", e, err, want)
			}
		}
		size, err := st.PutLarge(ctx, "large", strings.NewReader(strings.Repeat("x", store.MaxBody+1)))
		if size != store.MaxBody+1 || err != nil {
			t.Errorf("the large put gives %d, %v", size, err)
		}

		_, absent := st.Get(ctx, "absent", "")
		_, same := st.Get(ctx, "k", "1")
		_, tooLarge := st.Get(ctx, "large", "")
		_, exists := st.Put(ctx, "k", nil, store.IfAbsent())
		_, _, absentLarge := st.GetLarge(ctx, "absent")
		for _, c := range []struct {
			err  error
			want store.Error
		}{
			{absent, store.Error{Op: "get", Key: "absent", Kind: store.ErrNotExist, Date: now}},
			{same, store.Error{Op: "get", Key: "k", Kind: store.ErrNotModified, Date: now}},
			{tooLarge, store.Error{Op: "get", Key: "large", Kind: store.ErrTooLarge, Date: now}},
			{exists, store.Error{Op: "put", Key: "k", Kind: store.ErrPrecondition, Date: now}},
			{absentLarge, store.Error{Op: "get", Key: "absent", Kind: store.ErrNotExist, Date: now}},
			{st.DeleteIf(ctx, "k", "0"), store.Error{Op: "delete", Key: "k", Kind: store.ErrPrecondition, Date: now}},
		} {
			e, ok := errors.AsType[*store.Error](c.err)
			if !ok {
				t.Errorf("got %v, want %v", c.err, &c.want)
				continue
			}
			c.want.Cause = e.Cause
			if *e != c.want || (e.Cause != nil) != (e.Kind == store.ErrTooLarge) { //nolint:errorlint // the kind itself
				t.Errorf("got %+v, want %+v", *e, c.want)
			}
		}
		if text := tooLarge.Error(); !strings.HasSuffix(text, "1048577 bytes, more than 1048576") {
			t.Errorf("the error says %q", text)
		}
		if err := st.DeleteIf(ctx, "absent", "1"); err != nil {
			t.Errorf("a deletion of what is absent: %v", err)
		}
	})
}
