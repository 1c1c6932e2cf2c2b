package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestBuildOf: what the linker was told counts, each part by itself; the rest is what the go command wrote.
func TestBuildOf(t *testing.T) {
	t.Parallel()
	stamped := &debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-26T10:00:00Z"}, {Key: "vcs.modified", Value: "true"},
		},
	}
	end := ", " + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	for name, c := range map[string]struct {
		info                    *debug.BuildInfo
		version, revision, date string
		want                    string
	}{
		"nothing is known": {want: "leasehold unknown"},
		"no clone":         {info: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, want: "leasehold (devel)"},
		"a clone":          {info: stamped, want: "leasehold v1.2.3 (abc, modified, 2026-11-26T10:00:00Z)"},
		"a release": {
			info: stamped, version: "2.0.0", revision: "def", date: "2027-01-01T00:00:00Z",
			want: "leasehold v2.0.0 (def, modified, 2027-01-01T00:00:00Z)",
		},
		"a distribution": {version: "v2.0.0", date: "2027-01-01T00:00:00Z", want: "leasehold v2.0.0 (2027-01-01T00:00:00Z)"},
		"its version":    {info: stamped, version: "v2.0.0-1", want: "leasehold v2.0.0-1 (abc, modified, 2026-11-26T10:00:00Z)"},
	} {
		if got := buildOf(c.info, c.version, c.revision, c.date).String(); got != c.want+end {
			t.Errorf("%s: %q, want %q", name, got, c.want+end)
		}
	}
}
