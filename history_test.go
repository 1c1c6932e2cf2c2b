package leasehold_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// TestHistoryEnds: the history ends when the consumer has seen enough, and at an error, which says
// which lock it is about; a lock without a history says that once.
func TestHistoryEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		all := func(l leasehold.Layout) (terms int, errs []error) {
			for _, err := range newLock(t, st, &leasehold.LockOptions{Layout: l}).History(t.Context()) {
				if err != nil {
					errs = append(errs, err)
				} else {
					terms++
				}
			}
			return terms, errs
		}
		epochs := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs})
		for range 3 {
			release(t, acquire(t, epochs))
		}
		if terms, errs := all(leasehold.LayoutEpochs); terms != 3 || errs != nil {
			t.Errorf("%d terms, %v", terms, errs)
		}
		for term, err := range epochs.History(t.Context()) {
			if err != nil || term.Why != "released" {
				t.Errorf("%+v, %v", term, err)
			}
			break
		}
		if terms, errs := all(leasehold.LayoutObject); terms != 0 || len(errs) != 1 || !errors.Is(errs[0], leasehold.ErrNoHistory) || !strings.Contains(errs[0].Error(), "jobs/backup") {
			t.Errorf("without epochs: %d terms, %v", terms, errs)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 2})
		if terms, errs := all(leasehold.LayoutEpochs); terms != 1 || len(errs) != 1 || !errors.Is(errs[0], store.ErrDenied) || !strings.HasPrefix(errs[0].Error(), "the lock ") {
			t.Errorf("denied: %d terms, %v", terms, errs)
		}
	})
}

// TestLayoutInAnInfo: whoever tells of a lock says in which layout it lies; the process that holds it too,
// which has not read that anywhere.
func TestLayoutInAnInfo(t *testing.T) {
	for _, l := range leasehold.Layouts {
		bubble(t, func(t *testing.T) {
			st := newStore()
			var log strings.Builder
			lock := newLock(t, st, &leasehold.LockOptions{Layout: l, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if warned := strings.Contains(log.String(), "has no tokens"); warned == l.Tokens() {
				t.Errorf("%s: the log says %q", l, &log)
			}
			lease := acquire(t, lock)
			want := l
			if !l.Tokens() {
				want = leasehold.LayoutMarker // both say so in their records
			}
			for _, lock := range []*leasehold.Lock{lock, newLock(t, st, &leasehold.LockOptions{Layout: l})} {
				_, err := lock.TryAcquire(t.Context())
				var held *leasehold.HeldError
				if !errors.As(err, &held) || held.Info.Layout != want {
					t.Errorf("%s: %+v", l, held)
				}
			}
			release(t, lease)
		})
	}
}

// TestAnotherToolsMarkerIsSeldomLookedAt: a marker that says nothing of a TTL is looked at as often as one
// with the TTL of the candidate would be.
func TestAnotherToolsMarkerIsSeldomLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		plant(t, st, "jobs/backup", "another tool's")
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutMarker, TTL: time.Minute})
		if _, err := lock.Acquire(ctx); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		if c := st.Counts(); c.Get > 3600/15+20 {
			t.Errorf("%d looks in an hour, where TTL/3 is 20 s", c.Get)
		}
	})
}

// TestTexts: what people read of a token and of a holder.
func TestTexts(t *testing.T) {
	info := leasehold.Info{Key: "jobs/backup", Holder: "db-1", Token: 1234567890, TTL: 15 * time.Second}
	gone := info
	gone.Abandoned = true
	for want, got := range map[string]string{
		"1234567890": leasehold.Token(1234567890).String(),
		"none":       leasehold.NoToken.String(),
		"the lock jobs/backup is held by db-1 (token 1234567890)":                                                                       (&leasehold.HeldError{Info: info}).Error(),
		"the lock jobs/backup is held by db-1 (token 1234567890); it looks abandoned, and a wait of a little over 15s can take it over": (&leasehold.HeldError{Info: gone}).Error(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
