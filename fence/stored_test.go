package fence_test

import (
	"strings"
	"testing"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store/faultstore"
)

func TestStoredChecker(t *testing.T) {
	st := newStore(1)
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
		refused(t, err, fence.Token(9+i).Token(), fence.Token(10+i).Token())
		if f, ok := err.(*fence.FencedError); !ok || f.Resource != name { //nolint:errorlint // it is that itself
			t.Errorf("%q: the error is about %v", name, err)
		}
		st.Reset()
		if err := check(name, fence.Token(10+i)); err != nil || st.Counts() != (faultstore.Counts{Get: 1}) {
			t.Errorf("%q again: %v, with %+v", name, err, st.Counts())
		}
	}
	if keys := list(t, st, "checker/"); len(keys) != len(names) {
		t.Errorf("%d resources lie in %q", len(names), keys)
	}
	if _, err := fence.NewStored(st, "bad//prefix"); err == nil {
		t.Error("a prefix that no store takes was taken")
	}
}
