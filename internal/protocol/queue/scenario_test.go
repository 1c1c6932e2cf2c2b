package queue_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/protocol/scenario"
	"github.com/leasehold/leasehold/internal/record"
)

// TestScenarios plays the files of testdata.
//
// A table is written as "size 3 token 5 a.1=5 b.1*2": a.1 holds a slot with token 5, and b.1 waits for
// two. The session of a.1 is a, unless @NAME follows; its holder is h, unless /NAME follows. ~READING is
// the clock reading at which it began, ^NAME its address, and +NAME an unknown field. The average length
// of a turn follows the token, if it is known, as in "turn 5s".
func TestScenarios(t *testing.T) {
	scenario.Play(t, func(t *testing.T, text string) string {
		s := &script{T: t, cfg: queue.Config{Incarnation: "me", Size: 1, TTL: 15 * time.Second}}
		return scenario.Replay(text, s.line)
	})
}

// TestEveryRuleHasAScenario: a rule without one could be removed unnoticed.
func TestEveryRuleHasAScenario(t *testing.T) {
	scenario.Claims(t, "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8")
}

// A script plays one scenario.
type script struct {
	*testing.T
	table *queue.Machine
	cfg   queue.Config
	wrote []record.Table // by number, from 1
}

func (s *script) line(line string, out *strings.Builder) {
	words := strings.Fields(line)
	if words[0] == "config" {
		s.configure(words[1:])
		return
	}
	if s.table == nil {
		s.table = queue.New(s.cfg)
	}
	defer func() {
		if r := recover(); r != nil {
			s.Fatalf("%q: %v, after\n%s", line, r, out)
		}
	}()
	at := scenario.Duration(s.T, words[0])
	if words[1] == "looks" { // until when: nothing has changed
		s.looks(at, out)
		return
	}
	for _, action := range s.table.Step(s.event(words[1], words[2:]), protocol.Now{Clock: at, Wall: scenario.Wall.Add(at)}) {
		fmt.Fprintf(out, "  %s\n", s.show(action))
	}
	if words[1] == "shown" {
		table, exists := s.table.Shown()
		fmt.Fprintf(out, "  shown: %t, %s\n", exists, tableText(table))
	}
	state := map[[3]bool]string{
		{true, false, false}: "busy", {false, true, true}: "settled", {false, true, false}: "idle", {false, false, false}: "due",
	}[[3]bool{s.table.Busy(), s.table.Idle(), s.table.Settled()}]
	var awaits []string
	for _, a := range s.table.Awaits() {
		awaits = append(awaits, a.Session)
		if a.Seldom {
			awaits[len(awaits)-1] += " seldom"
		}
	}
	if awaits != nil {
		state += "; awaits " + strings.Join(awaits, ", ")
	}
	if err := s.table.Trouble(); err != nil {
		state += "; trouble: " + err.Error()
	}
	if wake, ok := s.table.Wake(); ok {
		state += fmt.Sprintf("; wake at %v", wake)
	}
	fmt.Fprintf(out, "  => %s\n", state)
}

// looks lets the table look for as long as nothing changes.
func (s *script) looks(until time.Duration, out *strings.Builder) {
	n, last, pause := 0, time.Duration(0), time.Duration(0)
	for {
		at, ok := s.table.Wake()
		if !ok || at > until {
			break
		}
		for _, a := range s.table.Step(protocol.Tick{}, protocol.Now{Clock: at, Wall: scenario.Wall.Add(at)}) {
			if _, is := a.(queue.Read); !is {
				s.Fatalf("%v: %s", at, s.show(a))
			}
			n, last, pause = n+1, at, at-last
			if n <= 12 {
				fmt.Fprintf(out, "  look at %v\n", at)
			}
			s.table.Step(queue.ReadDone{Shown: protocol.Same}, protocol.Now{Clock: at, Wall: scenario.Wall.Add(at)})
		}
	}
	fmt.Fprintf(out, "  %d looks, the last %v after the one before\n", n, pause)
}

func (s *script) configure(words []string) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "size":
			s.cfg.Size = s.number(value)
		case "ttl":
			s.cfg.TTL = scenario.Duration(s.T, value)
		case "room":
			s.cfg.Room = int(s.number(value))
		case "address":
			s.cfg.Address = value
		case "existing":
			s.cfg.Existing = true
		default:
			s.Fatalf("config %q", word)
		}
	}
}

func (s *script) event(name string, args []string) protocol.Event {
	switch name {
	case "join": // CALLER under SESSION [weight N] [as HOLDER] [try]
		e := queue.Join{Caller: queue.Caller(s.number(args[0])), Weight: 1, Holder: "h", Wait: !slices.Contains(args, "try")}
		for i := 1; i+1 < len(args); i += 2 {
			switch args[i] {
			case "under":
				e.Session = args[i+1]
			case "weight":
				e.Weight = s.number(args[i+1])
			case "as":
				e.Holder = args[i+1]
			default:
				s.Fatalf("join %q", args[i])
			}
		}
		return e
	case "leave": // CALLER [REASON…]
		return queue.Leave{Caller: queue.Caller(s.number(args[0])), Err: reason(args[1:])}
	case "found": // VERSION #NUMBER | VERSION TABLE
		return queue.ReadDone{Shown: protocol.Found, Version: protocol.Version(args[0]), Table: s.read(args)}
	case "same":
		return queue.ReadDone{Shown: protocol.Same}
	case "absent": // [the store's time]
		e := queue.ReadDone{Shown: protocol.Absent}
		if len(args) > 0 {
			e.Date = time.UnixMilli(s.number(args[0]))
		}
		return e
	case "foreign":
		return queue.ReadDone{Shown: protocol.Foreign, Err: fmt.Errorf("%w: garbage", record.ErrForeign)}
	case "unread": // REASON… [fatal]
		err, fatal := scenario.Failure(args)
		return queue.ReadDone{Err: err, Fatal: fatal}
	case "written": // VERSION
		return queue.WriteDone{Version: protocol.Version(args[0])}
	case "unwritten": // REASON… [fatal]
		err, fatal := scenario.Failure(args)
		return queue.WriteDone{Err: err, Fatal: fatal}
	case "overtaken":
		return queue.WriteDone{Err: errors.New("412"), Refused: true}
	case "session-over": // SESSION REASON…
		return protocol.SessionOver{Session: args[0], Err: reason(args[1:])}
	case "session-expired":
		return protocol.SessionExpired{Session: args[0]}
	case "beat": // SESSION TTL
		return protocol.SessionBeat{Session: args[0], TTL: scenario.Duration(s.T, args[1])}
	case "session-troubled": // REASON…
		return protocol.SessionTroubled{Err: reason(args)}
	case "closing": // UNTIL
		return queue.Closing{Until: scenario.Duration(s.T, args[0])}
	case "told": // VERSION
		return queue.Told{Version: protocol.Version(args[0])}
	case "sighted": // TOKEN
		return queue.TokenSighted{Token: s.number(args[0])}
	case "recheck":
		return protocol.Recheck{}
	case "cancel": // REASON…
		return protocol.Cancel{Err: reason(args)}
	case "tick", "shown":
		return protocol.Tick{}
	}
	s.Fatalf("no event %q", name)
	return nil
}

func reason(words []string) error {
	if len(words) == 0 {
		return nil
	}
	return errors.New(strings.Join(words, " "))
}

var entryText = regexp.MustCompile(`^(\w+)(\.\w+)?(?:=(\d+))?(?:\*(\d+))?(?:@(\w+))?(?:~([-\w.]+))?(?:/(\w*))?(?:\^(\w+))?(?:\+(\w+))?$`)

func (s *script) read(args []string) (t record.Table) {
	if number, ours := strings.CutPrefix(args[1], "#"); ours {
		return s.wrote[s.number(number)-1]
	}
	t = record.Table{Size: s.number(args[2]), Token: s.number(args[4]), WriteID: "other." + args[0]}
	args = args[5:]
	if len(args) > 0 && args[0] == "turn" {
		t.Turn, args = scenario.Duration(s.T, args[1]), args[2:]
	}
	for _, word := range args {
		if name, unknown := strings.CutPrefix(word, "+"); unknown {
			t.Unknown = map[string]json.RawMessage{name: json.RawMessage("1")}
			continue
		}
		m := entryText.FindStringSubmatch(word)
		if m == nil {
			s.Fatalf("entry %q", word)
		}
		entry := record.Entry{ID: m[1] + m[2], Session: m[1], Weight: 1, Holder: "h"}
		if m[4] != "" {
			entry.Weight = s.number(m[4])
		}
		if m[5] != "" {
			entry.Session = m[5]
		}
		if m[6] != "" {
			entry.Since = scenario.Wall.Add(scenario.Duration(s.T, m[6]))
		}
		if m[7] != "" {
			entry.Holder = m[7]
		}
		entry.Address = m[8]
		if m[9] != "" {
			entry.Unknown = map[string]json.RawMessage{m[9]: json.RawMessage("1")}
		}
		if m[3] == "" {
			t.Waiters = append(t.Waiters, entry)
			continue
		}
		entry.Token = s.number(m[3])
		t.Holders = append(t.Holders, entry)
	}
	return t
}

func tableText(t record.Table) string {
	text := fmt.Sprintf("size %d token %d", t.Size, t.Token)
	if t.Turn != 0 {
		text += fmt.Sprintf(" turn %v", t.Turn)
	}
	for _, entry := range t.Entries() {
		mark, _, _ := strings.Cut(entry.ID, ".")
		text += " " + entry.ID
		if entry.Token != 0 {
			text += fmt.Sprintf("=%d", entry.Token)
		}
		if entry.Weight != 1 {
			text += fmt.Sprintf("*%d", entry.Weight)
		}
		if entry.Session != mark {
			text += "@" + entry.Session
		}
		if !entry.Since.IsZero() {
			text += fmt.Sprintf("~%v", entry.Since.Sub(scenario.Wall))
		}
		if entry.Holder != "h" {
			text += "/" + entry.Holder
		}
		if entry.Address != "" {
			text += "^" + entry.Address
		}
		for name := range entry.Unknown {
			text += "+" + name
		}
	}
	for name := range t.Unknown {
		text += " +" + name
	}
	return text
}

func (s *script) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *script) show(action protocol.Action) string {
	switch a := action.(type) {
	case queue.Read:
		return fmt.Sprintf("read unless %q, for %v at most", a.Unless, a.Timeout)
	case queue.Write:
		s.wrote = append(s.wrote, a.Table)
		condition := "if absent"
		if a.Expect != "" {
			condition = "over " + string(a.Expect)
		}
		return fmt.Sprintf("write #%d %s: %s, id %s, for %v at most", len(s.wrote), condition, tableText(a.Table), a.Table.WriteID, a.Timeout)
	case queue.Granted:
		return fmt.Sprintf("granted: %d, token %d", a.Caller, a.Token)
	case queue.Full:
		return fmt.Sprintf("full: %d, %s", a.Caller, tableText(a.Table))
	case queue.Queued:
		return fmt.Sprintf("queued: %d, %d ahead, %s", a.Caller, a.Ahead, tableText(a.Table))
	case queue.Refused:
		return fmt.Sprintf("refused: %d, %v", a.Caller, a.Err)
	case queue.Lost:
		return fmt.Sprintf("lost: %d, %v", a.Caller, a.Err)
	case queue.Vacated:
		return fmt.Sprintf("vacated: %d", a.Caller) + map[bool]string{true: fmt.Sprintf(", %v", a.Err)}[a.Err != nil]
	case queue.Tell:
		return fmt.Sprintf("tell: %s, of %s", a.Address, a.Version)
	case queue.Vanished:
		return "vanished: " + tableText(a.Table)
	case protocol.Troubled:
		return "troubled: " + a.Err.Error()
	case protocol.Seen:
		return "seen"
	case protocol.Left:
		return "left: " + a.Session
	case protocol.SessionOrphan:
		return "session orphan: " + a.Session + map[bool]string{true: ", closing"}[a.Closing]
	}
	return fmt.Sprintf("%T", action)
}
