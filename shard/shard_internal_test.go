package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestSleep: a pause is as long as was asked for, or up to a sixteenth longer, and is cut
// short when the context ends.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{0, time.Nanosecond, time.Minute} {
			var most time.Duration
			for range 100 {
				begun := time.Now()
				if !sleep(t.Context(), d) {
					t.Error("it was cut short")
				}
				took := time.Since(begun)
				most = max(most, took)
				if took < d || took > d+d/16 {
					t.Fatalf("of %v it makes %v", d, took)
				}
			}
			if most < d+d/20 {
				t.Errorf("of a hundred pauses of %v the longest is %v", d, most)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if sleep(ctx, time.Minute) || time.Since(begun) != time.Second {
			t.Errorf("a context that ends after a second cuts it to %v", time.Since(begun))
		}
	})
}

// TestGated: a request has a place while it is under way, gives it back, and one whose
// context ends while all are taken was not sent.
func TestGated(t *testing.T) {
	t.Parallel()
	g := gated{memstore.New(), make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		if _, err := g.Get(ctx, "k", ""); !errors.Is(err, store.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if _, err := g.Put(ctx, "k", nil, store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	obj, err := g.Get(ctx, "k", "")
	if err != nil || obj.Key != "k" {
		t.Fatal(obj, err)
	}
	cancel()
	g.slots <- struct{}{}
	_, get := g.Get(ctx, "k", "")
	_, put := g.Put(ctx, "k", nil, store.IfMatch(obj.Version))
	for op, err := range map[string]error{"get": get, "put": put} {
		e, ok := errors.AsType[*store.Error](err)
		if !ok || e.Op != op || e.Key != "k" || !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s while all places are taken: %v", op, err)
		}
	}
}

// TestTroubles: a trouble that passes is logged each time at debug level. A trouble that
// somebody must put right is a warning when it begins or changes. Status has the last of
// either.
func TestTroubles(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	w, err := NewWorker(memstore.New(), "x", nil, &Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	passes, foreign, gone := &store.Error{Kind: store.ErrUnavailable}, fmt.Errorf("a: %w", ErrForeign), &store.Error{Kind: store.ErrNotExist}
	for i, c := range []struct {
		tell func(error)
		err  error
		want string // in the log, with its level; empty: nothing is logged
	}{
		{w.failing, nil, ""},
		{w.failing, passes, "level=DEBUG msg=\"the plan could not be read or written\" prefix=x error=" + fmt.Sprintf("%q", passes.Error())},
		{w.failing, passes, "level=DEBUG"},
		{w.failing, foreign, "level=WARN msg=\"the plan cannot be followed, and the worker keeps what it has\" prefix=x error=" + fmt.Sprintf("%q", foreign.Error())},
		{w.failing, foreign, ""},
		{w.failing, gone, "level=WARN msg=\"the plan cannot be followed"},
		{w.failing, nil, ""},
		{w.failing, gone, "level=WARN msg=\"the plan cannot be followed"},
		{w.electing, nil, ""},
		{w.electing, foreign, "level=WARN msg=\"nobody can become the coordinator, and the worker keeps what it has\" prefix=x error=" + fmt.Sprintf("%q", foreign.Error())},
		{w.electing, foreign, ""},
		{w.electing, nil, ""},
		{w.electing, foreign, "level=WARN msg=\"nobody can become the coordinator"},
	} {
		log.Reset()
		c.tell(c.err)
		if got := log.String(); !strings.Contains(got, c.want) || (got == "") != (c.want == "") || strings.Count(got, "\n") > 1 {
			t.Errorf("%d. %v: the log says %q, want %q", i, c.err, got, c.want)
		}
		said := w.Status().PlanErr
		if i >= 8 {
			said = w.Status().ElectionErr
		}
		if said != c.err { //nolint:errorlint // it is to be that very error
			t.Errorf("%d. %v: Status says %v", i, c.err, said)
		}
	}
}

// TestHoldWithoutASession: where the session is over before anybody has heard of it, a shard
// is not tried for again, and that is no trouble.
func TestHoldWithoutASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		var log strings.Builder
		w, err := NewWorker(st, "x", []string{"a"}, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		session, err := leasehold.NewSession(t.Context(), st, w.sessionOptions())
		if err != nil {
			t.Fatal(err)
		}
		if err = session.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		term := newTerm(t.Context(), w, session, nil)
		defer term.stop(nil)
		h, done, before := term.holding(), make(chan struct{}), len(st.Log())
		go func() {
			term.hold("a", h)
			close(done)
		}()
		time.Sleep(time.Hour)
		select {
		case <-done:
			t.Error("it has given the shard up, and so would begin with it anew")
		default:
		}
		h.stop(ErrMoved)
		<-done
		if n := len(st.Log()) - before; n > 0 || log.Len() > 0 {
			t.Errorf("it has sent %d requests and logged %s", n, log.String())
		}
		st.Close()
	})
}
