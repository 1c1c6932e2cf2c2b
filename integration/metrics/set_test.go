package metrics_test

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/promtext"
	"github.com/leasehold/leasehold/metrics"
	"github.com/leasehold/leasehold/store/memstore"
)

// Prometheus reads a histogram as it was meant.
func TestHistogram(t *testing.T) {
	t.Parallel()
	f := promtext.Family{Name: "x_seconds", Help: "Time.", Kind: promtext.Histogram, Samples: []promtext.Sample{
		{Labels: []promtext.Label{{Name: "op", Value: "get"}}, Value: 12.5, Buckets: []float64{0.005, 1, 1e6}, Counts: []uint64{3, 0, 2, 1}},
	}}
	got := parse(t, promtext.ContentType, promtext.Append(nil, f))["x_seconds"]
	if got.GetType() != dto.MetricType_HISTOGRAM || len(got.GetMetric()) != 1 {
		t.Fatalf("%v", got)
	}
	h := got.GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 6 || h.GetSampleSum() != 12.5 || len(h.GetBucket()) != 4 {
		t.Errorf("%v", h)
	}
	for i, want := range []struct {
		le    float64
		count uint64
	}{{0.005, 3}, {1, 3}, {1e6, 5}, {math.Inf(1), 6}} {
		if b := h.GetBucket()[i]; b.GetUpperBound() != want.le || b.GetCumulativeCount() != want.count {
			t.Errorf("bucket %d: %v", i, b)
		}
	}
}

// scrapeSet asks a set as Prometheus does.
func scrapeSet(t *testing.T, set *metrics.Set) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	set.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return parse(t, w.Header().Get("Content-Type"), w.Body.Bytes())
}

// The linter of Prometheus finds nothing wrong with any instrument, all that it can have at once. The two
// that have the names of Kubernetes are as they are there.
func TestInstruments(t *testing.T) {
	t.Parallel()
	set := metrics.NewSet()
	types := map[metrics.Kind]dto.MetricType{
		metrics.Counter: dto.MetricType_COUNTER, metrics.UpDownCounter: dto.MetricType_GAUGE,
		metrics.Gauge: dto.MetricType_GAUGE, metrics.Histogram: dto.MetricType_HISTOGRAM,
	}
	for _, i := range metrics.Instruments() {
		var attributes []metrics.Attr
		for _, a := range i.Attributes {
			attributes = append(attributes, metrics.Attr{Name: a.Name, Value: "a \"key\"\n"})
		}
		if i.Kind == metrics.Gauge {
			set.Observe(i, func(yield func(float64, ...metrics.Attr)) { yield(2, attributes...) })
			continue
		}
		set.Record(t.Context(), i, 2, attributes...)
	}
	families := scrapeSet(t, set)
	if len(families) != len(metrics.Instruments()) {
		t.Errorf("%d instruments are %d families", len(metrics.Instruments()), len(families))
	}
	for _, i := range metrics.Instruments() {
		f := families[i.PrometheusName()]
		if f.GetType() != types[i.Kind] || f.GetHelp() != i.Description || len(f.GetMetric()) != 1 {
			t.Errorf("%s is read as %v", i.Name, f)
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		for _, a := range i.Attributes {
			if !slices.Contains(labels, a.PrometheusLabel()) {
				t.Errorf("%s has the labels %q, and not %q", i.Name, labels, a.PrometheusLabel())
			}
		}
	}
}

// What a lock and a store have done is there for Prometheus.
func TestSet(t *testing.T) {
	t.Parallel()
	set := metrics.NewSet()
	recorder, err := metrics.New(set, &metrics.Options{Keys: []string{"jobs/*"}})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := leasehold.NewLock(metrics.Store(memstore.New(), set), "jobs/backup", &leasehold.LockOptions{Trace: recorder.Trace()})
	if err != nil {
		t.Fatal(err)
	}
	err = lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error {
		if held, ok := value(scrapeSet(t, set), "leasehold_lease_held", "leasehold_key", "jobs/backup"); held != 1 || !ok { //nolint:contextcheck // a scrape has nothing to do with the lease
			t.Errorf("%v leases are held", held)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	families := scrapeSet(t, set)
	if held, ok := value(families, "leasehold_lease_held", "leasehold_key", "jobs/backup"); held != 0 || !ok {
		t.Errorf("%v leases are held", held)
	}
	for name, labels := range map[string][]string{
		"leasehold_acquire_duration_seconds": {"jobs/backup", "lock", "acquired", "false"},
		"leasehold_store_duration_seconds":   {"put", "ok"},
	} {
		found := slices.ContainsFunc(families[name].GetMetric(), func(m *dto.Metric) bool {
			return m.GetHistogram().GetSampleCount() > 0 && m.GetHistogram().GetSampleSum() < time.Hour.Seconds() && len(m.GetLabel()) == len(labels) &&
				!slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return !slices.Contains(labels, l.GetValue()) })
		})
		if !found {
			t.Errorf("%s of %q: %v", name, labels, families[name])
		}
	}
}
