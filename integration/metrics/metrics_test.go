package metrics_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/leasehold/leasehold/internal/promtext"
)

// parse reads metrics as Prometheus does, and lints them.
func parse(t *testing.T, contentType string, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	if format := expfmt.ResponseFormat(http.Header{"Content-Type": {contentType}}); format.FormatType() != expfmt.TypeTextPlain {
		t.Errorf("Prometheus takes %q for %v", contentType, format)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("Prometheus cannot read it: %v\n%s", err, text)
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("the linter says: %v, %v\n%s", problems, err, text)
	}
	return families
}

// Labels are read as they were meant, with any characters in them.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	values := []float64{0, -1, 0.1, 1e-9, 1e300, 1<<53 - 1, 1 << 53, 1 << 62, math.Inf(1), math.Inf(-1)}
	texts := []string{"", `\`, `"`, "\n", `\n`, `a="b",`, "}", "größer 你好", "\x00\x01", "# HELP", strings.Repeat("x", 70_000)}
	f := promtext.Family{Name: "x", Help: "One \\ two\nthree \"four\".", Kind: promtext.Gauge}
	for i, text := range texts {
		f.Samples = append(f.Samples, promtext.Sample{Labels: []promtext.Label{{Name: "text", Value: text}}, Value: values[i%len(values)]})
	}
	got := parse(t, promtext.ContentType, promtext.Append(nil, f))["x"]
	if got.GetHelp() != f.Help || got.GetType() != dto.MetricType_GAUGE || len(got.GetMetric()) != len(texts) {
		t.Fatalf("%v", got)
	}
	for i, m := range got.GetMetric() {
		if l := m.GetLabel()[0]; l.GetName() != "text" || l.GetValue() != texts[i] || m.GetGauge().GetValue() != values[i%len(values)] {
			t.Errorf("%q, %v was read as %v", texts[i], values[i%len(values)], m)
		}
	}
}

// build builds the command.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "promtest")
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "leasehold.exe")
	cmd := exec.CommandContext(context.Background(), "go", "-C", "../..", "build", "-o", exe, "./cmd/leasehold")
	if out, err := cmd.CombinedOutput(); err != nil {
		return string(out), err
	}
	return exe, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if exe, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(exe))
	}
	os.Exit(code)
}

// A candidate is a running leasehold elect.
type candidate struct {
	t      *testing.T
	cmd    *exec.Cmd
	client *http.Client
}

// campaign starts a candidate whose command sleeps.
func campaign(t *testing.T, store, holder string) *candidate {
	t.Helper()
	exe, err := build()
	if err != nil {
		t.Fatalf("%v: %s", err, exe)
	}
	socket := filepath.Join(t.TempDir(), holder)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe,
		"elect", "--ttl", "30s", "--holder", holder, "--http", "unix:"+socket, store+"/l", "--", "sleep", "1000")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", holder, &said)
		}
	})
	return &candidate{t, cmd, &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
}

// scrape waits until the metrics are as they should be, and returns them.
func (c *candidate) scrape(what string, good func(map[string]*dto.MetricFamily) bool) map[string]*dto.MetricFamily {
	c.t.Helper()
	var last []byte
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://leasehold/metrics", nil)
		if err != nil {
			c.t.Fatal(err)
		}
		w, err := c.client.Do(r)
		if err != nil {
			continue // it does not listen yet
		}
		last, err = io.ReadAll(w.Body)
		if w.Body.Close(); err != nil || w.StatusCode != http.StatusOK {
			c.t.Fatalf("%s: %s, %v", what, w.Status, err)
		}
		if families := parse(c.t, w.Header.Get("Content-Type"), last); good(families) {
			return families
		}
	}
	c.t.Fatalf("%s: it never was so, but\n%s", what, last)
	return nil
}

// value is that of the one sample of a metric with the label, or of the only one.
func value(families map[string]*dto.MetricFamily, name, label, is string) (float64, bool) {
	for _, m := range families[name].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() == is {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}

// Through a failover, Prometheus gets metrics that it can read and that its linter finds nothing
// wrong with, they say who leads, tokens and counters only grow, and no metric comes and goes but
// those of the leader.
func TestFailover(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a command that sleeps is started on Unix only")
	}
	store := "file://" + t.TempDir()
	lock := store + "/l"
	of := func(m map[string]*dto.MetricFamily, name string) float64 {
		v, _ := value(m, name, "lock", lock)
		return v
	}
	led := func(holder string) func(map[string]*dto.MetricFamily) bool {
		return func(m map[string]*dto.MetricFamily) bool {
			_, ok := value(m, "leasehold_leader_info", "holder", holder)
			return ok
		}
	}
	leads := func(holder string) func(map[string]*dto.MetricFamily) bool {
		return func(m map[string]*dto.MetricFamily) bool { return led(holder)(m) && of(m, "leasehold_leader") == 1 }
	}
	a := campaign(t, store, "a")
	first := a.scrape("a leads", leads("a"))
	if left := of(first, "leasehold_lease_remaining_seconds"); left <= 0 || left > 30 {
		t.Errorf("%v s are left of a lease of 30 s", left)
	}
	b := campaign(t, store, "b")
	follows := b.scrape("b follows", led("a"))
	if of(follows, "leasehold_leader") != 0 || of(follows, "leasehold_lease_remaining_seconds") != 0 || of(follows, "leasehold_acquisitions_total") != 0 {
		t.Errorf("b follows, and says %v", follows)
	}
	if of(follows, "leasehold_token") != of(first, "leasehold_token") || of(first, "leasehold_token") < 1<<40 {
		t.Errorf("the tokens of a are %v and %v", of(first, "leasehold_token"), of(follows, "leasehold_token"))
	}
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second := b.scrape("b leads", leads("b"))
	if of(second, "leasehold_token") <= of(first, "leasehold_token") || of(second, "leasehold_acquisitions_total") != 1 || of(second, "leasehold_losses_total") != 0 {
		t.Errorf("after the takeover: %v", second)
	}
	for _, op := range []string{"read", "write"} {
		before, _ := value(follows, "leasehold_store_requests_total", "op", op)
		after, ok := value(second, "leasehold_store_requests_total", "op", op)
		if !ok || after <= before {
			t.Errorf("requests %s: %v, then %v", op, before, after)
		}
	}
	want := slices.Sorted(maps.Keys(first))
	if got := slices.Sorted(maps.Keys(second)); !slices.Equal(got, want) || len(want) != 11 {
		t.Errorf("%d metrics %q, and then %q", len(want), want, got)
	}
	if version, ok := first["leasehold_build_info"]; !ok || version.GetMetric()[0].GetGauge().GetValue() != 1 {
		t.Errorf("build info: %v", version)
	}
}
