package tracing

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// Requests keeps which request of an engine is under way, of which there is one at most. The zero
// Requests has none. It is guarded by the engine's mutex.
type Requests struct {
	op   string
	sent time.Duration
}

// An Answer is what came of a request.
type Answer struct {
	Op   string
	Took time.Duration
	Err  error
}

// Sent takes in an action of a candidate or a table, at a reading of the clock, and reports whether it
// is a request.
func (r *Requests) Sent(action protocol.Action, now time.Duration) bool {
	var op string
	switch a := action.(type) {
	case protocol.Read, protocol.ReadTable:
		op = "read"
	case protocol.Check:
		op = "check"
	case protocol.Write:
		op = a.Op.String()
	case protocol.WriteTable:
		op = "write"
	default:
		return false
	}
	r.op, r.sent = op, now
	return true
}

// Answered takes in an event, at a reading of the clock, and reports whether it is the answer to the
// request.
func (r *Requests) Answered(ev protocol.Event, now time.Duration) (Answer, bool) {
	var err error
	switch ev := ev.(type) {
	case protocol.ReadDone:
		err = ev.Err
	case protocol.WriteDone:
		err = ev.Err
	case protocol.Checked:
		err = ev.Err
	case protocol.TableRead:
		err = ev.Err
	case protocol.TableWritten:
		err = ev.Err
	default:
		return Answer{}, false
	}
	return Answer{r.op, now - r.sent, err}, true
}
