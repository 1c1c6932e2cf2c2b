package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A diarist is an owner and a runtime in one. It notes in which order it is told of steps and
// asked for requests, whether a lease was valid then, and how often the engine called it.
type diarist struct {
	nobody
	Process
	engine   Engine
	session  *Session
	lines    []string
	calls    int
	answered []func()
	then     protocol.Event // follows the release
}

func (d *diarist) note(line string) {
	if d.engine.Until() > 0 {
		line += ", valid"
	}
	d.lines = append(d.lines, line)
}

func (d *diarist) Config() candidate.Config {
	d.calls++
	return d.nobody.Config()
}

func (d *diarist) Session(string) *Session {
	d.calls++
	return d.session
}

func (d *diarist) Context() context.Context {
	d.calls++
	return d.nobody.Context()
}

func (d *diarist) Rest(on bool) {
	d.calls++
	d.nobody.Rest(on)
}

func (d *diarist) Place() Place {
	d.calls++
	p := d.nobody.Place()
	p.Runtime = d
	return p
}

func (d *diarist) Stepped(ev protocol.Event, actions []protocol.Action) (next protocol.Event) {
	d.calls++
	line := fmt.Sprintf("told of %T:", ev)
	for _, a := range actions {
		line += fmt.Sprintf(" %T", a)
		if _, is := a.(candidate.Released); is {
			next = d.then
		}
	}
	d.note(line)
	return next
}

func (d *diarist) Ask(r Request) (giveUp func()) {
	d.note(fmt.Sprintf("sent %T", r.For))
	d.answered = append(d.answered, func() {
		r.Do(context.Background())
		r.Done()
	})
	return func() {}
}

func (*diarist) Alarm(func()) Alarm { return never{} }

type never struct{}

func (never) Set(time.Duration) {}
func (never) Stop()             {}

// answer answers all requests, and those that follow.
func (d *diarist) answer() {
	for len(d.answered) > 0 {
		f := d.answered[0]
		d.answered = d.answered[1:]
		f()
	}
}

// TestToldBeforeSent: before anything is sent for a step, a lease that ends with it is invalid and the owner
// is told (rules A7 and A10). The owner is told once, and an event that it returns is the next to be taken in.
func TestToldBeforeSent(t *testing.T) {
	t.Parallel()
	d := &diarist{nobody: nobody{memstore.New()}, then: candidate.Drop{}}
	d.engine.Init(d, candidate.Config{TTL: protocol.DefaultTTL, Incarnation: "i"})
	d.acquire(t)
	d.release()
	if want := []string{
		"told of candidate.Acquire: candidate.Read", "sent candidate.Read",
		"told of candidate.ReadDone: candidate.Write", "sent candidate.Write",
		"told of candidate.WriteDone: candidate.Granted protocol.Seen, valid",
		"told of candidate.Release: candidate.Write", "sent candidate.Write",
		"told of candidate.WriteDone: candidate.Released protocol.Seen",
		"told of candidate.Drop:",
	}; !slices.Equal(d.lines, want) {
		t.Errorf("the order was\n%q, and not\n%q", d.lines, want)
	}
}

// TestCrossings: an acquisition with one write crosses four times between a lock and its engine: the call, what the
// caller does first, and the two steps. So does a release.
func TestCrossings(t *testing.T) {
	t.Parallel()
	d := &diarist{nobody: nobody{memstore.New()}}
	d.engine.Init(d, candidate.Config{TTL: protocol.DefaultTTL, Incarnation: "i"})
	d.acquire(t)
	d.release()
	d.calls = 1
	if d.acquire(t); d.calls != 4 {
		t.Errorf("an acquisition crosses %d times", d.calls)
	}
	d.calls = 1
	if d.release(); d.calls != 4 {
		t.Errorf("a release crosses %d times", d.calls)
	}
}

// TestCrossingsOfATable: so does the acquisition of a slot, and its release.
func TestCrossingsOfATable(t *testing.T) {
	t.Parallel()
	var session Session
	heartbeat := &diarist{nobody: nobody{memstore.New()}}
	session.Init(heartbeat, &heartbeat.engine, candidate.Config{TTL: protocol.DefaultTTL, Incarnation: "h"}, 0)
	heartbeat.acquire(t)
	d := &diarist{nobody: nobody{memstore.New()}, session: &session}
	var table Table
	table.Init(d, queue.Config{TTL: protocol.DefaultTTL, Incarnation: "i", Size: 1})
	for n := range queue.Caller(2) { // the first one reads the object and creates it
		d.calls = 1
		if err := table.Join(&session, queue.Join{Caller: n, Weight: 1, Holder: "h", Wait: true}, func() { d.calls++ }); err != nil {
			t.Fatal(err)
		}
		if d.answer(); n > 0 && d.calls != 4 {
			t.Errorf("an acquisition crosses %d times", d.calls)
		}
		d.calls = 1
		table.Leave(queue.Leave{Caller: n}, func() bool {
			d.calls++
			return true
		})
		// The last step leaves the session, which is looked up by its name.
		if d.answer(); n > 0 && d.calls != 5 {
			t.Errorf("a release crosses %d times", d.calls)
		}
	}
	if len(d.lines) != 14 { // one read, and a write for each
		t.Errorf("%q", d.lines)
	}
}

func (d *diarist) acquire(t *testing.T) {
	t.Helper()
	if err := d.engine.Acquire(t.Context(), candidate.Acquire{Wait: true}, nil, func() { d.calls++ }); err != nil {
		t.Fatal(err)
	}
	d.answer()
}

func (d *diarist) release() {
	d.engine.Release(func() candidate.Release {
		d.calls++
		return candidate.Release{}
	})
	d.answer()
}

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
