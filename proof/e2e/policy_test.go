package e2e_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// holds are the operations of a holder and of a follower, as docs/permissions.md has them.
func holds() []string {
	switch underTest.Layout {
	case leasehold.LayoutObject:
		return []string{"get", "put"}
	case leasehold.LayoutEpochs:
		return []string{"get", "put", "list", "delete"}
	default:
		return []string{"get", "put", "delete"}
	}
}

// locksIn is the store of locks in a bucket, as an identity sees it.
func locksIn(t *testing.T, as *servers.Server, bucket string) *s3store.Store {
	t.Helper()
	st, err := s3store.New(as.Client(), bucket, &s3store.Options{Prefix: "locks"})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestRoles: with the policies that the documentation gives them, holders hold, followers
// follow and take over, observers see and touch nothing, and a collector collects.
func TestRoles(t *testing.T) {
	t.Parallel()
	for _, name := range servers.IAMNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.StartIAM(t, name)
			bucket := srv.Bucket(t)
			as := func(operations ...string) *s3store.Store {
				policy, err := locksIn(t, srv, bucket).Policy(operations...)
				if err != nil {
					t.Fatal(err)
				}
				return locksIn(t, srv.Restricted(t, policy), bucket)
			}
			observer := newLock(t, as("get", "list"), nil)
			if info, err := observer.Inspect(t.Context()); err != nil || info.Held {
				t.Errorf("before anybody has held it the observer sees %+v, %v", info, err)
			}
			if _, err := observer.TryAcquire(t.Context()); !errors.Is(err, store.ErrDenied) {
				t.Errorf("the observer takes the lock: %v", err)
			}

			lease := live(t, as(holds()...))
			if info, err := observer.Inspect(t.Context()); err != nil || !info.Held {
				t.Errorf("while it is held the observer sees %+v, %v", info, err)
			}
			followed := make(chan *leasehold.Lease, 1)
			follower := newLock(t, as(holds()...), nil)
			go func() {
				defer close(followed)
				next, err := follower.Acquire(t.Context())
				if err != nil {
					t.Errorf("the follower: %v", err)
					return
				}
				followed <- next
			}()
			release(t, lease)
			if next := <-followed; next != nil {
				if !later(next.Token(), lease.Token()) {
					t.Errorf("token %v after %v", next.Token(), lease.Token())
				}
				release(t, next)
			}
			for c, err := range admin.Collect(t.Context(), as("get", "list", "delete"), "", nil) {
				if err != nil {
					t.Errorf("the collector, of %v: %v", c, err)
				}
			}
		})
	}
}

// live acquires a lock that nobody has held yet, and gives the lease when it has been
// renewed.
func live(t *testing.T, st store.Store) *leasehold.Lease {
	t.Helper()
	renewed := make(chan struct{}, 100)
	lease := acquire(t, newLock(t, st, &leasehold.LockOptions{
		TTL: 3 * time.Second, Trace: leasetest.OnRenew(func() { renewed <- struct{}{} }),
	}))
	if renewals() {
		<-renewed
	}
	return lease
}

// TestOnlyConditionalWrites: no lock sends a PUT without a condition, so a bucket may
// refuse them.
func TestOnlyConditionalWrites(t *testing.T) {
	t.Parallel()
	for _, name := range servers.Names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, name)
			proxy := servers.StartProxy(t, srv.Endpoint, &servers.ProxyOptions{Fault: func(r *http.Request, _ int) servers.Fault {
				writes := r.Method == http.MethodPut || r.Method == http.MethodPost
				if writes && r.Header.Get("If-Match") == "" && r.Header.Get("If-None-Match") == "" {
					return servers.Status(http.StatusForbidden)
				}
				return servers.Pass
			}})
			st, err := s3store.New(srv.ClientAt(proxy.Endpoint), srv.Bucket(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = st.PutLarge(t.Context(), "k", http.NoBody); !errors.Is(err, store.ErrDenied) {
				t.Errorf("an unconditional PUT: %v", err)
			}
			lease := live(t, st)
			release(t, lease)
			next := acquire(t, newLock(t, st, nil))
			release(t, next)
		})
	}
}
