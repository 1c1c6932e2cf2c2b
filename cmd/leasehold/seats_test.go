package main

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestSeatedRelease: a seat that cannot be given back in time is freed by the end of its session, so it does not keep
// others waiting when the process has ended.
func TestSeatedRelease(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		open := func(st store.Store) *semaphore.Semaphore {
			s, err := semaphore.New(st, "seats", 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		first, second := open(st), open(inner)
		lease, err := first.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		st.Inject(faultstore.Fault{Kind: faultstore.Conflict, Op: "put", Key: "seats"})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err = (&seated{lease, first.Close}).Release(ctx); err != nil || ctx.Err() != nil {
			t.Errorf("released: %v, %v", err, ctx.Err())
		}
		began := time.Now()
		if lease, err = second.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the next had the seat after %v", took)
		}
		if err = (&seated{lease, second.Close}).Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
