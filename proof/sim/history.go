package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// An Arm is a class of histories with its own promises.
type Arm string

// The arms.
const (
	Bound   Arm = "bound"   // clocks stay within the bound: every promise holds
	Far     Arm = "far"     // clocks exceed the bound: P1 and the fence hold
	Deleted Arm = "deleted" // objects are deleted: see claimed and unseen
	Lasting Arm = "lasting" // one kind of failure lasts
)

// Config restricts what a seed may choose.
type Config struct {
	Arm      Arm    // empty: the seed chooses
	Layout   string // empty: the seed chooses
	Unfenced bool   // the resource accepts every write
	Quorum   bool   // the store has several members
	Brief    bool   // no failure lasts more than a few minutes
	Without  string // unchecked promises, separated by commas
}

// A way is a layout, with If-Match or without, and its part of the protocol's configuration. The server sweeps markers
// itself, because the layout's sweep reads the real clock.
type way struct {
	name string
	cfg  candidate.Register
	lay  func(st store.Store, key string, ttl time.Duration) layout.Layout
}

var ways = []way{
	{"object", candidate.Register{}, func(st store.Store, key string, _ time.Duration) layout.Layout {
		return layout.Object{Store: st, Key: key}
	}},
	{"epochs without If-Match", candidate.Register{Numbered: true, Layout: layout.Epochs{}.Layout()}, func(st store.Store, key string, _ time.Duration) layout.Layout {
		return layout.Epochs{Store: st, Key: key}
	}},
	{"epochs", candidate.Register{Numbered: true, Layout: layout.Epochs{IfMatch: true}.Layout()}, func(st store.Store, key string, _ time.Duration) layout.Layout {
		return layout.Epochs{Store: st, Key: key, IfMatch: true}
	}},
	{"marker without If-Match", candidate.Register{Tokenless: true, WriteOnce: true, Layout: record.Layout{Name: record.LayoutMarker}}, func(st store.Store, key string, ttl time.Duration) layout.Layout {
		return layout.Marker{Store: st, Key: key, TTL: ttl}
	}},
	{"marker", candidate.Register{Tokenless: true, Layout: record.Layout{Name: record.LayoutMarker}}, func(st store.Store, key string, ttl time.Duration) layout.Layout {
		return layout.Marker{Store: st, Key: key, TTL: ttl, IfMatch: true}
	}},
}

// Layouts returns the names of the layouts.
func Layouts() (names []string) {
	for _, w := range ways {
		names = append(names, w.name)
	}
	return names
}

// ttls are far apart: counting by the wrong one has a large effect.
var ttls = [...]time.Duration{3 * time.Second, 9 * time.Second, 30 * time.Second}

// infrequent is the interval of some followers and waiters. No waiter's interval gets longer.
const infrequent = 10 * time.Second

// epoch is the start of the world, by its own clock and by the store's.
var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A history is shared by all parts of a world: its draws, the choices, the time and the outcome.
type history struct {
	way
	arm         Arm
	existing    bool // candidates never create the object
	dated       bool // the store reports its time
	skewed      bool // that time may jump, and then no candidate starts fast
	fenced      bool
	ttls        [3]time.Duration
	longest     time.Duration // of all TTLs
	longestRest time.Duration

	schedule
	choose func(n int) int // from 0 to n-1, for n up to 256
	odds   [Faults]int
	healed bool          // after the faults
	calm   bool          // users do nothing for now
	slow   time.Duration // until then, messages are

	without     []string // unchecked promises
	broken, how string   // the first broken promise
	faults      Counts
	granted     int
	hash        uint64
	verbose     bool
	text        strings.Builder
}

func (h *history) pick(of ...time.Duration) time.Duration { return of[h.choose(len(of))] }

// soon returns a delay so short that what happens soon is in any order.
func (h *history) soon() time.Duration { return time.Duration(h.choose(3)) * time.Millisecond }

func (h *history) meets(f Fault) bool {
	n := h.odds[f]
	return n > 0 && !h.healed && h.choose(n) == n-1
}

func (h *history) met(f Fault, what ...any) {
	h.faults[f]++
	h.logf("* %v %v", f, what)
}

func (h *history) hit(f Fault) bool {
	if !h.meets(f) {
		return false
	}
	h.met(f)
	return true
}

// delay returns the network's delay. Late messages are late by up to a minute.
func (h *history) delay(f Fault, late bool) time.Duration {
	if h.meets(f) || late {
		return h.pick(500*time.Millisecond, time.Second, 2500*time.Millisecond, 8*time.Second, 60*time.Second)
	}
	slow := time.Duration(0)
	if h.now < h.slow {
		slow = h.pick(200*time.Millisecond, time.Second, 4*time.Second)
	}
	return slow + time.Duration(1+h.choose(30))*time.Millisecond
}

func (h *history) violated(promise, format string, args ...any) {
	if h.broken == "" && !slices.Contains(h.without, promise) {
		h.broken = promise
		h.how = fmt.Sprintf("at %.3f s ", h.now.Seconds()) + fmt.Sprintf(format, args...)
		h.logf("BROKEN: %s: %s", promise, h.how)
	}
}

func (h *history) mix(values ...uint64) {
	for _, v := range values {
		h.hash = (h.hash ^ v) * 0x9e3779b97f4a7c15
		h.hash ^= h.hash >> 29
	}
}

func (h *history) logf(format string, args ...any) {
	if h.verbose {
		fmt.Fprintf(&h.text, "%10.3fs  "+format+"\n", append([]any{h.now.Seconds()}, args...)...)
	}
}

type brief struct{ it any }

func (b brief) String() string {
	switch x := b.it.(type) {
	case candidate.Read:
		return fmt.Sprintf("Read unless %q within %v", x.Unless, x.Timeout)
	case candidate.Write:
		return fmt.Sprintf("Write %v %s over %q within %v", x.Op, showRecord(x.Record), x.Expect, x.Timeout)
	case candidate.ReadDone:
		shown := [...]string{"Unread", "Found", "Same", "Absent", "Foreign"}[x.Shown]
		if x.Shown == protocol.Found {
			shown += fmt.Sprintf(" %s as %q, %v old", showRecord(x.Record), x.Version, x.Age)
		}
		return fmt.Sprintf("ReadDone %s, error %v, final %t", shown, x.Err, x.Fatal)
	case candidate.WriteDone:
		return fmt.Sprintf("WriteDone as %q, error %v, void %t, final %t", x.Version, x.Err, x.Void, x.Fatal)
	case candidate.Sighted:
		return "Sighted " + brief{x.Answer}.String()
	case candidate.PeerAnswer:
		return fmt.Sprintf("Heard %+v, error %v, proof %t", x.Status, x.Err, x.Proof != nil)
	case candidate.Waiting:
		return "Waiting for " + showRecord(x.Record)
	case candidate.Refused:
		return "Refused for " + showRecord(x.Record)
	case candidate.Expired:
		return "Overdue is " + showRecord(x.Record)
	case candidate.Vanished:
		return "Vanished is " + showRecord(x.Record)
	case queue.Write:
		return fmt.Sprintf("WriteTable %s over %q within %v", showTable(x.Table), x.Expect, x.Timeout)
	case queue.ReadDone:
		shown := [...]string{"Unread", "Found", "Same", "Absent", "Foreign"}[x.Shown]
		if x.Shown == protocol.Found {
			shown += fmt.Sprintf(" %s as %q", showTable(x.Table), x.Version)
		}
		return fmt.Sprintf("TableRead %s, error %v, final %t", shown, x.Err, x.Fatal)
	case queue.Queued:
		return fmt.Sprintf("Queued {%d} behind %d", x.Caller, x.Ahead)
	case queue.Full:
		return fmt.Sprintf("Full {%d}", x.Caller)
	case queue.Vanished:
		return "TableVanished " + showTable(x.Table)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T%+v", b.it, b.it), "protocol.")
}

func showRecord(r record.Record) string {
	state := "free"
	if r.Held {
		state = "held"
	}
	if r.Session != "" {
		state += " under " + r.Session
	}
	if rest := r.Resting(); rest > 0 {
		state += fmt.Sprintf(" at rest for %v", rest)
	}
	return fmt.Sprintf("%s, token %d, TTL %v, by %s", state, r.Token, r.TTL, r.WriteID)
}

func showTable(t record.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, token %d, size %d:", t.WriteID, t.Token, t.Size)
	for _, s := range t.Holders {
		fmt.Fprintf(&b, " %s (%d, %s) = %d", s.Holder, s.Weight, s.Session, s.Token)
	}
	b.WriteString(" |")
	for _, s := range t.Waiters {
		fmt.Fprintf(&b, " %s (%d, %s)", s.Holder, s.Weight, s.Session)
	}
	return b.String()
}
