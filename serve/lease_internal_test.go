package serve

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// How a lease has ended is known for ten minutes, as long as no more have ended since than may be held.
func TestEndings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := endings{most: 3}
		known := func(when, want string) {
			t.Helper()
			got := ""
			for _, id := range []string{"a", "b", "c", "d"} {
				if why, is := e.why(id); is {
					got += fmt.Sprintf("%s %s, ", id, why)
				}
			}
			if got != want || len(e.of) != len(e.order) {
				t.Errorf("%s: %q, want %q; %d in order of %d", when, got, want, len(e.order), len(e.of))
			}
		}
		known("at first", "")
		e.add("a", "lost")
		e.add("b", "silent")
		time.Sleep(5 * time.Minute)
		e.add("c", "released")
		known("three", "a lost, b silent, c released, ")
		e.add("d", "broken")
		known("four", "b silent, c released, d broken, ")
		time.Sleep(5 * time.Minute)
		known("after ten minutes", "b silent, c released, d broken, ")
		time.Sleep(time.Nanosecond)
		known("and a moment", "c released, d broken, ")
		e.add("a", "again")
		known("when there is room", "a again, c released, d broken, ")
		time.Sleep(6 * time.Minute)
		e.add("b", "last")
		if len(e.of) != 2 {
			t.Errorf("%d are remembered when one more ends, of which two are new", len(e.of))
		}
		known("then", "a again, b last, ")
	})
}

// A lease is kept for a twelfth and 10 ms longer than its caller was told: by that much its clock may be slower.
func TestMargin(t *testing.T) {
	t.Parallel()
	if m := margin(12 * time.Second); m != time.Second+10*time.Millisecond {
		t.Errorf("%v", m)
	}
}
