package register

// An Event is a call, an answer of a member, or a tick of the clock.
type Event interface{ event() }

// The events.
type (
	// Call asks the register for something. One Answer follows. Calls are served in order.
	Call struct {
		ID   int // chosen by the caller
		Kind Kind
		// Over, of a Set, is the version of the value to replace; empty: there must be no object.
		Over string
		// Value, of a Set, is the value to write. Of a Remove it has only a version, which names the
		// deletion. No two calls have the same version.
		Value Value
		// Taken, of a Collect or Survey, has a bit for each member whose marker was seen with the number
		// of this configuration. All members are needed (rule Q7).
		Taken int
	}
	// Cancel ends a call with Err. The Answer follows at once.
	Cancel struct {
		ID  int
		Err error
	}
	// Shown is the answer to a Get. Without Err, Same means that the version is still Unless, and an empty
	// At means that there is no object. Old means that the object has been unchanged for longer than any
	// request is in flight, by the member's own clock (rule Q7).
	Shown struct {
		Member   int
		Request  int
		Same     bool
		At       string
		Acceptor Acceptor
		Old      bool
		Err      error
	}
	// Stored is the answer to a Put or a Drop. After a Drop, At is empty.
	Stored struct {
		Member  int
		Request int
		Fate    Fate
		At      string // of the new object, if it landed
		Err     error  // why it did not land
	}
	// Marked is the answer to a Check. Without Err, a nil Marker means that there is none.
	Marked struct {
		Member  int
		Request int
		Marker  *Marker
		Err     error
	}
	// Tick says that the time returned by Due has come.
	Tick struct{}
)

func (Call) event()   {}
func (Cancel) event() {}
func (Shown) event()  {}
func (Stored) event() {}
func (Marked) event() {}
func (Tick) event()   {}

// A Kind is the purpose of a call.
type Kind int

// The kinds.
const (
	Look   Kind = iota // returns the value
	Set                // replaces the expected value
	Remove             // deletes any value
	Settle             // makes every member that answers accept the value
	// Collect removes a deletion from the members (rule Q7). If all members have had the deletion for long
	// enough, it is dropped, and the answer is Done without a Value. If some lack it, it is settled, and the
	// answer is Done with the deletion as the Value; it can be dropped when it is old. Otherwise the answer
	// is a Mismatch with the value.
	Collect
	// Survey gives the answer of a Collect under the next configuration, and writes nothing.
	Survey
)

// A Fate is the outcome of a conditional write.
type Fate int

// The fates.
const (
	Landed  Fate = iota
	Refused      // the condition did not hold, and never will again
	Unsent       // it was not sent, and the member cannot be used now
	Unknown      // it may have landed, or may still land; or a rival write was in flight
)

// An Action is something to do. Actions are carried out in order.
type Action interface{ action() }

// The actions. Each Get, Put, Check and Drop is answered by one event with the same request number. Answers that come
// too late are ignored.
type (
	// Get reads the member's object, unless its version is still Unless.
	Get struct {
		Member  int
		Request int
		Unless  string
	}
	// Put writes the member's object over exactly that version, or creates it if Over is empty.
	Put struct {
		Member   int
		Request  int
		Over     string
		Acceptor Acceptor
	}
	// Check reads the member's marker.
	Check struct {
		Member  int
		Request int
	}
	// Drop deletes the member's object if it is exactly that version. The store must support that condition.
	Drop struct {
		Member  int
		Request int
		Over    string
	}
	// Answer is the result of a call.
	Answer struct {
		ID      int
		Outcome Outcome
		Value   Value // with Done and Mismatch
		Votes   int   // with Done: a bit for each member known to have accepted or dropped it
		Err     error // with Failed and Uncertain
	}
)

func (Get) action()    {}
func (Put) action()    {}
func (Check) action()  {}
func (Drop) action()   {}
func (Answer) action() {}

// An Outcome is the result of a call.
type Outcome int

// The outcomes.
const (
	Done      Outcome = iota
	Mismatch          // of a Set or Collect: there is another value, and nothing was or will be written
	Uncertain         // of a Set or Remove: it may have been written, or may surface later (rule Q4)
	Failed            // nothing was or will be written
)
