package fence_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store"
)

// Whatever byte of a sealed object is another, be it of the value, of the token or a newline,
// the object is foreign. No test noticed when a token could be edited, or when a byte before
// or behind the seal did not count.
func TestEachByteIsSealed(t *testing.T) {
	sealed := fence.Sealed("value", 'i', 7)
	for i, was := range sealed {
		for _, b := range []byte{' ', '\t', '\n', 'x'} {
			if b == was {
				continue
			}
			st := newStore()
			body := bytes.Clone(sealed)
			body[i] = b
			if _, err := st.Put(t.Context(), "state.json", body, store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			if v, err := newObject(t, st, nil).Get(t.Context()); !errors.Is(err, fence.ErrForeign) {
				t.Fatalf("with %q for %q at %d it is read as %+v, %v", b, was, i, v, err)
			}
		}
	}
}

// A seal that fits, and says what none of ours does, is that of a later version, or none. The
// object is left as it is. No test noticed when it was taken for one.
func TestForeignSeals(t *testing.T) {
	const nowhere, beside = "says that its value is apart, and not where", "which is not beside it"
	for _, c := range []struct {
		name string
		body []byte
		want string
	}{
		{"no token", fence.Sealed("x", 'i', 0), "its seal has the token 0"},
		{"a negative token", fence.Sealed("x", 'i', -1), "its seal has the token -1"},
		{"another kind", fence.Sealed("x", 'z', 1), "a kind 'z' that this version does not know"},
		{"no pointer", fence.Sealed("x", 'a', 1), nowhere},
		{"nowhere", fence.Sealed(`{}`, 'a', 1), beside},
		{"beside another object", fence.Sealed(`{"data":"other.json.data/1"}`, 'a', 1), beside},
		{"further below", fence.Sealed(`{"data":"state.json.data/1/2"}`, 'a', 1), beside},
		{"above", fence.Sealed(`{"data":"state.json.data/.."}`, 'a', 1), beside},
		{"without a name", fence.Sealed(`{"data":"state.json.data/"}`, 'a', 1), beside},
	} {
		st := newStore()
		if _, err := st.Put(t.Context(), "state.json", c.body, store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		o := newObject(t, st, nil)
		_, get := o.Get(t.Context())
		_, claim := o.Claim(t.Context(), fence.Token(9))
		for _, err := range []error{get, claim, o.Put(t.Context(), fence.Token(9), strings.NewReader("new"))} {
			if !errors.Is(err, fence.ErrForeign) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		}
		if now := raw(t, st); !bytes.Equal(now, c.body) {
			t.Errorf("%s: it was changed to %q", c.name, now)
		}
	}
}
