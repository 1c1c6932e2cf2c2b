package metrics_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/metrics"
	"github.com/leasehold/leasehold/store/memstore"
)

// A service with an election and locks, for Prometheus to scrape. The code is in docs/observability.md too.
func Example() {
	ctx := context.Background()
	set := metrics.NewSet()
	recorder, err := metrics.New(set, &metrics.Options{Keys: []string{"jobs/*"}})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", set)

	st := metrics.Store(memstore.New(), set) // or storeurl.Open(ctx, "s3://bucket/prefix")
	options := leasehold.LockOptions{Trace: recorder.Trace()}
	lock, err := leasehold.NewLock(st, "jobs/backup", &options)
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		return nil // the work
	})
	if err != nil {
		log.Fatal(err)
	}
	// end of the code in the page
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "leasehold_lease_held{") || strings.HasPrefix(line, "leasehold_lease_duration_seconds_count{") {
			fmt.Print(line)
		}
	}
	// Output:
	// leasehold_lease_held{leasehold_key="jobs/backup",leasehold_kind="lock"} 0
	// leasehold_lease_duration_seconds_count{leasehold_end="released",leasehold_key="jobs/backup",leasehold_kind="lock"} 1
}
