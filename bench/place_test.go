package main

import (
	"net/http"
	"testing"

	"github.com/leasehold/leasehold/internal/cost"
)

// The method of a request tells its kind, and its key what it is for. A LIST is a GET with a query of
// its own.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, url string
		want        traffic
	}{
		{http.MethodPut, "/bucket/key", traffic{locks: cost.Requests{Put: 1}}},
		{http.MethodPost, "/bucket?delete", traffic{locks: cost.Requests{Put: 1}}},
		{http.MethodGet, "/bucket?list-type=2&prefix=sessions/", traffic{locks: cost.Requests{List: 1}}},
		{http.MethodGet, "/bucket/key?x-id=GetObject", traffic{locks: cost.Requests{Get: 1}}},
		{http.MethodHead, "/bucket/key", traffic{locks: cost.Requests{Get: 1}}},
		{http.MethodDelete, "/bucket/key/sessions/x", traffic{locks: cost.Requests{Delete: 1}}},
		{http.MethodDelete, "/sessions/key", traffic{locks: cost.Requests{Delete: 1}}},
		{http.MethodGet, "/bucket/sessions/key", traffic{sessions: cost.Requests{Get: 1}}},
		{http.MethodPut, "/bucket/sessions/key", traffic{sessions: cost.Requests{Put: 1}}},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := trafficOf(r); got != c.want {
			t.Errorf("%s %s: %+v, not %+v", c.method, c.url, got, c.want)
		}
	}
}
