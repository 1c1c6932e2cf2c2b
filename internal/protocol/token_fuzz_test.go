package protocol_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// FuzzToken: whatever token a record has that can be read, it is either refused, or followed by
// one that can be read and is larger. One that was followed by a foreign record made its lock
// unusable.
func FuzzToken(f *testing.F) {
	for _, token := range []int64{1, 2, 1 << 41, record.LastToken - 2, record.LastToken - 1, record.LastToken, record.LastToken + 1, math.MaxInt64 - 1, math.MaxInt64} {
		for _, held := range []bool{false, true} {
			f.Add(token, held, uint8(0))
			f.Add(token, held, uint8(1))
		}
	}
	f.Fuzz(func(t *testing.T, token int64, held bool, layout uint8) {
		r := record.Record{Token: token, Held: held, Holder: "x", TTL: time.Second, WriteID: "x"}
		cfg := protocol.Config{Incarnation: "me", TTL: 15 * time.Second, Holder: "me"}
		if layout%2 == 1 {
			cfg.Numbered, cfg.Layout, r.Epoch = true, "epochs", 7
		}
		r.Layout = cfg.Layout
		body, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		read, err := record.DecodeIn(cfg.Layout, body)
		if (err == nil) != (token > 0) {
			t.Fatalf("token %d: %v", token, err)
		}
		if err != nil {
			return
		}
		read.Epoch = r.Epoch
		c, refused := protocol.New(cfg), false
		c.Step(protocol.Acquire{Wait: true}, protocol.Now{Clock: time.Hour})
		out := c.Step(protocol.ReadDone{Shown: protocol.Found, Version: "v1", Record: read}, protocol.Now{Clock: time.Hour})
		if held {
			out = append(out, c.Step(protocol.Tick{}, protocol.Now{Clock: 2 * time.Hour})...) // it looks once more before it takes over, or not
		}
		for _, a := range out {
			switch a := a.(type) {
			case protocol.Failed:
				refused = errors.Is(a.Err, protocol.ErrTooLarge)
			case protocol.Write:
				body, err := a.Record.Encode()
				if err != nil {
					t.Fatal(err)
				}
				next, err := record.DecodeIn(cfg.Layout, body)
				if err != nil || next.Token <= token || next.Token > record.LastToken {
					t.Errorf("token %d is followed by %d: %v", token, next.Token, err)
				}
			}
		}
		if refused != (token >= record.LastToken) {
			t.Errorf("token %d: refused %t", token, refused)
		}
	})
}
