package metrics

import "strings"

var underscores = strings.NewReplacer(".", "_")

// PrometheusName is the name of the instrument in Prometheus, as the exporters of OpenTelemetry make it
// too: with underscores, the unit, and _total for a counter. Of a Histogram it is what comes before _bucket, _sum and
// _count.
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

// PrometheusLabel is the name of the attribute in Prometheus.
func (a Attribute) PrometheusLabel() string { return underscores.Replace(a.Name) }
