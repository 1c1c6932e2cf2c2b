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
