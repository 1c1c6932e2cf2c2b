package shard

import (
	"context"

	"github.com/leasehold/leasehold"
)

// ofShards returns a Trace for the shards' locks, whose events have KindShard instead of
// KindLock.
func ofShards(t *leasehold.Trace) *leasehold.Trace {
	if t == nil {
		return nil
	}
	s := &leasehold.Trace{
		Waiting:     as(t.Waiting, func(e *leasehold.TraceWaiting) *leasehold.TraceSubject { return &e.TraceSubject }),
		AcquireDone: as(t.AcquireDone, func(e *leasehold.TraceAcquireDone) *leasehold.TraceSubject { return &e.TraceSubject }),
		Renewed:     as(t.Renewed, func(e *leasehold.TraceRenewed) *leasehold.TraceSubject { return &e.TraceSubject }),
		Lost:        as(t.Lost, func(e *leasehold.TraceLost) *leasehold.TraceSubject { return &e.TraceSubject }),
		Released:    as(t.Released, func(e *leasehold.TraceReleased) *leasehold.TraceSubject { return &e.TraceSubject }),
		Trouble:     as(t.Trouble, func(e *leasehold.TraceTrouble) *leasehold.TraceSubject { return &e.TraceSubject }),
		Request:     as(t.Request, func(e *leasehold.TraceRequest) *leasehold.TraceSubject { return &e.TraceSubject }),
	}
	if t.AcquireStart != nil {
		s.AcquireStart = func(ctx context.Context, e leasehold.TraceAcquireStart) context.Context {
			ofShard(&e.TraceSubject)
			return t.AcquireStart(ctx, e)
		}
	}
	return s
}

func ofShard(s *leasehold.TraceSubject) {
	if s.Kind == leasehold.KindLock {
		s.Kind = leasehold.KindShard // the watch of a session keeps its kind
	}
}

func as[E any](f func(context.Context, E), subject func(*E) *leasehold.TraceSubject) func(context.Context, E) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, e E) {
		ofShard(subject(&e))
		f(ctx, e)
	}
}
