package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestSeatedRelease: a seat that cannot be given back in time is freed by the end of its session, so it does not keep
// others waiting when the process has ended.
func TestSeatedRelease(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		open := func(st store.Store) *semaphore.Semaphore {
			s, err := semaphore.New(st, "seats", 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		first, second := open(st), open(inner)
		lease, err := first.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		st.Inject(faultstore.Fault{Kind: faultstore.Conflict, Op: "put", Key: "seats"})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err = (&seated{lease, first.Close}).Release(ctx); err != nil || ctx.Err() != nil {
			t.Errorf("released: %v, %v", err, ctx.Err())
		}
		began := time.Now()
		if lease, err = second.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the next had the seat after %v", took)
		}
		if err = (&seated{lease, second.Close}).Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSeatsOfTheGone: of those that hold seats or wait, one whose session is over or was deleted is found, wherever it is among
// them. A session that goes on, and one that cannot be read, say nothing.
func TestSeatsOfTheGone(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	const session = `{"format":1,"token":9,"state":%q,"holder":"h","address":"","ttl_ms":60000,"write_id":"x.1","session":"","layout":"session","renewed_at":"2999-01-01T00:00:00.000Z"}`
	for key, text := range map[string]string{"lives": fmt.Sprintf(session, "held"), "over": fmt.Sprintf(session, "free"), "broken": "no session"} {
		if _, err := st.Put(t.Context(), key, []byte(text), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	seats := func(sessions string) (all []semaphore.Seat) {
		for _, s := range strings.Fields(sessions) {
			all = append(all, semaphore.Seat{Holder: "of " + s, Token: 5, Weight: 1, Session: s})
		}
		return all
	}
	over := &gone{party{Holder: "of over", Token: 5}, "of over", time.Minute}
	c := &seatContest{at: target{store: st}}
	for _, tt := range []struct {
		holders, waiters string
		want             *gone
	}{
		{"", "", nil},
		{"lives broken", "lives", nil},
		{"lives over", "", over},
		{"lives", "broken over", over},
		{"deleted", "broken lives", &gone{party{Holder: "of deleted", Token: 5}, "of deleted", 0}},
	} {
		for range 5 { // it begins at one of them that is drawn by lot
			got := c.gone(t.Context(), &semaphore.HeldError{Info: semaphore.Info{Holders: seats(tt.holders), Waiters: seats(tt.waiters)}})
			if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
				t.Errorf("%q hold seats, and %q wait: %+v, want %+v", tt.holders, tt.waiters, got, tt.want)
			}
		}
	}
	if got := c.gone(t.Context(), store.ErrDenied); got != nil {
		t.Errorf("of no semaphore: %+v", got)
	}
}
