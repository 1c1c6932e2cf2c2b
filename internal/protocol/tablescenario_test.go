package protocol_test

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
	"github.com/leasehold/leasehold/internal/record"
)

// TestTableScenarios plays the files of testdata/table, with a Table.
//
// A table is written as "size 3 token 5 a.1=5 b.1*2": a.1 holds a seat with the token 5, and b.1
// waits for two. The session of a.1 is a unless @NAME says so, it began when the clock read ~READING,
// its holder is h unless /NAME says so, and it hears at no address but ^NAME; +NAME is a field that nobody knows. How long seats are held
// follows the token, if it is known, as in "turn 5s".
func TestTableScenarios(t *testing.T) {
	scenarios(t, "testdata/table", func(t *testing.T, text string) string {
		s := &tableScript{T: t, cfg: protocol.TableConfig{Incarnation: "me", Size: 1, TTL: 15 * time.Second}}
		return replay(text, s.line)
	})
}

// A tableScript plays one scenario.
type tableScript struct {
	*testing.T
	table *protocol.Table
	cfg   protocol.TableConfig
	wrote []record.Table // by number, from 1
}

func (s *tableScript) line(line string, out *strings.Builder) {
	words := strings.Fields(line)
	if words[0] == "config" {
		s.configure(words[1:])
		return
	}
	if s.table == nil {
		s.table = protocol.NewTable(s.cfg)
	}
	defer func() {
		if r := recover(); r != nil {
			s.Fatalf("%q: %v, after\n%s", line, r, out)
		}
	}()
	at := s.duration(words[0])
	if words[1] == "looks" { // until when: nothing has changed
		s.looks(at, out)
		return
	}
	for _, action := range s.table.Step(s.event(words[1], words[2:]), protocol.Now{Clock: at, Wall: wall.Add(at)}) {
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
func (s *tableScript) looks(until time.Duration, out *strings.Builder) {
	n, last, pause := 0, time.Duration(0), time.Duration(0)
	for {
		at, ok := s.table.Wake()
		if !ok || at > until {
			break
		}
		for _, a := range s.table.Step(protocol.Tick{}, protocol.Now{Clock: at, Wall: wall.Add(at)}) {
			if _, is := a.(protocol.ReadTable); !is {
				s.Fatalf("%v: %s", at, s.show(a))
			}
			n, last, pause = n+1, at, at-last
			if n <= 12 {
				fmt.Fprintf(out, "  look at %v\n", at)
			}
			s.table.Step(protocol.TableRead{Shown: protocol.Same}, protocol.Now{Clock: at, Wall: wall.Add(at)})
		}
	}
	fmt.Fprintf(out, "  %d looks, the last %v after the one before\n", n, pause)
}

func (s *tableScript) configure(words []string) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "size":
			s.cfg.Size = s.number(value)
		case "ttl":
			s.cfg.TTL = s.duration(value)
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

func (s *tableScript) event(name string, args []string) protocol.Event {
	switch name {
	case "join": // CALLER under SESSION [weight N] [as HOLDER] [try]
		e := protocol.Join{Caller: protocol.Caller(s.number(args[0])), Weight: 1, Holder: "h", Wait: !slices.Contains(args, "try")}
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
		return protocol.Leave{Caller: protocol.Caller(s.number(args[0])), Err: reason(args[1:])}
	case "found": // VERSION #NUMBER | VERSION TABLE
		return protocol.TableRead{Shown: protocol.Found, Version: protocol.Version(args[0]), Table: s.read(args)}
	case "same":
		return protocol.TableRead{Shown: protocol.Same}
	case "absent": // [the store's time]
		e := protocol.TableRead{Shown: protocol.Absent}
		if len(args) > 0 {
			e.Date = time.UnixMilli(s.number(args[0]))
		}
		return e
	case "foreign":
		return protocol.TableRead{Shown: protocol.Foreign, Err: fmt.Errorf("%w: garbage", record.ErrForeign)}
	case "unread": // REASON… [fatal]
		err, fatal := failure(args)
		return protocol.TableRead{Err: err, Fatal: fatal}
	case "written": // VERSION
		return protocol.TableWritten{Version: protocol.Version(args[0])}
	case "unwritten": // REASON… [fatal]
		err, fatal := failure(args)
		return protocol.TableWritten{Err: err, Fatal: fatal}
	case "overtaken":
		return protocol.TableWritten{Err: errors.New("412"), Refused: true}
	case "session-over": // SESSION REASON…
		return protocol.SessionOver{Session: args[0], Err: reason(args[1:])}
	case "session-expired":
		return protocol.SessionExpired{Session: args[0]}
	case "beat": // SESSION TTL
		return protocol.SessionBeat{Session: args[0], TTL: s.duration(args[1])}
	case "session-troubled": // REASON…
		return protocol.SessionTroubled{Err: reason(args)}
	case "closing": // UNTIL
		return protocol.Closing{Until: s.duration(args[0])}
	case "told": // VERSION
		return protocol.Told{Version: protocol.Version(args[0])}
	case "sighted": // TOKEN
		return protocol.TokenSighted{Token: s.number(args[0])}
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

var entry = regexp.MustCompile(`^(\w+)(\.\w+)?(?:=(\d+))?(?:\*(\d+))?(?:@(\w+))?(?:~([-\w.]+))?(?:/(\w*))?(?:\^(\w+))?(?:\+(\w+))?$`)

func (s *tableScript) read(args []string) (t record.Table) {
	if number, ours := strings.CutPrefix(args[1], "#"); ours {
		return s.wrote[s.number(number)-1]
	}
	t = record.Table{Size: s.number(args[2]), Token: s.number(args[4]), WriteID: "other." + args[0]}
	args = args[5:]
	if len(args) > 0 && args[0] == "turn" {
		t.Turn, args = s.duration(args[1]), args[2:]
	}
	for _, word := range args {
		if name, unknown := strings.CutPrefix(word, "+"); unknown {
			t.Unknown = map[string]json.RawMessage{name: json.RawMessage("1")}
			continue
		}
		m := entry.FindStringSubmatch(word)
		if m == nil {
			s.Fatalf("entry %q", word)
		}
		seat := record.Seat{ID: m[1] + m[2], Session: m[1], Weight: 1, Holder: "h"}
		if m[4] != "" {
			seat.Weight = s.number(m[4])
		}
		if m[5] != "" {
			seat.Session = m[5]
		}
		if m[6] != "" {
			seat.Since = wall.Add(s.duration(m[6]))
		}
		if m[7] != "" {
			seat.Holder = m[7]
		}
		seat.Address = m[8]
		if m[9] != "" {
			seat.Unknown = map[string]json.RawMessage{m[9]: json.RawMessage("1")}
		}
		if m[3] == "" {
			t.Waiters = append(t.Waiters, seat)
			continue
		}
		seat.Token = s.number(m[3])
		t.Holders = append(t.Holders, seat)
	}
	return t
}

func tableText(t record.Table) string {
	text := fmt.Sprintf("size %d token %d", t.Size, t.Token)
	if t.Turn != 0 {
		text += fmt.Sprintf(" turn %v", t.Turn)
	}
	for _, seat := range t.Seats() {
		mark, _, _ := strings.Cut(seat.ID, ".")
		text += " " + seat.ID
		if seat.Token != 0 {
			text += fmt.Sprintf("=%d", seat.Token)
		}
		if seat.Weight != 1 {
			text += fmt.Sprintf("*%d", seat.Weight)
		}
		if seat.Session != mark {
			text += "@" + seat.Session
		}
		if !seat.Since.IsZero() {
			text += fmt.Sprintf("~%v", seat.Since.Sub(wall))
		}
		if seat.Holder != "h" {
			text += "/" + seat.Holder
		}
		if seat.Address != "" {
			text += "^" + seat.Address
		}
		for name := range seat.Unknown {
			text += "+" + name
		}
	}
	for name := range t.Unknown {
		text += " +" + name
	}
	return text
}

func (s *tableScript) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *tableScript) duration(text string) time.Duration { return (&script{T: s.T}).duration(text) }

func (s *tableScript) show(action protocol.Action) string {
	switch a := action.(type) {
	case protocol.ReadTable:
		return fmt.Sprintf("read unless %q, for %v at most", a.Unless, a.Timeout)
	case protocol.WriteTable:
		s.wrote = append(s.wrote, a.Table)
		condition := "if absent"
		if a.Expect != "" {
			condition = "over " + string(a.Expect)
		}
		return fmt.Sprintf("write #%d %s: %s, id %s, for %v at most", len(s.wrote), condition, tableText(a.Table), a.Table.WriteID, a.Timeout)
	case protocol.Seated:
		return fmt.Sprintf("seated: %d, token %d", a.Caller, a.Token)
	case protocol.Full:
		return fmt.Sprintf("full: %d, %s", a.Caller, tableText(a.Table))
	case protocol.InLine:
		return fmt.Sprintf("in line: %d, %d ahead, %s", a.Caller, a.Ahead, tableText(a.Table))
	case protocol.Unseated:
		return fmt.Sprintf("%s: %d, %v", map[bool]string{true: "lost", false: "refused"}[a.Held], a.Caller, a.Err)
	case protocol.Vacated:
		return fmt.Sprintf("vacated: %d", a.Caller) + map[bool]string{true: fmt.Sprintf(", %v", a.Err)}[a.Err != nil]
	case protocol.Tell:
		return fmt.Sprintf("tell: %s, of %s", a.Address, a.Version)
	case protocol.TableVanished:
		return "vanished: " + tableText(a.Table)
	}
	return (&script{}).show(action)
}
