package promtext_test

import (
	"math"
	"testing"

	"github.com/leasehold/leasehold/internal/promtext"
)

// Each kind of value, and each character that has to be escaped, is written as the format wants it.
func TestAppend(t *testing.T) {
	t.Parallel()
	got := string(promtext.Append([]byte("# before\n"),
		promtext.Family{Name: "plain", Help: `A back\slash, "quotes" and` + "\na line.", Kind: promtext.Gauge, Samples: []promtext.Sample{{Value: 1}}},
		promtext.Family{Name: "none_total", Help: "Nothing.", Kind: promtext.Counter},
		promtext.Family{Name: "many_total", Help: "Many.", Kind: promtext.Counter, Samples: []promtext.Sample{
			{Labels: []promtext.Label{{"a", `b\c"d` + "\ne"}, {"f", "\xff\xfe"}}, Value: 1763625000123},
			{Labels: []promtext.Label{{"a", ""}}, Value: 0.25},
			{Value: math.Inf(1)},
			{Value: math.Inf(-1)},
			{Value: math.NaN()},
			{Value: -3e-9},
			{Value: 1e300},
		}},
	))
	want := `# before
# HELP plain A back\\slash, "quotes" and\na line.
# TYPE plain gauge
plain 1
# HELP many_total Many.
# TYPE many_total counter
many_total{a="b\\c\"d\ne",f="` + "\uFFFD" + `"} 1763625000123
many_total{a=""} 0.25
many_total +Inf
many_total -Inf
many_total NaN
many_total -3e-09
many_total 1e+300
`
	if got != want {
		t.Errorf("wrote\n%s\nwant\n%s", got, want)
	}
}

// A name that Prometheus refuses is a mistake in the program, and does not wait for a scrape.
func TestBadNames(t *testing.T) {
	t.Parallel()
	for _, f := range []promtext.Family{
		{Name: "with-dash", Samples: []promtext.Sample{{}}},
		{Name: "", Samples: []promtext.Sample{{}}},
		{Name: "ok", Samples: []promtext.Sample{{Labels: []promtext.Label{{"a:b", "c"}}}}},
		{Name: "ok", Samples: []promtext.Sample{{Labels: []promtext.Label{{"9", "c"}}}}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was written", f)
				}
			}()
			promtext.Append(nil, f)
		}()
	}
}

// The buckets of a histogram are cumulative, and the last one has all values.
func TestHistogram(t *testing.T) {
	t.Parallel()
	got := string(promtext.Append(nil, promtext.Family{Name: "took_seconds", Help: "How long it took.", Kind: promtext.Histogram, Samples: []promtext.Sample{
		{Labels: []promtext.Label{{"op", "get"}}, Value: 7.5, Buckets: []float64{0.005, 1, 10}, Counts: []uint64{2, 0, 1, 4}},
		{Value: 0, Buckets: []float64{1}, Counts: []uint64{0, 0}},
	}}))
	want := `# HELP took_seconds How long it took.
# TYPE took_seconds histogram
took_seconds_bucket{op="get",le="0.005"} 2
took_seconds_bucket{op="get",le="1"} 2
took_seconds_bucket{op="get",le="10"} 3
took_seconds_bucket{op="get",le="+Inf"} 7
took_seconds_sum{op="get"} 7.5
took_seconds_count{op="get"} 7
took_seconds_bucket{le="1"} 0
took_seconds_bucket{le="+Inf"} 0
took_seconds_sum 0
took_seconds_count 0
`
	if got != want {
		t.Errorf("wrote\n%s\nwant\n%s", got, want)
	}
}

// A histogram whose counts are not those of its buckets is a mistake in the program.
func TestBadHistograms(t *testing.T) {
	t.Parallel()
	for _, s := range []promtext.Sample{
		{},
		{Buckets: []float64{1}, Counts: []uint64{1}},
		{Buckets: []float64{2, 1}, Counts: []uint64{1, 2, 3}},
		{Buckets: []float64{1, 1}, Counts: []uint64{1, 2, 3}},
		{Buckets: []float64{math.Inf(1)}, Counts: []uint64{1, 2}},
		{Labels: []promtext.Label{{"le", "1"}}, Counts: []uint64{1}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was written", s)
				}
			}()
			promtext.Append(nil, promtext.Family{Name: "ok", Kind: promtext.Histogram, Samples: []promtext.Sample{s}})
		}()
	}
}
