package protocol_test

import (
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// TestMarginObligation: on the slowest clock that the drift bound allows a lease
// still ends before, on the fastest, a follower's wait does; and no margin is
// wasted beyond the slack.
func TestMarginObligation(t *testing.T) {
	for ttl := protocol.MinTTL; ttl <= protocol.MaxTTL; ttl += ttl/7 + 1 {
		// Real time = the clock's time / rate; both scaled by 12.
		slowest := float64(protocol.Validity(ttl)) / (protocol.Drift - 1)
		fastest := float64(protocol.Patience(ttl)) / (protocol.Drift + 1)
		if slowest > fastest {
			t.Fatalf("ttl %v: a lease can last %v of real time, a follower waits only %v",
				ttl, time.Duration(slowest*protocol.Drift), time.Duration(fastest*protocol.Drift))
		}
		if protocol.Margin(ttl) > ttl/10 {
			t.Fatalf("ttl %v: margin %v", ttl, protocol.Margin(ttl))
		}
	}
}

// TestTTLs: what the documentation says of them.
func TestTTLs(t *testing.T) {
	if protocol.MinTTL != time.Second || protocol.DefaultTTL != 15*time.Second || protocol.MaxTTL != 24*time.Hour {
		t.Errorf("%v, %v, %v", protocol.MinTTL, protocol.DefaultTTL, protocol.MaxTTL)
	}
}

// TestSeldomWatch: two looks that far apart find a session dead, also the closest ones, and little time is lost.
func TestSeldomWatch(t *testing.T) {
	for ttl := protocol.MinTTL; ttl <= protocol.MaxTTL; ttl += ttl/7 + 1 {
		if every, dead := protocol.SeldomWatch(ttl), protocol.Patience(ttl); every*3/4 < dead || every > dead*3/2 {
			t.Fatalf("ttl %v: a look every %v, and a session is waited for for %v", ttl, every, dead)
		}
	}
}
