package probe

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestCleaning: what deletes leave at first is deleted again, and what stays is told.
func TestCleaning(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		ignore int // so many deletes of each object are answered and not done
		purge  error
		left   int
		said   string
		sent   Requests
		known  Result // whether deletes work
	}{
		{"at once", 0, nil, 0, "", Requests{Put: 2, Delete: 2, List: 1, Inspect: 1}, OK},
		{"at the second time", 1, nil, 0, "", Requests{Put: 2, Delete: 4, List: 2, Inspect: 2}, OK},
		{"at the fourth time", 3, nil, 0, "", Requests{Put: 2, Delete: 8, List: 4, Inspect: 4}, OK},
		{"at the fifth time", 4, nil, 2, "", Requests{Put: 2, Delete: 8, List: 4, Inspect: 4}, OK},
		{"never", 4, nil, 2, "", Requests{Put: 2, Delete: 2, Inspect: 1}, Bad},
		{"denied", -1, nil, 2, "", Requests{Put: 2, Delete: 2, Inspect: 1}, Unknown},
		{"but for past versions", 0, errors.New("broken"), 0, "those of the probe's own objects stay: broken", Requests{Put: 2, Delete: 2, List: 1, Inspect: 1}, OK},
	} {
		b := &brokenstore.Store{Store: memstore.New()}
		var mu sync.Mutex
		done := map[string]int{}
		b.OnDelete = func(ctx context.Context, key string) error {
			if c.ignore < 0 {
				return &store.Error{Op: "delete", Key: key, Kind: store.ErrDenied}
			}
			mu.Lock()
			defer mu.Unlock()
			if done[key]++; done[key] <= c.ignore {
				return nil
			}
			return b.Store.Delete(ctx, key)
		}
		st := &unpurged{inspected{Store: b}, c.purge}
		s, err := newSurvey(t.Context(), st, few)
		if err != nil {
			t.Fatal(err)
		}
		s.purge = true
		s.report.Findings = []Finding{{Name: canDelete, Result: c.known}}
		for _, key := range []string{"a", "b"} {
			if _, err := s.write(s.a, key, s.body(), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		s.ctx = ended //nolint:fatcontext // of this survey alone
		s.clean()
		if want := few.Requests() + few.Purges(); s.report.Limit != want {
			t.Errorf("%s: the limit is %d, not %d", c.name, s.report.Limit, want)
		}
		n := 0
		for range b.Store.List(t.Context(), "", "") { //nolint:errcheck // memory does not fail
			n++
		}
		f := s.report.Finding("past versions removed")
		if s.report.Requests != c.sent {
			t.Errorf("%s: it sends %+v", c.name, s.report.Requests)
		}
		if told := s.report.Left; told != c.left && c.known != Bad || n != c.left || (c.said == "") != (f.Detail == "not tried") || c.said != "" && (f.Detail != c.said || f.Result != Unknown) {
			t.Errorf("%s: %d are left, it tells of %d: %+v", c.name, n, s.report.Left, f)
		}
	}
}

// TestCleaningHasItsRequests: those that were kept for it, to the last.
func TestCleaningHasItsRequests(t *testing.T) {
	t.Parallel()
	for more, left := range []int{2, 1, 0, 0} {
		s := surveyed(t, few)
		s.connect(memstore.New(), memstore.New())
		for _, key := range []string{"a", "b"} {
			if _, err := s.write(s.a, key, s.body(), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		s.report.Limit = s.report.Requests.Total() + more
		if s.clean(); s.report.Left != left {
			t.Errorf("with %d requests %d objects are left", more, s.report.Left)
		}
	}
}
