package queue

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// A Machine is one process's part in a semaphore: it decides everything that the process does
// about the object, for all its callers. [Machine.Step] takes an event and the time, and returns
// what to do.
//
// Every change is one conditional write of the whole object (rule T1), and at most one request is
// under way. So what many callers want at the same moment is one write: it removes those who leave,
// adds those who come, and gives free slots to the head of the queue.
//
// It is not safe for concurrent use. Package protocol lists the duties of its driver.
type Machine struct {
	cfg  Config
	busy inflight
	due  time.Duration // when the next step is due, if no request is under way

	fresh    bool             // the last known table may be acted on
	version  protocol.Version // empty: there is no object, as far as we know
	table    record.Table     // the last known one; if there is no object, what a new one starts from
	top      int64            // the largest token ever seen
	begun    time.Duration    // when the last request was sent
	seen     time.Duration    // when the request was sent that has shown the table
	optional bool             // the read under way is: if it fails, the last known table is written over
	open     bool             // a write conditional on this version was not answered, and may still land
	sent     record.Table     // by the write under way
	refused  error            // why the last write was refused, until a read tells what it met; nil: it was not

	callers  []*caller // in order of arrival
	callerNo uint64
	closing  time.Duration    // until when the user waits for those who leave; 0: unknown
	seq      uint64           // of write IDs
	dead     map[string]bool  // sessions that have ended for good (rule D3)
	ghosts   []string         // sessions that held slots when the object vanished
	alive    map[string]signs // of watched sessions of other processes
	awaits   []protocol.Await // the sessions to watch
	entered  []string         // sessions of this process that some caller is under, or may still be
	trouble  protocol.Trouble
	refusals int           // overtaken writes in a row
	row      time.Duration // when the first of them was sent
	told     told
	pace     pace
	rng      protocol.Random
}

// inflight is the one request under way.
type inflight int

const (
	none inflight = iota
	reading
	writing
)

// done notes that the request under way was answered.
func (i *inflight) done(kind inflight) {
	if *i != kind {
		panic("queue: an answer to nothing")
	}
	*i = none
}

// Config makes a Machine. Its Incarnation must be new for each Machine and each start: it makes the
// IDs of entries and writes unique.
type Config struct {
	Incarnation string
	Size        int64         // that the object must have (rule T8)
	TTL         time.Duration // of its sessions: how long the removal of a caller may take
	Existing    bool          // never create the object
	Address     string        // where this process receives what others Tell; empty: nowhere
	Room        int           // for entries, in bytes, until joining is refused; 0: record.MaxJoined
}

// The events of a Machine, besides SessionOver, SessionExpired, SessionBeat,
// SessionTroubled, Recheck, Cancel and Tick.
type (
	// Join: a caller wants slots of that weight, from 1 to the size, under a session of this process
	// that is valid and was confirmed to exist (rule T2). The Machine answers with one Granted, Full or
	// Refused.
	Join struct {
		Caller  Caller
		Weight  int64
		Session string
		Holder  string
		Wait    bool
	}
	// Leave: the caller has stopped all work in its slots, or no longer waits, because of Err. The
	// Machine answers with one Vacated. A caller that waited gets a Refused first.
	Leave struct {
		Caller Caller
		Err    error
	}
	// ReadDone is the answer to a Read.
	ReadDone struct {
		Shown   protocol.Shown
		Version protocol.Version // Found
		Table   record.Table     // Found
		Date    time.Time        // Absent: the store's time, if known
		Err     error            // Foreign, Unread
		Fatal   bool             // Unread: retrying is pointless
	}
	// Closing: the user wants nothing more, and waits until then for its entries to be removed. A Join
	// cancels it.
	Closing struct{ Until time.Duration }
	// Told: another process says it has written this version.
	Told struct{ Version protocol.Version }
	// TokenSighted: a read outside the Machine has shown a table with that token.
	TokenSighted struct{ Token int64 }
	// WriteDone is the answer to a Write. Only a clean success has no Err (rule A6).
	WriteDone struct {
		Version protocol.Version
		Err     error
		Refused bool // another write was faster, as far as the store says
		Fatal   bool // retrying is pointless
	}
)

func (Join) Event()         {}
func (Leave) Event()        {}
func (ReadDone) Event()     {}
func (Closing) Event()      {}
func (Told) Event()         {}
func (TokenSighted) Event() {}
func (WriteDone) Event()    {}

// The actions of a Machine, besides Troubled, SessionOrphan, Left and Seen.
type (
	// Read asks for the object, unless its version is still Unless.
	Read struct {
		Unless  protocol.Version
		Timeout time.Duration
	}
	// Write asks for a conditional write over exactly the version Expect or, if that is empty, only
	// if there is no object (rule T1).
	Write struct {
		Table   record.Table
		Expect  protocol.Version
		Timeout time.Duration
	}
	// Granted: the caller has its slots, as long as its session is valid.
	Granted struct {
		Caller Caller
		Token  int64
	}
	// Full: the caller did not want to wait, and there is no room.
	Full struct {
		Caller Caller
		Table  record.Table
	}
	// Queued: the caller waits behind that many others. Sent when it begins to wait, and on changes.
	Queued struct {
		Caller Caller
		Ahead  int
		Table  record.Table
	}
	// Refused: the caller gets no slots.
	Refused struct {
		Caller Caller
		Err    error
	}
	// Lost: the caller has lost its slots. Its work must stop now, and a Leave must still follow.
	Lost struct {
		Caller Caller
		Err    error
	}
	// Tell: a confirmed write has made this version, which matters to the process at that address.
	// Telling it is a courtesy.
	Tell struct {
		Address string
		Version protocol.Version
	}
	// Vacated: the caller has no entry in the object any more, or Err says why it may still have one.
	Vacated struct {
		Caller Caller
		Err    error
	}
	// Vanished: the object was deleted. This was its last known content.
	Vanished struct{ Table record.Table }
)

func (Read) Action()     {}
func (Write) Action()    {}
func (Granted) Action()  {}
func (Full) Action()     {}
func (Queued) Action()   {}
func (Refused) Action()  {}
func (Lost) Action()     {}
func (Tell) Action()     {}
func (Vacated) Action()  {}
func (Vanished) Action() {}

// The errors of a Machine.
var (
	ErrSize     = errors.New("the semaphore has another size")
	ErrUnlisted = errors.New("somebody took its entry out by hand")
)

// New returns a Machine that knows nothing of the object.
func New(cfg Config) *Machine {
	cfg.Room = cmp.Or(cfg.Room, record.MaxJoined)
	return &Machine{
		cfg: cfg, rng: protocol.Seeded(cfg.Incarnation), table: record.Table{Size: cfg.Size},
		dead: map[string]bool{}, alive: map[string]signs{},
	}
}

// Step passes in an event at a time, and returns what to do, in order.
func (t *Machine) Step(ev protocol.Event, now protocol.Now) []protocol.Action {
	var out protocol.Actions
	switch ev := ev.(type) {
	case Join:
		t.join(ev, now)
	case Leave:
		t.leave(ev, now, &out)
	case ReadDone:
		t.busy.done(reading)
		t.readDone(ev, now, &out)
	case WriteDone:
		t.busy.done(writing)
		t.written(ev, now, &out)
	case protocol.SessionOver:
		t.sessionOver(ev, &out)
	case protocol.SessionExpired:
		t.dead[ev.Session] = true
		t.soon(now)
	case protocol.SessionBeat:
		t.alive[ev.Session] = t.alive[ev.Session].beat(now.Clock + ev.TTL*2/3)
		if t.crowded() && t.lives(t.last().Session) {
			t.soon(now) // it is refused
		}
	case protocol.SessionTroubled:
		t.trouble.Report(ev.Err, false, now, &out)
	case Closing:
		t.closing = ev.Until
	case Told:
		t.hear(ev, now)
	case TokenSighted:
		t.sight(ev.Token)
	case protocol.Recheck:
		t.soon(now)
	case protocol.Cancel:
		t.cancel(ev.Err, now, &out)
	case protocol.Tick:
	}
	// As in a Candidate, every event ends with what is due by now.
	t.giveUp(now, &out)
	t.advance(now, &out)
	t.heed(now, &out)
	t.memberships(&out)
	t.watch(now)
	return out
}

// Wake returns the clock reading at which the driver must pass in a Tick, and false if only other events
// can change anything.
func (t *Machine) Wake() (time.Duration, bool) {
	wake := protocol.Never
	if t.busy == none && (t.wanting() || t.told.ahead) {
		wake = t.due
	}
	for _, c := range t.callers {
		if c.limited() {
			wake = min(wake, t.limit(c))
		}
	}
	for _, a := range t.awaits {
		if s := t.alive[a.Session]; !s.seldom {
			wake = min(wake, s.until)
		}
	}
	return wake, wake != protocol.Never
}

// Idle reports whether nothing is wanted or under way. Callers that hold slots want nothing.
func (t *Machine) Idle() bool { return t.busy == none && !t.wanting() }

// Settled reports whether nothing is held, wanted or outstanding.
func (t *Machine) Settled() bool { return t.busy == none && len(t.callers) == 0 }

// Busy reports whether a request is under way.
func (t *Machine) Busy() bool { return t.busy != none }

// Trouble returns why the last try failed, or nil if none has failed since the last success.
func (t *Machine) Trouble() error { return t.trouble.Err }

// Shown returns the table as last seen, and whether there is one.
func (t *Machine) Shown() (record.Table, bool) { return t.table, t.version != "" }

// Awaits returns the sessions whose end would move a caller of this process forward (rule T7).
func (t *Machine) Awaits() []protocol.Await { return t.awaits }

// soon makes the next step due now.
func (t *Machine) soon(now protocol.Now) { t.due = min(t.due, now.Clock) }

// advance does what is due, if no request is under way.
func (t *Machine) advance(now protocol.Now, out *protocol.Actions) {
	switch {
	case t.busy != none || now.Clock < t.due:
		return
	case !t.wanting():
		t.lookAhead(now, out)
		return
	case !t.fresh:
		t.read(now, out)
		return
	}
	t.settle(out)
	if t.refuseMisfits(now, out); !t.fresh {
		t.read(now, out)
		return
	}
	next, want := t.next(now, out)
	if !want {
		t.trouble.Unwanted()
		t.refusals = 0
	}
	switch {
	case !want && !t.wanting():
	case !want && !t.fresh:
		t.read(now, out)
	case !want:
		t.wait(now, out)
	case now.Clock < t.trouble.TryAt:
		t.due = t.trouble.TryAt
	default:
		t.write(next, now, out)
	}
}

// read reads the object, unless the last read failed a moment ago.
func (t *Machine) read(now protocol.Now, out *protocol.Actions) {
	if t.due = t.trouble.LookAt; now.Clock < t.due {
		return
	}
	t.told.ahead = false
	t.look(now, out)
}

func (t *Machine) look(now protocol.Now, out *protocol.Actions) {
	t.busy, t.begun = reading, now.Clock
	out.Add(Read{Unless: t.version, Timeout: t.timeout()})
}

func (t *Machine) timeout() time.Duration { return min(t.cfg.TTL/2, protocol.MaxRequest) }

// write sends a table, conditional on the version that was seen (rule T1).
func (t *Machine) write(n record.Table, now protocol.Now, out *protocol.Actions) {
	t.seq++
	n.WriteID = t.cfg.Incarnation + ".w" + strconv.FormatUint(t.seq, 10) // rule A2
	for _, s := range n.Entries() {
		if c := t.callerOf(s); c != nil {
			c.sent = true
		}
	}
	t.busy, t.begun, t.sent = writing, now.Clock, n
	out.Add(Write{Table: n, Expect: t.version, Timeout: t.timeout()})
}

// wait plans the next poll, and tells waiters their place.
func (t *Machine) wait(now protocol.Now, out *protocol.Actions) {
	t.fresh = false
	first := len(t.table.Waiters)
	if t.crowded() {
		first = max(first, 1) // it is not next: the watched sessions decide
	}
	for i, w := range t.table.Waiters {
		c := t.callerOf(w)
		if c == nil || c.state != waiting {
			continue
		}
		first = min(first, i)
		if c.place != i+1 {
			c.place = i + 1
			out.Add(Queued{c.Caller, i, t.table})
		}
	}
	for _, c := range t.callers {
		if ahead := len(t.table.Waiters); c.state == coming && c.crowded != "" && c.place != ahead+1 {
			c.place = ahead + 1
			out.Add(Queued{c.Caller, ahead, t.table})
		}
	}
	pause := t.pace.next(t.table, first, t.cfg.TTL, now.Clock)
	if first == 0 && t.within() {
		pause = LateLook // its turn is written here; a poll only finds what somebody has changed by hand
	}
	t.due = now.Clock + t.rng.Vary(pause)
}

// within reports whether all holders are callers of this process, so it knows when they leave.
func (t *Machine) within() bool {
	return len(t.table.Holders) > 0 && !slices.ContainsFunc(t.table.Holders, func(h record.Entry) bool {
		c := t.callerOf(h)
		return c == nil || c.state != holding
	})
}
