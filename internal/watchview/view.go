package watchview

import (
	"time"

	"github.com/leasehold/leasehold"
)

// A View takes in what has happened and says what is to be on the screen. It is for one
// goroutine.
type View interface {
	// Take takes in an event that happened at this time.
	Take(ev Event, now time.Time)
	// Lines are at most height lines, of any width.
	Lines(now time.Time, width, height int) []Line
}

// An Event is something that has happened.
type Event interface{ event() }

// Changed is a change of the lock; the trouble is what is shown of its error.
type Changed struct {
	leasehold.Change
	Trouble string
}

// Asked is a request to the store that has begun.
type Asked struct{}

// Answered is the end of the request, with the reason if the store has not answered.
type Answered struct{ Trouble string }

// Said is a message of leasehold's own, for which there is no other place.
type Said struct{ Text string }

// Pressed is a key.
type Pressed struct{ Key Key }

// Listed is the end of a refresh.
type Listed struct{ Snapshot }

func (Changed) event()  {}
func (Asked) event()    {}
func (Answered) event() {}
func (Said) event()     {}
func (Pressed) event()  {}
func (Listed) event()   {}

// A scroll is which part of a list is shown.
type scroll struct {
	first int // the row that is shown at the top
	shown int // as many as were shown last
}

// press moves by a key.
func (s *scroll) press(k Key) {
	page := max(s.shown-1, 1)
	switch k {
	case Up:
		s.first--
	case Down:
		s.first++
	case PageUp:
		s.first -= page
	case PageDown:
		s.first += page
	case Home:
		s.first = 0
	case End:
		s.first = 1 << 30 // window brings it back
	case None, Quit, Interrupt, Suspend, Redraw:
	}
	s.first = max(s.first, 0)
}

// window is the part of a list of so many rows that fits into so many.
func (s *scroll) window(rows, room int) (from, to int) {
	s.shown = max(room, 0)
	s.first = max(min(s.first, rows-s.shown), 0)
	return s.first, min(s.first+s.shown, rows)
}

// seconds is a time in whole seconds, for people.
func seconds(d time.Duration) string { return d.Round(time.Second).String() }
