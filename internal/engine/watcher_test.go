package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// valued is a store that notes what value the requests have that it is sent.
type valued struct {
	store.Store
	seen map[any]bool
}

type word struct{}

func (v valued) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	v.seen[ctx.Value(word{})] = true
	return v.Store.Get(ctx, key, unless)
}

// TestReap: a session whose holder is gone is ended when it was waited out, and not before; done is called
// once, also when the wait is given up, when the session is over already, and when that cannot be known.
func TestReap(t *testing.T) {
	const ttl = 15 * time.Second
	const held = `{"format":1,"token":1,"state":"held","holder":"x","ttl_ms":15000,"write_id":"x.1","layout":"session"}`
	for name, c := range map[string]struct {
		body   string
		beats  int           // of its holder, before that is gone
		gives  bool          // up, at once
		ended  bool          // the session is
		lasted time.Duration // the wait, at least
	}{
		"gone":       {held, 0, false, true, protocol.Patience(ttl)},
		"gone later": {held, 2, false, true, 2*protocol.Renewal(ttl) + protocol.Patience(ttl)},
		"given up":   {held, 0, true, false, 0},
		"over":       {`{"format":1,"token":1,"state":"free","holder":"x","ttl_ms":15000,"write_id":"x.1","layout":"session"}`, 0, false, true, 0},
		"foreign":    {`no session`, 0, false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				start := clock.Now()
				st := valued{memstore.New(), map[any]bool{}}
				if _, err := st.Put(t.Context(), "s", []byte(c.body), store.IfAbsent()); err != nil {
					t.Fatal(err)
				}
				at := engine.Place{Runtime: engine.Process{}, Store: st, Logger: slog.New(slog.DiscardHandler)}
				done := make(chan struct{}) // which cannot be closed twice
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), word{}, "value"))
				giveUp := engine.Reap(ctx, at, "s", candidate.Config{TTL: ttl, Holder: "me"}, func() { close(done) })
				cancel() // it does not end that
				synctest.Wait()
				for n := range c.beats {
					time.Sleep(protocol.Renewal(ttl)) //nolint:forbidigo // of the bubble
					o, err := st.Store.Get(t.Context(), "s", "")
					if err == nil {
						_, err = st.Put(t.Context(), "s", []byte(strings.Replace(held, "x.1", fmt.Sprintf("x.%d", n+2), 1)), store.IfMatch(o.Version))
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if c.gives {
					giveUp()
				}
				<-done
				if took := clock.Now() - start; took < c.lasted || took > c.lasted*4/3 {
					t.Errorf("it took %v", took)
				}
				s, err := layout.Heartbeat{Store: st.Store, Key: "s"}.Look(t.Context(), "")
				if ended := err == nil && !s.Record.Held; ended != c.ended {
					t.Errorf("ended: %t, %+v, %v", ended, s, err)
				}
				if name == "gone" && (strings.HasPrefix(s.Record.WriteID, ".") || s.Record.WriteID == "x.1") {
					t.Errorf("what it wrote is marked %q", s.Record.WriteID)
				}
				if len(st.seen) != 1 || !st.seen["value"] {
					t.Errorf("the requests have the values %v", st.seen)
				}
			})
		})
	}
}
