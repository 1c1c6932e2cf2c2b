package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// A holding is valid until a reading of the clock. Its leases are freed by the test.
type holding struct {
	lock.Holding
	until time.Duration
}

func (h *holding) Where() string             { return "the lock a" }
func (h *holding) Holder() string            { return "usual" }
func (h *holding) TTL() time.Duration        { return time.Minute }
func (h *holding) ValidUntil() time.Duration { return h.until }
func (h *holding) SessionErr() error         { return nil }
func (h *holding) Free(l *lock.Lease, _ string) {
	l.Finish(lock.ErrReleased)
}

// TestTermsOfALease: what the terms say goes before what the holding says, and what they leave open does not.
func TestTermsOfALease(t *testing.T) {
	now := clock.Now()
	const valid, most = time.Hour, 10 * time.Hour
	for _, c := range []struct {
		terms  *lock.Terms
		holder string
		ttl    time.Duration
		end    time.Duration // from now; 0: none
	}{
		{nil, "usual", time.Minute, 0},
		{&lock.Terms{Terms: candidate.Terms{Holder: "job"}}, "job", time.Minute, 0},
		{&lock.Terms{Terms: candidate.Terms{TTL: time.Hour}}, "usual", time.Hour, 0},
		{&lock.Terms{Terms: candidate.Terms{TTL: 1}}, "usual", 1, 0},
		{&lock.Terms{Terms: candidate.Terms{NoRenewal: true}}, "usual", time.Minute, valid},
		{&lock.Terms{Terms: candidate.Terms{MaxHold: most}, End: now + most}, "usual", time.Minute, most},
		{&lock.Terms{Terms: candidate.Terms{MaxHold: 1}, End: now + most}, "usual", time.Minute, most},
		{&lock.Terms{Terms: candidate.Terms{HoldAtLeast: 1}, End: now + most}, "usual", time.Minute, 0},
	} {
		h := &holding{until: now + valid}
		var l lock.Lease
		l.Begin(t.Context(), h, 1, c.terms)
		if l.Holder() != c.holder || l.TTL() != c.ttl {
			t.Errorf("%+v: held by %s for %v", c.terms, l.Holder(), l.TTL())
		}
		switch end := l.End(); {
		case end.IsZero() != (c.end == 0):
			t.Errorf("%+v: it ends at %v", c.terms, end)
		case !end.IsZero() && (time.Until(end) > c.end || time.Until(end) < c.end-30*time.Minute):
			t.Errorf("%+v: it ends in %v, want %v", c.terms, time.Until(end), c.end)
		}
		l.Finish(errors.New("done"))
		if end := l.End(); !end.IsZero() {
			t.Errorf("%+v: a lease that has ended ends at %v", c.terms, end)
		}
	}
}

// TestSettle: who waits for a release goes on when it is settled and all are done that come before.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		for _, has := range [][2]bool{{}, {true}, {1: true}, {true, true}} {
			var before [2]chan struct{}
			for i := range before {
				if has[i] {
					before[i] = make(chan struct{})
				}
			}
			var l lock.Lease
			l.Begin(t.Context(), &holding{}, 1, nil)
			l.BeginRelease("")
			if l.Settled() {
				t.Error("it is settled when it begins")
			}
			l.Settle(failed, before[0], before[1])
			if !l.Settled() {
				t.Error("it is not settled")
			}
			ended := false
			go func() {
				if err := l.Release(context.Background(), ""); !errors.Is(err, failed) {
					t.Errorf("the release: %v", err)
				}
				ended = true
			}()
			for _, c := range before {
				if synctest.Wait(); c != nil && ended {
					t.Error("the release ends before what comes before it")
				}
				if c != nil {
					close(c)
				}
			}
			if synctest.Wait(); !ended {
				t.Error("the release does not end")
			}
		}
	})
}
