package leasetest

import (
	"context"
	"errors"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/locktrace"
)

// OnWait returns a Trace that tells for whom a lock waits.
func OnWait(f func(leasehold.Info)) *locktrace.Trace {
	return &locktrace.Trace{Waiting: func(_ context.Context, e locktrace.Waiting) {
		if held, is := errors.AsType[*leasehold.HeldError](e.Held); is && !e.Local {
			f(held.Info)
		}
	}}
}

// OnRenew returns a Trace that tells about renewals.
func OnRenew(f func()) *locktrace.Trace {
	return &locktrace.Trace{Renewed: func(context.Context, locktrace.Renewed) { f() }}
}

// OnLost returns a Trace that tells why a lease was lost, sessions aside.
func OnLost(f func(error)) *locktrace.Trace {
	return &locktrace.Trace{Lost: func(_ context.Context, e locktrace.Lost) {
		if e.Kind != locktrace.Session {
			f(e.Cause)
		}
	}}
}

// OnTrouble returns a Trace that tells why the store fails.
func OnTrouble(f func(error)) *locktrace.Trace {
	return &locktrace.Trace{Trouble: func(_ context.Context, e locktrace.Trouble) { f(e.Err) }}
}

// OnLeader returns a Trace that tells the name of each new leader.
func OnLeader(f func(name string)) *locktrace.Trace {
	return &locktrace.Trace{Leader: func(_ context.Context, e locktrace.Leader) {
		if e.New {
			f(e.Name)
		}
	}}
}
