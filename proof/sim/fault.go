package sim

// A Fault is a kind of trouble.
type Fault int

// The kinds of trouble. Each is counted when it has an effect, not when it is drawn.
const (
	Crash         Fault = iota // a process dies, and is started again under its name
	Pause                      // one stands still for longer than its lease
	Suspend                    // its machine does: the clock goes on, and timers do not
	Drift                      // a clock runs as fast or as slow as the bound allows
	FarDrift                   // beyond the bound
	WallJump                   // a wall clock jumps
	LostRequest                // to the store
	LostAnswer                 // of the store
	LateRequest                // a write lands that nobody waits for any more
	LateAnswer                 // one comes when nobody waits for it any more
	Duplicate                  // a write arrives once more
	Conflict                   // 409
	Unavailable                // 503, and nothing landed
	Throttled                  // everybody is asked to slow down, for a while
	Unknown                    // 500 for a write that has landed
	Denied                     // 403
	CutRequests                // a member's requests do not arrive, for a while
	CutAnswers                 // the answers do not
	CutBoth                    // neither do
	SlowStore                  // the store takes seconds, for a while
	StoreJump                  // its clock jumps
	Poison                     // something that is no record is in the object's place
	Deletion                   // somebody deletes the object by hand
	Shorter                    // a holder's TTL is made shorter
	Longer                     // or longer
	GivenUp                    // a lease is given up before the work under it has stopped
	Overrun                    // work goes on for a while after its lease was lost
	Cancelled                  // an acquisition is
	Passed                     // a lease is passed on in its process
	Dropped                    // and nobody is there to take it
	PeerLost                   // a leader's answer, or the question
	PeerLate                   // one is heard by nobody any more
	PeerStale                  // a word that was true once
	PeerLie                    // a word that never was
	Collected                  // an epoch of the past is deleted
	Recreated                  // one that was collected is created once more
	StaleWrite                 // a former holder writes after its successor
	Killed                     // a session is ended while its process is alive and goes on with it
	ClosedHeld                 // a session is closed while there are leases under it
	HintMissed                 // a heartbeat tells of more releases than it names
	OrphanSettled              // a claim under a session that nobody waited for has landed, and is freed
	OrphanEnds                 // one that cannot be settled ends its session
	Rested                     // a candidate rests, and is made anew of what there is to remember
	Judged                     // who does not wait learns whether the session of the holder is over
	Reclaimed                  // the object of a session that is over is deleted
	Inspected                  // a look of the user tells the candidate something
	Persists                   // a request meets a failure that lasts
	PeerForged                 // a word in the leader's name
	ManyOpen                   // more than eight claims of an acquisition may land yet
	OldestLands                // a claim lands that eight others have followed
	TimeUp                     // a lease is over by its terms
	Rests                      // a lock is released and rests
	Detached                   // a lease is detached
	Copied                     // and two have what proves it
	Attached                   // one uses that
	MetaChanged                // a record carries other meta data, and its holder is told
	MetaUnder                  // under a session
	Noticed                    // a holder gives notice to a successor
	OutOfLine                  // who waits for a seat gives up
	Hurried                    // who leaves waits for less than a TTL for that to be settled
	SeatLost                   // a seat is lost with its session, or because of what a person does to the object
	HandedOver                 // who leaves gives seats to one of another process
	LateJoin                   // an entry lands whose caller has left
	DeadEntry                  // one of a session that is over is taken out by another
	TableOrphan                // one that cannot be settled ends its session
	TablePoisoned              // something that is no table is in its place
	TableDeleted               // somebody deletes it by hand
	OtherSize                  // a process expects another size
	NoRoom                     // one that wants a seat is refused since the table is full
	LookedAhead                // a holder looks since it was told of a change
	pastFaults                 // how many there are that every history may have
)

// Those of a quorum's members.
const (
	MemberDown       = pastFaults + iota // one does not answer, for a while
	MemberEmptied                        // one loses all that it has
	MemberReplaced                       // one is replaced
	MemberWhole                          // and the new one has everything
	Tombstones                           // what deletions have left is collected
	TombstoneGone                        // and nothing is left of one
	TombstoneSettled                     // or all members have it first
	TombstoneTouched                     // or somebody writes meanwhile
	Faults                               // how many there are
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
	"waiter for a seat gives up", "seat lost", "seat handed over to another process", "entry lands whose caller has left",
	"entry of a dead session taken out", "entry that cannot be settled ends its session",
	"poison in a table's place", "table deleted by hand", "table of another size", "no room in a table",
	"holder looks ahead",
	"member down", "member emptied", "member replaced", "new member whole",
	"collection of deletions", "deletion collected", "deletion settled first", "deletion written over meanwhile",
}

func (f Fault) String() string { return faultNames[f] }

// Counts is how often each kind of trouble was met.
type Counts [Faults]int

// Add adds those of another history.
func (c *Counts) Add(other Counts) {
	for f, n := range other {
		c[f] += n
	}
}

// odds are what trouble of one kind comes with, in one history: once in so many times, or
// never if it is 0.
var odds = [...]int{0, 0, 0, 0, 50, 8}
