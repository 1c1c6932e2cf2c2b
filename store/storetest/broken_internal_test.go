package storetest

import (
	"slices"
	"testing"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestBrokenStoresAreCaught(t *testing.T) {
	full := slices.Concat(largeBreakages, deleteBreakages)
	for i, breakage := range slices.Concat(full, breakages) {
		t.Run(breakage.name, func(t *testing.T) {
			t.Parallel()
			violations := Check(t.Context(), func() (store.Store, error) {
				b := &brokenstore.Store{Store: memstore.New()}
				breakage.apply(b)
				if i >= len(full) {
					return brokenstore.Bare{Store: b}, nil // large bodies take their time
				}
				return b, nil
			})
			assertCited(t, violations, breakage.cited)
		})
	}
}

// TestEverySentenceIsDefended fails for a sentence that no broken store breaks:
// a case that cites it might be unable to fail.
func TestEverySentenceIsDefended(t *testing.T) {
	defended := []string{getTooLarge} // by TestPlantedBody
	for _, breakage := range slices.Concat(breakages, largeBreakages, deleteBreakages) {
		defended = append(defended, breakage.cited...)
	}
	for _, sentence := range sentences {
		if !slices.Contains(defended, sentence) {
			t.Errorf("no broken store breaks %q", sentence)
		}
	}
}

func assertCited(t *testing.T, violations []Violation, cited []string) {
	t.Helper()
	for _, sentence := range cited {
		if !slices.ContainsFunc(violations, func(v Violation) bool { return v.Sentence == sentence }) {
			t.Errorf("not cited: %q", sentence)
		}
	}
	if t.Failed() {
		for _, v := range violations {
			t.Logf("%s: %v", v.Case, v)
		}
	}
}
