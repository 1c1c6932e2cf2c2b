package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestGoodStoreIsClean(t *testing.T) {
	for _, v := range Check(t.Context(), func() (store.Store, error) { return memstore.New(), nil }) {
		t.Errorf("%s: %v", v.Case, v)
	}
}

// planted is a store with objects that did not come in by Put.
type planted struct {
	*memstore.Store
	mu     sync.Mutex
	sizes  map[string]int
	refuse bool // an object over MaxBody, as the contract has it
}

func (s *planted) Plant(_ context.Context, key string, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes[key] = len(body)
	return nil
}

func (s *planted) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, ok := s.sizes[key]
	switch {
	case !ok:
		return s.Store.Get(ctx, key, unless)
	case s.refuse && size > store.MaxBody:
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrTooLarge}
	}
	return &store.Object{Key: key, Body: make([]byte, size), Version: "planted"}, nil
}

func TestPlantedBody(t *testing.T) {
	open := func(refuse bool) []Violation {
		return Check(t.Context(), func() (store.Store, error) {
			return &planted{Store: memstore.New(), sizes: make(map[string]int), refuse: refuse}, nil
		})
	}
	assertCited(t, open(false), []string{getTooLarge})
	for _, v := range open(true) {
		t.Errorf("%s: %v", v.Case, v)
	}
}

func TestCheckNeverPassesUnchecked(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assertCited(t, Check(ended, func() (store.Store, error) { return memstore.New(), nil }), []string{untilTheEnd})

	violations := Check(t.Context(), func() (store.Store, error) { return nil, errors.New("no such place") })
	assertCited(t, violations, []string{opens})
	if len(violations) != len(cases) {
		t.Errorf("%d violations for %d cases whose store did not open", len(violations), len(cases))
	}

	full := memstore.New()
	if _, err := full.Put(t.Context(), key, []byte("body"), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	assertCited(t, Check(t.Context(), func() (store.Store, error) { return full, nil }), []string{opens})
}

func TestViolationCitesTheSentence(t *testing.T) {
	v := Violation{Sentence: neverTorn, Detail: "a body of 40960 bytes"}
	if got, want := v.String(), `contract: "`+neverTorn+`": a body of 40960 bytes`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
