package layout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestGone: whoever has a session is gone when that is over, whatever says so, or when its heartbeat is old;
// and is taken for one that is there where the session cannot be seen.
func TestGone(t *testing.T) {
	record := func(state string, at time.Time) string {
		return `{"format":1,"token":1,"state":"` + state + `","holder":"x","ttl_ms":15000,"write_id":"x.1","renewed_at":"` + at.Format(time.RFC3339Nano) + `","layout":"session"}`
	}
	for what, c := range map[string]struct {
		session, body string
		gone          bool
	}{
		"not there":   {"s", "", true},
		"over":        {"s", record("free", time.Now()), true},
		"there":       {"s", record("held", time.Now()), false},
		"silent":      {"s", record("held", time.Now().Add(-time.Hour)), true},
		"no session":  {"s", "?", false},
		"not in here": {"../s", "", false},
	} {
		st := faultstore.Wrap(memstore.New(), nil)
		if c.body != "" {
			if _, err := st.Put(t.Context(), c.session, []byte(c.body), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		h := layout.Heartbeat{Store: &timeless{tapped{Store: st}}, Key: c.session}
		if gone, err := h.Gone(t.Context(), "jobs/1"); gone != c.gone || err != nil {
			t.Errorf("%s: %t, %v", what, gone, err)
		}
	}
	st := faultstore.Wrap(memstore.New(), nil)
	st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get"})
	gone, err := layout.Heartbeat{Store: st, Key: "sessions/1"}.Gone(t.Context(), "jobs/1")
	if gone || err == nil || !strings.Contains(err.Error(), "sessions/1") || !strings.Contains(err.Error(), "jobs/1") {
		t.Errorf("that cannot be read: %t, %v", gone, err)
	}
}
