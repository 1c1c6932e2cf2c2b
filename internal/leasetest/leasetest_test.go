package leasetest_test

import (
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/leasetest"
)

// The clock of leases follows virtual time in the cleanups of a test, too. It used to go back to the
// machine's clock before them. In the first hour after a boot that one is behind, and a cleanup that
// closed a lock waited in vain.
func TestBubbleLastsThroughCleanup(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		before := clock.Now()
		t.Cleanup(func() {
			time.Sleep(time.Hour)
			if passed := clock.Now() - before; passed != time.Hour {
				t.Errorf("in an hour %v passed", passed)
			}
		})
	})
}
