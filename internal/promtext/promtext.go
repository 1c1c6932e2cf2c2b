// Package promtext writes metrics in the text format of Prometheus, version 0.0.4.
//
// It is what a program needs that has a few gauges, counters and histograms and computes them when it
// is asked: the client library of Prometheus would double the size of such a program. The module
// integration/metrics reads what is written with the parser and the linter of Prometheus.
package promtext

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ContentType is that of a response with metrics.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// A Kind is how the values of a metric behave.
type Kind string

// The kinds of metric.
const (
	Counter Kind = "counter" // only grows, and begins at 0 with the process; its name ends with _total
	Gauge   Kind = "gauge"
	// Histogram has, of each Sample, the Buckets and the Counts, and Value is the sum.
	Histogram Kind = "histogram"
)

// A Label tells the samples of one metric apart.
type Label struct{ Name, Value string }

// A Sample is one value of a metric.
type Sample struct {
	Labels []Label // in the order in which they are written; none is "le"
	Value  float64

	// Buckets are the upper bounds of the buckets of a Histogram, ascending and without infinity, and
	// Counts how many values are in each and in no lower one; the last count is of those above all bounds.
	Buckets []float64
	Counts  []uint64
}

// A Family is a metric with all its samples, which differ in the values of their labels.
type Family struct {
	Name    string
	Help    string // one sentence, in base units: seconds, bytes
	Kind    Kind
	Samples []Sample // if there is none, the metric is left out
}

var (
	metricName = onDemand(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelName  = onDemand(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// onDemand is an expression that is compiled when it is first used. Most processes use none:
// all of them together would be a large part of the time in which the command starts.
func onDemand(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// Append appends the families to b, in their order. It panics if a name is one that Prometheus
// refuses, because the names are constants of a program. A label's value may be any string: bytes
// that are not UTF-8 are replaced by U+FFFD, for Prometheus would refuse the whole answer.
func Append(b []byte, families ...Family) []byte {
	for _, f := range families {
		if len(f.Samples) == 0 {
			continue
		}
		if !metricName().MatchString(f.Name) {
			panic(fmt.Sprintf("promtext: %q cannot be the name of a metric", f.Name))
		}
		b = append(b, "# HELP "+f.Name+" "+helpEscapes.Replace(f.Help)+"\n"...)
		b = append(b, "# TYPE "+f.Name+" "+string(f.Kind)+"\n"...)
		for _, s := range f.Samples {
			if f.Kind == Histogram {
				b = appendHistogram(b, f.Name, s)
				continue
			}
			b = appendSample(b, f.Name, s.Labels, s.Value)
		}
	}
	return b
}

func appendSample(b []byte, name string, labels []Label, value float64) []byte {
	b = append(b, name...)
	b = appendLabels(b, labels)
	b = append(b, ' ')
	return append(appendValue(b, value), '\n')
}

// appendHistogram writes the buckets, each with all values up to its bound, the sum and the count.
func appendHistogram(b []byte, name string, s Sample) []byte {
	if len(s.Counts) != len(s.Buckets)+1 || !ascending(s.Buckets) {
		panic(fmt.Sprintf("promtext: the histogram %s has %d counts for the buckets %v", name, len(s.Counts), s.Buckets))
	}
	if slices.ContainsFunc(s.Labels, func(l Label) bool { return l.Name == "le" }) {
		panic(fmt.Sprintf("promtext: the histogram %s has a label le of its own", name))
	}
	var count uint64
	for i, n := range s.Counts {
		bound := "+Inf"
		if i < len(s.Buckets) {
			bound = string(appendValue(nil, s.Buckets[i]))
		}
		count += n
		labels := append(slices.Clone(s.Labels), Label{"le", bound})
		b = appendSample(b, name+"_bucket", labels, float64(count))
	}
	b = appendSample(b, name+"_sum", s.Labels, s.Value)
	return appendSample(b, name+"_count", s.Labels, float64(count))
}

// ascending reports that each bound is above the one before, and none is infinite.
func ascending(bounds []float64) bool {
	for i, b := range bounds {
		if math.IsInf(b, 0) || math.IsNaN(b) || i > 0 && b <= bounds[i-1] {
			return false
		}
	}
	return true
}

// appendValue writes a whole number without an exponent, so that people can read a token.
func appendValue(b []byte, v float64) []byte {
	if n := int64(v); float64(n) == v && n < 1<<53 && n > -1<<53 {
		return strconv.AppendInt(b, n, 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

func appendLabels(b []byte, labels []Label) []byte {
	for i, l := range labels {
		if !labelName().MatchString(l.Name) {
			panic(fmt.Sprintf("promtext: %q cannot be the name of a label", l.Name))
		}
		b = append(b, "{,"[min(i, 1)])
		b = append(b, l.Name+`="`+valueEscapes.Replace(strings.ToValidUTF8(l.Value, "\uFFFD"))+`"`...)
	}
	if len(labels) > 0 {
		b = append(b, '}')
	}
	return b
}
