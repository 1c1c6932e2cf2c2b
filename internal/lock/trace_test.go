package lock_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/locktrace"
)

// TestRequests: the answer is that of the request that was sent last; other events are none.
func TestRequests(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, c := range []struct {
		op   string
		sent protocol.Action
		done protocol.Event
		err  error
	}{
		{"read", candidate.Read{}, candidate.ReadDone{}, nil},
		{"read", candidate.Read{}, candidate.ReadDone{Err: failed}, failed},
		{"check", candidate.Check{}, candidate.Checked{Err: failed}, failed},
		{"claim", candidate.Write{Op: candidate.Claim}, candidate.WriteDone{}, nil},
		{"renew", candidate.Write{Op: candidate.Renew}, candidate.WriteDone{Err: failed}, failed},
		{"free", candidate.Write{Op: candidate.Free}, candidate.WriteDone{}, nil},
		{"read", queue.Read{}, queue.ReadDone{Err: failed}, failed},
		{"write", queue.Write{}, queue.WriteDone{Err: failed}, failed},
	} {
		var r lock.Requests
		if r.Sent(candidate.Granted{}, 1) || !r.Sent(c.sent, 2) || r.Sent(protocol.Seen{}, 3) {
			t.Errorf("%s: what is sent is not known", c.op)
		}
		if _, is := r.Answered(protocol.Tick{}, 4); is {
			t.Errorf("%s: a tick is an answer", c.op)
		}
		if a, is := r.Answered(c.done, 7); !is || a != (lock.Answer{Op: c.op, Took: 5, Err: c.err}) {
			t.Errorf("%s: %+v", c.op, a)
		}
	}
}

// TestUntroubled: only the warning about a store that fails is dropped.
func TestUntroubled(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	quiet := lock.Untroubled(slog.New(slog.NewTextHandler(&log, nil)))
	for _, l := range []*slog.Logger{quiet, quiet.With("a", 1), quiet.WithGroup("g").With("b", 2)} {
		l.Warn(locktrace.TroubleMessage)
		l.Warn("something else")
	}
	if text := log.String(); strings.Count(text, "\n") != 3 || strings.Contains(text, locktrace.TroubleMessage) ||
		!strings.Contains(text, `msg="something else" a=1`) || !strings.Contains(text, `msg="something else" g.b=2`) {
		t.Errorf("the log says %s", text)
	}
}
