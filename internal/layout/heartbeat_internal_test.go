package layout

import "testing"

// TestWays: a record names its session by the way from itself to it, which leads there from
// every root under which both lie, and out of all others.
func TestWays(t *testing.T) {
	for _, c := range []struct{ session, key, way string }{
		{"", "a", ""},
		{"sessions/x", "a", "sessions/x"},
		{"sessions/x", "jobs/a", "../sessions/x"},
		{"p/sessions/x", "p/shards/00", "../sessions/x"},
		{"p/sessions/x", "p/shards/00/0000000001.json", "../../sessions/x"},
		{"p/sessions/x", "p/a", "sessions/x"},
		{"p/sessions/x", "q/a", "../p/sessions/x"},
		{"sessions/x", "sessions/x", "x"},
		{"x", "a/b/c", "../../x"},
	} {
		if way := wayTo(c.session, c.key); way != c.way {
			t.Errorf("from %s to %s: %q, want %q", c.key, c.session, way, c.way)
		}
		if session := follow(c.way, c.key); session != c.session {
			t.Errorf("from %s by %s: %q, want %q", c.key, c.way, session, c.session)
		}
	}
	for _, c := range []struct{ way, key, leads string }{
		{"../sessions/x", "00", "../sessions/x"},
		{"../../sessions/x", "b/00", "../sessions/x"},
	} {
		if leads := follow(c.way, c.key); leads != c.leads {
			t.Errorf("from %s by %s: %q, want %q", c.key, c.way, leads, c.leads)
		}
	}
}
