package leasehold_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// The former holder of a lock that was broken by hand was told that another candidate took the
// lock, and the name that it was told was its own.
func TestBrokenLeaseSaysSo(t *testing.T) {
	needs(t, here().Tokens(), leasehold.ErrNoTokens.Error())
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		var told error
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Holder: "me", OnLost: func(_ *leasehold.Lease, err error) { told = err }}))
		breakLock(t, newLock(t, st, nil))
		<-lease.Done()
		err := lease.Release(t.Context())
		synctest.Wait() // OnLost has a goroutine of its own
		for _, err := range []error{lease.Err(), context.Cause(lease.Context()), told, err} {
			if !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, leasehold.ErrBroken) || strings.Contains(err.Error(), "another") {
				t.Errorf("broken by hand: %v", err)
			}
		}
	})
}

// The same of a session and all that is under it; and a session that was waited out says by whom.
func TestBrokenSessionSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := startProcess(t, st, "a"), startProcess(t, st, "b")
		lease, other := a.acquire("shards/1"), a.acquire("shards/2")
		breakLock(t, b.lock("shards/1"))
		<-a.session.Done()
		for _, err := range []error{a.session.Err(), lease.Err(), other.Err()} {
			if !errors.Is(err, leasehold.ErrSessionOver) || !errors.Is(err, leasehold.ErrBroken) || strings.Contains(err.Error(), "another") {
				t.Errorf("broken by hand: %v", err)
			}
		}
		a.end()
		b.end()
	})
}

// recordIn is what lies under a key.
func recordIn(t *testing.T, st store.Store, key string) record.Record {
	t.Helper()
	obj, err := st.Get(t.Context(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := record.DecodeIn(record.AnyLayout, obj.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What Break writes is an attempt of its own (rule A2), and keeps the token (rule A3).
func TestBreakWritesAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		lease := acquire(t, lock)
		before := recordIn(t, st, lock.Key())
		breakLock(t, lock)
		after := recordIn(t, st, lock.Key())
		if after.WriteID == before.WriteID || after.WriteID == "" || after.Token != before.Token || after.Held || after.Ended != "broken" {
			t.Errorf("from %+v it made %+v", before, after)
		}
		_ = lease.Release(t.Context())
	})
}

// A lock that has changed hands while Break was at work is not the one that it was to free,
// even if it is free.
func TestBreakOfAnother(t *testing.T) {
	needs(t, here().Tokens(), leasehold.ErrNoTokens.Error())
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		lock := newLock(t, inner, nil)
		lease := acquire(t, lock)
		once := true
		st := &told{Store: inner, read: func() {
			if once {
				once = false
				release(t, lease)
				release(t, acquire(t, lock))
			}
		}}
		info, err := newLock(t, st, nil).Break(t.Context(), lease.Token())
		if err == nil {
			t.Errorf("it has broken %+v", info)
		}
	})
}

// A lock whose token is another is left as it is.
func TestBreakLooksAtTheToken(t *testing.T) {
	needs(t, here().Tokens(), leasehold.ErrNoTokens.Error())
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		lease := acquire(t, lock)
		for _, token := range []leasehold.Token{lease.Token() - 1, lease.Token() + 1, leasehold.NoToken} {
			got := cost(st, func() {
				if _, err := lock.Break(t.Context(), token); err == nil {
					t.Errorf("broken by the token %v: %v", token, err)
				}
			})
			if got.put > 0 {
				t.Errorf("by the token %v: %v", token, got)
			}
		}
		time.Sleep(lasting(time.Minute))
		if !lease.Valid() {
			t.Errorf("the lease is over: %v", lease.Err())
		}
		release(t, lease)
	})
}
