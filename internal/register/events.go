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
	}
	// Cancel: the caller does not wait any longer, because of Err. The Answer follows at once.
	Cancel struct {
		ID  int
		Err error
	}
	// Shown is the answer to a Get. Without Err, Same says that the version is still the one that was
	// named, and an empty At that there is no object.
	Shown struct {
		Member   int
		Request  int
		Same     bool
		At       string
		Acceptor Acceptor
		Err      error
	}
	// Stored is the answer to a Put.
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

// The actions. Each Get, Put and Check is answered by one event, which has the number of its request. An answer
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
	// Answer is that to a call.
	Answer struct {
		ID      int
		Outcome Outcome
		Value   Value // Done, Mismatch: what there is
		Votes   int   // Done: a bit for each member that is known to have accepted it by now
		Err     error // Failed, Uncertain: why
	}
)

func (Get) action()    {}
func (Put) action()    {}
func (Check) action()  {}
func (Answer) action() {}

// An Outcome is how a call has ended.
type Outcome int

// The outcomes.
const (
	Done      Outcome = iota
	Mismatch          // of a Set: another value is there, and nothing was written nor will be
	Uncertain         // of a Set or Remove: it may have been written, or may yet surface (rule Q4)
	Failed            // nothing was written nor will be
)
