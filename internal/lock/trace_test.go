package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/locktrace"
)

// TestTellLast: the channel is closed when the function has returned, when there is none, when the event
// is dropped, and a second later if it hangs.
func TestTellLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		e := lock.NewEvents("a lock", time.Minute, slog.New(slog.NewTextHandler(&log, nil)))
		began := time.Now()
		returned := false
		<-lock.TellLast(t.Context(), e, "f", func(context.Context, int) {
			time.Sleep(time.Millisecond)
			returned = true
		}, 1)
		if !returned || time.Since(began) != time.Millisecond {
			t.Errorf("it is told after %v: %t", time.Since(began), returned)
		}
		<-lock.TellLast(t.Context(), e, "f", nil, 1)
		goOn, n := make(chan struct{}), 0
		hang := func(context.Context, int) {
			<-goOn
			n++
		}
		began = time.Now()
		if <-lock.TellLast(t.Context(), e, "f", hang, 1); time.Since(began) != lock.TracePatience {
			t.Errorf("one that hangs is waited for %v", time.Since(began))
		}
		for range lock.MostEvents {
			lock.Tell(t.Context(), e, "f", hang, 1)
		}
		began = time.Now()
		for range 3 {
			<-lock.TellLast(t.Context(), e, "f", hang, 1)
		}
		if time.Since(began) != 0 {
			t.Errorf("what is dropped is waited for %v", time.Since(began))
		}
		close(goOn)
		synctest.Wait()
		if n != lock.MostEvents+1 {
			t.Errorf("%d were told", n)
		}
		lock.Tell(t.Context(), e, "f", hang, 1)
		synctest.Wait()
		if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "are dropped") || !strings.Contains(text, "number=3") {
			t.Errorf("the log says %s", text)
		}
	})
}

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
