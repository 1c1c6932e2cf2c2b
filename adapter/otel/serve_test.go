package leaseotel_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"

	leaseotel "github.com/leasehold/leasehold/adapter/otel"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/metrics"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestServeFailover: the callers of two servers, of which one is cut off: what becomes of their leases is in spans,
// and in the metrics of the process.
func TestServeFailover(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		o := observe(t, &metrics.Options{Keys: []string{"jobs/*"}})
		inner := memstore.New()
		cut := faultstore.Wrap(inner, nil)
		begin := func(st store.Store, holder string) *serve.Server {
			s, err := serve.New(st, &serve.Options{Holder: holder, Prefix: "jobs/", Trace: o.trace})
			if err != nil {
				t.Fatal(err)
			}
			if err = s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			return s
		}
		a, b := begin(cut, "a"), begin(inner, "b")
		lease := post(t, a, "/v1/locks/backup/acquire", `{"ttl":"1h"}`)
		time.Sleep(6 * time.Second)
		cut.Partition(true)
		next := post(t, b, "/v1/locks/backup/acquire", `{"ttl":"1h","wait":"2m"}`)
		if next.Token <= lease.Token {
			t.Errorf("the token %d follows %d", next.Token, lease.Token)
		}
		o.wants("b holds", "leasehold.lease.held", 1, metrics.AttrKey, "jobs/backup", metrics.AttrKind, "lock")
		o.wants("a has lost", "leasehold.lease.losses", 1, metrics.AttrCause, "session", metrics.AttrKey, "jobs/backup", metrics.AttrKind, "lock")
		o.wants("it was taken over", "leasehold.acquire.takeovers", 1, metrics.AttrKey, "jobs/backup")
		for _, s := range []*serve.Server{a, b} {
			cut.Partition(false)
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		spans := o.spans.Ended()
		lost, held := of(spans, leaseotel.SpanHold, "a"), of(spans, leaseotel.SpanHold, "b")
		var lostKinds, heldKinds []string
		for _, s := range lost {
			lostKinds = append(lostKinds, text(s, "leasehold.kind"))
			if end := text(s, metrics.AttrEnd); text(s, "leasehold.kind") == "lock" && (end != "lost" || s.Status().Code != codes.Error) {
				t.Errorf("a has lost it: %v, %v", s.Status(), s.Attributes())
			}
		}
		for _, s := range held {
			heldKinds = append(heldKinds, text(s, "leasehold.kind"))
			if end := text(s, metrics.AttrEnd); end != "released" || s.Status().Code != codes.Unset {
				t.Errorf("b has held it: %v, %v", s.Status(), s.Attributes())
			}
		}
		slices.Sort(lostKinds)
		slices.Sort(heldKinds)
		if want := []string{"lock", "session"}; !slices.Equal(lostKinds, want) || !slices.Equal(heldKinds, want) {
			t.Errorf("the spans are %v", names(spans))
		}
		if len(o.spans.Started()) != len(spans) {
			t.Errorf("%d spans have not ended", len(o.spans.Started())-len(spans))
		}
	})
}

type leaseAnswer struct {
	Lease string
	Token int64
}

// post asks for what is given.
func post(t *testing.T, h http.Handler, path, body string) (a leaseAnswer) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", path, w.Code, w.Body, err)
	}
	return a
}
