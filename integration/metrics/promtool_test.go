package metrics_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const observability = "../../docs/observability"

// exprs are the queries in the JSON of a dashboard.
func exprs(v any) (all []string) {
	switch v := v.(type) {
	case map[string]any:
		if s, ok := v["expr"].(string); ok {
			all = append(all, s)
		}
		for _, of := range v {
			all = append(all, exprs(of)...)
		}
	case []any:
		for _, of := range v {
			all = append(all, exprs(of)...)
		}
	}
	return all
}

// TestPromtool: Prometheus itself finds nothing wrong with the alerts and the queries of the dashboard, and each alert
// goes off when it should, and not before.
func TestPromtool(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool here")
	}
	rules, err := filepath.Abs(filepath.Join(observability, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	checks := func(name string, rules int) {
		t.Helper()
		out, failed := exec.CommandContext(t.Context(), tool, "check", "rules", name).CombinedOutput()
		if failed != nil || rules == 0 || !bytes.Contains(out, fmt.Appendf(nil, "%d rules found", rules)) {
			t.Errorf("%v: %s", failed, out)
		}
	}
	checks(rules, bytes.Count(text, []byte("- alert: ")))

	// The queries of the dashboard are rules too, once Grafana has put in its variables.
	if text, err = os.ReadFile(filepath.Join(observability, "dashboard.json")); err != nil {
		t.Fatal(err)
	}
	var board any
	if err = json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	queries := exprs(board)
	var b strings.Builder
	b.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for n, q := range queries {
		expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*").Replace(q)
		fmt.Fprintf(&b, "      - record: panel:%d\n        expr: %s\n", n, strconv.Quote(expr))
	}
	panels := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err = os.WriteFile(panels, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	checks(panels, len(queries))

	unit := filepath.Join(t.TempDir(), "test.yaml")
	if err = os.WriteFile(unit, []byte(strings.ReplaceAll(alertTests, "RULES", rules)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "test", "rules", unit).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// alertTests are what happens, minute by minute, and which alerts are on then.
const alertTests = `rule_files: ["RULES"]
evaluation_interval: 15s
tests:
  - interval: 15s
    name: all is well
    input_series:
      - {series: 'leasehold_leader_known{leasehold_key="x",instance="a"}', values: '1x80'}
      - {series: 'leasehold_leader_known{leasehold_key="x",instance="b"}', values: '0x80'}
      - {series: 'leasehold_leader_changes_total{leasehold_key="x",instance="a"}', values: '1x80'}
      - {series: 'leasehold_renewal_duration_seconds_bucket{leasehold_kind="election",instance="a",le="2.5"}', values: '0+1x80'}
      - {series: 'leasehold_renewal_duration_seconds_bucket{leasehold_kind="election",instance="a",le="+Inf"}', values: '0+1x80'}
      - {series: 'leasehold_renewal_late_total{leasehold_kind="election",leasehold_key="x",instance="a"}', values: '0x80'}
      - {series: 'leasehold_lease_losses_total{leasehold_kind="lock",leasehold_cause="time_up",instance="a"}', values: '0+1x80'}
      - {series: 'leasehold_request_duration_seconds_count{leasehold_outcome="ok",instance="a"}', values: '0+100x80'}
      - {series: 'leasehold_request_duration_seconds_count{leasehold_outcome="precondition",instance="a"}', values: '0+100x80'}
      - {series: 'leasehold_request_duration_seconds_count{leasehold_outcome="unavailable",instance="a"}', values: '0+1x80'}
      - {series: 'leasehold_acquire_oldest_seconds{leasehold_kind="election",leasehold_key="x",instance="b"}', values: '0+15x80'}
      - {series: 'leasehold_acquire_oldest_seconds{leasehold_kind="lock",instance="b"}', values: '500x80'}
    alert_rule_test:
      - {eval_time: 20m, alertname: LeaseholdNoLeader}
      - {eval_time: 20m, alertname: LeaseholdLeaderFlaps}
      - {eval_time: 20m, alertname: LeaseholdRenewalsSlow}
      - {eval_time: 20m, alertname: LeaseholdLeaseTimeShort}
      - {eval_time: 20m, alertname: LeaseholdLeaseLost}
      - {eval_time: 20m, alertname: LeaseholdStoreErrors}
      - {eval_time: 20m, alertname: LeaseholdLockWaitedForTooLong}
  - interval: 15s
    name: nothing is
    input_series:
      - {series: 'leasehold_leader_known{leasehold_key="x",instance="a"}', values: '1x4 0x76'}
      - {series: 'leasehold_leader_known{leasehold_key="x",instance="b"}', values: '1x4 0x76'}
      - {series: 'leasehold_leader_changes_total{leasehold_key="x",instance="a"}', values: '1+1x80'}
      - {series: 'leasehold_renewal_duration_seconds_bucket{leasehold_kind="election",instance="a",le="2.5"}', values: '0+9x160'}
      - {series: 'leasehold_renewal_duration_seconds_bucket{leasehold_kind="election",instance="a",le="5"}', values: '0+10x160'}
      - {series: 'leasehold_renewal_duration_seconds_bucket{leasehold_kind="election",instance="a",le="+Inf"}', values: '0+10x160'}
      - {series: 'leasehold_renewal_late_total{leasehold_kind="election",leasehold_key="x",instance="a"}', values: '0x70 1x10'}
      - {series: 'leasehold_lease_losses_total{leasehold_kind="lock",leasehold_cause="expired",instance="a"}', values: '1x70 2x10'}
      - {series: 'leasehold_request_duration_seconds_count{leasehold_outcome="ok",instance="a"}', values: '0+90x160'}
      - {series: 'leasehold_request_duration_seconds_count{leasehold_outcome="throttled",instance="a"}', values: '0+10x160'}
      - {series: 'leasehold_acquire_oldest_seconds{leasehold_kind="lock",instance="b"}', values: '0+15x80'}
    promql_expr_test:
      - {expr: 'count by (alertname) (ALERTS{alertname="LeaseholdNoLeader",alertstate="firing"})', eval_time: 1m15s}
      - expr: count by (alertname) (ALERTS{alertstate="firing"})
        eval_time: 20m
        exp_samples:
          - {labels: '{alertname="LeaseholdNoLeader"}', value: 1}
          - {labels: '{alertname="LeaseholdLeaderFlaps"}', value: 1}
          - {labels: '{alertname="LeaseholdRenewalsSlow"}', value: 1}
          - {labels: '{alertname="LeaseholdLeaseTimeShort"}', value: 1}
          - {labels: '{alertname="LeaseholdLeaseLost"}', value: 1}
          - {labels: '{alertname="LeaseholdStoreErrors"}', value: 1}
          - {labels: '{alertname="LeaseholdLockWaitedForTooLong"}', value: 1}
`
