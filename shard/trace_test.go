package shard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestTrace: the locks of shards are told of as shards, beside the session and the election of the
// coordinator; memberships, which are waited for as long as a worker lives, are not.
func TestTrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[string]int{}
		note := func(of leasehold.TraceSubject, what string) {
			mu.Lock()
			defer mu.Unlock()
			told[fmt.Sprint(of.Kind, " ", what)]++
		}
		w, err := shard.NewWorker(memstore.New(), "streams", []string{"x", "y", "z"}, &shard.Options{Holder: "a", Trace: &leasehold.Trace{
			AcquireStart: func(ctx context.Context, e leasehold.TraceAcquireStart) context.Context {
				note(e.TraceSubject, "start")
				return ctx
			},
			AcquireDone: func(_ context.Context, e leasehold.TraceAcquireDone) {
				note(e.TraceSubject, fmt.Sprint("done ", e.Err))
			},
			Released: func(_ context.Context, e leasehold.TraceReleased) {
				note(e.TraceSubject, fmt.Sprint("released ", e.Err))
			},
			Lost:   func(_ context.Context, e leasehold.TraceLost) { note(e.TraceSubject, "lost") },
			Leader: func(_ context.Context, e leasehold.TraceLeader) { note(e.TraceSubject, fmt.Sprint("leader ", e.Known)) },
			Request: func(_ context.Context, e leasehold.TraceRequest) {
				if e.Kind == leasehold.KindLock {
					note(e.TraceSubject, "request")
				}
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- w.Run(ctx, func(ctx context.Context, _ shard.Shard) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Minute)
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := map[string]int{
			"session start": 1, "session done <nil>": 1, "session released <nil>": 1,
			"election start": 1, "election done <nil>": 1, "election leader true": 1, "election leader false": 1, "election released <nil>": 1,
			"shard start": 3, "shard done <nil>": 3, "shard released <nil>": 3,
		}
		if !maps.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
