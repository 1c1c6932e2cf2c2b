// Package promtext writes metrics in the text format of Prometheus, version 0.0.4.
//
// It is what a program needs that has a dozen gauges and counters and computes them when it is
// asked: the client library of Prometheus would double the size of such a program. The module
// internal/promtest reads what is written with the parser and the linter of Prometheus.
package promtext

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ContentType is that of a response with metrics.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// A Kind is how the values of a metric behave.
type Kind string

// The kinds of metric.
const (
	Counter Kind = "counter" // only grows, and begins at 0 with the process; its name ends with _total
	Gauge   Kind = "gauge"
)

// A Label tells the samples of one metric apart.
type Label struct{ Name, Value string }

// A Sample is one value of a metric.
type Sample struct {
	Labels []Label // in the order in which they are written
	Value  float64
}

// A Family is a metric with all its samples, which differ in the values of their labels.
type Family struct {
	Name    string
	Help    string // one sentence, in base units: seconds, bytes
	Kind    Kind
	Samples []Sample // if there is none, the metric is left out
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// Append appends the families to b, in their order. It panics if a name is one that Prometheus
// refuses, because the names are constants of a program. A label's value may be any string: bytes
// that are not UTF-8 are replaced by U+FFFD, for Prometheus would refuse the whole answer.
func Append(b []byte, families ...Family) []byte {
	for _, f := range families {
		if len(f.Samples) == 0 {
			continue
		}
		if !metricName.MatchString(f.Name) {
			panic(fmt.Sprintf("promtext: %q cannot be the name of a metric", f.Name))
		}
		b = append(b, "# HELP "+f.Name+" "+helpEscapes.Replace(f.Help)+"\n"...)
		b = append(b, "# TYPE "+f.Name+" "+string(f.Kind)+"\n"...)
		for _, s := range f.Samples {
			b = append(b, f.Name...)
			b = appendLabels(b, s.Labels)
			b = append(b, ' ')
			b = append(appendValue(b, s.Value), '\n')
		}
	}
	return b
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
		if !labelName.MatchString(l.Name) {
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
