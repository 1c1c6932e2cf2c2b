package probe

import (
	"fmt"
	"slices"
	"testing"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestListsAll: a listing must have all objects, in order.
func TestListsAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		objects int
		change  func([]store.Entry) []store.Entry
		result  Result
		detail  string
	}{
		{3, nil, Note, "not tried: that takes more than 1000 races; 3 objects were listed"},
		{1000, nil, Note, "not tried: that takes more than 1000 races; 1000 objects were listed"},
		{1001, nil, OK, "1001 objects"},
		{3, func(all []store.Entry) []store.Entry { return all[1:] }, Bad, "of 3 objects 1 were not listed"},
		{1001, func(all []store.Entry) []store.Entry { return all[:1000] }, Bad, "of 1001 objects 1 were not listed"},
		{3, func(all []store.Entry) []store.Entry { slices.Reverse(all); return all }, Bad, `it lists "k-0002" after "k-0003"`},
		{3, func(all []store.Entry) []store.Entry { return slices.Insert(all, 2, all[1]) }, Bad, `it lists "k-0002" after "k-0002"`},
		{3, func(all []store.Entry) []store.Entry { all[1], all[2] = all[2], all[1]; return all }, Bad, `it lists "k-0002" after "k-0003"`},
		{3, func(all []store.Entry) []store.Entry { return append(all, store.Entry{Key: all[2].Key + "x"}) }, Note, "not tried: that takes more than 1000 races; 3 objects were listed"},
	} {
		b := &brokenstore.Store{Store: memstore.New()}
		if c.change != nil {
			brokenstore.ListThen(c.change)(b)
		}
		s, err := newSurvey(t.Context(), brokenstore.Bare{Store: b}, few)
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for n := range c.objects {
			key := fmt.Sprintf("k-%04d", n+1)
			there[key] = n%2 == 0
			if _, err := b.Store.Put(t.Context(), s.prefix+key, nil, store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		if result, detail, err := s.listsAll("k-", there); result != c.result || detail != c.detail || err != nil || len(there) != c.objects {
			t.Errorf("of %d: %s, %s, %v", c.objects, result, detail, err)
		}
		if result, detail, _ := s.longListing(); result != Unknown || detail != "there was nothing to list" {
			t.Errorf("%s, %s", result, detail)
		}
		s.longLists.add(Bad, "this", nil)
		if result, detail, _ := s.longListing(); result != Bad || detail != "this" {
			t.Errorf("%s, %s", result, detail)
		}
	}
}
