package leasehold

import (
	"context"
	"sync"
	"time"
)

// A term is one time of leading under Run. It is created before the campaign, because the term
// and its lease become known together (see saw). A Resign from then on stops the term, and the
// lease lasts until its work has stopped.
type term struct {
	work   context.Context
	cancel context.CancelCauseFunc // of the work
	grace  time.Duration
	lease  *Lease // set by saw
	once   sync.Once
	late   *time.Timer   // grace timer, set by once
	over   chan struct{} // closed when the release is settled, or the wait for it has timed out
	end    error         // result of the release; set before over is closed
}

func newTerm(ctx context.Context, grace time.Duration) *term {
	t := &term{grace: grace, over: make(chan struct{})}
	t.work, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return t
}

// stop ends the work, and ends the lease if the work does not stop within the grace period.
func (t *term) stop(cause error) {
	t.once.Do(func() {
		t.cancel(cause)
		t.late = time.AfterFunc(t.grace, func() { t.lease.Abandon(nil) })
	})
}

// stopped is called when the work has returned.
func (t *term) stopped() {
	// Keeps a later stop from starting the grace period. If stop is already running, this waits
	// until it has set late.
	t.once.Do(func() {})
	if t.late != nil {
		t.late.Stop()
	}
	t.cancel(nil)
}
