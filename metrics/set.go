package metrics

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/internal/promtext"
)

// MaxSeries is how many series a [Set] keeps per instrument. Measurements for further ones are
// counted in a series whose attributes all have the value "overflow". You reach the limit only
// if you name very many keys, or record other instruments than those in the list.
const MaxSeries = 20_000

// overflow is the value of all attributes of measurements beyond MaxSeries.
const overflow = "overflow"

// A Set is a [Sink] that keeps measurements in memory for Prometheus. It is an http.Handler
// that serves them. It is safe for concurrent use.
type Set struct {
	mu       sync.Mutex
	families map[*Instrument]*family
	observed []observed
}

// observed is a gauge that is read on demand.
type observed struct {
	of *Instrument
	f  func(yield func(value float64, attributes ...Attr))
}

// A family is an instrument's series.
type family struct {
	series map[string]*series // by their attributes
}

// A series is the measurements with the same attributes.
type series struct {
	attributes []Attr // sorted by name
	value      float64
	counts     []uint64 // for a Histogram, one more than there are buckets
}

// NewSet returns an empty set.
func NewSet() *Set { return &Set{families: map[*Instrument]*family{}} }

// Record adds one measurement: see [Sink].
func (s *Set) Record(_ context.Context, i *Instrument, value float64, attributes ...Attr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.families[i]
	if f == nil {
		f = &family{series: map[string]*series{}}
		s.families[i] = f
	}
	f.of(attributes).add(i, value)
}

// Observe makes each scrape call f: see [Sink].
func (s *Set) Observe(i *Instrument, f func(yield func(value float64, attributes ...Attr))) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed = append(s.observed, observed{i, f})
}

// of returns the series with those attributes.
func (f *family) of(attributes []Attr) *series {
	attributes = slices.Clone(attributes)
	slices.SortFunc(attributes, func(a, b Attr) int { return strings.Compare(a.Name, b.Name) })
	key := keyOf(attributes)
	if s := f.series[key]; s != nil {
		return s
	}
	if len(f.series) >= MaxSeries {
		for i := range attributes {
			attributes[i].Value = overflow
		}
		if key = keyOf(attributes); f.series[key] != nil {
			return f.series[key]
		}
	}
	s := &series{attributes: attributes}
	f.series[key] = s
	return s
}

func keyOf(attributes []Attr) string {
	var key strings.Builder
	for _, a := range attributes {
		key.WriteString(a.Name)
		key.WriteByte(0)
		key.WriteString(a.Value)
		key.WriteByte(0)
	}
	return key.String()
}

func (s *series) add(i *Instrument, value float64) {
	if s.value += value; i.Kind != Histogram {
		return
	}
	if s.counts == nil {
		s.counts = make([]uint64, len(i.Buckets)+1)
	}
	n, _ := slices.BinarySearch(i.Buckets, value) // a bound belongs to its own bucket
	s.counts[n]++
}

// Value returns the value of an instrument over all series with these attributes, in any order.
// For a Histogram, it returns the sum and the number of measurements, else the sum and the
// number of series. It is for tests and for programs without Prometheus.
func (s *Set) Value(i *Instrument, attributes ...Attr) (value float64, count uint64) {
	for _, one := range s.collect(i) {
		if !slices.ContainsFunc(attributes, func(a Attr) bool { return !slices.Contains(one.attributes, a) }) {
			value += one.value
			if i.Kind != Histogram {
				count++
			}
			for _, n := range one.counts {
				count += n
			}
		}
	}
	return value, count
}

// collect returns a copy of an instrument's series, sorted by attributes.
func (s *Set) collect(i *Instrument) []series {
	f := &family{series: map[string]*series{}}
	s.mu.Lock()
	asked := slices.Clone(s.observed)
	if kept := s.families[i]; kept != nil {
		for key, one := range kept.series {
			f.series[key] = &series{one.attributes, one.value, slices.Clone(one.counts)}
		}
	}
	s.mu.Unlock()
	for _, o := range asked { // without the mutex, because f may lock another one
		if o.of == i {
			o.f(func(value float64, attributes ...Attr) {
				one := f.of(attributes)
				one.value = max(one.value, value) // several may observe the same
			})
		}
	}
	keys := make([]string, 0, len(f.series))
	for key := range f.series {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	sorted := make([]series, 0, len(keys))
	for _, key := range keys {
		sorted = append(sorted, *f.series[key])
	}
	return sorted
}

// ServeHTTP writes all measurements in the Prometheus text format.
func (s *Set) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", promtext.ContentType)
	_, _ = w.Write(s.Append(nil)) // an error means that the client has left
}

// Append appends all measurements to b in the Prometheus text format, for programs that also
// have other metrics.
func (s *Set) Append(b []byte) []byte {
	s.mu.Lock()
	instruments := Instruments()
	for i := range s.families { // instruments that are not in the list come last, by name
		if !slices.Contains(all, i) {
			instruments = append(instruments, i)
		}
	}
	s.mu.Unlock()
	slices.SortStableFunc(instruments[len(all):], func(a, b *Instrument) int { return strings.Compare(a.Name, b.Name) })
	for _, i := range instruments {
		b = promtext.Append(b, familyOf(i, s.collect(i)))
	}
	return b
}

func familyOf(i *Instrument, all []series) promtext.Family {
	f := promtext.Family{Name: i.PrometheusName(), Help: i.Description, Kind: promtext.Gauge}
	switch i.Kind {
	case Counter:
		f.Kind = promtext.Counter
	case Histogram:
		f.Kind = promtext.Histogram
	case UpDownCounter, Gauge:
	}
	for _, one := range all {
		sample := promtext.Sample{Value: one.value, Buckets: i.Buckets, Counts: one.counts}
		for _, a := range one.attributes {
			sample.Labels = append(sample.Labels, promtext.Label{Name: Attribute{Name: a.Name}.PrometheusLabel(), Value: a.Value})
		}
		f.Samples = append(f.Samples, sample)
	}
	return f
}
