package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A nobody is an Owner who has a store, and wants to know nothing.
type nobody struct{ st store.Store }

func (n nobody) Place() Place {
	return Place{Runtime: Process{}, Store: n.st, Key: "k", Layout: layout.Object{Store: n.st, Key: "k"}, Logger: slog.New(slog.DiscardHandler)}
}
func (nobody) Config() candidate.Config      { return candidate.Config{TTL: protocol.DefaultTTL} }
func (nobody) Session(string) *Session       { return nil }
func (nobody) Context() context.Context      { return context.Background() }
func (nobody) Watcher(string, *Engine) Owner { return nil }
func (nobody) Rest(bool)                     {}
func (nobody) EndLease(error)                {}
func (nobody) Over(error)                    {}
func (nobody) Unused()                       {}

func (nobody) Stepped(protocol.Event, []protocol.Action) protocol.Event { return nil }

// gated is a store whose looks wait.
type gated struct {
	store.Store
	open chan struct{}
}

func (g gated) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	<-g.open
	return g.Store.Get(ctx, key, unless)
}

// TestWhenIdle: what waits for the request under way is called when that is answered, and once:
// more engines at a time than the runtime allows would have requests otherwise.
func TestWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := gated{memstore.New(), make(chan struct{})}
		var e Engine
		e.Init(nobody{st}, candidate.Config{TTL: protocol.DefaultTTL, Incarnation: "i"})
		e.Tell(candidate.Watch{On: true})
		var called atomic.Int64
		e.whenIdle(func() { called.Add(1) })
		synctest.Wait()
		if n := called.Load(); n != 0 {
			t.Fatalf("called %d times while a request was under way", n)
		}
		close(st.open)
		for range 3 {
			time.Sleep(time.Millisecond) //nolint:forbidigo // of the bubble
			synctest.Wait()
			e.Tell(protocol.Tick{})
			synctest.Wait()
			if n := called.Load(); n != 1 {
				t.Fatalf("called %d times when it was answered", n)
			}
		}
		e.Tell(candidate.Watch{On: false})
		time.Sleep(protocol.MaxRequest) //nolint:forbidigo // of the bubble
	})
}

// TestLastReleased: the heartbeat names as many of the locks that were released last as it is to.
func TestLastReleased(t *testing.T) {
	t.Parallel()
	for last, want := range map[int]int{0: 64, 1: 1, 3: 3} {
		var s Session
		s.Init(nobody{memstore.New()}, new(Engine), candidate.Config{TTL: protocol.DefaultTTL}, last)
		for range 70 {
			s.released("a")
		}
		if f := s.Announce(); f == nil || f.Count != 70 || len(f.Last) != want {
			t.Errorf("of 70 released locks %d are to be named, and these are: %+v", want, f)
		}
	}
}
