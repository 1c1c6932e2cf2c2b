package leasetest_test

import (
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/leasetest"
)

// The clock of leases follows virtual time in the cleanup of a test, too. When it went back to the
// machine's there, whatever a cleanup closed was in trouble in the first hour after a boot.
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
