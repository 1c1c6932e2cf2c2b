package cost_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/leasehold/leasehold/internal/cost"
)

// FuzzPrices: whatever a file of prices has, it is refused, or each of its stores can be asked for by its name.
func FuzzPrices(f *testing.F) {
	f.Add([]byte(`{"date":"2026-01-02","currency":"USD","stores":[]}`))
	f.Add([]byte(`{"date":"2026-01-02","currency":"USD","stores":[{"name":"s3"}]}{}`))
	f.Add([]byte(`{"colour":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := cost.ReadPrices(bytes.NewReader(text))
		if err != nil {
			return
		}
		names := p.Names()
		if len(names) == 0 || p.Currency != "USD" {
			t.Errorf("accepted %+v", p)
		}
		for _, name := range names {
			if s, err := p.Store(name); err != nil || s.Name != name {
				t.Errorf("%q is %+v, %v", name, s, err)
			}
		}
		if sorted := slices.Compact(slices.Sorted(slices.Values(names))); len(sorted) != len(names) {
			t.Errorf("a name stands twice in %q", names)
		}
	})
}
