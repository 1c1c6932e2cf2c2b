package main

import (
	"net/http"
	"testing"

	"github.com/leasehold/leasehold/internal/cost"
)

// The method of a request tells its kind. A LIST is a GET with a query of its own.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, url string
		want        cost.Requests
	}{
		{http.MethodPut, "/bucket/key", cost.Requests{Put: 1}},
		{http.MethodPost, "/bucket?delete", cost.Requests{Put: 1}},
		{http.MethodGet, "/bucket?list-type=2&prefix=x", cost.Requests{List: 1}},
		{http.MethodGet, "/bucket/key?x-id=GetObject", cost.Requests{Get: 1}},
		{http.MethodHead, "/bucket/key", cost.Requests{Get: 1}},
		{http.MethodDelete, "/bucket/key", cost.Requests{Delete: 1}},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := kindOf(r); got != c.want {
			t.Errorf("%s %s: %+v, not %+v", c.method, c.url, got, c.want)
		}
	}
}
