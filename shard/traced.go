package shard

import (
	"context"

	"github.com/leasehold/leasehold/locktrace"
)

// ofShards returns a Trace for the shards' locks, whose events have KindShard instead of
// KindLock.
func ofShards(t *locktrace.Trace) *locktrace.Trace {
	if t == nil {
		return nil
	}
	s := &locktrace.Trace{
		Waiting:     as(t.Waiting, func(e *locktrace.Waiting) *locktrace.Subject { return &e.Subject }),
		AcquireDone: as(t.AcquireDone, func(e *locktrace.AcquireDone) *locktrace.Subject { return &e.Subject }),
		Renewed:     as(t.Renewed, func(e *locktrace.Renewed) *locktrace.Subject { return &e.Subject }),
		Lost:        as(t.Lost, func(e *locktrace.Lost) *locktrace.Subject { return &e.Subject }),
		Released:    as(t.Released, func(e *locktrace.Released) *locktrace.Subject { return &e.Subject }),
		Trouble:     as(t.Trouble, func(e *locktrace.Trouble) *locktrace.Subject { return &e.Subject }),
		Request:     as(t.Request, func(e *locktrace.Request) *locktrace.Subject { return &e.Subject }),
	}
	if t.AcquireStart != nil {
		s.AcquireStart = func(ctx context.Context, e locktrace.AcquireStart) context.Context {
			ofShard(&e.Subject)
			return t.AcquireStart(ctx, e)
		}
	}
	return s
}

func ofShard(s *locktrace.Subject) {
	if s.Kind == locktrace.Lock {
		s.Kind = locktrace.Shard // the watch of a session keeps its kind
	}
}

func as[E any](f func(context.Context, E), subject func(*E) *locktrace.Subject) func(context.Context, E) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, e E) {
		ofShard(subject(&e))
		f(ctx, e)
	}
}
