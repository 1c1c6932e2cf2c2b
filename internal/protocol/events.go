package protocol

import (
	"errors"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// An Event is something that happened: the user asked, the store answered, time
// passed.
// They are values without behaviour, so a scenario can write them down, and a simulation can choose
// in which order they come.
type Event interface{ Event() }

// The events.
type (
	// Acquire: the user wants the lock; with Wait, even if that takes long. The
	// candidate answers with one Granted, Refused or Failed.
	Acquire struct {
		Wait bool
		// Session is the name of the session that the lease is to be under: it is valid,
		// and has been confirmed to exist (rule D2). Empty: the lease is renewed by itself.
		Session string
		// Terms are what is asked for the lease. Check says whether they can be.
		Terms Terms
	}
	// Cancel: the user no longer waits for an acquisition, or it makes no sense any
	// more, because of Err.
	Cancel struct{ Err error }
	// Release: the user has stopped all work under the lease. The candidate
	// answers with one Released.
	Release struct {
		Successor string // the holder that may go first; empty: none
		// Pass: another user of this candidate waits, and will Acquire next.
		Pass bool
	}
	// Detach: the user has stopped the work under the lease, which is to stay as it stands, for
	// another candidate to Attach. The candidate answers with one Detached. A Cancel ends it, and
	// frees the lock.
	Detach struct{}
	// Attach: the user wants to use a lease that was detached. Nothing of the candidate may be
	// outstanding (Settled). It answers with one Granted, if it is ToHold, or Detached, or Failed.
	Attach struct {
		Proof Proof
		Use   Use
	}
	// NameSuccessor: the user is about to end the lease in favour of that holder. The candidate
	// answers with one NoticeGiven.
	NameSuccessor struct{ Successor string }
	// Drop: nobody is there after all to take what a Release has passed on.
	Drop struct{}
	// Watch: look at the lock even while nobody wants it, or no longer.
	Watch struct{ On bool }
	// GiveUp: the lease is no longer valid, though the work under it has not
	// stopped. It is not renewed, and a Release must still come.
	GiveUp struct{ Err error } // why, if there is more to say
	// ReadDone is the answer to a Read.
	ReadDone struct {
		Shown   Shown
		Version Version       // Found
		Record  record.Record // Found
		Date    time.Time     // Absent: the store's own time, if it said
		Age     time.Duration // Found: since the record was written, by the store's own clock; 0 if it does not say
		Aged    bool          // it does
		Err     error         // Foreign, Unread
		Fatal   bool          // Unread: to try again is pointless (access denied)
	}
	// WriteDone is the answer to a Write. Only a clean success has no Err: all
	// else, a refusal included, leaves it open whether the write has landed
	// (rule A6).
	WriteDone struct {
		Version Version
		Epoch   int64 // the number of the object that was written, if it has one
		Err     error
		Void    bool // nothing of it has landed, or will
		Fatal   bool // and to try again is pointless
		Refused bool // the object is not what was expected, as far as the store says
	}
	// Checked is the answer to a Check: whether the session's heartbeat says that it goes on.
	Checked struct {
		Session   string
		Held      bool
		Abandoned bool  // Held: it looks as if its sender was gone, which is for people only
		Err       error // it is not known
	}
	// SessionOver: nothing is valid any more under a session of ours, because of Err.
	// This candidate's lease is under it, or was to be, or once was.
	SessionOver struct {
		Session string
		Err     error
	}
	// SessionExpired: a session of others is over for good (rule D3): it was closed, or
	// killed, or does not exist. Look: that was a while ago, so that others may have
	// taken the lock since.
	SessionExpired struct {
		Session string
		Look    bool
	}
	// SessionBeat: a session of others, whose end is waited for, goes on: its heartbeat has just been
	// seen. It is for a queue.
	SessionBeat struct {
		Session string
		TTL     time.Duration
	}
	// SessionTroubled: the store does not say whether the session goes on whose end is waited
	// for. Nothing was asked for this candidate, but it is its user who waits.
	SessionTroubled struct{ Err error }
	// Recheck: the lock may have changed, so it is worth a look.
	Recheck struct{}
	// RenewSoon: the next renewal has something to tell, and is to come soon.
	RenewSoon struct{}
	// SetMeta: the record of the lease that is held is to carry this, until the lease ends. Number is
	// larger than those before it. The candidate answers with a MetaSet, unless the lease ends first.
	SetMeta struct {
		Number int
		Meta   map[string]string // not nil
	}
	// Retune: from the next write and the next pause on, these are the TTL and
	// the intervals.
	Retune struct{ TTL, Frequent, Infrequent time.Duration }
	// Sighted: somebody else's look, which was sent at that time, had this answer.
	Sighted struct {
		Answer ReadDone
		Sent   time.Duration
	}
	// PeerAnswer is the answer to an PollPeer. One that comes after a CancelPoll is ignored.
	PeerAnswer struct {
		Number int // of the PollPeer
		Status PeerStatus
		Err    error // there was none
		// Proof is what the store held when the release was confirmed, if that came
		// with the word and its version is the hash of it: as good as a look.
		Proof *ReadDone
	}
	// Tick: the clock has reached Wake.
	Tick struct{}
)

func (Acquire) Event()         {}
func (Cancel) Event()          {}
func (Release) Event()         {}
func (NameSuccessor) Event()   {}
func (Detach) Event()          {}
func (Attach) Event()          {}
func (Drop) Event()            {}
func (Watch) Event()           {}
func (GiveUp) Event()          {}
func (ReadDone) Event()        {}
func (WriteDone) Event()       {}
func (Checked) Event()         {}
func (SessionOver) Event()     {}
func (SessionExpired) Event()  {}
func (SessionBeat) Event()     {}
func (SessionTroubled) Event() {}
func (Recheck) Event()         {}
func (RenewSoon) Event()       {}
func (SetMeta) Event()         {}
func (Retune) Event()          {}
func (Sighted) Event()         {}
func (PeerAnswer) Event()      {}
func (Tick) Event()            {}

// Shown is what the answer to a Read showed.
type Shown int

// The results of a Read.
const (
	Unread  Shown = iota // nothing: the read failed
	Found                // a record
	Same                 // the version that Read.Unless named
	Absent               // no object
	Foreign              // an object that is not a record we understand
)

// An Action is something for the driver to do or to pass on to the user.
// A candidate only asks for it: what comes of it is told by an event, or is not told at all.
type Action interface{ Action() }

// Actions are what a step asks for, in the order in which it was decided.
type Actions []Action

// Add appends an action.
func (a *Actions) Add(x Action) { *a = append(*a, x) }

// The actions.
type (
	// Read asks for the object, unless its version is still Unless.
	Read struct {
		Unless  Version
		Timeout time.Duration
	}
	// Write asks for a conditional write of Record over exactly the version
	// Expect, which showed Over; where Expect is empty, only if there is no object
	// (rule A1).
	Write struct {
		Op      Op
		Record  record.Record
		Over    record.Record
		Expect  Version
		Timeout time.Duration
	}
	// Check asks for the heartbeat of the session that the lock is held under, for an
	// acquisition that does not wait.
	Check struct {
		Session string
		Timeout time.Duration
	}
	// Granted: the lease has begun. Lease, Valid and Deadline tell of it.
	Granted struct{}
	// Renewed: the lease's deadline has moved.
	Renewed struct{}
	// MetaSet: a record has landed that carries the change of that Number. With it all before it are
	// answered, whether or not each was in a record of its own.
	MetaSet struct{ Number int }
	// Troubled: the store has failed for the third time in a row, or has gone on to
	// fail for a minute since that was told. A Reaper says so at each further failure.
	Troubled struct{ Err error }
	// Refused: the lock is another's, and the user did not want to wait. Abandoned is what
	// Checked has said. Rest is for how much longer the lock is to be left alone, if it is free.
	Refused struct {
		Record    record.Record
		Abandoned bool
		Rest      time.Duration
	}
	// Failed: the acquisition, or the Attach, ended without the lock. Open is the incarnation whose
	// renewal of the lease may have landed, or may yet: one more of the Proof's Marks. Empty: none.
	Failed struct {
		Err  error
		Open string
	}
	// Detached: nothing of this candidate is under the lease any more, and nothing that it has sent
	// may yet land. Record is the one that stands: held, or after a ToRelease free. With Err there is
	// no record to go on with: the lease was lost, or is being freed.
	Detached struct {
		Record record.Record
		Err    error
	}
	// Waiting: the acquisition waits for this holder. Once for each holder.
	Waiting struct{ Record record.Record }
	// Seen: the object is in a state that was not seen before, which Observed
	// tells.
	Seen struct{}
	// NoticeGiven: from then on, by the clock, the successor that was named knows of it. If that is
	// not later than now, it will not.
	NoticeGiven struct{ Known time.Duration }
	// Expired: this record has not been renewed in time, so the lock may be
	// taken. Once for each version.
	Expired struct{ Record record.Record }
	// Unreadable: a look failed, or showed what is not a record.
	Unreadable struct{ Err error }
	// Vanished: somebody deleted the object of which this was the last record.
	Vanished struct{ Record record.Record }
	// Lost: the lease ended, because of Err. The work must stop now.
	Lost struct{ Err error }
	// Released: the release is settled; Err says why the lock may not be free.
	Released struct{ Err error }
	// Reaped: the lock that a Reaper wanted to be over is, and this is its last record.
	Reaped struct{ Record record.Record }
	// SessionOrphan: a record that names this session of ours may be there, or may come,
	// and nobody will free it: only the end of the session does (rule D6). Closing: its user is
	// closing it, and holds nothing under it any more, so nothing is lost by that.
	SessionOrphan struct {
		Session string
		Closing bool
	}
	// Unnamed: the lock does not name this session of ours any more: see session.Membership.
	Unnamed struct{ Session string }
	// Left: nothing of this candidate is under this session of ours any more, or may yet be.
	Left struct{ Session string }
	// PollPeer asks the leader at Address for its PeerStatus, which it may keep for as long
	// as Wait while that is still Known. Waiting: the user waits for the lock.
	PollPeer struct {
		Number  int
		Address string
		Known   string
		Wait    time.Duration
		Waiting bool
	}
	// CancelPoll: the PollPeer under way does not matter any more, and gets no PeerAnswer.
	CancelPoll struct{}
)

func (Read) Action()          {}
func (Write) Action()         {}
func (Check) Action()         {}
func (Granted) Action()       {}
func (Renewed) Action()       {}
func (MetaSet) Action()       {}
func (NoticeGiven) Action()   {}
func (Troubled) Action()      {}
func (Refused) Action()       {}
func (Failed) Action()        {}
func (Waiting) Action()       {}
func (Vanished) Action()      {}
func (Seen) Action()          {}
func (Expired) Action()       {}
func (Unreadable) Action()    {}
func (Lost) Action()          {}
func (Detached) Action()      {}
func (Released) Action()      {}
func (Reaped) Action()        {}
func (SessionOrphan) Action() {}
func (Unnamed) Action()       {}
func (Left) Action()          {}
func (PollPeer) Action()      {}
func (CancelPoll) Action()    {}

// An Await is a session whose end a machine waits for.
type Await struct {
	Session string
	Seldom  bool // one poll every [SeldomWatch] is enough
}

// Op is what a Write means. All are conditional writes of one record; a layout
// may carry them out differently.
type Op int

// The kinds of Write.
const (
	// The layouts need to know which it is: with epochs a claim makes a new object, and a marker's
	// release is a delete.
	Claim Op = iota // acquire: a new token
	Renew           // the same lease, for another TTL
	Free            // release, the token kept
)

func (o Op) String() string { return [...]string{"claim", "renew", "free"}[o] }

// The errors of an acquisition that failed and of a lease that ended.
var (
	ErrAbsent    = errors.New("the lock's object does not exist")
	ErrCancelled = errors.New("the caller gave up")
	ErrExpired   = errors.New("no renewal came through in time")
	ErrTaken     = errors.New("another candidate took the lock")
	ErrBroken    = errors.New("somebody broke the lock by hand")
	ErrFreed     = errors.New("somebody else freed the lock")
	ErrVanished  = errors.New("the lock's object was deleted")
	ErrSlowStore = errors.New("the store takes longer to answer than half a TTL")
	ErrGivenUp   = errors.New("its holder gave it up")
	ErrTooLate   = errors.New("too little was left of the lease to delete its object, which is left to expire")
	ErrUsed      = errors.New("an object of that name exists already")
	ErrUnsettled = errors.New("no answer from the store said that the release landed")
	ErrNoAnswer  = errors.New("the store did not say within the TTL whether the lock is free")
	ErrTooLarge  = errors.New("the lock's token is too large to be followed by another")
	ErrCopied    = errors.New("another copy of the detached lease was used since")
	ErrLost      = errors.New("the lease had ended before")
)
