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
// It is not safe for concurrent use. Its driver has the same duties as that of a
// [protocol.Candidate].
type Machine struct {
	cfg  Config
	busy inflight
	due  time.Duration // the next step, if no request is under way

	fresh    bool             // what was shown last may be acted on
	version  protocol.Version // empty: there is no object, as far as is known
	table    record.Table     // what was shown last; without an object, where one that is made begins
	top      int64            // the largest token ever seen
	begun    time.Duration    // when the last request was sent
	seen     time.Duration    // when that was sent which has shown the table
	optional bool             // the look under way is: if it fails, what was shown before is written over
	open     bool             // a write on the condition of this version was not answered, and may yet land
	sent     record.Table     // by the write under way
	refused  error            // why the last write was, until a look tells what it met; nil: it was not

	callers  []*caller // in the order in which they came
	callerNo uint64
	closing  time.Duration    // until when its user waits for those who leave; 0: it has not said
	seq      uint64           // of write IDs
	dead     map[string]bool  // sessions of others, or former ones of ours, that are over for good (rule D3)
	ghosts   []string         // sessions that held seats when the object vanished
	alive    map[string]signs // of sessions of others that are watched
	awaits   []protocol.Await // those that are to be watched
	entered  []string         // sessions of ours that something here is under, or may yet be
	trouble  protocol.Trouble
	refusals int           // of writes in a row, because others were faster
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
	Size        int64         // the object must have this size (rule T8)
	TTL         time.Duration // of its sessions: for how long a caller who left is settled
	Existing    bool          // never create the object
	Address     string        // where this process hears what others Tell; empty: nowhere
	Room        int           // for entries, in bytes, of those who join; 0: record.MaxJoined
}

// The events of a Machine, besides SessionOver, SessionExpired, SessionBeat,
// SessionTroubled, Recheck, Cancel and Tick.
type (
	// Join: a caller wants a seat of that weight, under a session of this process that is valid and
	// was confirmed to exist (rule T2). It must be from 1 to the size. The Machine answers with one Seated,
	// Full or Unseated.
	Join struct {
		Caller  Caller
		Weight  int64
		Session string
		Holder  string
		Wait    bool
	}
	// Leave: the caller has stopped all work in the seat, or does not wait any more. Err is why it does
	// not wait. The Machine answers with one Vacated, and one that waited gets an Unseated before.
	Leave struct {
		Caller Caller
		Err    error
	}
	// ReadDone is the answer to a Read.
	ReadDone struct {
		Shown   protocol.Shown
		Version protocol.Version // Found
		Table   record.Table     // Found
		Date    time.Time        // Absent: the store's own time, if it said
		Err     error            // Foreign, Unread
		Fatal   bool             // Unread: to try again is pointless
	}
	// Closing: its user wants nothing more, and waits until then for what it has left to be out of the object. A
	// Join takes it back.
	Closing struct{ Until time.Duration }
	// Told: another process says that it has written this version.
	Told struct{ Version protocol.Version }
	// TokenSighted: somebody else's look has shown a table with that token.
	TokenSighted struct{ Token int64 }
	// WriteDone is the answer to a Write. Only a clean success has no Err (rule A6).
	WriteDone struct {
		Version protocol.Version
		Err     error
		Refused bool // another write was faster, as far as the store says
		Fatal   bool // to try again is pointless
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
	// Write asks for a conditional write over exactly the version Expect; where that is
	// empty, only if there is no object (rule T1).
	Write struct {
		Table   record.Table
		Expect  protocol.Version
		Timeout time.Duration
	}
	// Seated: the caller has its seat, as long as its session is valid.
	Seated struct {
		Caller Caller
		Token  int64
	}
	// Full: the caller did not want to wait, and there is no seat for it.
	Full struct {
		Caller Caller
		Table  record.Table
	}
	// InLine: the caller waits behind so many. It is told when it begins to wait, and when that changed.
	InLine struct {
		Caller Caller
		Ahead  int
		Table  record.Table
	}
	// Unseated: the caller gets no seat, or has lost the one that it held (Held). Then the work must stop
	// now, and a Leave must still come.
	Unseated struct {
		Caller Caller
		Held   bool
		Err    error
	}
	// Tell: a write that this process is sure of has made this version, which matters to the one that hears of it at
	// that address. It is told so as a courtesy.
	Tell struct {
		Address string
		Version protocol.Version
	}
	// Vacated: nothing of the caller is in the object any more, or Err says why it may be.
	Vacated struct {
		Caller Caller
		Err    error
	}
	// Vanished: somebody deleted the object, which looked like this.
	Vanished struct{ Table record.Table }
)

func (Read) Action()     {}
func (Write) Action()    {}
func (Seated) Action()   {}
func (Full) Action()     {}
func (InLine) Action()   {}
func (Unseated) Action() {}
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

// Wake is the reading of the clock at which the driver must pass in a Tick, and false if nothing but an
// event can change anything.
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

// Idle reports that nothing is wanted or under way. Callers that hold seats need nothing.
func (t *Machine) Idle() bool { return t.busy == none && !t.wanting() }

// Settled reports that nothing is held, wanted or outstanding.
func (t *Machine) Settled() bool { return t.busy == none && len(t.callers) == 0 }

// Busy reports that a request is under way.
func (t *Machine) Busy() bool { return t.busy != none }

// Trouble is why the last try failed, and nil if none has failed since the last success.
func (t *Machine) Trouble() error { return t.trouble.Err }

// Shown is the table as it was last seen, and whether there is one.
func (t *Machine) Shown() (record.Table, bool) { return t.table, t.version != "" }

// Awaits are the sessions whose end would let a caller of this process come nearer to its seat
// (rule T7).
func (t *Machine) Awaits() []protocol.Await { return t.awaits }

// soon has the next step done now.
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

// read looks at the object, unless the last look has failed a moment ago.
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

// write sends a table over the version that was seen (rule T1).
func (t *Machine) write(n record.Table, now protocol.Now, out *protocol.Actions) {
	t.seq++
	n.WriteID = t.cfg.Incarnation + ".w" + strconv.FormatUint(t.seq, 10) // rule A2
	for _, s := range n.Seats() {
		if c := t.callerOf(s); c != nil {
			c.sent = true
		}
	}
	t.busy, t.begun, t.sent = writing, now.Clock, n
	out.Add(Write{Table: n, Expect: t.version, Timeout: t.timeout()})
}

// wait plans the next look, and tells those who wait where they stand.
func (t *Machine) wait(now protocol.Now, out *protocol.Actions) {
	t.fresh = false
	first := len(t.table.Waiters)
	if t.crowded() {
		first = max(first, 1) // it is not to have the next seat: what is watched tells
	}
	for i, w := range t.table.Waiters {
		c := t.callerOf(w)
		if c == nil || c.state != waiting {
			continue
		}
		first = min(first, i)
		if c.place != i+1 {
			c.place = i + 1
			out.Add(InLine{c.Caller, i, t.table})
		}
	}
	for _, c := range t.callers {
		if ahead := len(t.table.Waiters); c.state == coming && c.crowded != "" && c.place != ahead+1 {
			c.place = ahead + 1
			out.Add(InLine{c.Caller, ahead, t.table})
		}
	}
	pause := t.pace.next(t.table, first, t.cfg.TTL, now.Clock)
	if first == 0 && t.within() {
		pause = LateLook // its turn is written here; a look only finds what somebody has changed by hand
	}
	t.due = now.Clock + t.rng.Vary(pause)
}

// within reports that all who hold seats are callers of this process, which tell it when they leave.
func (t *Machine) within() bool {
	return len(t.table.Holders) > 0 && !slices.ContainsFunc(t.table.Holders, func(h record.Seat) bool {
		c := t.callerOf(h)
		return c == nil || c.state != seated
	})
}
