package tracing

import (
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/protocol"
)

// Watch has told called with what comes of each request of an engine that works for w, while that
// engine is locked.
func Watch(w engine.Owner, told func(Answer)) engine.Owner {
	return &watched{Owner: w, told: told}
}

type watched struct {
	engine.Owner
	told     func(Answer)
	requests Requests
}

// Report notes when a request is sent.
func (w *watched) Report(action protocol.Action) {
	w.requests.Sent(action, clock.Now())
	w.Owner.Report(action)
}

// Taken tells of its answer.
func (w *watched) Taken(ev protocol.Event) {
	if answer, ok := w.requests.Answered(ev, clock.Now()); ok {
		w.told(answer)
	}
	w.Owner.Taken(ev)
}
