package protocol_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// TestTermsBounds: the first and the last of each range are in it.
func TestTermsBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		terms protocol.Terms
		ok    bool
	}{
		{protocol.Terms{HoldAtLeast: -1}, false},
		{protocol.Terms{HoldAtLeast: 1}, true},
		{protocol.Terms{HoldAtLeast: protocol.MaxRest}, true},
		{protocol.Terms{HoldAtLeast: protocol.MaxRest + 1}, false},
		{protocol.Terms{MaxHold: protocol.MinHold - 1}, false},
		{protocol.Terms{MaxHold: protocol.MinHold}, true},
		{protocol.Terms{MaxHold: time.Minute, HoldAtLeast: time.Minute}, true},
		{protocol.Terms{MaxHold: time.Minute, HoldAtLeast: time.Minute + 1}, false},
		{protocol.Terms{TTL: protocol.MinTTL - 1}, false},
		{protocol.Terms{TTL: protocol.MaxTTL}, true},
		{protocol.Terms{TTL: protocol.MaxTTL + 1}, false},
	} {
		if err := c.terms.Check(false); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.terms, err)
		}
	}
}

// TestExpiry: of two terms that end a lease the one that is first is the reason.
func TestExpiry(t *testing.T) {
	t.Parallel()
	terms := protocol.Terms{NoRenewal: true, MaxHold: time.Minute}
	for ttl, says := range map[time.Duration]string{15 * time.Second: "for one TTL of 15s", 2 * time.Minute: ""} {
		err := terms.Expiry(time.Second, 2*time.Second, ttl)
		if errors.Is(err, protocol.ErrTimeUp) != (says != "") || !strings.Contains(err.Error(), says) {
			t.Errorf("a TTL of %v: %v", ttl, err)
		}
	}
}
