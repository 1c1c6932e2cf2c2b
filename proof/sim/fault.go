package sim

// A Fault is a kind of fault.
type Fault int

// The kinds of faults. Each is counted when it has an effect, not when it is drawn.
const (
	Crash         Fault = iota // a process dies and restarts under its name
	Pause                      // a process stops for longer than its lease
	Suspend                    // a machine does: its clock continues, its timers do not
	Drift                      // a clock runs as fast or as slow as the bound allows
	FarDrift                   // a clock runs beyond the bound
	WallJump                   // a wall clock jumps
	LostRequest                // a request to the store is lost
	LostAnswer                 // the store's answer is lost
	LateRequest                // a write lands after its caller gave up
	LateAnswer                 // an answer comes after its caller gave up
	Duplicate                  // a write arrives again
	Conflict                   // 409
	Unavailable                // 503, and nothing landed
	Throttled                  // all requests are throttled, for a while
	Unknown                    // 500 for a write that landed
	Denied                     // 403
	CutRequests                // a process's requests do not arrive, for a while
	CutAnswers                 // the answers do not arrive
	CutBoth                    // neither arrive
	SlowStore                  // the store takes seconds, for a while
	StoreJump                  // the store's clock jumps
	Poison                     // something else replaces an object
	Deletion                   // the object is deleted
	Shorter                    // a holder's TTL becomes shorter
	Longer                     // or longer
	GivenUp                    // a lease is given up before its work has stopped
	Overrun                    // work continues for a while after its lease was lost
	Cancelled                  // an acquisition is cancelled
	Passed                     // a lease is passed on in its process
	Dropped                    // and is not taken
	PeerLost                   // a leader's answer is lost, or the question
	PeerLate                   // an answer comes after its question was given up
	PeerStale                  // an answer is outdated
	PeerLie                    // an answer was never true
	Collected                  // an old epoch is deleted
	Recreated                  // a collected epoch is re-created
	StaleWrite                 // a former holder writes after its successor
	Killed                     // a session is ended while its process still uses it
	ClosedHeld                 // a session is closed while there are leases under it
	HintMissed                 // a heartbeat counts more releases than it names
	OrphanSettled              // an abandoned claim under a session has landed, and is freed
	OrphanEnds                 // an unsettled claim ends its session
	Rested                     // a candidate rests, and is restored later
	Judged                     // a TryAcquire learns whether the holder's session ended
	Reclaimed                  // an ended session's object is deleted
	Inspected                  // a user's read shows something to the candidate
	Persists                   // the lasting failure hits a request
	PeerForged                 // a forger answers in the leader's name
	ManyOpen                   // more than eight claims of an acquisition may still land
	OldestLands                // a claim lands after eight later ones were sent
	TimeUp                     // a lease reaches the end of its terms
	Rests                      // a lock is released into its cooldown
	Detached                   // a lease is detached
	Copied                     // its proof is copied
	Attached                   // a proof is used
	MetaChanged                // a record has new metadata, and its holder is told
	MetaUnder                  // the same under a session
	Noticed                    // a holder gives notice to its successor
	OutOfLine                  // a waiter for a slot gives up
	Hurried                    // a user that leaves waits for less than a TTL for the end
	SlotLost                   // a slot is lost with its session, or because its object was changed
	HandedOver                 // a release gives slots to another process
	LateJoin                   // an entry lands after its caller has left
	DeadEntry                  // another process removes the entry of an ended session
	TableOrphan                // an unsettled entry ends its session
	TablePoisoned              // something else replaces the table
	TableDeleted               // the table is deleted
	OtherSize                  // a process expects another size
	NoRoom                     // a caller is refused because the table is full
	LookedAhead                // a holder reads because of a notification
	pastFaults                 // the number of faults that any history may have
)

// Faults of a quorum's members.
const (
	MemberDown       = pastFaults + iota // a member does not answer, for a while
	MemberEmptied                        // a member loses everything
	MemberReplaced                       // a member is replaced
	MemberWhole                          // the new member has everything
	Tombstones                           // tombstones are collected
	TombstoneGone                        // a tombstone is deleted completely
	TombstoneSettled                     // or written to all members first
	TombstoneTouched                     // or its key is written meanwhile
	Faults                               // the number of faults
)

var faultNames = [Faults]string{
	"crash and restart", "pause beyond the lease", "suspended beyond the lease", "drift at the bound", "drift beyond the bound", "wall clock jumps",
	"request lost", "answer lost", "write lands late", "answer too late", "write doubled",
	"409 conflict", "503 unavailable", "503 throttled", "500 though it landed", "403 denied",
	"requests cut off", "answers cut off", "cut off both ways", "slow store", "store's clock jumps", "poison object", "deleted by hand",
	"TTL made shorter", "TTL made longer", "lease given up", "work overruns", "acquisition cancelled", "lease passed on", "passed on to nobody",
	"peer silent", "peer too late", "peer's word stale", "peer's word a lie",
	"epoch collected", "epoch created again", "former holder writes",
	"session killed while its holder lives", "session closed with leases", "heartbeat names too few",
	"orphan settled", "orphan ends its session", "rest and resume", "session judged", "session's object deleted",
	"user looks", "failure that lasts", "peer's word forged", "nine claims may land", "claim lands after eight more",
	"lease at its longest hold", "lock at rest",
	"lease detached", "detached lease copied", "detached lease used",
	"meta data changed", "meta data changed under a session",
	"successor has notice",
	"waiter for a slot gives up", "user that leaves waits for less than a TTL", "slot lost", "slot handed over to another process", "entry lands whose caller has left",
	"entry of a dead session taken out", "entry that cannot be settled ends its session",
	"poison in a table's place", "table deleted by hand", "table of another size", "no room in a table",
	"holder looks ahead",
	"member down", "member emptied", "member replaced", "new member whole",
	"collection of deletions", "deletion collected", "deletion settled first", "deletion written over meanwhile",
}

func (f Fault) String() string { return faultNames[f] }

// Counts has the number of times each fault was met.
type Counts [Faults]int

// Add adds another history's counts.
func (c *Counts) Add(other Counts) {
	for f, n := range other {
		c[f] += n
	}
}

// odds are the odds of a fault in one history: one in n, or never if 0.
var odds = [...]int{0, 0, 0, 0, 50, 8}

// processFaults are the faults of processes and their machines.
var processFaults = [...]Fault{Crash, Pause, Suspend, Denied, CutRequests, CutAnswers, CutBoth, WallJump, Drift}
