package locktrace_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/locktrace"
)

// TestJoinHasAll: each that is joined is called.
func TestJoinHasAll(t *testing.T) {
	t.Parallel()
	var told []string
	note := func(what string) { told = append(told, what) }
	one := &locktrace.Trace{
		Waiting:     func(context.Context, locktrace.Waiting) { note("waiting") },
		AcquireDone: func(context.Context, locktrace.AcquireDone) { note("done") },
		Renewed:     func(context.Context, locktrace.Renewed) { note("renewed") },
		Lost:        func(context.Context, locktrace.Lost) { note("lost") },
		Released:    func(context.Context, locktrace.Released) { note("released") },
		Trouble:     func(context.Context, locktrace.Trouble) { note("trouble") },
		Leader:      func(context.Context, locktrace.Leader) { note("leader") },
		Request:     func(context.Context, locktrace.Request) { note("request") },
	}
	j := locktrace.Join(one, one)
	j.Waiting(t.Context(), locktrace.Waiting{})
	j.AcquireDone(t.Context(), locktrace.AcquireDone{})
	j.Renewed(t.Context(), locktrace.Renewed{})
	j.Lost(t.Context(), locktrace.Lost{})
	j.Released(t.Context(), locktrace.Released{})
	j.Trouble(t.Context(), locktrace.Trouble{})
	j.Leader(t.Context(), locktrace.Leader{})
	j.Request(t.Context(), locktrace.Request{})
	want := strings.Fields("waiting waiting done done renewed renewed lost lost released released trouble trouble leader leader request request")
	if !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
	if k := (locktrace.Shard + 1).String(); k != "kind 5" {
		t.Errorf("a kind that is none is %q", k)
	}
}
