package main

import (
	"slices"
	"strings"
	"testing"
)

// A goal that is missed is said to be, and why, once; one that was not measured is left out.
func TestGoals(t *testing.T) {
	t.Parallel()
	near, far := &place{name: "near"}, &place{name: "far", delayed: true}
	b := &bench{results: newResults(), places: []*place{near, far}}
	b.add("crash", "near", "leasehold, election", "s", 0, 6.05)
	for _, name := range []string{fairLock, fairWithPeers} {
		b.add("contention", hundred(near), name, inUse, 0, 0.5)
	}
	b.add("contention", hundred(near), "leasehold", inUse, 0, 0.8)
	rows, reasons := b.goals()
	var got []string
	for _, row := range rows[1:] {
		got = append(got, row[0]+": "+row[1]+", "+row[3])
	}
	want := []string{
		"fail-over, election, TTL 6s, s: at most 6.11, kept",
		"share of the time in which a hundred tasks use the lock, leasehold, near: at least 0.750, kept",
		"share of the time in which a hundred tasks use the lock, " + fairLock + ", near: at least 0.750, **missed**",
		"share of the time in which a hundred tasks use the lock, " + fairWithPeers + ", near: at least 0.750, **missed**",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(reasons, []string{twoCores}) {
		t.Errorf("the reasons are %q", reasons)
	}
}
