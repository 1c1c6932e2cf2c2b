package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// everybody knows all shards.
func everybody(workers, shards int) (list []int, in [][]bool) {
	return make([]int, workers), [][]bool{slices.Repeat([]bool{true}, shards)}
}

// loads counts what each worker has, and moved how many shards have another owner than before.
func loads(workers int, before, after []int) (load []int, moved int) {
	load = make([]int, workers)
	for i, w := range after {
		load[w]++
		if w != before[i] {
			moved++
		}
	}
	return load, moved
}

// least is the least number of moves that give each worker its share, rounded down or up:
// all ways to round are tried.
func least(weight, before []int) int {
	total := 0
	for _, w := range weight {
		total += w
	}
	have := make([]int, len(weight))
	for _, w := range before {
		if w != nobody {
			have[w]++
		}
	}
	best := len(before) + 1
	for up := range 1 << len(weight) {
		sum, kept, possible := 0, 0, true
		for w := range weight {
			want := len(before) * weight[w] / total
			if up>>w&1 == 1 {
				possible = possible && len(before)*weight[w]%total != 0
				want++
			}
			sum += want
			kept += min(want, have[w])
		}
		if possible && sum == len(before) {
			best = min(best, len(before)-kept)
		}
	}
	return best
}

// TestArrange: whatever was before, each worker has its share, rounded down or up, by the
// least number of moves that there can be.
func TestArrange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5000) {
		draw := rand.New(rand.NewPCG(seed, 0))
		weight := make([]int, 1+draw.IntN(7))
		for w := range weight {
			weight[w] = 1 + draw.IntN(1+draw.IntN(5))
		}
		before := make([]int, draw.IntN(40))
		for i := range before {
			before[i] = draw.IntN(len(weight)+1+draw.IntN(3)) - 1
			if before[i] >= len(weight) {
				before[i] = 0
			}
		}
		list, in := everybody(len(weight), len(before))
		after := arrange(before, weight, list, in)
		load, moved := loads(len(weight), before, after)
		total := 0
		for _, w := range weight {
			total += w
		}
		for w := range weight {
			if down := len(before) * weight[w] / total; load[w] != down && (load[w] != down+1 || len(before)*weight[w]%total == 0) {
				t.Fatalf("seed %d: weights %v, loads %v", seed, weight, load)
			}
		}
		if want := least(weight, before); moved != want {
			t.Fatalf("seed %d: weights %v, before %v, after %v: %d moves, and %d are enough", seed, weight, before, after, moved, want)
		}
		if again := arrange(after, weight, list, in); !slices.Equal(again, after) {
			t.Fatalf("seed %d: what was arranged is arranged again: %v, then %v", seed, after, again)
		}
	}
}

// TestArrangeLists: where lists differ, a shard goes to a worker that knows it, and the
// others level its weight.
func TestArrangeLists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		weight []int
		list   []int
		in     []string // by list, a letter for each shard: x if it is on the list
		want   []int    // loads
		none   int      // shards that nobody can have
	}{
		{"one more list", []int{1, 1}, []int{0, 1}, []string{"xxxx....", "xxxxxxxx"}, []int{4, 4}, 0},
		{"more than a share", []int{1, 1}, []int{0, 1}, []string{"xx......", "xxxxxxxx"}, []int{2, 6}, 0},
		{"two of each", []int{1, 1, 1, 1}, []int{0, 0, 1, 1}, []string{"xxxx........", "xxxxxxxxxxxx"}, []int{2, 2, 4, 4}, 0},
		{"apart", []int{1, 1}, []int{0, 1}, []string{"xx......", "..xxxxxx"}, []int{2, 6}, 0},
		{"weights", []int{1, 3}, []int{0, 1}, []string{"xxxxxx..", "xxxxxxxx"}, []int{2, 6}, 0},
		{"nobody", []int{1}, []int{0}, []string{"xx..", "..xx"}, []int{2}, 2},
		{"no worker", nil, nil, []string{"xx"}, nil, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := make([][]bool, len(c.in))
			for l, letters := range c.in {
				for _, x := range letters {
					in[l] = append(in[l], x == 'x')
				}
			}
			shards := len(in[0])
			after := arrange(slices.Repeat([]int{nobody}, shards), c.weight, c.list, in)
			load, none := make([]int, len(c.weight)), 0
			for i, w := range after {
				switch {
				case w == nobody:
					none++
				case !in[c.list[w]][i]:
					t.Errorf("shard %d is with worker %d, which does not know it", i, w)
				default:
					load[w]++
				}
			}
			if !slices.Equal(load, c.want) || none != c.none {
				t.Errorf("loads %v and %d with nobody, want %v and %d", load, none, c.want, c.none)
			}
		})
	}
}

func BenchmarkArrange(b *testing.B) {
	for _, size := range []struct{ workers, shards int }{{100, 5000}, {1000, 100_000}} {
		b.Run(fmt.Sprintf("%dx%d", size.workers, size.shards), func(b *testing.B) {
			list, in := everybody(size.workers, size.shards)
			none := slices.Repeat([]int{nobody}, size.shards)
			for b.Loop() {
				arrange(none, slices.Repeat([]int{1}, size.workers), list, in)
			}
		})
	}
}
