package protocol

import (
	"errors"
	"time"
)

// An Event is a call by the user, an answer from the store, or the passing of time. Events are
// plain values, so a scenario can list them, and a simulation can choose their order.
type Event interface{ Event() }

// The events of every machine.
type (
	// Cancel ends an acquisition, Detach or Attach, because of Err.
	Cancel struct{ Err error }
	// SessionOver says nothing is valid any more under a session of this process, because of Err.
	// The candidate uses that session, or once did.
	SessionOver struct {
		Session string
		Err     error
	}
	// SessionExpired says another process's session has ended for good (rule D3): closed, killed or
	// absent. Look: that was a while ago, so others may have taken the lock since.
	SessionExpired struct {
		Session string
		Look    bool
	}
	// SessionBeat says another process's session goes on: its heartbeat was just seen. It is for
	// queues.
	SessionBeat struct {
		Session string
		TTL     time.Duration
	}
	// SessionTroubled says the awaited session's state is unknown, because the store fails. The
	// candidate sent no request, but its user waits.
	SessionTroubled struct{ Err error }
	// Recheck says the lock may have changed and should be read.
	Recheck struct{}
	// Tick says the clock has reached Wake.
	Tick struct{}
)

func (Cancel) Event()          {}
func (SessionOver) Event()     {}
func (SessionExpired) Event()  {}
func (SessionBeat) Event()     {}
func (SessionTroubled) Event() {}
func (Recheck) Event()         {}
func (Tick) Event()            {}

// Shown is the result of a Read.
type Shown int

// The results of a Read.
const (
	Unread  Shown = iota // nothing: the read failed
	Found                // a record
	Same                 // the version in Read.Unless
	Absent               // no object
	Foreign              // an unrecognized object
)

// An Action is a request to the driver, or news for the user. The result comes as an event, if at
// all.
type Action interface{ Action() }

// Actions are what one step asks for, in the order decided.
type Actions []Action

// Add appends an action.
func (a *Actions) Add(x Action) { *a = append(*a, x) }

// The actions of every machine.
type (
	// Troubled: the store has failed three times in a row. It is repeated once a minute while
	// failures continue, and by a Reaper at each.
	Troubled struct{ Err error }
	// Seen: the object is in a new state. See Observed.
	Seen struct{}
	// SessionOrphan: a record under this process's session may exist or still land, and only the
	// session's end can free it (rule D6). Closing: the user is closing the session and holds
	// nothing under it, so ending it does no harm.
	SessionOrphan struct {
		Session string
		Closing bool
	}
	// Unnamed: the lock no longer names this process's session. See session.Membership.
	Unnamed struct{ Session string }
	// Left: nothing of this candidate is under this process's session, or can still come to be.
	Left struct{ Session string }
)

func (Troubled) Action()      {}
func (Seen) Action()          {}
func (SessionOrphan) Action() {}
func (Unnamed) Action()       {}
func (Left) Action()          {}

// An Await is a session whose end a machine waits for.
type Await struct {
	Session string
	Seldom  bool // one poll every [SeldomWatch] is enough
}

// The reasons why an acquisition failed or a lease ended.
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
