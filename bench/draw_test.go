package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/quick"
	"time"
)

// Times are drawn from 0 up to their bound, and each part of it has one.
func TestDraw(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 7, 24, 1000} {
		for _, d := range []time.Duration{time.Duration(n), 2 * time.Second, 5*time.Second + 1, 24 * time.Hour} {
			for seed := range uint64(20) {
				times := draw(rand.New(rand.NewPCG(seed, 0)), n, d)
				if len(times) != n {
					t.Fatalf("%d times, not %d", len(times), n)
				}
				slices.Sort(times)
				for i, at := range times {
					if least, most := d*time.Duration(i)/time.Duration(n), d*time.Duration(i+1)/time.Duration(n); at < least || at >= most {
						t.Fatalf("seed %d: of %d times up to %v that of part %d is %v, not from %v up to %v", seed, n, d, i, at, least, most)
					}
				}
			}
		}
	}
}

// A part has its time anywhere, and comes at any place in the order; none is preferred.
func TestDrawIsEven(t *testing.T) {
	t.Parallel()
	const n, times, d = 4, 4000, 4 * time.Second
	var placed [n][n]int // the part, and where in the order
	var within [n][4]int // the part, and where in it
	rng := rand.New(rand.NewPCG(1, 2))
	for range times {
		for at, drawn := range draw(rng, n, d) {
			part := int(drawn / time.Second)
			placed[part][at]++
			within[part][drawn%time.Second/(time.Second/4)]++
		}
	}
	const each, off = times / n, 6 * 28 // six standard deviations
	for part := range n {
		for i := range n {
			if c := placed[part][i]; c < each-off || c > each+off {
				t.Errorf("part %d came at place %d %d times of %d, not about %d", part, i, c, times, each)
			}
			if c := within[part][i]; c < each-off || c > each+off {
				t.Errorf("quarter %d of part %d was drawn %d times of %d, not about %d", i, part, c, times, each)
			}
		}
	}
}

// A seed gives the same times again, to each part of a run others.
func TestChance(t *testing.T) {
	t.Parallel()
	of := func(seed uint64, words ...any) []time.Duration {
		return draw((&results{Seed: seed}).chance(words...), 12, 2*time.Second)
	}
	again := func(seed uint64, subject string, n int) bool {
		one := of(seed, "crash", subject, n)
		return slices.Equal(one, of(seed, "crash", subject, n)) && !slices.Equal(one, of(seed, "crash", subject, n+1)) &&
			!slices.Equal(one, of(seed, "crash", subject+"x", n)) && !slices.Equal(one, of(seed+1, "crash", subject, n))
	}
	if err := quick.Check(again, nil); err != nil {
		t.Error(err)
	}
}
