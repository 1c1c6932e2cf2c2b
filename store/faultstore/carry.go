package faultstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold/store"
)

// An Event is one request, or its late delivery.
type Event struct {
	N         int // number of the call, from 1; a late delivery has that of its call
	Op        string
	Key       string
	Condition string // the condition of a put or a get
	Fault     string // the fault, or ""
	Late      bool   // delivered after the call was answered
	Outcome   string // what the caller got: a version or an error; "" while in progress
	Truth     string // what the store answered, if the caller got something else
}

func (e Event) String() string {
	text := fmt.Sprintf("#%d %s %q", e.N, e.Op, e.Key)
	if e.Condition != "" {
		text += " " + e.Condition
	}
	if e.Fault != "" {
		text += " [" + e.Fault + "]"
	}
	if e.Late {
		text += " arrived late"
	}
	switch {
	case e.Outcome != "":
		text += ": " + e.Outcome
	case !e.Late:
		text += ": under way"
	}
	if e.Truth != "" {
		text += " (in truth: " + e.Truth + ")"
	}
	return text
}

// A Log has an Event for each request. It prints one line per Event.
type Log []Event

func (l Log) String() string {
	lines := make([]string, len(l))
	for i, e := range l {
		lines[i] = e.String()
	}
	return strings.Join(lines, "\n")
}

// partition is the fault of a call that begins during a partition.
const partition = "partition"

// A request is the fate of a call, decided when it begins.
type request struct {
	event *Event
	kind  Kind // 0: no fault
	delay time.Duration
	cut   <-chan struct{}
}

// begin counts the call, chooses its fault and creates its event.
func (s *Store) begin(c Call) request {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	switch c.Op {
	case "get":
		s.counts.Get++
	case "put":
		s.counts.Put++
	case "delete":
		s.counts.Delete++
	case "list":
		s.counts.List++
	}
	e := &Event{N: s.calls, Op: c.Op, Key: c.Key}
	switch {
	case c.Op == "put", c.Only.Valid():
		e.Condition = c.Only.String()
	case c.Unless != "":
		e.Condition = "unless version " + string(c.Unless)
	}
	t := request{event: e, cut: s.cut}
	for _, r := range s.rules {
		delay, meets := r.meets(c, s.rand.Float64)
		if meets && t.kind == 0 {
			t.kind, t.delay = r.Kind, delay
			e.Fault = r.Kind.String()
		}
	}
	if ended(s.cut) {
		e.Fault = partition
	}
	s.events = append(s.events, e)
	return t
}

// carry takes a request to the store and back, unless its fault prevents it.
func carry[T any](ctx context.Context, s *Store, c Call, send func(context.Context) (T, error)) (T, error) {
	t := s.begin(c)
	again := func(ctx context.Context) string { return outcome(send(ctx)) }
	truth := ""
	var answer T
	err := s.outward(ctx, c, t, again)
	if err == nil {
		answer, err = send(ctx)
		truth = outcome(answer, err)
		if t.kind == SecondAnswer {
			answer, err = send(ctx)
		}
		if lost := s.homeward(ctx, c, t, again); lost != nil {
			answer, err = broken(answer), lost
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.event.Outcome = outcome(answer, err)
	if truth != t.event.Outcome {
		t.event.Truth = truth
	}
	return answer, err
}

// outward applies faults before the request arrives. An error means that it does not arrive, or
// not now.
func (s *Store) outward(ctx context.Context, c Call, t request, again func(context.Context) string) error {
	if t.event.Fault == partition {
		return c.fail(store.ErrUnavailable, "cut off by a partition")
	}
	switch t.kind {
	case Unavailable:
		return c.fail(store.ErrUnavailable, "unavailable")
	case Throttled:
		return c.fail(store.ErrThrottled, "throttled")
	case Denied:
		return c.fail(store.ErrDenied, "denied")
	case Conflict:
		return c.fail(store.ErrConflict, "a rival write was under way")
	case LostRequest:
		return c.lost(ctx, "no answer came")
	case Hang:
		select {
		case <-ctx.Done():
		case <-t.cut:
		}
		return c.lost(ctx, "no answer came")
	case LateLanding:
		s.later(ctx, t, again)
		return c.lost(ctx, "no answer came")
	case DelayBefore:
		if !pause(ctx, t.delay, t.cut) {
			return c.lost(ctx, "no answer came in time")
		}
	}
	return nil
}

// homeward applies faults after the request arrived. An error means the answer is lost.
func (s *Store) homeward(ctx context.Context, c Call, t request, again func(context.Context) string) error {
	switch t.kind {
	case LostAnswer:
		return c.lost(ctx, "the answer was lost")
	case LateDuplicate:
		s.later(ctx, t, again)
	case DelayAfter:
		if !pause(ctx, t.delay, t.cut) {
			return c.lost(ctx, "no answer came in time")
		}
	}
	if ended(t.cut) {
		return c.lost(ctx, "cut off by a partition")
	}
	return nil
}

// later delivers a request after the delay, even if the call's context has ended.
func (s *Store) later(ctx context.Context, t request, again func(context.Context) string) {
	event := *t.event // the outcome is not known yet
	event.Late = true
	s.late.Go(func() {
		if ended(s.closed) || !pause(context.WithoutCancel(ctx), t.delay, s.closed) {
			return
		}
		event.Truth = again(context.WithoutCancel(ctx))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, &event)
	})
}

// broken returns the part of a broken-off answer that arrives: half of a listing, or of a large
// body everything before the reader's error.
func broken[T any](answer T) T {
	var none T
	switch a := any(answer).(type) {
	case []store.Entry:
		none, _ = any(a[:len(a)/2]).(T)
	case *large:
		none = answer
	}
	return none
}

// outcome describes an answer in a word or two.
func outcome(answer any, err error) string {
	if e, ok := errors.AsType[*store.Error](err); ok {
		return e.Kind.Error()
	}
	if err != nil {
		return err.Error()
	}
	switch a := answer.(type) {
	case *store.Object:
		return "version " + string(a.Version)
	case []store.Entry:
		return fmt.Sprint(len(a), " entries")
	case *large:
		return fmt.Sprint(a.size, " bytes")
	}
	return "done"
}
