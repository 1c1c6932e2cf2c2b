package shard

import (
	"cmp"
	"slices"
)

// nobody is the owner of shards without a worker.
const nobody = -1

// arrange assigns each shard to a worker, with as few moves as possible. owner[i] is the
// present worker of shard i, or nobody; weight[w] is the weight of worker w; list[w] is the
// worker's list; and in[l][i] reports whether shard i is on list l.
//
// If all workers know all shards, each gets its share, rounded down or up, with the minimum
// number of moves. If lists differ, the shards known to the fewest workers are assigned first,
// and the others even out the load.
func arrange(owner, weight, list []int, in [][]bool) []int {
	to := slices.Repeat([]int{nobody}, len(owner))
	load := make([]int, len(weight))
	for _, g := range groups(list, in, len(owner)) {
		if len(g.workers) == 0 {
			continue
		}
		have := make([]int, len(weight))
		for _, i := range g.shards {
			if owner[i] != nobody {
				have[owner[i]]++
			}
		}
		room := share(len(g.shards), g.workers, weight, load, have)
		var homeless []int
		for _, i := range g.shards {
			if w := owner[i]; w != nobody && room[w] > 0 {
				to[i] = w
				room[w]--
				load[w]++
				continue
			}
			homeless = append(homeless, i)
		}
		for len(homeless) > 0 { // deal them like cards, so that neighbours go to different workers
			for _, w := range g.workers {
				if room[w] > 0 {
					to[homeless[0]], homeless = w, homeless[1:]
					room[w]--
					load[w]++
				}
			}
		}
	}
	return to
}

// A group is a set of shards known to the same workers.
type group struct {
	shards  []int
	workers []int
}

// groups divides the shards. Those known to the fewest workers come first.
func groups(list []int, in [][]bool, shards int) []group {
	of := map[string]*group{}
	var all []*group
	for i := range shards {
		on := make([]byte, len(in))
		for l := range in {
			if in[l][i] {
				on[l] = 1
			}
		}
		g := of[string(on)]
		if g == nil {
			g = &group{}
			for w, l := range list {
				if on[l] == 1 {
					g.workers = append(g.workers, w)
				}
			}
			of[string(on)] = g
			all = append(all, g)
		}
		g.shards = append(g.shards, i)
	}
	slices.SortStableFunc(all, func(a, b *group) int { return cmp.Compare(len(a.workers), len(b.workers)) })
	groups := make([]group, len(all))
	for n, g := range all {
		groups[n] = *g
	}
	return groups
}

// share returns how many of n shards each worker gets: the number that brings all loads to the
// same level, by weight, rounded down or up. Workers that have more than their number rounded
// down are rounded up first, because that saves a move.
func share(n int, workers, weight, load, have []int) []int {
	room := make([]int, len(weight))
	below := slices.Clone(workers) // the level; a worker above it gets nothing
	var sum, weights int
	for {
		sum, weights = n, 0
		for _, w := range below {
			sum += load[w]
			weights += weight[w]
		}
		before := len(below)
		below = slices.DeleteFunc(below, func(w int) bool { return sum*weight[w] < load[w]*weights })
		if len(below) == before {
			break
		}
	}
	rest := make([]int, len(weight))
	left := n
	for _, w := range below { // in integers: a share of 50 must not be 49.99
		exact := sum*weight[w] - load[w]*weights
		room[w], rest[w] = exact/weights, exact%weights
		left -= room[w]
	}
	slices.SortStableFunc(below, func(a, b int) int {
		if more := have[a] > room[a]; more != (have[b] > room[b]) {
			if more {
				return -1
			}
			return 1
		}
		return cmp.Compare(rest[b], rest[a])
	})
	below = slices.DeleteFunc(below, func(w int) bool { return rest[w] == 0 })
	for _, w := range below[:left] {
		room[w]++
	}
	return room
}
