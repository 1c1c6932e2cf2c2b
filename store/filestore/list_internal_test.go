package filestore

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSteady: readings that each miss some names, as long as the directory changes, give all
// the names that any of them showed; the reading goes on until it is certain, or long enough.
// One reading, without a lock, would miss a lock that is held.
func TestSteady(t *testing.T) {
	whole := map[string]bool{"a": true, "b": true, "c/": true}
	rng := rand.New(rand.NewPCG(1, 2))
	missed := 0
	for range 1000 {
		busy := rng.IntN(2 * maxReadings) // readings that are disturbed
		shown := make(map[string]bool)
		readings, disturbed := 0, false
		got, err := steady(t.Context(), func() (map[string]bool, bool, error) {
			readings++
			disturbed = readings <= busy
			names := maps.Clone(whole)
			for name := range whole {
				if disturbed && rng.IntN(2) == 0 {
					delete(names, name)
					missed++
				}
			}
			maps.Copy(shown, names)
			return names, disturbed, nil
		})
		if err != nil || !maps.Equal(got, shown) {
			t.Errorf("%v of the names %v that were shown, %v", got, shown, err)
		}
		if readings < 2 || readings > maxReadings || disturbed && readings < maxReadings {
			t.Errorf("it stopped after %d readings, of which %d were disturbed", readings, busy)
		}
		if busy < maxReadings-1 && !maps.Equal(got, whole) {
			t.Errorf("it has %v after an undisturbed reading", slices.Sorted(maps.Keys(got)))
		}
	}
	if missed == 0 {
		t.Error("no reading missed anything")
	}
}

// A change in the last reading may have hidden the same name as in the one before.
func TestSteadyAgreementIsNotEnough(t *testing.T) {
	n := 0
	got, err := steady(t.Context(), func() (map[string]bool, bool, error) {
		n++
		return map[string]bool{"a": true, "b": n > 2}, n <= 2, nil
	})
	if err != nil || !got["b"] || n < 3 {
		t.Errorf("%v, %v after %d readings", got, err, n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = steady(ctx, func() (map[string]bool, bool, error) { return nil, true, nil }); err == nil {
		t.Error("it went on after its context")
	}
}
