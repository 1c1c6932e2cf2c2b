package leaseotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasehold/leasehold"
	leaseotel "github.com/leasehold/leasehold/adapter/otel"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/metrics"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// An observed process is one whose metrics and spans are kept.
type observed struct {
	t      *testing.T
	reader *sdkmetric.ManualReader
	meters *sdkmetric.MeterProvider
	spans  *tracetest.SpanRecorder
	tracer *sdktrace.TracerProvider
	trace  *locktrace.Trace
}

func observe(t *testing.T, keys *metrics.Options) *observed {
	t.Helper()
	o := &observed{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	o.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(o.reader))
	o.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.spans))
	var err error
	if o.trace, err = leaseotel.NewTrace(&leaseotel.Options{MeterProvider: o.meters, TracerProvider: o.tracer, Metrics: keys}); err != nil {
		t.Fatal(err)
	}
	return o
}

// collect returns the metrics by their names.
func (o *observed) collect() map[string]metricdata.Metrics {
	o.t.Helper()
	var all metricdata.ResourceMetrics
	if err := o.reader.Collect(o.t.Context(), &all); err != nil {
		o.t.Fatal(err)
	}
	named := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != leaseotel.Scope {
			o.t.Errorf("the scope is %q", scope.Scope.Name)
		}
		for _, m := range scope.Metrics {
			named[m.Name] = m
		}
	}
	return named
}

// has reports whether a set has these attributes, given as pairs.
func has(set attribute.Set, pairs ...string) bool {
	for pair := range slices.Chunk(pairs, 2) {
		if v, ok := set.Value(attribute.Key(pair[0])); !ok || v.AsString() != pair[1] {
			return false
		}
	}
	return true
}

// value is the sum of a metric's points with those attributes, and of a histogram how many values they have.
func value(m metricdata.Metrics, pairs ...string) (sum float64, count uint64) {
	add := func(points []metricdata.DataPoint[float64]) {
		for _, p := range points {
			if has(p.Attributes, pairs...) {
				sum += p.Value
				count++
			}
		}
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[float64]:
		add(d.DataPoints)
	case metricdata.Gauge[float64]:
		add(d.DataPoints)
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			if has(p.Attributes, pairs...) {
				sum += p.Sum
				count += p.Count
			}
		}
	}
	return sum, count
}

func (o *observed) wants(what, name string, want float64, pairs ...string) {
	o.t.Helper()
	synctest.Wait()
	sum, n := value(o.collect()[name], pairs...)
	if diff := sum - want; diff < -0.001 || diff > 0.001 || n != 1 {
		o.t.Errorf("%s: %s %q is %v of %d, want %v of one", what, name, pairs, sum, n, want)
	}
}

// of returns the ended spans of a holder, by name.
func of(all []sdktrace.ReadOnlySpan, name, holder string) (found []sdktrace.ReadOnlySpan) {
	for _, s := range all {
		set := attribute.NewSet(s.Attributes()...)
		if s.Name() == name && has(set, "leasehold.holder", holder) {
			found = append(found, s)
		}
	}
	return found
}

func text(s sdktrace.ReadOnlySpan, key string) string {
	set := attribute.NewSet(s.Attributes()...)
	v, _ := set.Value(attribute.Key(key))
	return v.String()
}

// TestInstruments: each of the list is one of OpenTelemetry, with its kind, unit, description and buckets.
func TestInstruments(t *testing.T) {
	t.Parallel()
	o := observe(t, nil)
	sink, err := leaseotel.NewSink(o.meters)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range metrics.Instruments() {
		attribute := metrics.Attr{Name: i.Attributes[0].Name, Value: "x"}
		if i.Kind == metrics.Gauge {
			sink.Observe(i, func(yield func(float64, ...metrics.Attr)) { yield(3, attribute) })
		} else {
			sink.Record(t.Context(), i, 3, attribute)
		}
	}
	all := o.collect()
	if len(all) != len(metrics.Instruments()) {
		t.Errorf("%d instruments are %d", len(metrics.Instruments()), len(all))
	}
	for _, i := range metrics.Instruments() {
		m := all[i.Name]
		kind := metrics.Kind("none")
		switch d := m.Data.(type) {
		case metricdata.Sum[float64]:
			if kind = metrics.UpDownCounter; d.IsMonotonic {
				kind = metrics.Counter
			}
		case metricdata.Gauge[float64]:
			kind = metrics.Gauge
		case metricdata.Histogram[float64]:
			if kind = metrics.Histogram; !slices.Equal(d.DataPoints[0].Bounds, i.Buckets) {
				t.Errorf("%s has the buckets %v", i.Name, d.DataPoints[0].Bounds)
			}
		}
		if sum, n := value(m, i.Attributes[0].Name, "x"); kind != i.Kind || m.Unit != i.Unit || m.Description != i.Description || sum != 3 || n != 1 {
			t.Errorf("%s is a %s in %q, %q: %v of %d", i.Name, kind, m.Unit, m.Description, sum, n)
		}
	}
	if _, err := leaseotel.NewTrace(&leaseotel.Options{Metrics: &metrics.Options{MaxKeys: -1}}); err == nil {
		t.Error("options that cannot be are accepted")
	}
	if trace, err := leaseotel.NewTrace(nil); trace == nil || err != nil {
		t.Errorf("of the global providers: %v", err)
	}
}

// TestFailover: a lock goes from a holder that is cut off to one that waits, and what each says of it is
// right, in metrics and in spans.
func TestFailover(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		o := observe(t, &metrics.Options{Keys: []string{"jobs/*"}})
		sink, refused := leaseotel.NewSink(o.meters)
		if refused != nil {
			t.Fatal(refused)
		}
		inner := memstore.New()
		cut := faultstore.Wrap(inner, nil)
		newLock := func(st store.Store, holder string) *leasehold.Lock {
			lock, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{Holder: holder, Trace: o.trace})
			if err != nil {
				t.Fatal(err)
			}
			return lock
		}
		ctx, caller := o.tracer.Tracer("test").Start(t.Context(), "caller")
		began := time.Now()
		gone, err := newLock(cut, "a").Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, work := o.tracer.Tracer("test").Start(gone.Context(), "work")
		work.End()
		o.wants("a holds", "leasehold.lease.held", 1, metrics.AttrKey, "jobs/backup", metrics.AttrKind, "lock")
		b := newLock(metrics.Store(inner, sink), "b")
		if _, err = b.TryAcquire(ctx); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		cut.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Nth: 1})
		time.Sleep(6 * time.Second)
		cut.Clear()
		cut.Partition(true)
		lease, err := b.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		waited := time.Since(began) - 6*time.Second
		o.wants("b has waited", "leasehold.acquire.duration", waited.Seconds(), metrics.AttrOutcome, "acquired", metrics.AttrWaited, "true")
		o.wants("b has tried", "leasehold.acquire.duration", 0, metrics.AttrOutcome, "held")
		o.wants("b holds", "leasehold.lease.held", 1)
		o.wants("a has lost", "leasehold.lease.losses", 1, metrics.AttrCause, "expired", metrics.AttrKey, "jobs/backup")
		o.wants("it was taken over", "leasehold.acquire.takeovers", 1)
		o.wants("nobody waits", "leasehold.acquire.pending", 0)
		o.wants("nobody waits", "leasehold.acquire.oldest", 0)
		time.Sleep(time.Second)
		if err = lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		_ = gone.Release(t.Context()) // it was lost, and the store is away
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err = b.Acquire(ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		caller.End()
		o.wants("b has released", "leasehold.lease.duration", 1, metrics.AttrEnd, "released")
		o.wants("nobody holds", "leasehold.lease.held", 0)
		all := o.collect()
		if _, n := value(all["leasehold.store.duration"], metrics.AttrOperation, "put", metrics.AttrOutcome, "ok"); n != 2 {
			t.Errorf("%d writes of b", n) // its claim and its release
		}

		spans := o.spans.Ended()
		acquires, holds := of(spans, leaseotel.SpanAcquire, "b"), of(spans, leaseotel.SpanHold, "b")
		if len(acquires) != 3 || len(holds) != 1 || len(of(spans, leaseotel.SpanAcquire, "a")) != 1 || len(of(spans, leaseotel.SpanHold, "a")) != 1 {
			t.Fatalf("the spans are %v", names(spans))
		}
		for _, s := range slices.Concat(acquires, holds, of(spans, leaseotel.SpanHold, "a"), of(spans, leaseotel.SpanAcquire, "a")) {
			if s.Parent().SpanID() != caller.SpanContext().SpanID() || text(s, "leasehold.key") != "jobs/backup" || text(s, "leasehold.kind") != "lock" {
				t.Errorf("%s has the parent %v and %v", s.Name(), s.Parent(), s.Attributes())
			}
		}
		tried, got, none := acquires[0], acquires[1], acquires[2]
		if tried.Status().Code != codes.Unset || text(tried, metrics.AttrOutcome) != "held" {
			t.Errorf("it was held: %v, %v", tried.Status(), tried.Attributes())
		}
		if got.Status().Code != codes.Unset || text(got, metrics.AttrOutcome) != "acquired" || text(got, "leasehold.took_over") != "true" || text(got, metrics.AttrWaited) != "true" ||
			text(got, "leasehold.token") != fmt.Sprint(lease.Token()) || got.EndTime().Sub(got.StartTime()) != waited || len(got.Events()) != 1 || got.Events()[0].Name != "waiting" {
			t.Errorf("b has got it: %v, %v, %v", got.Status(), got.Attributes(), got.Events())
		}
		if none.Status().Code != codes.Error || text(none, metrics.AttrOutcome) != "gave_up" || len(none.Events()) != 1 {
			t.Errorf("it was given up: %v, %v", none.Status(), none.Attributes())
		}
		hold := holds[0]
		if hold.Status().Code != codes.Unset || text(hold, metrics.AttrEnd) != "released" || !hold.StartTime().Equal(got.EndTime()) || hold.EndTime().Sub(hold.StartTime()) != time.Second ||
			len(hold.Links()) != 1 || hold.Links()[0].SpanContext.SpanID() != got.SpanContext().SpanID() {
			t.Errorf("b has held it: %v, %v, %v", hold.Status(), hold.Attributes(), hold.Links())
		}
		lost := of(spans, leaseotel.SpanHold, "a")[0]
		var events []string
		for _, e := range lost.Events() {
			events = append(events, e.Name)
		}
		if lost.Status().Code != codes.Error || !strings.Contains(lost.Status().Description, "no renewal came through") || text(lost, metrics.AttrEnd) != "lost" || lost.EndTime().Sub(began) != 18740*time.Millisecond ||
			!slices.Contains(events, "renewed") || !slices.Contains(events, "trouble") || !slices.Contains(events, "exception") {
			t.Errorf("a has lost it: %v, %v, %q", lost.Status(), lost.Attributes(), events)
		}
		for _, s := range spans {
			if first := of(spans, leaseotel.SpanAcquire, "a")[0]; s.Name() == "work" && s.Parent().SpanID() != first.SpanContext().SpanID() {
				t.Errorf("the parent of the work is %v", s.Parent())
			}
		}
		if len(o.spans.Started()) != len(spans) {
			t.Errorf("%d spans have not ended", len(o.spans.Started())-len(spans))
		}
	})
}

func names(spans []sdktrace.ReadOnlySpan) (names []string) {
	for _, s := range spans {
		names = append(names, s.Name()+" "+text(s, "leasehold.holder"))
	}
	return names
}

// TestElection: a leader that is gone is one no more, and the next one is, under the name that Kubernetes has
// for it.
func TestElection(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		a, b := observe(t, nil), observe(t, nil)
		inner := memstore.New()
		cut := faultstore.Wrap(inner, nil)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for st, o := range map[store.Store]*observed{cut: a, inner: b} {
			el, err := leasehold.NewElection(st, "leaders/x", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Trace: o.trace}})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if o == b {
					time.Sleep(time.Second)
				}
				_ = el.Run(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
					<-ctx.Done()
					return nil
				})
			})
		}
		time.Sleep(10 * time.Second)
		a.wants("a leads", "leader_election_master_status", 1, "name", "leaders/x")
		b.wants("b does not", "leader_election_master_status", 0, "name", "leaders/x")
		b.wants("b knows a", "leasehold.leader.known", 1, metrics.AttrKey, "leaders/x")
		cut.Partition(true)
		time.Sleep(time.Minute)
		a.wants("a leads no more", "leader_election_master_status", 0, "name", "leaders/x")
		b.wants("b leads", "leader_election_master_status", 1, "name", "leaders/x")
		b.wants("b has seen both", "leasehold.leader.changes", 2, metrics.AttrKey, "leaders/x")
		stop()
		cut.Partition(false)
		all.Wait()
		b.wants("nobody leads", "leader_election_master_status", 0, "name", "leaders/x")
		b.wants("nor is known", "leasehold.leader.known", 0, metrics.AttrKey, "leaders/x")
		for name, o := range map[string]*observed{"a": a, "b": b} {
			if started, ended := len(o.spans.Started()), len(o.spans.Ended()); started != ended || started < 2 {
				t.Errorf("%s: %d spans have begun and %d ended", name, started, ended)
			}
		}
	})
}
