package register

// An Event is something that happened: somebody calls, a member answers, time passes.
type Event interface{ event() }

// The events.
type (
	// Call: somebody wants something of the register. One Answer follows. Calls are served one after
	// the other.
	Call struct {
		ID   int // of the caller's choice
		Kind Kind
		// Over, of a Set, is the version of the value that Value is to replace; empty: there must be none.
		Over string
		// Value, of a Set, is what is to be written, and of a Remove it has a version only, which names
		// the deletion. No two calls have the same version.
		Value Value
		// Taken, of a Collect or Survey, has a bit for each member whose marker has been seen with the number of
		// this configuration. All of them are needed (rule Q7).
		Taken int
	}
	// Cancel: the caller does not wait any longer, because of Err. The Answer follows at once.
	Cancel struct {
		ID  int
		Err error
	}
	// Shown is the answer to a Get. Without Err, Same says that the version is still the one that was
	// named, and an empty At that there is no object. Old, of a Get for one of these, says that the object has been
	// as it is for longer than any request is under way, by the member's own clock (rule Q7).
	Shown struct {
		Member   int
		Request  int
		Same     bool
		At       string
		Acceptor Acceptor
		Old      bool
		Err      error
	}
	// Stored is the answer to a Put, or to a Drop, after which an empty At says that there is no object.
	Stored struct {
		Member  int
		Request int
		Fate    Fate
		At      string // Landed: the version that was made
		Err     error  // why not
	}
	// Marked is the answer to a Check. Without Err, a nil Marker says that there is none.
	Marked struct {
		Member  int
		Request int
		Marker  *Marker
		Err     error
	}
	// Tick: time has passed, as Due asked.
	Tick struct{}
)

func (Call) event()   {}
func (Cancel) event() {}
func (Shown) event()  {}
func (Stored) event() {}
func (Marked) event() {}
func (Tick) event()   {}

// A Kind is what a call is for.
type Kind int

// The kinds.
const (
	Look   Kind = iota // tells what there is
	Set                // writes a value in place of the one that is expected
	Remove             // deletes whatever there is
	Settle             // has what there is accepted by every member that answers
	// Collect takes away what a deletion has left in the members (rule Q7). If all members have the
	// deletion, and for long enough, it is dropped: the answer is Done without a Value. If not all have it,
	// it is settled first, and the answer is Done with it as the Value: it can be dropped when it is old.
	// Otherwise the answer is a Mismatch, with what there is.
	Collect
	// Survey gives the answer of a Collect under the next configuration, and writes nothing.
	Survey
)

// A Fate is what became of a conditional write.
type Fate int

// The fates.
const (
	Landed  Fate = iota
	Refused      // the condition does not hold, and never will again
	Unsent       // it was not let through, and the member is of no use now
	Unknown      // it may have landed, or may yet land; or a rival write was under way
)

// An Action is something to do, in the order in which they are given.
type Action interface{ action() }

// The actions. Each Get, Put, Check and Drop is answered by one event, which has the number of its request. An answer
// that nobody waits for any more may come all the same.
type (
	// Get: read the member's object, unless its version is still Unless.
	Get struct {
		Member  int
		Request int
		Unless  string
	}
	// Put: write the member's object over exactly that version, or where there is none.
	Put struct {
		Member   int
		Request  int
		Over     string
		Acceptor Acceptor
	}
	// Check: read the member's marker.
	Check struct {
		Member  int
		Request int
	}
	// Drop: delete the member's object if it is exactly that version. A store that would delete another one
	// must not be asked.
	Drop struct {
		Member  int
		Request int
		Over    string
	}
	// Answer is that to a call.
	Answer struct {
		ID      int
		Outcome Outcome
		Value   Value // Done, Mismatch: what there is
		Votes   int   // Done: a bit for each member that is known to have accepted it by now, or to have dropped it
		Err     error // Failed, Uncertain: why
	}
)

func (Get) action()    {}
func (Put) action()    {}
func (Check) action()  {}
func (Drop) action()   {}
func (Answer) action() {}

// An Outcome is how a call has ended.
type Outcome int

// The outcomes.
const (
	Done      Outcome = iota
	Mismatch          // of a Set, a Collect: another value is there, and nothing was written nor will be
	Uncertain         // of a Set or Remove: it may have been written, or may yet surface (rule Q4)
	Failed            // nothing was written nor will be
)
