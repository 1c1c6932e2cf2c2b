package candidate

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// The events of a lock, besides those of every machine.
type (
	// Acquire asks for the lock, and with Wait, waits for it. The answer is one Granted, Refused or
	// Failed (or Reaped, from a Reaper).
	Acquire struct {
		Wait bool
		// Session is the lease's session: valid, and known to exist (rule D2). Empty: the lease has
		// its own renewals.
		Session string
		// Terms are the options of the lease. Their Check must succeed.
		Terms Terms
	}
	// Release says the user has stopped all work under the lease. The answer is one Released.
	Release struct {
		Successor string // the holder that may go first; empty: none
		// Pass: another user of this candidate waits, and will Acquire next.
		Pass bool
	}
	// Detach says the user has stopped all work under the lease, and asks to leave its record for
	// an Attach. The answer is one Detached. A Cancel ends it, and frees the lock.
	Detach struct{}
	// Attach asks for a detached lease. The candidate must be Settled. The answer is one Granted
	// (ToHold), Detached (ToRenew, ToRelease) or Failed.
	Attach struct {
		Proof Proof
		Use   Use
	}
	// NameSuccessor says the user will soon end the lease in favour of that holder. The answer is
	// one NoticeGiven.
	NameSuccessor struct{ Successor string }
	// Drop says no user will take what a Release passed on.
	Drop struct{}
	// Watch starts or stops polling while no user wants the lock.
	Watch struct{ On bool }
	// GiveUp says the lease is no longer valid, though its work goes on. A Release must still
	// follow.
	GiveUp struct{ Err error } // why, if known
	// ReadDone is the answer to a Read.
	ReadDone struct {
		Shown   protocol.Shown
		Version protocol.Version // Found
		Record  record.Record    // Found
		Date    time.Time        // Absent: the store's time, if known
		Age     time.Duration    // Found: the record's age by the store's clock; 0 if unknown
		Aged    bool             // Age is known
		Err     error            // Foreign, Unread
		Fatal   bool             // Unread: a permanent error (access denied)
	}
	// WriteDone is the answer to a Write. Only a clean success has no Err. After every other
	// answer, even a refusal, the write may have landed (rule A6).
	WriteDone struct {
		Version protocol.Version
		Epoch   int64 // the number of the object written, if it has one
		Err     error
		Void    bool // nothing landed, or will
		Fatal   bool // Void, and the error is permanent
		Refused bool // the object was not as expected, according to the store
	}
	// Checked is the answer to a Check: whether the session goes on, by its heartbeat.
	Checked struct {
		Session   string
		Held      bool
		Abandoned bool  // Held: its sender looks dead; for people only
		Err       error // it is not known
	}
	// RenewSoon says the next renewal has news, and should be sent soon.
	RenewSoon struct{}
	// SetMeta changes the metadata in the lease's record, until the lease ends. Numbers increase.
	// The answer is a MetaSet, unless the lease ends first.
	SetMeta struct {
		Number int
		Meta   map[string]string // not nil
	}
	// Retune changes the TTL and the intervals, from the next write and the next wait on.
	Retune struct{ TTL, Frequent, Infrequent time.Duration }
	// Sighted is the answer to a read of another candidate, sent at that time.
	Sighted struct {
		Answer ReadDone
		Sent   time.Duration
	}
	// PeerAnswer is the answer to a PollPeer. After a CancelPoll, it is ignored.
	PeerAnswer struct {
		Number int // of the PollPeer
		Status PeerStatus
		Err    error // why there was no answer
		// Proof is the record left by the confirmed release, if the answer had it and its version
		// is its hash. It is as good as a read.
		Proof *ReadDone
	}
)

func (Acquire) Event()       {}
func (Release) Event()       {}
func (Detach) Event()        {}
func (Attach) Event()        {}
func (NameSuccessor) Event() {}
func (Drop) Event()          {}
func (Watch) Event()         {}
func (GiveUp) Event()        {}
func (ReadDone) Event()      {}
func (WriteDone) Event()     {}
func (Checked) Event()       {}
func (RenewSoon) Event()     {}
func (SetMeta) Event()       {}
func (Retune) Event()        {}
func (Sighted) Event()       {}
func (PeerAnswer) Event()    {}

// The actions of a lock, besides those of every machine.
type (
	// Read asks for the object, unless its version is still Unless.
	Read struct {
		Unless  protocol.Version
		Timeout time.Duration
	}
	// Write asks for a conditional write of Record over the version Expect, whose record is Over.
	// If Expect is empty, it must create the object (rule A1).
	Write struct {
		Op      Op
		Record  record.Record
		Over    record.Record
		Expect  protocol.Version
		Timeout time.Duration
	}
	// Check asks for the heartbeat of the holder's session, for an acquisition without Wait.
	Check struct {
		Session string
		Timeout time.Duration
	}
	// Granted: the lease has begun. See Lease, Valid and Deadline.
	Granted struct{}
	// Renewed: the lease's deadline has moved.
	Renewed struct{}
	// MetaSet: a record with change Number has landed. It also answers all earlier changes, whether
	// or not each had its own record.
	MetaSet struct{ Number int }
	// Refused: the lock is not free, and the user did not want to wait. Abandoned comes from
	// Checked. Rest is the remaining cooldown, if the lock has no holder.
	Refused struct {
		Record    record.Record
		Abandoned bool
		Rest      time.Duration
	}
	// Failed: the acquisition or Attach ended without the lock. Open, if set, is an incarnation
	// whose renewal may have landed, or may still: one more of the Proof's Marks.
	Failed struct {
		Err  error
		Open string
	}
	// Detached: the candidate no longer uses the lease, and none of its writes can still land.
	// Record is in the store: held, or after a ToRelease, free. With Err, the lease was lost or is
	// being freed.
	Detached struct {
		Record record.Record
		Err    error
	}
	// Waiting: the acquisition waits for this holder. It is sent once for each holder.
	Waiting struct{ Record record.Record }
	// NoticeGiven: the successor knows about its turn from Known on, by the clock. If that is not
	// in the future, it will not know.
	NoticeGiven struct{ Known time.Duration }
	// Expired: this record was not renewed in time, so the lock may be taken. It is sent once for
	// each version.
	Expired struct{ Record record.Record }
	// Unreadable: a read failed, or showed something other than a record.
	Unreadable struct{ Err error }
	// Vanished: somebody deleted the object. Record was its last record.
	Vanished struct{ Record record.Record }
	// Lost: the lease ended because of Err. The work must stop now.
	Lost struct{ Err error }
	// Released: the release is settled. Err says why the lock may not be free.
	Released struct{ Err error }
	// Reaped: the lock is free, as a Reaper wanted. Record is its last one.
	Reaped struct{ Record record.Record }
	// PollPeer asks the leader at Address for its PeerStatus. The leader may delay its answer by up
	// to Wait, while its Version is still Known. Waiting: the user waits for the lock.
	PollPeer struct {
		Number  int
		Address string
		Known   string
		Wait    time.Duration
		Waiting bool
	}
	// CancelPoll: the PollPeer under way no longer matters, and gets no PeerAnswer.
	CancelPoll struct{}
)

func (Read) Action()        {}
func (Write) Action()       {}
func (Check) Action()       {}
func (Granted) Action()     {}
func (Renewed) Action()     {}
func (MetaSet) Action()     {}
func (Refused) Action()     {}
func (Failed) Action()      {}
func (Detached) Action()    {}
func (Waiting) Action()     {}
func (NoticeGiven) Action() {}
func (Expired) Action()     {}
func (Unreadable) Action()  {}
func (Vanished) Action()    {}
func (Lost) Action()        {}
func (Released) Action()    {}
func (Reaped) Action()      {}
func (PollPeer) Action()    {}
func (CancelPoll) Action()  {}

// Op is the purpose of a conditional write. A layout may implement each differently.
type Op int

// The kinds of Write.
const (
	// With epochs, a claim creates an object. With markers, a release deletes one.
	Claim Op = iota // acquire, with a new token
	Renew           // extend the lease by a TTL
	Free            // release, with the same token
)

func (o Op) String() string { return [...]string{"claim", "renew", "free"}[o] }
