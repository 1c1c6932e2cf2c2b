package leasehold_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store/memstore"
)

// The former holder of a lock that was broken by hand was told that another candidate took the
// lock, and the name that it was told was its own.
func TestBrokenLeaseSaysSo(t *testing.T) {
	needs(t, here().Tokens(), admin.ErrNoTokens.Error())
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
