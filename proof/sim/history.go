package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// An Arm is a part of the simulation for which something else is promised.
type Arm string

// The arms.
const (
	Bound   Arm = "bound"   // no clock is beyond the bound: everything is promised
	Far     Arm = "far"     // clocks are: P1 and the fence are
	Deleted Arm = "deleted" // the object is deleted by hand: see claimed and unseen
	Lasting Arm = "lasting" // one kind of failure persists
)

// Config says what a seed may not choose for itself.
type Config struct {
	Arm      Arm    // empty: by the seed
	Layout   string // empty: by the seed
	Unfenced bool   // the resource takes whatever comes
	Quorum   bool   // the store is several
	Brief    bool   // no failure lasts for more than a few minutes
	Without  string // the promises that are not looked at, with commas
}

// A way is how a lock lies in the store, and what the protocol must know of it. Markers are
// swept by the server itself: a sweep of the layout's looks at the real clock.
type way struct {
	name string
	cfg  protocol.Config
	lay  func(st store.Store, key string, ttl time.Duration) layout.Layout
}

var ways = []way{
	{"object", protocol.Config{}, func(st store.Store, key string, _ time.Duration) layout.Layout {
		return layout.Object{Store: st, Key: key}
	}},
	{"epochs", protocol.Config{Numbered: true, Layout: layout.EpochsName}, func(st store.Store, key string, _ time.Duration) layout.Layout {
		return layout.Epochs{Store: st, Key: key}
	}},
	{"epochs+if-match", protocol.Config{Numbered: true, Layout: layout.EpochsIfMatchName}, func(st store.Store, key string, _ time.Duration) layout.Layout {
		return layout.Epochs{Store: st, Key: key, IfMatch: true}
	}},
	{"marker", protocol.Config{Tokenless: true, WriteOnce: true, Layout: record.LayoutMarker}, func(st store.Store, key string, ttl time.Duration) layout.Layout {
		return layout.Marker{Store: st, Key: key, TTL: ttl}
	}},
	{"marker+if-match", protocol.Config{Tokenless: true, Layout: record.LayoutMarker}, func(st store.Store, key string, ttl time.Duration) layout.Layout {
		return layout.Marker{Store: st, Key: key, TTL: ttl, IfMatch: true}
	}},
}

// Layouts are the names of the layouts that there are.
func Layouts() (names []string) {
	for _, w := range ways {
		names = append(names, w.name)
	}
	return names
}

// ttls are far apart, so that a candidate that counts by the wrong one is wrong by far.
var ttls = [...]time.Duration{3 * time.Second, 9 * time.Second, 30 * time.Second}

// infrequent is the interval of some followers of a steady leader, and of some waiters. It is as
// long as any waiter's pause becomes.
const infrequent = 10 * time.Second

// epoch is when the world began, by its own clock and by the store's.
var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A history is what all parts of a world share: what was drawn for it, the choices, the time,
// and what has come of it.
type history struct {
	way
	arm      Arm
	existing bool // candidates never create the object
	dated    bool // the store tells its time
	skewed   bool // which may jump, and then nobody starts fast
	fenced   bool
	ttls     [3]time.Duration
	longest  time.Duration // of all TTLs
	// longestRest is that of all that were asked for.
	longestRest time.Duration

	schedule
	choose func(n int) int // from 0 to n-1, for n up to 256
	odds   [Faults]int
	healed bool // all faults are over

	without     []string // the promises that are not looked at
	broken, how string   // the first promise that was not kept
	faults      Counts
	granted     int
	hash        uint64
	verbose     bool
	text        strings.Builder
}

func (h *history) pick(of ...time.Duration) time.Duration { return of[h.choose(len(of))] }

// soon lets something happen that is done apart, and so in any order.
func (h *history) soon(to *machine, do func()) {
	h.after(time.Duration(h.choose(3))*time.Millisecond, to, do)
}

// meets reports whether there is trouble of this kind now.
func (h *history) meets(f Fault) bool {
	n := h.odds[f]
	return n > 0 && !h.healed && h.choose(n) == n-1
}

func (h *history) met(f Fault, what ...any) {
	h.faults[f]++
	h.logf("* %v %v", f, what)
}

// hit is meets and met in one.
func (h *history) hit(f Fault) bool {
	if !h.meets(f) {
		return false
	}
	h.met(f)
	return true
}

// violated tells of a promise that was broken.
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

// brief is an event or an action in a line of a history.
type brief struct{ it any }

func (b brief) String() string {
	switch x := b.it.(type) {
	case protocol.Read:
		return fmt.Sprintf("Read unless %q within %v", x.Unless, x.Timeout)
	case protocol.Write:
		return fmt.Sprintf("Write %v %s over %q within %v", x.Op, showRecord(x.Record), x.Expect, x.Timeout)
	case protocol.ReadDone:
		shown := [...]string{"Unread", "Found", "Same", "Absent", "Foreign"}[x.Shown]
		if x.Shown == protocol.Found {
			shown += fmt.Sprintf(" %s as %q, %v old", showRecord(x.Record), x.Version, x.Age)
		}
		return fmt.Sprintf("ReadDone %s, error %v, final %t", shown, x.Err, x.Fatal)
	case protocol.WriteDone:
		return fmt.Sprintf("WriteDone as %q, error %v, void %t, final %t", x.Version, x.Err, x.Void, x.Fatal)
	case protocol.Sighted:
		return "Sighted " + brief{x.Answer}.String()
	case protocol.PeerAnswer:
		return fmt.Sprintf("Heard %+v, error %v, proof %t", x.Status, x.Err, x.Proof != nil)
	case protocol.Waiting:
		return "Waiting for " + showRecord(x.Record)
	case protocol.Refused:
		return "Refused for " + showRecord(x.Record)
	case protocol.Expired:
		return "Overdue is " + showRecord(x.Record)
	case protocol.Vanished:
		return "Vanished is " + showRecord(x.Record)
	case queue.Write:
		return fmt.Sprintf("WriteTable %s over %q within %v", showTable(x.Table), x.Expect, x.Timeout)
	case queue.ReadDone:
		shown := [...]string{"Unread", "Found", "Same", "Absent", "Foreign"}[x.Shown]
		if x.Shown == protocol.Found {
			shown += fmt.Sprintf(" %s as %q", showTable(x.Table), x.Version)
		}
		return fmt.Sprintf("TableRead %s, error %v, final %t", shown, x.Err, x.Fatal)
	case queue.InLine:
		return fmt.Sprintf("InLine {%d} behind %d", x.Caller, x.Ahead)
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
