package main

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
)

// TestAcquireUsage: what cannot be is refused before the store is asked, with what to change, in the words of the flags.
func TestAcquireUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ttl    time.Duration
		layout leasehold.Layout
		file   leaseFile
		export bool
		code   int
		want   string // "": it can be
	}{
		{leasehold.MinTTL, leasehold.LayoutObject, "", false, 0, ""},
		{leasehold.MaxTTL, leasehold.LayoutEpochs, "", true, 255, ""},
		{time.Minute, leasehold.LayoutObject, leaseFile(t.TempDir() + "/lease"), false, 75, ""},
		{0, leasehold.LayoutObject, "", false, 75, "no --ttl given: "},
		{leasehold.MinTTL - 1, leasehold.LayoutObject, "", false, 75, "--ttl 999.999999ms is not between 1s and 24h0m0s"},
		{leasehold.MaxTTL + time.Second, leasehold.LayoutObject, "", false, 75, "--ttl 24h0m1s is not between 1s and 24h0m0s"},
		{time.Minute, leasehold.LayoutMarker, "", false, 75, "--layout marker has no tokens"},
		{time.Minute, leasehold.LayoutObject, "-", false, 75, "--file - is no file"},
		{time.Minute, leasehold.LayoutObject, "x", true, 75, "--file and --exec exclude each other"},
		{time.Minute, leasehold.LayoutObject, "", false, -1, "--conflict-exit-code -1 is not between 0 and 255"},
		{time.Minute, leasehold.LayoutObject, "", false, 256, "--conflict-exit-code 256 is not between 0 and 255"},
		{time.Minute, leasehold.LayoutObject, "/none/such/lease", false, 75, "--file /none/such/lease: "},
	} {
		h := &acquireCmd{file: tt.file, export: tt.export}
		h.opts.TTL, h.opts.Layout, h.heldCode = tt.ttl, tt.layout, tt.code
		if err := h.check(); (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), "exit code 64: "+tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
