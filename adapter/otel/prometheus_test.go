package leaseotel_test

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	leaseotel "github.com/leasehold/leasehold/adapter/otel"
	"github.com/leasehold/leasehold/metrics"
)

// TestPrometheus: OpenTelemetry's exporter gives each instrument the name and the labels that the dashboard and
// the alerts have for it.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	sink, err := leaseotel.NewSink(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range metrics.Instruments() {
		var attributes []metrics.Attr
		for _, a := range i.Attributes {
			attributes = append(attributes, metrics.Attr{Name: a.Name, Value: "x"})
		}
		if i.Kind == metrics.Gauge {
			sink.Observe(i, func(yield func(float64, ...metrics.Attr)) { yield(1, attributes...) })
			continue
		}
		sink.Record(t.Context(), i, 1, attributes...)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range metrics.Instruments() {
		n := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == i.PrometheusName() })
		if n < 0 {
			t.Errorf("%s is not exported as %s", i.Name, i.PrometheusName())
			continue
		}
		for _, a := range i.Attributes {
			if !slices.ContainsFunc(families[n].GetMetric()[0].GetLabel(), func(l *dto.LabelPair) bool {
				return l.GetName() == a.PrometheusLabel() && l.GetValue() == "x"
			}) {
				t.Errorf("%s has no label %s: %v", i.Name, a.PrometheusLabel(), families[n])
			}
		}
	}
	if t.Failed() {
		for _, f := range families {
			t.Log(f.GetName())
		}
	}
}
