package engine_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/leasetest"
)

// TestProcess: a function is called after its time and not before, an alarm goes off when it was
// set for, as often as it was set, and not when it was stopped; and an order is drawn.
func TestProcess(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		start := clock.Now()
		var mu sync.Mutex
		var at []time.Duration
		note := func() {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, clock.Now()-start)
		}
		var rt engine.Process
		pass := func(d time.Duration, want ...time.Duration) {
			t.Helper()
			time.Sleep(d) //nolint:forbidigo // of the bubble
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(at, want) {
				t.Errorf("%v: called at %v, want %v", clock.Now()-start, at, want)
			}
			at = nil
		}
		rt.After(2*time.Second, note)
		pass(2*time.Second - 1)
		pass(1, 2*time.Second)

		alarm := rt.Alarm(note)
		alarm.Set(start + 2500*time.Millisecond)
		pass(time.Second, 2500*time.Millisecond)
		alarm.Set(start + 3100*time.Millisecond)
		alarm.Stop()
		pass(time.Minute)
	})
	drawn := map[int]bool{engine.Process{}.Draw(0): true}
	for range 1000 {
		drawn[engine.Process{}.Draw(3)] = true
	}
	if len(drawn) != 3 || !drawn[0] || !drawn[1] || !drawn[2] {
		t.Errorf("of three numbers %v were drawn", drawn)
	}
}
