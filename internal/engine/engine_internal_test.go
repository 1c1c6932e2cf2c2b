package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/store/memstore"
)

// A diarist is an owner and a runtime in one. It notes in which order it is told of steps and
// asked for requests.
type diarist struct {
	nobody
	Process
	lines    []string
	answered []func()
	then     protocol.Event // follows the release
}

func (d *diarist) Place() Place {
	p := d.nobody.Place()
	p.Runtime = d
	return p
}

func (d *diarist) Stepped(ev protocol.Event, actions []protocol.Action) (next protocol.Event) {
	line := fmt.Sprintf("told of %T:", ev)
	for _, a := range actions {
		line += fmt.Sprintf(" %T", a)
		if _, is := a.(candidate.Released); is {
			next = d.then
		}
	}
	d.lines = append(d.lines, line)
	return next
}

func (d *diarist) Ask(r Request) (giveUp func()) {
	d.lines = append(d.lines, fmt.Sprintf("sent %T", r.For))
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

// TestToldBeforeSent: the owner is told of each step before anything is sent for it (rules A7 and
// A10), once, and an event that it returns is the next to be taken in.
func TestToldBeforeSent(t *testing.T) {
	t.Parallel()
	d := &diarist{nobody: nobody{memstore.New()}, then: candidate.Drop{}}
	var e Engine
	e.Init(d, candidate.Config{TTL: protocol.DefaultTTL, Incarnation: "i"})
	d.lines = nil
	if err := e.Acquire(true, nil, candidate.Terms{}); err != nil {
		t.Fatal(err)
	}
	d.answer()
	e.Release(func() candidate.Release { return candidate.Release{} })
	d.answer()
	if want := []string{
		"told of candidate.Acquire: candidate.Read", "sent candidate.Read",
		"told of candidate.ReadDone: candidate.Write", "sent candidate.Write",
		"told of candidate.WriteDone: candidate.Granted protocol.Seen",
		"told of candidate.Release: candidate.Write", "sent candidate.Write",
		"told of candidate.WriteDone: candidate.Released protocol.Seen",
		"told of candidate.Drop:",
	}; !slices.Equal(d.lines, want) {
		t.Errorf("the order was\n%q, and not\n%q", d.lines, want)
	}
}
