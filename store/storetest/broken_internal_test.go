package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestBrokenStoresAreCaught(t *testing.T) {
	caught := func(breakages []breakage, wrap func(*brokenstore.Store) store.Store, cases ...testCase) {
		for _, breakage := range breakages {
			t.Run(breakage.name, func(t *testing.T) {
				t.Parallel()
				violations := checkCases(t.Context(), cases, func() (store.Store, error) {
					b := &brokenstore.Store{Store: memstore.New()}
					breakage.apply(b)
					return wrap(b), nil
				})
				assertCited(t, violations, breakage.cited)
			})
		}
	}
	caught(breakages, func(b *brokenstore.Store) store.Store { return brokenstore.Bare{Store: b} }, cases...)
	// These break one extension, which only the cases of that name call.
	whole := func(b *brokenstore.Store) store.Store { return b }
	caught(largeBreakages, whole, named("large")...)
	caught(deleteBreakages, whole, named("conditional delete")...)
}

// named are the cases whose names begin so.
func named(prefix string) []testCase {
	return slices.DeleteFunc(slices.Clone(cases), func(c testCase) bool { return !strings.HasPrefix(c.name, prefix) })
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
