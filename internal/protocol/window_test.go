package protocol_test

import (
	"slices"
	"testing"

	"github.com/leasehold/leasehold/internal/protocol"
)

// round lets as many begin as may, and then ends them. The store refuses at once those that are too many.
func round(w *protocol.Window, takes int) (begun int) {
	var all []int
	for n, ok := w.Begin(); ok; n, ok = w.Begin() {
		all = append(all, n)
	}
	for i, n := range slices.Backward(all) {
		w.End(n, i >= takes)
	}
	return len(all)
}

// TestWindow: as many as it is to begin with, then twice as many in each round until there are too
// many; half, however many of a round that were; and then as many more in each round, for all
// that succeed, as it began with.
func TestWindow(t *testing.T) {
	t.Parallel()
	w := protocol.NewWindow(32)
	for i, want := range []int{32, 64, 128, 256, 512, 287, 194, 224, 254, 284, 193, 223, 253} {
		if got := round(w, 270); got != want {
			t.Errorf("round %d: %d at a time, not %d", i, got, want)
		}
	}
}

// TestWindowIsBounded: it grows to its bound and not beyond, and shrinks to one and no further.
func TestWindowIsBounded(t *testing.T) {
	t.Parallel()
	w := protocol.NewWindow(32)
	for range 10 {
		round(w, protocol.MaxWindow)
	}
	if got := round(w, protocol.MaxWindow); got != 640 {
		t.Errorf("%d at a time, not 640", got)
	}
	for range 100 {
		round(w, 0)
	}
	if got := round(w, 0); got != 1 {
		t.Errorf("%d at a time of a store that takes none", got)
	}
	for range 40 {
		round(w, protocol.MaxWindow)
	}
	if got := round(w, protocol.MaxWindow); got < 300 {
		t.Errorf("%d at a time when it has taken all for 40 rounds", got)
	}
}

// TestWindowShrinksOnce: of those that were under way when it shrank none makes it shrink again, and
// not the last one either.
func TestWindowShrinksOnce(t *testing.T) {
	t.Parallel()
	w := protocol.NewWindow(8)
	for range 8 {
		w.Begin()
	}
	for n := range 8 {
		w.End(n+1, true)
	}
	if got := round(w, 8); got != 4 {
		t.Errorf("%d at a time, not 4", got)
	}
}

// TestWindowIsFull: one that has begun holds its place until it ends, whoever begins before it.
func TestWindowIsFull(t *testing.T) {
	t.Parallel()
	w := protocol.NewWindow(2)
	first, _ := w.Begin()
	second, _ := w.Begin()
	if n, ok := w.Begin(); ok || first != 1 || second != 2 || n != 0 {
		t.Errorf("%d, %d, and then %d, %t", first, second, n, ok)
	}
	w.End(second, true) // so there may be one: the first
	if n, ok := w.Begin(); ok {
		t.Errorf("%d begins beside the first", n)
	}
	w.End(first, true) // which began before it shrank, and says nothing
	if n, ok := w.Begin(); !ok || n != 3 {
		t.Errorf("%d, %t, when none is under way", n, ok)
	}
}
