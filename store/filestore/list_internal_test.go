package filestore

import (
	"context"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store"
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

// A directory is read again until one reading has the names of the one before, and nothing has
// changed in it: not once more, and not once less. A change in the last reading may have hidden
// the same name as in the one before. No test noticed when it was always read ten times.
func TestSteadyReadsNoMoreThanItNeeds(t *testing.T) {
	const changed = "~"
	for _, c := range []struct {
		readings string // of which the last is repeated
		want     string
		count    int
	}{
		{"a a", "a", 2},
		{"- -", "", 2},
		{"- a a", "a", 3},
		{"a ab ab", "ab", 3},
		{"a~ a a", "a", 2},
		{"a a~ a", "a", 3},
		{"a~ a~ ab ab", "ab", 4},
		{"a b a b b", "ab", 5},
		{"a~", "a", 10},
		{"a b a b a b a b a b", "ab", 10},
	} {
		script, n := strings.Fields(c.readings), 0
		got, err := steady(t.Context(), func() (map[string]bool, bool, error) {
			reading := script[min(n, len(script)-1)]
			n++
			names := make(map[string]bool)
			for _, name := range strings.Trim(reading, changed+"-") {
				names[string(name)] = true
			}
			return names, strings.HasSuffix(reading, changed), nil
		})
		if names := strings.Join(slices.Sorted(maps.Keys(got)), ""); err != nil || names != c.want || n != c.count {
			t.Errorf("%s: %q, %v after %d readings, want %q after %d", c.readings, names, err, n, c.want, c.count)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := steady(ctx, func() (map[string]bool, bool, error) { return nil, true, nil }); err == nil {
		t.Error("it went on after its context")
	}
}

// An object that has gone since its name was read, or is no file any more, is not listed, and
// the listing goes on. No test noticed when it ended.
func TestListedObjectsThatAreGone(t *testing.T) {
	w := walk{ctx: t.Context(), yield: func(e store.Entry, err error) bool {
		t.Errorf("it yields %+v, %v", e, err)
		return true
	}}
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "gone"), dir} {
		if err := w.object("k", path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
