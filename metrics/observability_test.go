package metrics_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/metrics"
)

// What is made of the list of instruments is written by
//
//	go test ./metrics -run TestWritten -update
var update = flag.Bool("update", false, "write docs/observability and the table in docs/observability.md")

const (
	page      = "../docs/observability.md"
	alertFile = "../docs/observability/alerts.yaml"
	boardFile = "../docs/observability/dashboard.json"
)

// TestWritten: the alerts, the dashboard and the table are those that the list makes.
func TestWritten(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]byte{alertFile: alertRules(t), boardFile: dashboard(t)} {
		written(t, name, want)
	}
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := between(t, string(old), "<!-- instruments -->\n", "<!-- end of instruments -->\n", table())
	text = between(t, text, "<!-- example -->\n", "<!-- end of example -->\n", example(t))
	text = between(t, text, "<!-- alerts -->\n", "<!-- end of alerts -->\n", alertTable(t))
	written(t, page, []byte(text))
}

func written(t *testing.T, name string, want []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the instruments make: run go test ./metrics -run TestWritten -update", name)
	}
}

// between puts something between two marks.
func between(t *testing.T, text, begin, end, what string) string {
	t.Helper()
	before, rest, ok := strings.Cut(text, begin)
	_, after, is := strings.Cut(rest, end)
	if !ok || !is {
		t.Fatalf("%s has no %q and %q", page, begin, end)
	}
	return before + begin + what + end + after
}

// table is that of the instruments.
func table() string {
	var b strings.Builder
	b.WriteString("| instrument | in Prometheus | | unit | attributes | |\n|---|---|---|---|---|---|\n")
	for _, i := range metrics.Instruments() {
		name := i.PrometheusName()
		if i.Kind == metrics.Histogram {
			name += "_bucket"
		}
		var attributes []string
		for _, a := range i.Attributes {
			attributes = append(attributes, "`"+a.Name+"`")
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", i.Name, name, i.Kind, i.Unit, strings.Join(attributes, " "), i.Description)
	}
	b.WriteString("\n| attribute | values | |\n|---|---|---|\n")
	seen := map[string]bool{}
	for _, i := range metrics.Instruments() {
		for _, a := range i.Attributes {
			row := fmt.Sprintf("| `%s` | %s | %s |\n", a.Name, strings.Join(a.Values, ", "), a.Description)
			if !seen[row] {
				b.WriteString(row)
			}
			seen[row] = true
		}
	}
	return b.String()
}

// example is the code of the Example, which is compiled and run.
func example(t *testing.T) string {
	t.Helper()
	code, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := strings.Cut(string(code), "func Example() {\n")
	body, _, is := strings.Cut(body, "\t// end of the code in the page\n")
	if !ok || !is {
		t.Fatal("example_test.go has no marks")
	}
	body = strings.ReplaceAll(strings.ReplaceAll("\n"+body, "\n\t", "\n"), "log.Fatal(err)", "return err")
	return "```go" + body + "```\n"
}

// of is an instrument in Prometheus, by its name in OpenTelemetry, with what a query adds to it.
func of(t *testing.T, name, suffix string) string {
	t.Helper()
	return instrument(t, name).PrometheusName() + suffix
}

// label is an attribute in Prometheus.
func label(attribute string) string { return metrics.Attribute{Name: attribute}.PrometheusLabel() }

// An alert is a rule of Prometheus.
type alert struct {
	name, expr, lasts, severity, summary, description string
}

// The alerts assume the default TTL, of 15 s.
func alerts(t *testing.T) []alert {
	t.Helper()
	const ttl = 15
	kind, key, outcome := label(metrics.AttrKind), label(metrics.AttrKey), label(metrics.AttrOutcome)
	failed := fmt.Sprintf(`%s=~"%s"`, outcome, strings.Join(metrics.Failures, "|"))
	requests := of(t, "leasehold.request.duration", "_count")
	return []alert{
		{
			"LeaseholdNoLeader",
			fmt.Sprintf("max by (%s) (%s) == 0", key, of(t, "leasehold.leader.known", "")),
			fmt.Sprintf("%ds", 2*ttl), "critical",
			"{{ $labels.leasehold_key }} has no leader.",
			"No candidate has known a leader for twice the TTL. Either none campaigns, or none reaches the store.",
		},
		{
			"LeaseholdLeaderFlaps",
			fmt.Sprintf("max by (%s) (increase(%s[15m])) > 3", key, of(t, "leasehold.leader.changes", "")),
			"0s", "warning",
			"The leader of {{ $labels.leasehold_key }} changes often.",
			"More than three new leaders in 15 minutes. Check why leases end: losses by cause, slow renewals, jobs that return.",
		},
		{
			"LeaseholdRenewalsSlow",
			fmt.Sprintf("histogram_quantile(0.99, sum by (%s, le) (rate(%s[10m]))) > %v", kind, of(t, "leasehold.renewal.duration", "_bucket"), ttl/6.0),
			"10m", "warning",
			"Renewals of a {{ $labels.leasehold_kind }} are slow.",
			"1 % of renewals take more than 1/6 of the TTL. A renewal that takes more than half the TTL loses the lease. Check the store, or use a longer TTL.",
		},
		{
			"LeaseholdLeaseTimeShort",
			fmt.Sprintf("sum by (instance, %s, %s) (increase(%s[10m])) > 0", kind, key, of(t, "leasehold.renewal.late", "")),
			"0s", "warning",
			"A lease on {{ $labels.instance }} was renewed with less than 1/3 of its TTL left.",
			"The renewal was late or had to be retried. A slightly longer outage would end the lease and stop its work.",
		},
		{
			"LeaseholdLeaseLost",
			fmt.Sprintf(`sum by (instance, %s, %s) (increase(%s{%s=~"expired|taken|vanished|foreign|session"}[10m])) > 0`, kind, key, of(t, "leasehold.lease.losses", ""), label(metrics.AttrCause)),
			"0s", "warning",
			"A lease on {{ $labels.instance }} was lost.",
			"Its work was stopped, because no renewal was confirmed in time or something else changed the lock.",
		},
		{
			"LeaseholdStoreErrors",
			fmt.Sprintf("sum by (instance) (rate(%s{%s}[10m])) / sum by (instance) (rate(%s[10m])) > 0.05", requests, failed, requests),
			"10m", "warning",
			"Store requests of {{ $labels.instance }} fail.",
			"More than 5 % of its locks' requests fail, are throttled or are refused.",
		},
		{
			"LeaseholdLockWaitedForTooLong",
			fmt.Sprintf(`max by (%s, %s) (%s{%s!="election"}) > 600`, kind, key, of(t, "leasehold.acquire.oldest", ""), kind),
			"0s", "warning",
			"A {{ $labels.leasehold_kind }} has had a waiter for more than ten minutes.",
			"leasehold status shows the holder. It is alive and renews its lease: waiters take over from a dead holder automatically.",
		},
	}
}

// alertRules are a file for Prometheus.
func alertRules(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("# Written by go test ./metrics -run TestWritten -update. The limits assume the default TTL, of 15 s.\n")
	b.WriteString("groups:\n  - name: leasehold\n    rules:\n")
	for _, a := range alerts(t) {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: |-\n          %s\n", a.name, a.expr)
		if a.lasts != "0s" {
			fmt.Fprintf(&b, "        for: %s\n", a.lasts)
		}
		fmt.Fprintf(&b, "        labels:\n          severity: %s\n        annotations:\n          summary: %s\n          description: %s\n",
			a.severity, strconv.Quote(a.summary), strconv.Quote(a.description))
	}
	return b.Bytes()
}

func alertTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| alert | lasts | severity | |\n|---|---|---|---|\n")
	for _, a := range alerts(t) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", a.name, a.lasts, a.severity, a.description)
	}
	return b.String()
}

// A panel is one graph.
type panel struct {
	title, description, unit string
	targets                  []target
}

type target struct{ expr, legend string }

// rows are the dashboard.
func rows(t *testing.T) map[string][]panel {
	t.Helper()
	kind, key, outcome, op, name := label(metrics.AttrKind), label(metrics.AttrKey), label(metrics.AttrOutcome), label(metrics.AttrOperation), label(metrics.AttrName)
	legend := func(labels ...string) string {
		for i, l := range labels {
			labels[i] = "{{" + l + "}}"
		}
		return strings.Join(labels, " ")
	}
	m := func(instrument, suffix string, matchers ...string) string {
		return of(t, instrument, suffix) + "{" + strings.Join(append([]string{`job=~"$job"`}, matchers...), ",") + "}"
	}
	sum := func(by, instrument string) string { return fmt.Sprintf("sum by (%s) (%s)", by, m(instrument, "")) }
	rate := func(by, instrument, suffix string, matchers ...string) string {
		return fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, m(instrument, suffix, matchers...))
	}
	increase := func(by, instrument string) string {
		return fmt.Sprintf("sum by (%s) (increase(%s[$__rate_interval]))", by, m(instrument, ""))
	}
	quantile := func(q, by, instrument string, matchers ...string) string {
		return fmt.Sprintf("histogram_quantile(%s, %s)", q, rate(by+", le", instrument, "_bucket", matchers...))
	}
	failed := fmt.Sprintf(`%s=~"%s"`, outcome, strings.Join(metrics.Failures, "|"))
	return map[string][]panel{
		"1 Elections": {
			{"Who leads", "1 for the leader. More than one leader means a change between two scrapes.", "short", []target{
				{sum("instance, "+name, "leader_election_master_status"), legend("instance", name)},
			}},
			{"Candidates that know the leader", "0 means that there is no leader, or that no candidate polls.", "short", []target{
				{sum(key, "leasehold.leader.known"), legend(key)},
			}},
			{"New leaders", "The largest number seen by one candidate.", "short", []target{
				{fmt.Sprintf("max by (%s) (increase(%s[$__rate_interval]))", key, m("leasehold.leader.changes", "")), legend(key)},
			}},
		},
		"2 Leases": {
			{"Leases held", "", "short", []target{{sum(kind+", "+key, "leasehold.lease.held"), legend(kind, key)}}},
			{"Acquisitions", "Per second, by outcome.", "ops", []target{{rate(kind+", "+outcome, "leasehold.acquire.duration", "_count"), legend(kind, outcome)}}},
			{"Duration of acquisitions", "Median and 99th percentile of successful acquisitions.", "s", []target{
				{quantile("0.5", kind, "leasehold.acquire.duration", outcome+`="acquired"`), "median " + legend(kind)},
				{quantile("0.99", kind, "leasehold.acquire.duration", outcome+`="acquired"`), "p99 " + legend(kind)},
			}},
			{"Oldest acquisition", "Age of the oldest acquisition in progress. Followers of elections are not included: they wait as long as there is a leader.", "s", []target{
				{fmt.Sprintf("max by (%s, %s) (%s)", kind, key, m("leasehold.acquire.oldest", "", kind+`!="election"`)), legend(kind, key)},
			}},
			{"Acquisitions in progress", "", "short", []target{{sum(kind+", "+key, "leasehold.acquire.pending"), legend(kind, key)}}},
			{"Takeovers and losses", "Takeovers without a release, and lost leases by cause.", "short", []target{
				{increase(kind, "leasehold.acquire.takeovers"), "taken over: " + legend(kind)},
				{increase(kind+", "+label(metrics.AttrCause), "leasehold.lease.losses"), "lost: " + legend(kind, label(metrics.AttrCause))},
			}},
			{"Duration of leases", "Median of ended leases.", "s", []target{{quantile("0.5", kind+", "+label(metrics.AttrEnd), "leasehold.lease.duration"), legend(kind, label(metrics.AttrEnd))}}},
		},
		"3 Renewals": {
			{"Duration of renewals", "99th percentile.", "s", []target{{quantile("0.99", kind, "leasehold.renewal.duration"), legend(kind)}}},
			{"Lease time left", "First percentile of the time left when a renewal is confirmed.", "s", []target{{quantile("0.01", kind, "leasehold.renewal.remaining"), legend(kind)}}},
			{"Late renewals", "Less than 1/3 of the TTL was left. Slow path: a leader's renewal took more than one request.", "short", []target{
				{increase(kind, "leasehold.renewal.late"), "late: " + legend(kind)},
				{increase(name, "leader_election_slowpath_total"), "slow path: " + legend(name)},
			}},
			{"Duration of releases", "99th percentile, by outcome.", "s", []target{{quantile("0.99", kind+", "+outcome, "leasehold.release.duration"), legend(kind, outcome)}}},
		},
		"4 Store": {
			{"Requests of locks", "Per second, by operation and outcome.", "reqps", []target{{rate(op+", "+outcome, "leasehold.request.duration", "_count"), legend(op, outcome)}}},
			{"Duration of requests of locks", "99th percentile.", "s", []target{{quantile("0.99", op, "leasehold.request.duration"), legend(op)}}},
			{"Failed requests", "Share of all requests.", "percentunit", []target{
				{rate("instance", "leasehold.request.duration", "_count", failed) + " / " + rate("instance", "leasehold.request.duration", "_count"), legend("instance")},
			}},
			{"Store outages", "Reports of three or more store failures in a row.", "short", []target{{increase(kind, "leasehold.store.troubles"), legend(kind)}}},
			{"Store calls", "Per second, by operation and outcome. Only stores wrapped in metrics.Store.", "reqps", []target{{rate(op+", "+outcome, "leasehold.store.duration", "_count"), legend(op, outcome)}}},
			{"Bytes", "Per second.", "Bps", []target{{rate(op, "leasehold.store.io", ""), legend(op)}}},
		},
	}
}

// dashboard is a file for Grafana.
func dashboard(t *testing.T) []byte {
	t.Helper()
	type object map[string]any
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	id, y := 0, 0
	all := rows(t)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	const wide, high, columns = 8, 8, 3
	for _, row := range names {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": row[2:], "collapsed": false, "panels": []object{}, "gridPos": object{"h": 1, "w": 24, "x": 0, "y": y}})
		y++
		for n, p := range all[row] {
			id++
			var targets []object
			for i, q := range p.targets {
				targets = append(targets, object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend, "range": true})
			}
			panels = append(panels, object{
				"id": id, "type": "timeseries", "title": p.title, "description": p.description, "datasource": source, "targets": targets,
				"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []object{}},
				"options":     object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": object{"mode": "multi", "sort": "desc"}},
				"gridPos":     object{"h": high, "w": wide, "x": n % columns * wide, "y": y + n/columns*high},
			})
		}
		y += (len(all[row]) + columns - 1) / columns * high
	}
	jobs := "label_values(" + of(t, "leasehold.acquire.pending", "") + ", job)"
	board := object{
		"title": "leasehold", "uid": "leasehold", "tags": []string{"leasehold"}, "schemaVersion": 39, "editable": true, "refresh": "30s",
		"time": object{"from": "now-6h", "to": "now"}, "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
			{"name": "job", "type": "query", "label": "Job", "datasource": source, "query": jobs, "definition": jobs, "refresh": 2, "multi": true, "includeAll": true, "allValue": ".*"},
		}},
	}
	text, err := json.MarshalIndent(board, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// The words of queries that are neither metrics nor labels, and the labels that Prometheus adds.
var (
	words      = []string{"sum", "max", "by", "rate", "increase", "histogram_quantile", "label_values"}
	added      = []string{"instance", "job", "le"}
	word       = regexp.MustCompile(`[a-zA-Z_:$][a-zA-Z0-9_:]*`)
	inQuotes   = regexp.MustCompile(`"[^"]*"`)
	ranges     = regexp.MustCompile(`\[[^\]]*\]`)
	valueOf    = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"([^"]*)"`)
	groupingBy = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// check says what a query names that there is not.
func check(expr string) (wrong []string) {
	labels := map[string][]string{} // and their values; nil: any
	names := map[string]bool{}
	for _, i := range metrics.Instruments() {
		suffixes := []string{""}
		if i.Kind == metrics.Histogram {
			suffixes = []string{"_bucket", "_count", "_sum"}
		}
		for _, s := range suffixes {
			if !strings.Contains(expr, i.PrometheusName()+s) {
				continue
			}
			names[i.PrometheusName()+s] = true
			for _, a := range i.Attributes {
				labels[a.PrometheusLabel()] = append(labels[a.PrometheusLabel()], a.Values...)
			}
		}
	}
	if len(names) == 0 {
		wrong = append(wrong, "it names no instrument")
	}
	for _, m := range valueOf.FindAllStringSubmatch(expr, -1) {
		if of := labels[m[1]]; of != nil {
			for v := range strings.SplitSeq(m[2], "|") {
				if !slices.Contains(of, v) {
					wrong = append(wrong, fmt.Sprintf("%s has no value %q", m[1], v))
				}
			}
		}
	}
	bare := ranges.ReplaceAllString(inQuotes.ReplaceAllString(expr, ""), "")
	for _, w := range word.FindAllString(bare, -1) {
		_, isLabel := labels[w]
		if !slices.Contains(words, w) && !slices.Contains(added, w) && !names[w] && !isLabel {
			wrong = append(wrong, fmt.Sprintf("there is no %s", w))
		}
	}
	for _, m := range groupingBy.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			if l = strings.TrimSpace(l); labels[l] == nil && !slices.Contains(added, l) && l != label(metrics.AttrKey) && l != metrics.AttrName {
				wrong = append(wrong, fmt.Sprintf("%s is no label of them", l))
			}
		}
	}
	return wrong
}

// TestQueries: each query in the files names instruments, labels and values that there are, and a mistake in
// one is noticed.
func TestQueries(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile(alertFile)
	if err != nil {
		t.Fatal(err)
	}
	exprs := regexp.MustCompile(`(?m)^ +expr: \|-\n +(.*)$`).FindAllStringSubmatch(string(rules), -1)
	if len(exprs) != len(alerts(t)) {
		t.Errorf("%d of %d alerts have a query", len(exprs), len(alerts(t)))
	}
	body, err := os.ReadFile(boardFile)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(body, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q has no query", p.Title)
		}
		for _, q := range p.Targets {
			exprs = append(exprs, []string{p.Title, q.Expr})
			for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(q.Expr) {
					t.Errorf("the panel %q shows %s, which its query does not have: %s", p.Title, m[1], q.Expr)
				}
			}
		}
	}
	used := ""
	for _, e := range exprs {
		used += e[1] + "\n"
		for _, wrong := range check(e[1]) {
			t.Errorf("%s: %s", e[1], wrong)
		}
	}
	for _, i := range metrics.Instruments() {
		if !strings.Contains(used, i.PrometheusName()) {
			t.Errorf("nothing shows %s", i.Name)
		}
	}
	for _, bad := range []string{
		"up == 0",
		"sum by (leasehold_kind) (leasehold_lease_holds)",
		"sum by (leasehold_outcome) (leasehold_lease_held)",
		`leasehold_lease_held{leasehold_kind="mutex"}`,
		`leasehold_lease_held{kind="lock"}`,
		"avg(leasehold_lease_held)",
		"leasehold_acquire_duration_seconds",
	} {
		if len(check(bad)) == 0 {
			t.Errorf("nothing is wrong with %s", bad)
		}
	}
}

// TestKindsAreNamed: the list knows each kind of thing that a Trace can be about.
func TestKindsAreNamed(t *testing.T) {
	t.Parallel()
	for k := locktrace.Lock; k <= locktrace.Shard; k++ {
		if !slices.Contains(instrument(t, "leasehold.lease.held").Attributes[0].Values, k.String()) || strings.Contains(k.String(), " ") {
			t.Errorf("%v", k)
		}
	}
}
