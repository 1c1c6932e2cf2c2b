package leasehold

import (
	"context"
	"sync"
	"time"
)

// A term is one time of leading under Run. It is made before the campaign, because it
// and its lease become known at once (see saw): who resigns from the moment in which
// there is a lease stops the term, and the lease goes on until its work has stopped.
type term struct {
	work   context.Context
	cancel context.CancelCauseFunc // of the work
	grace  time.Duration
	lease  *Lease // set by saw
	once   sync.Once
	late   *time.Timer   // of the grace; set by once
	over   chan struct{} // closed when the release is settled, or was waited for long enough
	end    error         // what the release returned; set before over is closed
}

func newTerm(ctx context.Context, grace time.Duration) *term {
	t := &term{grace: grace, over: make(chan struct{})}
	t.work, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return t
}

// stop ends the work, and the lease when the work has not stopped in time.
func (t *term) stop(cause error) {
	t.once.Do(func() {
		t.cancel(cause)
		t.late = time.AfterFunc(t.grace, func() { t.lease.Abandon(nil) })
	})
}

// stopped: the work has returned.
func (t *term) stopped() {
	// The work has returned before anybody stopped it, so no grace begins any more; and where it
	// has begun, late is set by the time that this returns.
	t.once.Do(func() {})
	if t.late != nil {
		t.late.Stop()
	}
	t.cancel(nil)
}
