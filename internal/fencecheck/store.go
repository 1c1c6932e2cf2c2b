package fencecheck

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// hashed is a store in memory whose versions are hashes of the bytes, as those of S3
// are: the same bytes bring an old version back.
type hashed struct {
	*memstore.Store
	mu sync.Mutex
}

func hash(body []byte) store.Version {
	sum := md5.Sum(body)
	return store.Version(hex.EncodeToString(sum[:]))
}

func (s *hashed) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, err := s.Store.Get(ctx, key, "")
	if err != nil {
		return nil, err
	}
	if o.Version = hash(o.Body); o.Version == unless {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
	}
	return o, nil
}

func (s *hashed) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !only.Absent() {
		o, err := s.Store.Get(ctx, key, "")
		if err != nil || hash(o.Body) != only.Match() {
			return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
		}
		only = store.IfMatch(o.Version)
	}
	o, err := s.Store.Put(ctx, key, body, only)
	if err == nil {
		o.Version = hash(body)
	}
	return o, err
}

// NewStore is an empty store with content hashes, behind a network that can be made bad.
func NewStore(seed uint64, faults ...faultstore.Fault) *faultstore.Store {
	return faultstore.Wrap(&hashed{Store: memstore.New()}, &faultstore.Options{Seed: seed, Faults: faults})
}

// SaysThingsOnce checks that an error of a write says once what is not known, and nothing of that
// where all is known. No test noticed when it said so twice, or without a reason. open opens what
// is written, before the store is in trouble.
func SaysThingsOnce(t *testing.T, open func(t *testing.T, st *faultstore.Store) (write func() error)) {
	t.Helper()
	for name, c := range map[string]struct {
		faults []faultstore.Fault
		before bool // something was sent before of which no answer came
	}{
		"denied":                      {[]faultstore.Fault{{Kind: faultstore.Denied, Op: "put"}}, false},
		"no answer to any":            {[]faultstore.Fault{{Kind: faultstore.LostRequest, Op: "put"}}, false},
		"no answer, and then refused": {[]faultstore.Fault{{Kind: faultstore.LostRequest, Op: "put", Nth: 1}, {Kind: faultstore.Denied, Op: "put"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := NewStore(1)
				write := open(t, st)
				st.Inject(c.faults...)
				err := write()
				if err == nil || strings.Contains(err.Error(), "before that") != c.before || strings.Contains(err.Error(), "%!") {
					t.Errorf("%v; want that it speaks of what was before: %t", err, c.before)
				}
			})
		})
	}
}
