package serve_test

import (
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A scrape is what /metrics says at one moment, by the names of series.
type scrape map[string]float64

var sample = regexp.MustCompile(`(?m)^([a-z_]+(?:\{[^}]*\})?) ([0-9.e+]+)$`)

func scraped(t *testing.T, s *serve.Server) scrape {
	t.Helper()
	synctest.Wait()
	all := scrape{}
	for _, m := range sample.FindAllStringSubmatch(ask(t, s, "GET", "/metrics", "").body, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		all[m[1]] = v
	}
	return all
}

// wants checks the values of series, and those that are to be there must be.
func (s scrape) wants(t *testing.T, when string, want scrape) {
	t.Helper()
	for name, v := range want {
		if got, is := s[name]; !is || got != v {
			t.Errorf("%s: %s is %v (%t), want %v", when, name, got, is, v)
		}
	}
}

// A server is cut off from its store while a caller holds a lock: what it says of that, and what the one says that
// takes over, is what has happened, to the end of the outage.
func TestMetricsThroughFailover(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		cut := faultstore.Wrap(inner, nil)
		a := started(t, cut, &serve.Options{Prefix: "jobs/", MetricKeys: []string{"back*"}})
		b := started(t, inner, &serve.Options{Prefix: "jobs/", MetricKeys: []string{"back*"}})
		const (
			lock   = `{leasehold_key="jobs/backup",leasehold_kind="lock"}`
			caused = `leasehold_lease_losses_total{leasehold_cause="session",leasehold_key="jobs/backup",leasehold_kind="lock"}`
		)
		gone := acquired(t, a, "backup", `{"ttl":"1h"}`)
		acquired(t, a, "other", `{"ttl":"1h"}`)
		waited, began := make(chan answer, 1), time.Now()
		go func() { waited <- ask(t, b, "POST", "/v1/locks/backup/acquire", `{"wait":"2m","ttl":"1h"}`) }()
		time.Sleep(6 * time.Second)
		scraped(t, a).wants(t, "a holds", scrape{
			"leasehold_serve_ready": 1, "leasehold_lease_held" + lock: 1, `leasehold_lease_held{leasehold_key="other",leasehold_kind="lock"}`: 1, caused: 0,
			`leasehold_lease_held{leasehold_key="other",leasehold_kind="session"}`: 1,
		})
		scraped(t, b).wants(t, "b waits", scrape{"leasehold_serve_ready": 1, "leasehold_acquire_pending" + lock: 1, "leasehold_acquire_oldest_seconds" + lock: 6, `leasehold_serve_waiting{for="lock"}`: 1})
		cut.Partition(true)
		next := <-waited
		if next.code != 200 || next.Token <= gone.Token {
			t.Fatalf("b has got it: %d %s", next.code, next.body)
		}
		took := time.Since(began).Seconds()
		scraped(t, b).wants(t, "b holds", scrape{
			"leasehold_lease_held" + lock: 1, "leasehold_acquire_takeovers_total" + lock: 1, "leasehold_acquire_pending" + lock: 0,
			`leasehold_acquire_duration_seconds_sum{leasehold_key="jobs/backup",leasehold_kind="lock",leasehold_outcome="acquired",leasehold_waited="true"}`:   took,
			`leasehold_acquire_duration_seconds_count{leasehold_key="jobs/backup",leasehold_kind="lock",leasehold_outcome="acquired",leasehold_waited="true"}`: 1,
			"leasehold_serve_acquisitions_total": 1, "leasehold_serve_losses_total": 0,
		})
		scraped(t, a).wants(t, "a has lost", scrape{
			"leasehold_serve_ready": 0, "leasehold_lease_held" + lock: 0, `leasehold_lease_held{leasehold_key="other",leasehold_kind="lock"}`: 0,
			"leasehold_serve_losses_total": 2, "leasehold_serve_sessions_lost_total": 1, "leasehold_serve_leases": 0, caused: 1, `leasehold_lease_losses_total{leasehold_cause="expired",leasehold_key="other",leasehold_kind="session"}`: 1,
		})
		if troubles := scraped(t, a)[`leasehold_store_troubles_total{leasehold_key="other",leasehold_kind="session"}`]; troubles < 1 {
			t.Errorf("%v troubles were told", troubles)
		}
		cut.Partition(false)
		time.Sleep(10 * time.Second)
		wants(t, "held by b's caller", ask(t, a, "POST", "/v1/locks/backup/acquire", ""), 409, "held")
		scraped(t, a).wants(t, "a is back", scrape{
			"leasehold_serve_ready": 1, `leasehold_lease_held{leasehold_key="other",leasehold_kind="session"}`: 1,
			`leasehold_acquire_duration_seconds_count{leasehold_key="jobs/backup",leasehold_kind="lock",leasehold_outcome="held",leasehold_waited="false"}`: 1,
		})
		stopped(t, a)
		if d := ask(t, b, "DELETE", "/v1/leases/"+next.Lease, ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		scraped(t, b).wants(t, "b has released", scrape{"leasehold_lease_held" + lock: 0, "leasehold_serve_leases": 0})
		stopped(t, b)
	})
}
