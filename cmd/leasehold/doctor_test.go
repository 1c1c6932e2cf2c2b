package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/store/probe"
)

// TestDoctorReport: what follows the findings, for people: how fast the store is, what the probe has sent and cost, the
// verdicts with their reasons, and the policy where a right is missing or more is asked for.
func TestDoctorReport(t *testing.T) {
	t.Parallel()
	r := &probe.Report{
		Store: "s3://b", Took: 12_345_678, Sent: 3_000_001, UnquotedETags: true, Policy: json.RawMessage(`{"a": 1}`),
		Requests: probe.Requests{Get: 1_000_000, Put: 20_000, List: 3_000, Delete: 45, Inspect: 1_000},
		Latency:  []probe.Latency{{Op: "get", Count: 700, P50: 30, P99: 3_630, Worst: 34_123}},
		Verdicts: []probe.Verdict{
			{Use: "object", Safe: true},
			{Use: "epochs", Why: []string{"listings: out of\x1border", "reads: late"}},
			{Use: "marker", Untried: true, Why: []string{"not tried: deletes"}},
		},
	}
	r.TTL.Suggested, r.TTL.Least = 15_000_000, 9_000_000
	const policy = "\nThe smallest policy of a holder, in the layout object:\n{\"a\": 1}\n"
	const want = `
get                 700 times   p50     30µs   p99   3.63ms   worst   34.1ms

1024045 requests in 12.3s, with 4 MB in bodies: 1000000 GET, 20000 PUT, 3000 LIST, 45 DELETE, 1000 about settings; $0.520 at the list prices of S3 Standard, us-east-1

Verdict on s3://b
  object                  safe
  epochs                  NO
                            "listings: out of\x1border"
                            reads: late
  marker                  not tried
  TTL                     15s; at least 9s

This server compares ETags without their quotes. In all URLs of locks on it, and here,
write unquoted_etags=true among the parameters.
`
	for _, tt := range []struct {
		verbose bool
		detail  string
		policy  string
	}{
		{false, "", ""},
		{true, "", policy},
		{false, "these credentials may not list", policy},
	} {
		a := &app{}
		a.verbose = tt.verbose
		r.Findings = []probe.Finding{{Name: "rights", Result: probe.Note, Detail: tt.detail}}
		if got := (&diagnosis{app: a, price: priceAt("s3://b")}).text(r); got != want+tt.policy {
			t.Errorf("it says\n%s\nwant\n%s", got, want+tt.policy)
		}
	}
	// Where nothing is known of costs, policies and quotes, nothing is said of them.
	r.UnquotedETags, r.Policy, r.Findings = false, nil, nil
	a := &app{}
	a.verbose = true
	got := (&diagnosis{app: a}).text(r)
	if strings.Contains(got, "$") || strings.Contains(got, "policy") || !strings.HasSuffix(got, "  TTL                     15s; at least 9s\n") {
		t.Errorf("it says\n%s", got)
	}
	// If epochs are safe only without If-Match, doctor says how to use them.
	for _, tt := range []struct{ with, without, says bool }{{false, true, true}, {true, true, false}, {false, false, false}, {true, false, false}} {
		r.Verdicts = []probe.Verdict{{Use: "epochs", Safe: tt.with}, {Use: "epochs without If-Match", Safe: tt.without}}
		got := (&diagnosis{app: a}).text(r)
		if says := strings.HasSuffix(got, "\nLocks here must do without If-Match: in all their URLs, write if_match=false among the\nparameters, and use --layout epochs.\n"); says != tt.says {
			t.Errorf("%+v: it says\n%s", tt, got)
		}
	}

	for n, want := range map[int64]string{0: "0 MB", 1: "1 MB", 999_999: "1 MB", 1_000_000: "1 MB", 1_000_001: "2 MB"} {
		if got := megabytes(n); got != want {
			t.Errorf("%d bytes are %s, want %s", n, got, want)
		}
	}
	for m, want := range map[probe.Micros]time.Duration{
		0: 0, 999: 999 * time.Microsecond, 1_234: 1_230 * time.Microsecond, 10_006: 10 * time.Millisecond, 12_345: 12_300 * time.Microsecond, 999_999: time.Second, 1_234_567: 1_230 * time.Millisecond,
	} {
		if got := short(m); got != want {
			t.Errorf("%d µs are %v, want %v", m, got, want)
		}
	}
}

// TestDoctorFindings: the lines of findings that rule out nothing.
func TestDoctorFindings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		finding probe.Finding
		want    string
	}{
		{probe.Finding{Name: "a", Result: probe.OK}, "ok    a\n"},
		{probe.Finding{Name: "a", Result: probe.OK, Detail: "b\x1b"}, "ok    a: \"b\\x1b\"\n"},
		{probe.Finding{Name: "a", Result: probe.Note, Detail: "b"}, "note  a: b\n"},
		{probe.Finding{Name: "a", Result: probe.Unknown, Detail: "b"}, "?     a: b\n"},
	} {
		if got := (&diagnosis{app: &app{}, use: "object"}).finding(tt.finding); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.finding, got, tt.want)
		}
	}
}
