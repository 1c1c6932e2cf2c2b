package leaseotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/metrics"
)

// The names of the spans.
const (
	SpanAcquire = "leasehold.acquire"
	SpanHold    = "leasehold.hold"
)

// The attributes of spans that no instrument has.
const (
	attrStore    = "leasehold.store"
	attrHolder   = "leasehold.holder"
	attrToken    = "leasehold.token"
	attrTookOver = "leasehold.took_over"
	attrAttached = "leasehold.attached"
	attrLocal    = "leasehold.local"
	attrAhead    = "leasehold.ahead"
	attrRequests = "leasehold.requests"
	attrLeft     = "leasehold.left_s"
	attrFailures = "leasehold.failures"
)

// Spans is a Trace that makes the spans of acquisitions and leases: see the package documentation.
func Spans(p trace.TracerProvider) *locktrace.Trace {
	s := &spans{p.Tracer(Scope)}
	return &locktrace.Trace{
		AcquireStart: s.acquireStart,
		Waiting:      s.waiting,
		AcquireDone:  s.acquireDone,
		Renewed:      s.renewed,
		Lost:         s.lost,
		Released:     s.released,
		Trouble:      s.trouble,
	}
}

type spans struct{ tracer trace.Tracer }

// A lease has the spans of one acquisition. Its events arrive one at a time.
type lease struct {
	parent  context.Context // of both spans
	acquire trace.Span
	hold    trace.Span // nil before it is acquired
}

// leaseKey is the context key of a Trace's lease.
type leaseKey struct{ s *spans }

func (s *spans) lease(ctx context.Context) *lease {
	l, _ := ctx.Value(leaseKey{s}).(*lease)
	return l
}

func (s *spans) start(ctx context.Context, name string, of locktrace.Subject, at time.Time, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	return s.tracer.Start(ctx, name, append(opts, trace.WithTimestamp(at), trace.WithAttributes(
		attribute.String(metrics.AttrKind, of.Kind.String()),
		attribute.String(attrStore, of.Store),
		attribute.String(metrics.AttrKey, of.Key),
		attribute.String(attrHolder, of.Holder),
	))...)
}

func (s *spans) acquireStart(ctx context.Context, e locktrace.AcquireStart) context.Context {
	l := &lease{parent: context.WithoutCancel(ctx)}
	ctx, l.acquire = s.start(ctx, SpanAcquire, e.Subject, e.Time)
	return context.WithValue(ctx, leaseKey{s}, l)
}

func (s *spans) waiting(ctx context.Context, e locktrace.Waiting) {
	if l := s.lease(ctx); l != nil {
		holder, token := first(e.Held)
		attributes := []attribute.KeyValue{
			attribute.String(attrHolder, holder),
			attribute.Int64(attrToken, token),
			attribute.Bool(attrLocal, e.Local),
		}
		if e.Kind == locktrace.Semaphore {
			attributes = append(attributes, attribute.Int(attrAhead, e.Ahead))
		}
		l.acquire.AddEvent("waiting", trace.WithTimestamp(e.Time), trace.WithAttributes(attributes...))
	}
}

// first returns the name and token of the first holder that an error names.
func first(held error) (holder string, token int64) {
	h, ok := errors.AsType[*leasehold.HeldError](held)
	switch {
	case !ok || h.Info.Size > 0 && len(h.Info.Holders) == 0:
		return "", 0
	case len(h.Info.Holders) > 0:
		return h.Info.Holders[0].Holder, int64(h.Info.Holders[0].Token)
	}
	return h.Info.Holder, int64(h.Info.Token)
}

func (s *spans) acquireDone(ctx context.Context, e locktrace.AcquireDone) {
	l := s.lease(ctx)
	if l == nil {
		return
	}
	outcome := metrics.AcquireOutcome(e.Err)
	l.acquire.SetAttributes(
		attribute.String(metrics.AttrOutcome, outcome),
		attribute.Bool(metrics.AttrWaited, e.Waited),
	)
	if e.Err == nil {
		l.acquire.SetAttributes(
			attribute.Int64(attrToken, e.Token),
			attribute.Bool(attrTookOver, e.TookOver),
			attribute.Bool(attrAttached, e.Attached),
		)
	} else if outcome != "held" { // that is an answer
		fail(l.acquire, e.Err, e.Time)
	}
	l.acquire.End(trace.WithTimestamp(e.Time))
	if e.Err == nil {
		_, l.hold = s.start(l.parent, SpanHold, e.Subject, e.Time,
			trace.WithLinks(trace.Link{SpanContext: l.acquire.SpanContext()}))
		l.hold.SetAttributes(attribute.Int64(attrToken, e.Token))
	}
}

// fail has a span say why it has failed.
func fail(span trace.Span, err error, at time.Time) {
	span.RecordError(err, trace.WithTimestamp(at))
	span.SetStatus(codes.Error, err.Error())
}

// holding is the span of the lease, if that is held, and else one that does nothing.
func (s *spans) holding(ctx context.Context) trace.Span {
	if l := s.lease(ctx); l != nil && l.hold != nil {
		return l.hold
	}
	return noop.Span{}
}

func (s *spans) renewed(ctx context.Context, e locktrace.Renewed) {
	if e.Requests > 1 || e.Left < e.TTL/3 {
		s.holding(ctx).AddEvent("renewed", trace.WithTimestamp(e.Time), trace.WithAttributes(
			attribute.Int(attrRequests, e.Requests), attribute.Float64(attrLeft, e.Left.Seconds()),
		))
	}
}

func (s *spans) lost(ctx context.Context, e locktrace.Lost) {
	span := s.holding(ctx)
	fail(span, e.Cause, e.Time)
	end(span, "lost", e.Time)
}

func (s *spans) released(ctx context.Context, e locktrace.Released) {
	span := s.holding(ctx)
	switch {
	case e.Lost: // it has ended
	case e.Detached:
		end(span, "detached", e.Time)
	default:
		if e.Err != nil {
			fail(span, e.Err, e.Time)
		}
		end(span, "released", e.Time)
	}
}

func end(span trace.Span, how string, at time.Time) {
	span.SetAttributes(attribute.String(metrics.AttrEnd, how))
	span.End(trace.WithTimestamp(at))
}

// trouble is of the lease, or of the acquisition that goes on.
func (s *spans) trouble(ctx context.Context, e locktrace.Trouble) {
	l := s.lease(ctx)
	if l == nil {
		return
	}
	span := l.acquire
	if l.hold != nil {
		span = l.hold
	}
	span.AddEvent("trouble", trace.WithTimestamp(e.Time), trace.WithAttributes(
		attribute.String("error.type", metrics.Outcome(e.Err)), attribute.String("error.message", e.Err.Error()), attribute.Int(attrFailures, e.Failures),
	))
}
