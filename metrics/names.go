package metrics

import "strings"

var underscores = strings.NewReplacer(".", "_")

// PrometheusName returns the instrument's name in Prometheus, which is also what
// OpenTelemetry's exporters use: with underscores, the unit, and _total for a counter. For a
// Histogram it is the part before _bucket, _sum and _count.
func (i *Instrument) PrometheusName() string {
	name := underscores.Replace(i.Name)
	suffix := ""
	switch i.Unit {
	case "s":
		suffix = "_seconds"
	case "By":
		suffix = "_bytes"
	}
	total := ""
	if i.Kind == Counter {
		total = "_total"
	}
	return strings.TrimSuffix(name, total) + suffix + total
}

// PrometheusLabel returns the attribute's name in Prometheus.
func (a Attribute) PrometheusLabel() string { return underscores.Replace(a.Name) }
