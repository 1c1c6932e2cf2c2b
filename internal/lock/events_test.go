package lock_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/lock"
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
