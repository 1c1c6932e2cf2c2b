package quorumstore_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

var large = bytes.Repeat([]byte("large "), store.MaxBody/4)

// bodies counts the bodies that lie beside their values in a member.
func (p *place) bodies(t *testing.T) (n int) {
	t.Helper()
	for _, err := range p.inner.List(t.Context(), "!leasehold-quorum-values-", "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func readsLarge(t *testing.T, st store.Large, key string) {
	t.Helper()
	r, size, err := st.GetLarge(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || size != int64(len(large)) || !bytes.Equal(text, large) {
		t.Errorf("%s has %d of %d bytes, %v, want the %d that were written", key, len(text), size, err, len(large))
	}
}

// TestReplaceBringsBodies: a new member has every large body, so the others may go.
func TestReplaceBringsBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		if _, err := st.PutLarge(t.Context(), "large", bytes.NewReader(large)); err != nil {
			t.Fatal(err)
		}
		put(t, st, "full", strings.Repeat("x", store.MaxBody), store.IfAbsent())
		by := newPlace("mem://new")
		if err := open(t, places, by).Replace(t.Context(), "mem://0", by); err != nil {
			t.Fatal(err)
		}
		if n := by.bodies(t); n != 2 {
			t.Errorf("the new member has %d bodies, want 2", n)
		}
		synctest.Wait()
	})
}

// TestBodyOfAnUnknownWrite: while it is not known whether a value was written, its body stays.
func TestBodyOfAnUnknownWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		put(t, st, "other", "x", store.IfAbsent())
		synctest.Wait()
		for _, p := range places {
			// The acceptance arrives, its answer does not, and then nobody can look.
			puts := 0
			p.Inject(
				faultstore.Fault{Kind: faultstore.LostAnswer, Key: "large", When: func(c faultstore.Call) bool {
					if c.Op == "put" {
						puts++
					}
					return c.Op == "put" && puts == 2
				}},
				faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Key: "large", When: func(faultstore.Call) bool { return puts == 2 }},
			)
		}
		_, err := st.PutLarge(t.Context(), "large", bytes.NewReader(large))
		if !errors.Is(err, store.ErrUnknownOutcome) {
			t.Fatalf("%v, want an unknown outcome", err)
		}
		time.Sleep(time.Minute)
		for _, p := range places {
			p.Clear()
			if n := p.bodies(t); n != 1 {
				t.Errorf("%s has %d bodies, want the one that may be named", p.name, n)
			}
		}
		// What is there now is either nothing or all of it.
		if _, err := open(t, places).Get(t.Context(), "large", ""); errors.Is(err, store.ErrTooLarge) {
			readsLarge(t, open(t, places), "large")
		} else if !errors.Is(err, store.ErrNotExist) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // until all requests have ended
	})
}

// TestBodyOfARefusedWrite: what was refused leaves nothing behind.
func TestBodyOfARefusedWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		put(t, st, "there", "x", store.IfAbsent())
		places[2].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "!leasehold-quorum-values-*", Delay: time.Second})
		if _, err := st.PutLarge(t.Context(), "there", bytes.NewReader(large)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a large body over an object: %v", err)
		}
		if _, err := st.Put(t.Context(), "there", large[:store.MaxBody], store.IfAbsent()); !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("a second object: %v", err)
		}
		time.Sleep(time.Minute) // until all requests have ended
		for _, p := range places {
			if n := p.bodies(t); n != 0 {
				t.Errorf("%s has %d bodies left", p.name, n)
			}
		}
	})
}
