package candidate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/scenario"
	"github.com/leasehold/leasehold/internal/record"
)

// TestScenarios plays the files of testdata, with a candidate. The last of the indented lines under an
// event is what the candidate must then be.
func TestScenarios(t *testing.T) {
	scenario.Play(t, func(t *testing.T, text string) string {
		got := play(t, text, false)
		if resting := play(t, text, true); got == text && resting != got {
			t.Errorf("a candidate that rests when it can did otherwise:\n%s", resting)
		}
		return got
	})
}

// TestEveryRuleHasAScenario: a rule without one could be removed unnoticed. A11 is the resource's to keep.
func TestEveryRuleHasAScenario(t *testing.T) {
	scenario.Claims(t, "A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A10", "A12")
}

// A script plays one scenario.
type script struct {
	*testing.T
	c     *candidate.Machine
	cfg   candidate.Config
	wrote []record.Record // by number, from 1
	age   time.Duration
	asked int  // the number of the last question
	metas int  // the number of the last change of the meta data
	rests bool // whenever it can
	tells bool // what is written of the leases before
}

func play(t *testing.T, text string, rests bool) string {
	t.Helper()
	s := &script{T: t, rests: rests, cfg: candidate.Config{Incarnation: "me", TTL: 15 * time.Second, Holder: "web-1"}}
	return scenario.Replay(text, s.line)
}

func (s *script) line(line string, out *strings.Builder) {
	words := strings.Fields(line)
	if words[0] == "config" {
		s.configure(words[1:])
		return
	}
	if s.c == nil {
		s.c = candidate.New(s.cfg)
	}
	defer func() {
		if r := recover(); r != nil {
			s.Fatalf("%q: %v, after\n%s", line, r, out)
		}
	}()
	at, err := time.ParseDuration(words[0])
	if err != nil {
		s.Fatalf("%q: %v", line, err)
	}
	now := protocol.Now{Clock: at, Wall: scenario.Wall.Add(at)}
	for _, action := range s.c.Step(s.event(words[1], words[2:]), now) {
		fmt.Fprintf(out, "  %s\n", s.show(action))
	}
	if words[1] == "says" {
		limit := time.Duration(0)
		if len(words) > 2 {
			limit = scenario.Duration(s.T, words[3])
		}
		w := s.c.PeerStatus(at, limit)
		record, version := s.c.Freed()
		fmt.Fprintf(out, "  says: %s %s, leading %t for %v, free %t as %q of token %d, successor %q, version %q\n",
			w.Holder, w.Incarnation, w.Leading, w.Valid, w.Free, version, record.Token, w.Successor, w.Version)
	}
	if rest, can := s.c.Save(); can && s.rests {
		s.c = candidate.Restore(s.cfg, rest)
	}
	state := "nothing held"
	if s.c.Valid(at) {
		state = fmt.Sprintf("valid until %v, token %d", s.c.Deadline(), s.c.Lease().Token)
	}
	if session := s.c.Awaits(); session != "" {
		state += "; awaits " + session
	}
	if s.c.Idle() {
		state += "; idle"
	}
	if wake, ok := s.c.Wake(); ok {
		state += fmt.Sprintf("; wake at %v", wake)
	}
	fmt.Fprintf(out, "  => %s\n", state)
}

func (s *script) configure(words []string) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ttl":
			s.cfg.TTL = scenario.Duration(s.T, value)
		case "existing":
			s.cfg.Role = candidate.Waiter{Taking: candidate.Taking{Existing: true}}
		case "fast-start":
			s.cfg.Role = candidate.Waiter{Taking: candidate.Taking{FastStart: true}}
		case "follow":
			s.cfg.Role = candidate.Follower{}
		case "peers":
			s.cfg.Role = candidate.Follower{Peers: true}
		case "numbered":
			s.cfg.Numbered = true
		case "tokenless":
			s.cfg.Tokenless = true
		case "write-once":
			s.cfg.WriteOnce = true
		case "sweep":
			s.cfg.Sweep = true
		case "fresh":
			s.cfg.Role = candidate.Heartbeat{}
		case "reaper":
			s.cfg.Role = candidate.Reaper{}
		case "retries":
			for pause := range strings.SplitSeq(value, ",") {
				s.cfg.Retries = append(s.cfg.Retries, scenario.Duration(s.T, pause))
			}
		case "history":
			s.tells = true
		case "layout":
			s.cfg.Layout.Name = value
		case "address":
			s.cfg.Address = value
		case "poll-interval":
			s.cfg.Role = candidate.Waiter{PollInterval: scenario.Duration(s.T, value)}
		case "infrequent":
			follower, _ := s.cfg.Role.(candidate.Follower)
			follower.Infrequent = scenario.Duration(s.T, value)
			s.cfg.Role = follower
		case "restart": // a new candidate of the same name
			s.cfg.Incarnation += "'"
			s.c = candidate.New(s.cfg)
		default:
			s.Fatalf("config %q", word)
		}
	}
}

func (s *script) event(name string, args []string) protocol.Event {
	switch name {
	case "acquire":
		e := candidate.Acquire{Wait: slices.Contains(args, "wait")}
		if i := slices.Index(args, "under"); i >= 0 {
			e.Session = args[i+1]
		}
		e.Terms = s.terms(args)
		return e
	case "session-over": // SESSION REASON…
		return protocol.SessionOver{Session: args[0], Err: errors.New(strings.Join(args[1:], " "))}
	case "session-expired":
		return protocol.SessionExpired{Session: args[0], Look: slices.Contains(args, "look")}
	case "checked": // SESSION held|abandoned|over|unknown REASON…
		e := candidate.Checked{Session: args[0], Held: args[1] == "held" || args[1] == "abandoned", Abandoned: args[1] == "abandoned"}
		if args[1] == "unknown" {
			e.Err = errors.New(strings.Join(args[2:], " "))
		}
		return e
	case "session-troubled": // REASON…
		return protocol.SessionTroubled{Err: errors.New(strings.Join(args, " "))}
	case "recheck":
		return protocol.Recheck{}
	case "set-meta": // NAME… , or none
		s.metas++
		e := candidate.SetMeta{Number: s.metas, Meta: map[string]string{}}
		for _, name := range args {
			e.Meta[name] = "1"
		}
		return e
	case "renew-soon":
		return candidate.RenewSoon{}
	case "cancel": // [REASON…]
		if len(args) > 0 {
			return protocol.Cancel{Err: errors.New(strings.Join(args, " "))}
		}
		return protocol.Cancel{}
	case "release":
		e := candidate.Release{}
		for _, arg := range args {
			if e.Pass = arg == "pass"; !e.Pass {
				e.Successor = arg
			}
		}
		return e
	case "name": // SUCCESSOR, or none
		return candidate.NameSuccessor{Successor: strings.Join(args, "")}
	case "detach":
		return candidate.Detach{}
	case "attach": // hold|renew|release token N id WRITE-ID [mark INCARNATION]… expires READING
		return s.attach(args)
	case "drop":
		return candidate.Drop{}
	case "watch":
		return candidate.Watch{On: args[0] == "on"}
	case "give-up": // [REASON…]
		if len(args) > 0 {
			return candidate.GiveUp{Err: errors.New(strings.Join(args, " "))}
		}
		return candidate.GiveUp{}
	case "tick":
		return protocol.Tick{}
	case "retune":
		return candidate.Retune{TTL: scenario.Duration(s.T, args[0])}
	case "no-answer": // REASON…
		err, _ := scenario.Failure(args)
		return candidate.PeerAnswer{Number: s.asked, Err: err}
	case "says": // [limit READING] what a follower would be told now
		return protocol.Tick{}
	case "leads", "late", "freed", "stranger": // FIELD VALUE …
		return s.heard(name, args)
	case "written": // VERSION [epoch N]
		return candidate.WriteDone{Version: protocol.Version(args[0]), Epoch: s.epoch(args)}
	case "deleted":
		return candidate.WriteDone{}
	case "gone": // where a lock that is free is no object
		return candidate.ReadDone{Shown: protocol.Found, Record: record.Record{TTL: s.cfg.TTL}}
	case "unwritten": // REASON… [fatal]
		err, fatal := scenario.Failure(args)
		return candidate.WriteDone{Err: err, Fatal: fatal}
	case "overtaken":
		return candidate.WriteDone{Err: errors.New("412"), Refused: true}
	case "void": // REASON…
		return candidate.WriteDone{Err: errors.New(strings.Join(args, " ")), Void: true}
	case "unread":
		err, fatal := scenario.Failure(args)
		return candidate.ReadDone{Err: err, Fatal: fatal}
	case "same":
		return candidate.ReadDone{Shown: protocol.Same}
	case "absent": // [the store's time]
		e := candidate.ReadDone{Shown: protocol.Absent}
		if len(args) > 0 {
			e.Date = scenario.Wall.Add(scenario.Duration(s.T, args[0]))
		}
		return e
	case "foreign":
		return candidate.ReadDone{Shown: protocol.Foreign, Err: fmt.Errorf("%w: garbage", record.ErrForeign)}
	case "found": // VERSION #NUMBER | VERSION held|free by NAME token N ttl D
		return candidate.ReadDone{Shown: protocol.Found, Version: protocol.Version(args[0]), Record: s.record(args), Age: s.age, Aged: s.age > 0}
	case "sighted": // as found, and when it was sent
		i := slices.Index(args, "sent")
		seen := candidate.ReadDone{Shown: protocol.Found, Version: protocol.Version(args[0]), Record: s.record(args[:i])}
		return candidate.Sighted{Answer: seen, Sent: scenario.Duration(s.T, args[i+1])}
	case "age": // of the records found from now on, by the store's clock
		s.age = scenario.Duration(s.T, args[0])
		return protocol.Tick{}
	}
	s.Fatalf("no event %q", name)
	return nil
}

func (s *script) attach(args []string) protocol.Event {
	use := map[string]candidate.Use{"hold": candidate.ToHold, "renew": candidate.ToRenew, "release": candidate.ToRelease}
	e := candidate.Attach{Use: use[args[0]], Proof: candidate.Proof{Expires: scenario.Wall.Add(time.Hour)}}
	for i := 1; i+1 < len(args); i += 2 {
		switch args[i] {
		case "token":
			e.Proof.Token, _ = strconv.ParseInt(args[i+1], 10, 64)
		case "id":
			e.Proof.WriteID = args[i+1]
		case "mark":
			e.Proof.Marks = append(e.Proof.Marks, args[i+1])
		case "expires":
			e.Proof.Expires = scenario.Wall.Add(scenario.Duration(s.T, args[i+1]))
		default:
			s.Fatalf("attach %q", args[i])
		}
	}
	return e
}

func (s *script) record(args []string) record.Record {
	if number, ours := strings.CutPrefix(args[1], "#"); ours {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > len(s.wrote) {
			s.Fatalf("no write %s", args[1])
		}
		return s.wrote[n-1]
	}
	r := record.Record{Held: args[1] == "held", TTL: 15 * time.Second, WriteID: "other." + args[0]}
	for i := 2; i+1 < len(args); i += 2 {
		switch args[i] {
		case "by":
			r.Holder = args[i+1]
		case "token":
			r.Token, _ = strconv.ParseInt(args[i+1], 10, 64)
		case "ttl":
			r.TTL = scenario.Duration(s.T, args[i+1])
		case "under":
			r.Session = args[i+1]
		case "successor":
			r.Successor = args[i+1]
		case "ended":
			r.Ended = strings.ReplaceAll(args[i+1], "-", " ")
		case "at":
			r.Address = args[i+1]
		case "write_id":
			r.WriteID = args[i+1]
		case "epoch":
			r.Epoch = s.epoch(args)
		case "rest":
			of, mark, foreign := strings.Cut(args[i+1], "/")
			if r.Rest = (&record.Rest{Milliseconds: scenario.Duration(s.T, of).Milliseconds(), WriteID: r.WriteID}); foreign {
				r.Rest.WriteID = mark
			}
		case "opaque":
			r.Opaque = true
		case "acquired":
			r.AcquiredAt = scenario.Wall.Add(scenario.Duration(s.T, args[i+1]))
		case "renewed":
			r.RenewedAt = scenario.Wall.Add(scenario.Duration(s.T, args[i+1]))
		case "expires":
			r.ExpiresAt = scenario.Wall.Add(scenario.Duration(s.T, args[i+1]))
		case "term": // N@TOKEN
			n, token, _ := strings.Cut(args[i+1], "@")
			r.Term, _ = strconv.ParseInt(n, 10, 64)
			r.TermToken, _ = strconv.ParseInt(token, 10, 64)
		case "history": // with ~ for a space
			r.History = json.RawMessage(strings.ReplaceAll(args[i+1], "~", " "))
		case "unknown":
			r.Unknown = map[string]json.RawMessage{args[i+1]: json.RawMessage("true")}
		default:
			s.Fatalf("record field %q", args[i])
		}
	}
	return r
}

// terms are those of an acquisition: as NAME, meta NAME, ttl D, no-renewal, max-hold D, hold-at-least D.
func (s *script) terms(args []string) (t candidate.Terms) {
	after := func(word string) string {
		if i := slices.Index(args, word); i >= 0 {
			return args[i+1]
		}
		return ""
	}
	t.Holder, t.NoRenewal = after("as"), slices.Contains(args, "no-renewal")
	if name := after("meta"); name != "" {
		t.Meta = map[string]string{name: "1"}
	}
	for word, d := range map[string]*time.Duration{"ttl": &t.TTL, "max-hold": &t.MaxHold, "hold-at-least": &t.HoldAtLeast} {
		if text := after(word); text != "" {
			*d = scenario.Duration(s.T, text)
		}
	}
	return t
}

// epoch is the number that follows the word.
func (s *script) epoch(args []string) (n int64) {
	if i := slices.Index(args, "epoch"); i >= 0 {
		n, _ = strconv.ParseInt(args[i+1], 10, 64)
	}
	return n
}

// heard makes the word of the leader whose records "found" makes: its incarnation
// is "other".
func (s *script) heard(name string, args []string) protocol.Event {
	w := candidate.PeerStatus{
		Leading: name == "leads" || name == "stranger", Free: name == "freed",
		Incarnation: "other", Holder: "db-1", Token: 41, Version: name,
	}
	if name == "stranger" {
		w.Incarnation = "stranger"
	}
	var proof *candidate.ReadDone
	if i := slices.Index(args, "proof"); i >= 0 {
		proof = &candidate.ReadDone{Shown: protocol.Found, Version: protocol.Version(args[i+1]), Record: s.record(args[i+1:])}
		args = args[:i]
	}
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "valid":
			w.Valid = scenario.Duration(s.T, args[i+1])
		case "successor":
			w.Successor = args[i+1]
		case "token":
			w.Token, _ = strconv.ParseInt(args[i+1], 10, 64)
		case "version":
			w.Version = args[i+1]
		default:
			s.Fatalf("word field %q", args[i])
		}
	}
	return candidate.PeerAnswer{Number: s.asked, Status: w, Proof: proof}
}

// history is what a record tells of the leases before.
func (s *script) history(r record.Record) string {
	if !s.tells {
		return ""
	}
	text := fmt.Sprintf(", term %d", r.CountedTerm())
	for _, p := range r.Past() {
		text += fmt.Sprintf("\n    before: %d", p.Token)
		if p.Leases > 1 {
			text += fmt.Sprintf(" and others from %d, %d leases", p.First, p.Leases)
		}
		text += fmt.Sprintf(", term %d, by %s, from %v to %v, %s", p.Term, p.Holder, p.From.Sub(scenario.Wall), p.To.Sub(scenario.Wall), p.How)
	}
	return text
}

func (s *script) show(action protocol.Action) string {
	switch a := action.(type) {
	case candidate.Read:
		return fmt.Sprintf("read unless %q, for %v at most", a.Unless, a.Timeout)
	case candidate.Check:
		return fmt.Sprintf("check the session %s, for %v at most", a.Session, a.Timeout)
	case candidate.Write:
		s.wrote = append(s.wrote, a.Record)
		condition := "if absent"
		if a.Expect != "" {
			condition = "over " + string(a.Expect)
		}
		text := fmt.Sprintf("write #%d %v %s: token %d, ttl %v, id %s, for %v at most",
			len(s.wrote), a.Op, condition, a.Record.Token, a.Record.TTL, a.Record.WriteID, a.Timeout)
		if a.Record.Previous > 0 {
			text += fmt.Sprintf(", previous %d", a.Record.Previous)
		}
		if a.Record.Session != "" {
			text += ", under " + a.Record.Session
		}
		if a.Op != candidate.Free && a.Record.Holder != s.cfg.Holder {
			text += ", by " + a.Record.Holder
		}
		for _, name := range slices.Sorted(maps.Keys(a.Record.Meta)) {
			text += ", meta " + name
		}
		if a.Record.Successor != "" {
			text += ", next " + a.Record.Successor
		}
		if r := a.Record.Rest; r != nil {
			text += fmt.Sprintf(", rest %v of %s", time.Duration(r.Milliseconds)*time.Millisecond, r.WriteID)
		}
		for _, name := range slices.Sorted(maps.Keys(a.Record.Unknown)) {
			text += ", " + name
		}
		return text + s.history(a.Record)
	case candidate.PollPeer:
		s.asked = a.Number
		who := "who only watches"
		if a.Waiting {
			who = "who waits"
		}
		return fmt.Sprintf("ask %s for other than %q within %v, as one %s", a.Address, a.Known, a.Wait, who)
	case candidate.CancelPoll:
		return "cancel the question"
	case candidate.Granted:
		return "granted"
	case candidate.Renewed:
		return "renewed"
	case candidate.MetaSet:
		return fmt.Sprintf("meta set, up to the change %d", a.Number)
	case candidate.NoticeGiven:
		return fmt.Sprintf("notice given, known at %v", a.Known)
	case protocol.Troubled:
		return "troubled: " + a.Err.Error()
	case candidate.Refused:
		text := fmt.Sprintf("refused: held by %s, token %d", a.Record.Holder, a.Record.Token) + map[bool]string{true: ", abandoned"}[a.Abandoned]
		if a.Rest > 0 {
			text += fmt.Sprintf(", rests for %v", a.Rest)
		}
		return text
	case candidate.Waiting:
		text := fmt.Sprintf("waiting for %s, token %d", a.Record.Holder, a.Record.Token)
		if a.Record.Resting() > 0 {
			text += ", at rest"
		}
		return text
	case candidate.Vanished:
		return fmt.Sprintf("vanished: was token %d", a.Record.Token)
	case protocol.Seen:
		return "seen"
	case candidate.Expired:
		return fmt.Sprintf("expired: %s, token %d", a.Record.Holder, a.Record.Token)
	case candidate.Unreadable:
		return "unreadable: " + a.Err.Error()
	case candidate.Failed:
		return "failed: " + a.Err.Error() + map[bool]string{true: ", open " + a.Open}[a.Open != ""]
	case candidate.Detached:
		if a.Err != nil {
			return "not detached: " + a.Err.Error()
		}
		return fmt.Sprintf("detached: %s, token %d, id %s, by %s", map[bool]string{true: "held", false: "free"}[a.Record.Held], a.Record.Token, a.Record.WriteID, a.Record.Holder)
	case candidate.Reaped:
		return fmt.Sprintf("reaped: token %d, ended %q", a.Record.Token, a.Record.Ended)
	case protocol.Unnamed:
		return "unnamed: " + a.Session
	case protocol.Left:
		return "left: " + a.Session
	case protocol.SessionOrphan:
		return "session orphan: " + a.Session + map[bool]string{true: ", closing"}[a.Closing]
	case candidate.Lost:
		return "lost: " + a.Err.Error()
	case candidate.Released:
		if a.Err != nil {
			return "released: " + a.Err.Error()
		}
		return "released"
	}
	return fmt.Sprintf("%T", action)
}
