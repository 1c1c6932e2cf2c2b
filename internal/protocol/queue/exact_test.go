package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/protocol/scenario"
	"github.com/leasehold/leasehold/internal/record"
)

// TestLeaveOfNobody: a driver that mixes callers up is told at once.
func TestLeaveOfNobody(t *testing.T) {
	t.Parallel()
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "a Leave of a caller who is not there") {
			t.Errorf("it says %q", text)
		}
	}()
	queue.New(queue.Config{Incarnation: "me", Size: 1, TTL: 1e9}).Step(queue.Leave{Caller: 7}, protocol.Now{})
}

// TestFits: one that comes now has its slots at once where there is room beside those who hold some and nobody
// waits whose session is not known to be over.
func TestFits(t *testing.T) {
	t.Parallel()
	entry := func(session string, weight int64) record.Entry {
		return record.Entry{ID: session + ".1", Session: session, Weight: weight}
	}
	for _, c := range []struct {
		title        string
		holds, waits []record.Entry
		weight       int64
		over         string
		fits         bool
	}{
		{title: "empty", weight: 3, fits: true},
		{title: "room", holds: []record.Entry{entry("a", 2)}, weight: 1, fits: true},
		{title: "no room", holds: []record.Entry{entry("a", 2)}, weight: 2},
		{title: "one that holds is gone", holds: []record.Entry{entry("a", 2)}, weight: 2, over: "a", fits: true},
		{title: "one waits", holds: []record.Entry{entry("a", 2)}, waits: []record.Entry{entry("b", 2)}, weight: 1},
		{title: "one that waits is gone", holds: []record.Entry{entry("a", 2)}, waits: []record.Entry{entry("b", 2)}, weight: 1, over: "b", fits: true},
		{title: "one that waits takes the place of one that is gone", holds: []record.Entry{entry("a", 2)}, waits: []record.Entry{entry("b", 2)}, weight: 1, over: "a", fits: true},
		{title: "and leaves none", holds: []record.Entry{entry("a", 2)}, waits: []record.Entry{entry("b", 2)}, weight: 2, over: "a"},
	} {
		table := queue.New(queue.Config{Incarnation: "me", Size: 3, TTL: 1e9})
		if c.over != "" {
			table.Step(protocol.SessionExpired{Session: c.over}, protocol.Now{})
		}
		shown := record.Table{Size: 3, Token: 1, Holders: c.holds, Waiters: c.waits}
		if got := table.Fits(shown, c.weight); got != c.fits || len(shown.Holders) != len(c.holds) || len(shown.Waiters) != len(c.waits) {
			t.Errorf("%s: it fits: %t", c.title, got)
		}
	}
}

// TestNoRoom: whoever finds no room in the queue is refused (rule T8), and the last one that fits has its
// place, be it that others before it did not fit.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	full := record.Table{Size: 1, Token: 1, WriteID: "x", Holders: []record.Entry{{ID: "x.1", Session: "x", Weight: 1, Token: 1}}}
	table := queue.New(queue.Config{Incarnation: "me", Size: 1, TTL: 1e9})
	step := func(ev protocol.Event) []protocol.Action { return table.Step(ev, protocol.Now{Wall: scenario.Wall}) }
	var mine []record.Entry
	for n, holder := range []string{"long", "", "long", "", ""} {
		step(queue.Join{Caller: queue.Caller(n), Weight: 1, Session: "s", Holder: holder, Wait: true})
		mine = append(mine, record.Entry{ID: "me." + string(rune('1'+n)), Session: "s", Weight: 1, Holder: holder, Since: scenario.Wall})
	}
	// There is room for the first and the second, and then for one that is as short as the second.
	other := record.Entry{ID: "x.2", Session: "x", Weight: 1}
	other.ID += strings.Repeat("x", full.Room(record.MaxJoined)-mine[0].Len()-mine[1].Len()-mine[3].Len()-other.Len())
	full.Waiters = append(full.Waiters, other)
	var refused []queue.Caller
	var wrote record.Table
	for _, a := range step(queue.ReadDone{Shown: protocol.Found, Version: "v1", Table: full}) {
		switch a := a.(type) {
		case queue.Refused:
			if !errors.Is(a.Err, record.ErrTableFull) {
				t.Errorf("refused: %v", a.Err)
			}
			refused = append(refused, a.Caller)
		case queue.Write:
			wrote = a.Table
		}
	}
	if len(refused) != 2 || refused[0] != 2 || refused[1] != 4 || len(wrote.Waiters) != 4 || wrote.Room(record.MaxJoined) != 0 {
		t.Errorf("refused: %v; it has room for %d bytes", refused, wrote.Room(record.MaxJoined))
	}
}

// TestLongTurn: a turn that takes much longer than those before it costs those who wait a look every few
// seconds. They used to look as if each moment was its end: a queue behind holders of a few milliseconds,
// three hundred times a second for as long as the next one worked.
func TestLongTurn(t *testing.T) {
	t.Parallel()
	for waiters := 1; waiters <= 4; waiters++ {
		shown := record.Table{Size: 1, Token: 9, WriteID: "x", Turn: time.Millisecond, Holders: []record.Entry{{ID: "x.1", Session: "x", Weight: 1, Token: 9}}}
		for n := range waiters {
			shown.Waiters = append(shown.Waiters, record.Entry{ID: fmt.Sprintf("y.%d", n), Session: "y", Weight: 1})
		}
		table := queue.New(queue.Config{Incarnation: "me", Size: 1, TTL: time.Second})
		now, looks := time.Duration(0), 0
		step := func(ev protocol.Event) (next protocol.Event) {
			for _, a := range table.Step(ev, protocol.Now{Clock: now, Wall: scenario.Wall.Add(now)}) {
				switch a := a.(type) {
				case queue.Read:
					looks++
					next = queue.ReadDone{Shown: protocol.Same}
					if a.Unless == "" {
						next = queue.ReadDone{Shown: protocol.Found, Version: "v1", Table: shown}
					}
				case queue.Write:
					next = queue.WriteDone{Version: "v2"}
				}
			}
			return next
		}
		for next := step(queue.Join{Caller: 1, Weight: 1, Session: "s", Wait: true}); now < time.Hour; {
			if next == nil {
				wake, _ := table.Wake()
				now, next = max(now, wake), protocol.Tick{}
			}
			next = step(next)
		}
		if most := 3600/(5*waiters) + 30; looks > most {
			t.Errorf("one with %d before it has looked %d times in an hour, more than %d", waiters, looks, most)
		}
	}
}

// TestDiedTogether: those that died at one moment are waited out together, however many they are. Each used to
// be found late only when the one behind it had been, for two thirds of a TTL each. Where turns are long, a waiter far
// behind did not watch before it had seen the queue stand still, and began anew with each grant to a dead one.
func TestDiedTogether(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	near := ttl*2/3 + protocol.Patience(ttl) + time.Second
	far := protocol.SeldomWatch(ttl)*5/4 + protocol.Patience(ttl) + time.Second
	for _, tc := range []struct {
		dead int
		turn time.Duration
		most time.Duration
	}{{10, 0, far + protocol.Patience(ttl)/10}, {2, time.Minute, near}, {3, time.Minute, far}, {10, time.Minute, far}, {80, time.Minute, far}, {80, time.Second, far}} {
		t.Run(fmt.Sprint(tc.dead, " with turns of ", tc.turn), func(t *testing.T) {
			t.Parallel()
			if took := diedTogether(t, ttl, tc.dead, tc.turn); took > tc.most {
				t.Errorf("granted after %v; all are over after %v", took, tc.most)
			}
		})
	}
}

// diedTogether is how long a waiter waits for its slot when the holder and so many before it died at the moment of its
// first look, each just after a heartbeat.
func diedTogether(t *testing.T, ttl time.Duration, dead int, turn time.Duration) (now time.Duration) {
	t.Helper()
	shown := record.Table{Size: 1, Token: 9, WriteID: "x", Turn: turn, Holders: []record.Entry{{ID: "x.1", Session: "x", Weight: 1, Token: 9}}}
	for n := range dead {
		name := fmt.Sprint("dead", n)
		shown.Waiters = append(shown.Waiters, record.Entry{ID: name + ".1", Session: name, Weight: 1})
	}
	table := queue.New(queue.Config{Incarnation: "me", Size: 1, TTL: ttl})
	version := 1
	over := map[protocol.Await]time.Duration{} // when that is known of those that are watched
	granted := false
	var step func(ev protocol.Event)
	step = func(ev protocol.Event) {
		for _, a := range table.Step(ev, protocol.Now{Clock: now, Wall: scenario.Wall.Add(now)}) {
			switch a := a.(type) {
			case queue.Read:
				step(queue.ReadDone{Shown: protocol.Found, Version: protocol.Version(fmt.Sprint(version)), Table: shown})
			case queue.Write:
				version++
				shown = a.Table
				step(queue.WriteDone{Version: protocol.Version(fmt.Sprint(version))})
			case queue.Granted:
				granted = true
			}
		}
		awaits := slices.Clone(table.Awaits())
		maps.DeleteFunc(over, func(a protocol.Await, _ time.Duration) bool { return !slices.Contains(awaits, a) })
		for _, a := range awaits {
			if _, is := over[a]; !is {
				over[a] = now + protocol.Patience(ttl)
				if a.Seldom {
					over[a] = now + protocol.SeldomWatch(ttl)*5/4
				}
				step(protocol.SessionBeat{Session: a.Session, TTL: ttl}) // the last one that there was
			}
		}
	}
	step(queue.Join{Caller: 1, Weight: 1, Session: "s", Wait: true})
	for ; !granted && now < time.Hour; now += 100 * time.Millisecond {
		for _, a := range slices.SortedFunc(maps.Keys(over), func(a, b protocol.Await) int { return strings.Compare(a.Session, b.Session) }) {
			if at, is := over[a]; is && now >= at {
				step(protocol.SessionExpired{Session: a.Session})
			}
		}
		step(protocol.Tick{})
	}
	return now
}
