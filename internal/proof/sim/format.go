package sim

import (
	"fmt"
	"strings"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// brief is an event or an action in a line of a history.
func brief(x any) string {
	switch x := x.(type) {
	case protocol.Read:
		return fmt.Sprintf("Read unless %q within %v", x.Unless, x.Timeout)
	case protocol.Write:
		return fmt.Sprintf("Write %v %s over %q within %v", x.Op, showRecord(x.Record), x.Expect, x.Timeout)
	case protocol.ReadDone:
		shown := [...]string{"Unread", "Found", "Same", "Absent", "Foreign"}[x.Shown]
		if x.Shown == protocol.Found {
			shown += fmt.Sprintf(" %s as %q, %v old", showRecord(x.Record), x.Version, x.Age)
		}
		return fmt.Sprintf("ReadDone %s, error %v, final %t", shown, x.Err, x.Fatal)
	case protocol.WriteDone:
		return fmt.Sprintf("WriteDone as %q, error %v, void %t, final %t", x.Version, x.Err, x.Void, x.Fatal)
	case protocol.Sighted:
		return "Sighted " + brief(x.Answer)
	case protocol.PeerAnswer:
		return fmt.Sprintf("Heard %+v, error %v, proof %t", x.Status, x.Err, x.Proof != nil)
	case protocol.Waiting:
		return "Waiting for " + showRecord(x.Record)
	case protocol.Refused:
		return "Refused for " + showRecord(x.Record)
	case protocol.Expired:
		return "Overdue is " + showRecord(x.Record)
	case protocol.Vanished:
		return "Vanished is " + showRecord(x.Record)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T%+v", x, x), "protocol.")
}

func showRecord(r record.Record) string {
	state := "free"
	if r.Held {
		state = "held"
	}
	if r.Session != "" {
		state += " under " + r.Session
	}
	return fmt.Sprintf("%s, token %d, TTL %v, by %s", state, r.Token, r.TTL, r.WriteID)
}
