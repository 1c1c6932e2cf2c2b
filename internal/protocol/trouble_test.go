package protocol_test

import (
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// TestPause: every pause is at least a doubling from 50 ms and at most 4 s, whatever is configured.
func TestPause(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		retries []time.Duration
		want    []time.Duration
	}{
		{nil, []time.Duration{100 * ms, time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second}},
		{[]time.Duration{0}, []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 4 * time.Second}},
		{[]time.Duration{300 * ms, 200 * ms}, []time.Duration{300 * ms, 200 * ms, 400 * ms, 800 * ms}},
		{[]time.Duration{time.Hour}, []time.Duration{4 * time.Second, 4 * time.Second}},
	} {
		for i, want := range c.want {
			if got := protocol.Pause(i+1, c.retries); got != want {
				t.Errorf("after failure %d, of %v: %v, want %v", i+1, c.retries, got, want)
			}
		}
		for n := range 1000 {
			if got := protocol.Pause(n+1, c.retries); got < protocol.MinPause || got > protocol.MaxPause {
				t.Fatalf("after failure %d, of %v: %v", n+1, c.retries, got)
			}
		}
	}
	if got := protocol.Pause(0, nil); got != 0 {
		t.Errorf("after no failure: %v", got)
	}
}
