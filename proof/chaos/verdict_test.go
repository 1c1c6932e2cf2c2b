package chaos_test

import (
	"cmp"
	"testing"
	"time"
)

// TestChecker: the checker finds what is wrong, and nothing else, whatever the order
// in which it hears of it.
func TestChecker(t *testing.T) {
	t.Parallel()
	const (
		frozen    = -1 // in place of a time: freeze the term
		elsewhere = 3  // the process that works under another lock
	)
	const two = 100 // the first process of those that want one of two slots
	type said struct {
		pid   int
		token int64
		at    time.Duration
		good  bool
	}
	for name, c := range map[string]struct {
		said                []said
		violations, refused int
	}{
		"one after the other":         {said: []said{{1, 7, 10, true}, {1, 7, 20, true}, {2, 8, 30, true}}},
		"heard late, but done before": {said: []said{{1, 7, 10, true}, {2, 8, 30, true}, {1, 7, 20, false}}, refused: 1},
		"at work beside a later one":  {said: []said{{1, 7, 10, true}, {2, 8, 30, true}, {1, 7, 31, false}}, violations: 1, refused: 1},
		"the same, heard in another order": {
			said: []said{{1, 7, 10, true}, {1, 7, 31, true}, {2, 8, 30, true}}, violations: 1,
		},
		"frozen before":           {said: []said{{1, 7, 10, true}, {1, 0, frozen, true}, {2, 8, 30, true}, {1, 7, 40, false}}, refused: 1},
		"two locks":               {said: []said{{1, 7, 10, true}, {elsewhere, 8, 20, true}, {1, 7, 30, true}, {elsewhere, 8, 40, true}}},
		"one token of two locks":  {said: []said{{1, 7, 10, true}, {elsewhere, 7, 20, true}}},
		"one token, two jobs":     {said: []said{{1, 7, 10, true}, {2, 7, 20, true}}, violations: 1},
		"tokens that go back":     {said: []said{{1, 7, 10, true}, {2, 6, 20, false}}, violations: 1, refused: 1},
		"a refusal is not undone": {said: []said{{1, 7, 10, true}, {2, 8, 30, true}, {1, 7, 20, false}, {1, 7, 21, false}}, refused: 2},
		"two in two slots":        {said: []said{{two, 7, 10, true}, {two + 1, 8, 20, true}, {two, 7, 30, true}, {two + 1, 8, 40, true}}},
		"three in two slots": {
			said: []said{{two, 7, 10, true}, {two + 1, 8, 20, true}, {two + 2, 9, 30, true}, {two, 7, 40, true}, {two + 1, 8, 41, true}}, violations: 1,
		},
		"one after the other in two slots": {
			said: []said{{two, 7, 10, true}, {two + 1, 8, 20, true}, {two + 1, 8, 25, true}, {two + 2, 9, 30, true}, {two, 7, 40, true}},
		},
		"three in two slots, the first begins last": {
			said: []said{{two + 1, 8, 20, true}, {two + 2, 9, 30, true}, {two + 1, 8, 40, true}, {two, 7, 50, true}}, violations: 1,
		},
		"three in two slots, one frozen before": {
			said: []said{{two, 7, 10, true}, {two + 1, 8, 20, true}, {two, 0, frozen, true}, {two + 2, 9, 30, true}, {two + 1, 8, 35, true}, {two, 7, 40, true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chk := checker{slots: 1 + c.said[0].pid/two}
			terms, locks := map[int]*term{1: {}, 2: {}, elsewhere: {}, two: {}, two + 1: {}, two + 2: {}}, map[int]string{elsewhere: "shard"}
			for _, s := range c.said {
				if s.at == frozen {
					chk.freeze(*terms[s.pid])
				} else if good := chk.hear(terms[s.pid], word{Worker: s.pid, PID: s.pid, Lock: cmp.Or(locks[s.pid], theLock), Token: s.token, At: s.at}); good != s.good {
					t.Errorf("%+v: good %v", s, good)
				}
			}
			if len(chk.violations) != c.violations || chk.refused != c.refused {
				t.Errorf("%d refused, violations %q; want %d and %d", chk.refused, chk.violations, c.refused, c.violations)
			}
		})
	}
}
