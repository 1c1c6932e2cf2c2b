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

	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestTrace: the locks of shards are told of as shards, beside the session and the election of the
// coordinator, also where the store cannot be reached for a minute; memberships, which are waited for as long as a
// worker lives, are not.
func TestTrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[string]int{}
		note := func(of locktrace.Subject, what string) {
			mu.Lock()
			defer mu.Unlock()
			told[fmt.Sprint(of.Kind, " ", what)]++
		}
		st := faultstore.Wrap(memstore.New(), nil)
		w, err := shard.NewWorker(st, "streams", []string{"x", "y", "z"}, &shard.Options{Holder: "a", Trace: &locktrace.Trace{
			AcquireStart: func(ctx context.Context, e locktrace.AcquireStart) context.Context {
				note(e.Subject, "start")
				return ctx
			},
			AcquireDone: func(_ context.Context, e locktrace.AcquireDone) {
				note(e.Subject, fmt.Sprint("done ", e.Err == nil))
			},
			Released: func(_ context.Context, e locktrace.Released) {
				note(e.Subject, fmt.Sprint("released ", e.Err == nil))
			},
			Lost:   func(_ context.Context, e locktrace.Lost) { note(e.Subject, "lost") },
			Leader: func(_ context.Context, e locktrace.Leader) { note(e.Subject, fmt.Sprint("leader ", e.Known)) },
			Request: func(_ context.Context, e locktrace.Request) {
				if e.Kind == locktrace.Lock {
					note(e.Subject, "request")
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
		st.Partition(true)
		time.Sleep(time.Minute)
		st.Partition(false)
		time.Sleep(time.Minute)
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := map[string]int{
			"session start": 2, "session done true": 2, "session lost": 1, "session released true": 1, "session released false": 1,
			"election start": 3, "election done true": 2, "election done false": 1, "election lost": 1, "election released true": 2,
			"election leader true": 3, "election leader false": 2,
			"shard start": 6, "shard done true": 6, "shard lost": 3, "shard released true": 6,
		}
		if !maps.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
