package leaseotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/leasehold/leasehold/metrics"
)

// A Sink hands measurements to a meter: see metrics.Store for those of a store. It is safe for concurrent
// use.
type Sink struct {
	meter  metric.Meter
	record map[*metrics.Instrument]func(ctx context.Context, value float64, attributes metric.MeasurementOption)
	gauges map[*metrics.Instrument]metric.Float64ObservableGauge
}

var _ metrics.Sink = (*Sink)(nil)

// NewSink makes the instruments of package metrics of the provider's meter. It fails if the meter refuses
// one.
func NewSink(p metric.MeterProvider) (*Sink, error) {
	s := &Sink{
		meter:  p.Meter(Scope),
		record: map[*metrics.Instrument]func(context.Context, float64, metric.MeasurementOption){},
		gauges: map[*metrics.Instrument]metric.Float64ObservableGauge{},
	}
	for _, i := range metrics.Instruments() {
		if err := s.add(i); err != nil {
			return nil, fmt.Errorf("the instrument %s: %w", i.Name, err)
		}
	}
	return s, nil
}

func (s *Sink) add(i *metrics.Instrument) error {
	switch i.Kind {
	case metrics.Counter:
		c, err := s.meter.Float64Counter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description))
		s.record[i] = func(ctx context.Context, value float64, a metric.MeasurementOption) { c.Add(ctx, value, a) }
		return err
	case metrics.UpDownCounter:
		c, err := s.meter.Float64UpDownCounter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description))
		s.record[i] = func(ctx context.Context, value float64, a metric.MeasurementOption) { c.Add(ctx, value, a) }
		return err
	case metrics.Histogram:
		h, err := s.meter.Float64Histogram(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description),
			metric.WithExplicitBucketBoundaries(i.Buckets...))
		s.record[i] = func(ctx context.Context, value float64, a metric.MeasurementOption) { h.Record(ctx, value, a) }
		return err
	case metrics.Gauge:
		g, err := s.meter.Float64ObservableGauge(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description))
		s.gauges[i] = g
		return err
	}
	return fmt.Errorf("it is of no kind that is known: %q", i.Kind)
}

// Record takes in one value: see metrics.Sink. What is not in the list of package metrics is an error for
// OpenTelemetry's handler of errors.
func (s *Sink) Record(ctx context.Context, i *metrics.Instrument, value float64, attributes ...metrics.Attr) {
	record := s.record[i]
	if record == nil {
		otel.Handle(fmt.Errorf("leasehold: %s is no instrument that can be recorded", i.Name))
		return
	}
	record(ctx, value, attributesOf(attributes))
}

// Observe has f called at each collection: see metrics.Sink. Errors are as for Record.
//
// The callback is not one of the gauge's own: of those a meter keeps the first, and there may be several
// recorders.
func (s *Sink) Observe(i *metrics.Instrument, f func(yield func(value float64, attributes ...metrics.Attr))) {
	gauge := s.gauges[i]
	if gauge == nil {
		otel.Handle(fmt.Errorf("leasehold: %s is no instrument that can be observed", i.Name))
		return
	}
	_, err := s.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		f(func(value float64, attributes ...metrics.Attr) {
			o.ObserveFloat64(gauge, value, attributesOf(attributes))
		})
		return nil
	}, gauge)
	if err != nil {
		otel.Handle(fmt.Errorf("leasehold: the instrument %s: %w", i.Name, err))
	}
}

func attributesOf(attributes []metrics.Attr) metric.MeasurementOption {
	kvs := make([]attribute.KeyValue, len(attributes))
	for n, a := range attributes {
		kvs[n] = attribute.String(a.Name, a.Value)
	}
	return metric.WithAttributeSet(attribute.NewSet(kvs...))
}
