package adaptertest_test

import (
	"context"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/store"
)

// TestRounds: a lock by itself holds what each adapter has to.
func TestRounds(t *testing.T) {
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
		locks, err := leasehold.NewLocks(st, &leasehold.LockOptions{TTL: adaptertest.TTL, Holder: name})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				_ = locks.Do(ctx, "contended", func(ctx context.Context, _ *leasehold.Lease) error {
					work(ctx)
					return nil
				})
			}
		}()
		return func() {
			cancel()
			<-done
			if err := locks.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}
