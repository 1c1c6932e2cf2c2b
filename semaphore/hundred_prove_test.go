//go:build prove

package semaphore_test

import "testing"

// TestHundred: what holds for forty that come at one moment holds for a hundred. How long they wait varies less then.
func TestHundred(t *testing.T) {
	t.Run("fast store", func(t *testing.T) { comeAtOnce(t, crowd{many: 100, requests: 18, unfair: 2.3}) })
	t.Run("busy store", func(t *testing.T) { onABusyStore(t, crowd{many: 100, requests: 22}) })
}
