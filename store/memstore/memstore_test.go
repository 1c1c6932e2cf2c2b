package memstore_test

import (
	"context"
	"errors"
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

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		begun := time.Now()
		put, err := st.Put(t.Context(), "k", nil, store.IfAbsent())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		got, err := st.Get(t.Context(), "k", "")
		if err != nil {
			t.Fatal(err)
		}
		if !put.LastModified.Equal(begun) || !put.Date.Equal(begun) || !got.LastModified.Equal(begun) {
			t.Errorf("written at %v: put said %v, %v; get %v", begun, put.LastModified, put.Date, got.LastModified)
		}
		if age := got.Date.Sub(got.LastModified); age != 1500*time.Millisecond {
			t.Errorf("the age is %v, want 1.5s", age)
		}
		_, err = st.Get(t.Context(), "absent", "")
		if date := store.DateOf(err); !date.Equal(time.Now()) {
			t.Errorf("the Date of an absent object is %v, want %v", date, time.Now())
		}
	})
}
