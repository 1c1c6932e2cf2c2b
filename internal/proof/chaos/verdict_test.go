package chaos_test

import (
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var chk checker
			terms, locks := map[int]*term{1: {}, 2: {}, elsewhere: {}}, map[int]string{elsewhere: "shard"}
			for _, s := range c.said {
				if s.at == frozen {
					chk.freeze(*terms[s.pid])
				} else if good := chk.hear(terms[s.pid], word{Worker: s.pid, PID: s.pid, Lock: locks[s.pid], Token: s.token, At: s.at}); good != s.good {
					t.Errorf("%+v: good %v", s, good)
				}
			}
			if len(chk.violations) != c.violations || chk.refused != c.refused {
				t.Errorf("%d refused, violations %q; want %d and %d", chk.refused, chk.violations, c.refused, c.violations)
			}
		})
	}
}
