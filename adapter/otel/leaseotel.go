// Package leaseotel hands what locks, elections, sessions, semaphores, shards and stores do to OpenTelemetry:
// the instruments of package metrics, and spans. It is a module of its own, so that OpenTelemetry is not
// among the library's dependencies.
//
//	trace, err := leaseotel.NewTrace(nil) // of the global providers
//	lock, err := leasehold.NewLock(st, "backup", &leasehold.LockOptions{Trace: trace})
//
// # Spans
//
// leasehold.acquire is an acquisition, from the call to the lease or the error. Its parent is the span of
// the caller's context. It has an event "waiting" for each holder that is waited for, and the status Error if
// there is no lease, unless another holds the lock and the caller did not wait. The requests and the lease's
// context have it as their span.
//
// leasehold.hold is a lease, from then until it is released or lost. Its parent is that of the acquisition,
// which it links to, since it goes on when that has ended. It has an event "renewed" for a renewal that took more than one
// request or left less than a third of the TTL, an event "trouble" when the store keeps failing, and the
// status Error if the lease was lost, or if the store did not confirm its release. A session is such a
// lease; one that lasts for days is exported when it ends.
//
// Both have the attributes leasehold.kind, leasehold.store, leasehold.key and leasehold.holder, and what came
// of it: leasehold.outcome, leasehold.waited, leasehold.took_over, leasehold.token; leasehold.end.
package leaseotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/metrics"
)

// Scope is the name of the meter and of the tracer.
const Scope = "github.com/leasehold/leasehold/adapter/otel"

// Options are the options of [NewTrace]. The zero value, like nil, gives the defaults.
type Options struct {
	MeterProvider  metric.MeterProvider // default: the global one
	TracerProvider trace.TracerProvider // default: the global one
	Metrics        *metrics.Options     // which keys are told apart; spans have all
}

// NewTrace makes a Trace of both: the instruments and the spans. It fails if a meter refuses an instrument,
// or if the options cannot be used. One is enough for a process.
func NewTrace(opts *Options) (*locktrace.Trace, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	sink, err := NewSink(o.MeterProvider)
	if err != nil {
		return nil, err
	}
	recorder, err := metrics.New(sink, o.Metrics)
	if err != nil {
		return nil, err
	}
	// The spans come first, so that what is measured belongs to them.
	return locktrace.Join(Spans(o.TracerProvider), recorder.Trace()), nil
}
