package shard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestSleep: a pause is as long as was asked for, or up to a sixteenth longer, and is cut
// short when the context ends.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{0, time.Nanosecond, time.Minute} {
			var most time.Duration
			for range 100 {
				begun := time.Now()
				if !sleep(t.Context(), d) {
					t.Error("it was cut short")
				}
				took := time.Since(begun)
				most = max(most, took)
				if took < d || took > d+d/16 {
					t.Fatalf("of %v it makes %v", d, took)
				}
			}
			if most < d+d/20 {
				t.Errorf("of a hundred pauses of %v the longest is %v", d, most)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if sleep(ctx, time.Minute) || time.Since(begun) != time.Second {
			t.Errorf("a context that ends after a second cuts it to %v", time.Since(begun))
		}
	})
}

// TestGated: a request has a place while it is under way, gives it back, and one whose
// context ends while all are taken was not sent.
func TestGated(t *testing.T) {
	t.Parallel()
	g := gated{memstore.New(), make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		if _, err := g.Get(ctx, "k", ""); !errors.Is(err, store.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if _, err := g.Put(ctx, "k", nil, store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	obj, err := g.Get(ctx, "k", "")
	if err != nil || obj.Key != "k" {
		t.Fatal(obj, err)
	}
	cancel()
	g.slots <- struct{}{}
	_, get := g.Get(ctx, "k", "")
	_, put := g.Put(ctx, "k", nil, store.IfMatch(obj.Version))
	for op, err := range map[string]error{"get": get, "put": put} {
		e, ok := errors.AsType[*store.Error](err)
		if !ok || e.Op != op || e.Key != "k" || !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s while all places are taken: %v", op, err)
		}
	}
}
