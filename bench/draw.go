package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Protocols renew and look at equal intervals. An experiment that waited for equal times itself
// would meet them at the same moment in every round, be it the best or the worst, and its figure
// would be that of this moment. So an experiment acts on a lock at a moment that is drawn evenly
// over the interval concerned.

// draw gives n times from 0 up to d: one is drawn in each n-th part of d, and they come in an
// order that is drawn too. So even a few have nearly the mean that many would have.
func draw(rng *rand.Rand, n int, d time.Duration) []time.Duration {
	times := make([]time.Duration, n)
	for i, at := range rng.Perm(n) {
		least, most := d*time.Duration(i)/time.Duration(n), d*time.Duration(i+1)/time.Duration(n)
		times[at] = least + time.Duration(rng.Int64N(int64(most-least)))
	}
	return times
}

// chance is what one part of the run draws from: by the seed of the run and the words that name
// the part, so it does not matter what else is drawn, or when.
func (r *results) chance(words ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, words...)
	return rand.New(rand.NewPCG(r.Seed, h.Sum64()))
}
