package fence_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

func TestStoredChecker(t *testing.T) {
	st := newStore()
	names := []string{"/orders/42", "orders", "a b?ü", ".", "..", "", "/", "%2F", strings.Repeat("long", 100), strings.Repeat("long", 100) + "er"}
	check := func(name string, token fence.Token) error {
		c, err := fence.NewStored(st, "checker") // of any process
		if err != nil {
			t.Fatal(err)
		}
		return c.Check(t.Context(), name, token)
	}
	for i, name := range names {
		if err := check(name, fence.Token(10+i)); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
	}
	for i, name := range names {
		err := check(name, fence.Token(9+i))
		fencecheck.Fenced(t, err, fence.Token(9+i).Token(), fence.Token(10+i).Token())
		if f, ok := err.(*fence.FencedError); !ok || f.Resource != name { //nolint:errorlint // it is that itself
			t.Errorf("%q: the error is about %v", name, err)
		}
		st.Reset()
		if err := check(name, fence.Token(10+i)); err != nil || st.Counts() != (faultstore.Counts{Get: 1}) {
			t.Errorf("%q again: %v, with %+v", name, err, st.Counts())
		}
	}
	if keys := fencecheck.Keys(t, st, "checker/"); len(keys) != len(names) {
		t.Errorf("%d resources lie in %q", len(names), keys)
	}
	for n := 190; n < 210; n++ { // as long as a segment of a key may be, and a suffix
		name := strings.Repeat("n", n)
		if err := check(name, 1); err != nil {
			t.Errorf("a name of %d bytes: %v", n, err)
		}
		if kept := len(fencecheck.Keys(t, st, "checker/"+name)) == 1; kept != (n <= 195) {
			t.Errorf("a name of %d bytes is kept as it is: %t", n, kept)
		}
	}
	deep, err := fence.NewStored(st, strings.Repeat("prefix/", 98)+"end") // the key of a short name is short enough
	if err != nil {
		t.Fatal(err)
	}
	if err := deep.Check(t.Context(), strings.Repeat("n", 190), fence.Token(1)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a key that is too long: %v", err)
	}
	if _, err := fence.NewStored(st, "bad//prefix"); err == nil {
		t.Error("a prefix that no store takes was taken")
	}
}

// A token that is refused after an answer was lost may have been remembered before that: the
// error says so. No test noticed when it did not.
func TestStoredCheckerOfUnknownOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		slow := faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{
			{Kind: faultstore.LostAnswer, Op: "put", Nth: 1}, {Kind: faultstore.DelayBefore, Op: "get", Nth: 2, Delay: 5 * time.Second},
		}})
		checked := make(chan error)
		check := func(st store.Store, token fence.Token) error {
			c, err := fence.NewStored(st, "checker")
			if err != nil {
				return err
			}
			return c.Check(t.Context(), "r", token)
		}
		go func() { checked <- check(slow, 1) }()
		time.Sleep(time.Second)
		if err := check(st, 2); err != nil {
			t.Fatal(err)
		}
		err := <-checked
		fencecheck.Fenced(t, err, 1, 2)
		if !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%v, want that the outcome of the first try is unknown", err)
		}
	})
}
