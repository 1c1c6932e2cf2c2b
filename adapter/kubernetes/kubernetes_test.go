package leasekubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/leasehold/leasehold"
	leasekubernetes "github.com/leasehold/leasehold/adapter/kubernetes"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

const ttl = 12 * time.Second

// candidate is one that is closed with the test.
func candidate(t *testing.T, st store.Store, name string) *leasekubernetes.Lock {
	t.Helper()
	lock, err := leasekubernetes.New(st, "jobs/a", &leasehold.LockOptions{TTL: ttl}, resourcelock.ResourceLockConfig{Identity: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return lock
}

func by(name string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: name, LeaseDurationSeconds: 4}
}

// wants compares what Get says.
func wants(t *testing.T, lock *leasekubernetes.Lock, holder string, seconds, transitions int) {
	t.Helper()
	r, raw, err := lock.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.HolderIdentity != holder || r.LeaseDurationSeconds != seconds || r.LeaderTransitions != transitions {
		t.Errorf("%s: %s, want %q, %d s, %d transitions", lock.Identity(), raw, holder, seconds, transitions)
	}
}

// TestInterface: two candidates take turns, wherever the lock lies.
func TestInterface(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		ctx := t.Context()
		a, b := candidate(t, p.Open(t), "a"), candidate(t, p.Open(t), "b")
		if _, _, err := a.Get(ctx); !apierrors.IsNotFound(err) {
			t.Fatal("Get of a lock that never was:", err)
		}
		if err := a.Create(ctx, by("a")); err != nil {
			t.Fatal(err)
		}
		wants(t, a, "a", 4, 0)
		wants(t, b, "a", 12, 0)
		if err := a.Create(ctx, by("a")); !apierrors.IsAlreadyExists(err) || !errors.Is(err, leasehold.ErrHeld) {
			t.Error("Create twice:", err)
		}
		if err := b.Create(ctx, by("b")); !apierrors.IsAlreadyExists(err) || !errors.Is(err, leasehold.ErrHeld) {
			t.Error("Create of another's:", err)
		}
		if err := b.Update(ctx, by("b")); !apierrors.IsConflict(err) || !errors.Is(err, leasehold.ErrHeld) {
			t.Error("Update of another's:", err)
		}
		token := a.Lease().Token()
		if err := a.Update(ctx, by("a")); err != nil || !a.Lease().Valid() || b.Lease() != nil {
			t.Error("Update of its own:", err)
		}
		if err := a.Update(ctx, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}); err != nil {
			t.Error("release:", err)
		}
		wants(t, a, "", 1, 0)
		wants(t, b, "", 1, 0)
		if err := b.Update(ctx, by("b")); err != nil || b.Lease().Token() <= token {
			t.Error("Update of a free one:", err)
		}
		wants(t, a, "b", 12, 1)
	})
}

// TestEndOfATerm: what ends one, and for how long the others wait.
func TestEndOfATerm(t *testing.T) {
	for _, c := range []struct {
		name       string
		end        func(st *faultstore.Store, a *leasekubernetes.Lock)
		ends, free time.Duration // after how long at the latest a leads no more, and b does
	}{
		{"released", func(_ *faultstore.Store, a *leasekubernetes.Lock) { _ = a.Update(context.Background(), by("")) }, 0, 0},
		{"stopped", func(_ *faultstore.Store, a *leasekubernetes.Lock) { a.RecordEvent("stopped leading") }, 0, ttl * 6 / 5},
		{"closed", func(_ *faultstore.Store, a *leasekubernetes.Lock) { _ = a.Close(context.Background()) }, 0, 0},
		{"cut off", func(st *faultstore.Store, _ *leasekubernetes.Lock) { st.Partition(true) }, ttl * 11 / 12, ttl * 6 / 5},
		{"silent", func(*faultstore.Store, *leasekubernetes.Lock) {}, ttl / 3, ttl/3 + ttl*6/5},
	} {
		t.Run(c.name, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				mem := memstore.New()
				st := faultstore.Wrap(mem, nil)
				a, b := candidate(t, st, "a"), candidate(t, mem, "b")
				if err := a.Create(t.Context(), by("a")); err != nil {
					t.Fatal(err)
				}
				lease, start, going := a.Lease(), time.Now(), c.name == "cut off"
				var took time.Duration
				context.AfterFunc(lease.Context(), func() { took = time.Since(start) })
				for c.end(st, a); b.Update(t.Context(), by("b")) != nil; time.Sleep(100 * time.Millisecond) {
					if going && a.Update(t.Context(), by("a")) != nil {
						going = false
						if left := time.Until(lease.Deadline()); !lease.Valid() || left < ttl/3-200*time.Millisecond {
							t.Errorf("%v are left at the first Update that fails", left)
						}
						if err := a.Update(t.Context(), by("")); err == nil || !lease.Valid() {
							t.Error("it is released while the work goes on:", err)
						}
					}
				}
				synctest.Wait()
				if lease.Err() == nil || took > c.ends {
					t.Errorf("the lease ends after %v, want %v", took, c.ends)
				}
				if took := time.Since(start); took > c.free+100*time.Millisecond {
					t.Errorf("another leads after %v, want %v", took, c.free)
				}
				st.Partition(false)
				wants(t, a, "b", 12, 1)
				if err := a.Update(t.Context(), by("a")); !errors.Is(err, leasehold.ErrHeld) {
					t.Error(err)
				}
			})
		})
	}
}

// TestNoSecondLease: a term whose lease was lost does not get another one, as long as the elector takes itself for the
// leader.
func TestNoSecondLease(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := candidate(t, st, "a")
		if err := a.Create(t.Context(), by("a")); err != nil {
			t.Fatal(err)
		}
		lock, err := leasehold.NewLock(st, "jobs/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Break(t.Context(), lock, a.Lease().Token()); err != nil {
			t.Fatal(err)
		}
		for lease := a.Lease(); lease.Err() == nil; {
			if err := a.Update(t.Context(), by("a")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl / 12)
		}
		for range 3 {
			wants(t, a, "", 4, 0)
			if err := a.Update(t.Context(), by("a")); !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, leasehold.ErrBroken) {
				t.Error(err)
			}
		}
		a.RecordEvent("stopped leading")
		if err := a.Update(t.Context(), by("a")); err != nil {
			t.Error(err)
		}
	})
}

// TestTooLong: an elector that would go on after its lease does not get one.
func TestTooLong(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		a := candidate(t, memstore.New(), "a")
		r := by("a")
		r.LeaseDurationSeconds = 15 // client-go's default
		if err := a.Create(t.Context(), r); err == nil || !strings.Contains(err.Error(), "LeaseDuration of 15s is too long for the TTL of 12s") {
			t.Error(err)
		}
		if err := a.Update(t.Context(), by("b")); err == nil || !strings.Contains(err.Error(), `"b" cannot lead by the lock of "a"`) {
			t.Error(err)
		}
		if a.Lease() != nil {
			t.Error("it has acquired the lock")
		}
		if err := a.Create(t.Context(), by("a")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), ttl/6+time.Millisecond)
		defer cancel()
		if err := a.Update(ctx, by("a")); err == nil || !strings.Contains(err.Error(), "RenewDeadline of 2.001s is too long") {
			t.Error(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), a.Timing().RenewDeadline)
		defer cancel()
		if err := a.Update(ctx, by("a")); err != nil {
			t.Error(err)
		}
	})
}

// TestSlowStore: a lease that is nearly over when the lock has been acquired is none to lead by.
func TestSlowStore(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		defer st.Wait()
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Nth: 1, Delay: ttl},
			faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Delay: ttl / 4})
		a := candidate(t, st, "a")
		if err := a.Create(t.Context(), by("a")); err == nil || a.Lease() != nil {
			t.Error(err)
		}
		if err := a.Update(t.Context(), by("a")); err != nil {
			t.Error(err)
		}
	})
}

// TestSameName: a candidate does not take another of its name for itself, such as the one that it was before a restart.
func TestSameName(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		before, after := candidate(t, st, "web-0"), candidate(t, st, "web-0")
		if err := before.Create(t.Context(), by("web-0")); err != nil {
			t.Fatal(err)
		}
		wants(t, after, fmt.Sprintf("web-0 (token %v)", before.Lease().Token()), 12, 0)
		if err := after.Update(t.Context(), by("web-0")); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
	})
}

// TestTransitions: they fit the 32 bits of the API, whatever the lock has been through.
func TestTransitions(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := candidate(t, st, "a")
		for i := range 3 {
			if err := a.Update(t.Context(), by("a")); err != nil {
				t.Fatal(err)
			}
			if err := a.Update(t.Context(), by("")); err != nil {
				t.Fatal(err)
			}
			wants(t, a, "", 1, i)
		}
		obj, err := st.Get(t.Context(), "jobs/a", "")
		if err != nil {
			t.Fatal(err)
		}
		body := strings.Replace(string(obj.Body), `"term":3`, fmt.Sprintf(`"term":%d`, int64(1)<<40), 1)
		if body == string(obj.Body) {
			t.Fatalf("no term in %s", body)
		}
		if _, err = st.Put(t.Context(), "jobs/a", []byte(body), store.IfMatch(obj.Version)); err != nil {
			t.Fatal(err)
		}
		wants(t, a, "", 1, math.MaxInt32)
	})
}

// TestEvents: they are what client-go's own lock tells.
func TestEvents(t *testing.T) {
	recorder := record.NewFakeRecorder(1)
	lock, err := leasekubernetes.New(memstore.New(), "jobs/a", nil, resourcelock.ResourceLockConfig{Identity: "a", EventRecorder: recorder})
	if err != nil {
		t.Fatal(err)
	}
	lock.RecordEvent("became leader")
	if got := <-recorder.Events; got != "Normal LeaderElection a became leader" {
		t.Error(got)
	}
	if got := lock.Describe(); got != "mem:///jobs/a" {
		t.Error(got)
	}
}

// TestBadInput: what cannot be is said before anything is sent.
func TestBadInput(t *testing.T) {
	st := memstore.New()
	config := resourcelock.ResourceLockConfig{Identity: "a"}
	for _, key := range []string{"", "..", "a/../b", "/a", "a//b", "a\x00b", "a\nb", "\xff", strings.Repeat("x", 2000)} {
		if _, err := leasekubernetes.New(st, key, nil, config); err == nil {
			t.Errorf("%.20q is a key", key)
		}
	}
	session, err := leasehold.NewSession(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	for _, c := range []struct {
		opts   leasehold.LockOptions
		config resourcelock.ResourceLockConfig
	}{
		{leasehold.LockOptions{}, resourcelock.ResourceLockConfig{}},
		{leasehold.LockOptions{TTL: time.Second}, config},
		{leasehold.LockOptions{TTL: -time.Second}, config},
		{leasehold.LockOptions{Session: session}, config},
		{leasehold.LockOptions{Layout: "none"}, config},
		{leasehold.LockOptions{}, resourcelock.ResourceLockConfig{Identity: strings.Repeat("x", 1<<20)}},
	} {
		if _, err := leasekubernetes.New(st, "a", &c.opts, c.config); err == nil {
			t.Errorf("%+v is accepted", c.opts)
		}
	}
	if _, err := leasekubernetes.New(nil, "a", nil, config); err == nil {
		t.Error("no store is accepted")
	}
	odd := resourcelock.ResourceLockConfig{Identity: "a\n\x00\xff"}
	if lock, err := leasekubernetes.New(st, "odd", nil, odd); err == nil {
		if err := lock.Create(t.Context(), by(odd.Identity)); err == nil {
			_ = lock.Close(context.Background())
		}
	}
}

// TestReadme: the program in the README is the Example.
func TestReadme(t *testing.T) { adaptertest.Readme(t, "example_test.go") }
