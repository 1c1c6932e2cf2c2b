package exchange_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store/internal/exchange"
)

// FuzzListing: whatever comes in the place of a listing, it is refused, or it is left to be read as it came, to the bound.
func FuzzListing(f *testing.F) {
	const most = 1 << 10
	f.Add([]byte(`<?xml version="1.0"?><List><Key>a</Key></List>`))
	f.Add([]byte(`<html>`))
	f.Add([]byte(``))
	f.Add(bytes.Repeat([]byte(`<List>`), most))
	f.Fuzz(func(t *testing.T, body []byte) {
		answer := &http.Response{Body: io.NopCloser(bytes.NewReader(body))}
		err := exchange.CheckListing(answer, most, func(root string) bool { return root == "List" }, "a store", "one")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "the answer is no listing of a store") {
				t.Error(err)
			}
			return
		}
		if left, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(left, body[:min(len(body), most)]) {
			t.Errorf("%q is left as %q, %v", body, left, err)
		}
	})
}
