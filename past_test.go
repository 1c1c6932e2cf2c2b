package leasehold_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// slowDeletes is a store whose deletes take their time, and are not called back.
type slowDeletes struct {
	store.Store
	each           time.Duration
	sent, underWay atomic.Int64
	t              *testing.T
}

func (s *slowDeletes) Delete(ctx context.Context, key string) error {
	s.sent.Add(1)
	if s.underWay.Add(1) > 1 {
		s.t.Error("two collections go on at once")
	}
	defer s.underWay.Add(-1)
	time.Sleep(s.each)
	return s.Store.Delete(context.WithoutCancel(ctx), key)
}

// aged plants five epochs that are old enough to be collected, the 99th among them, which is the last,
// and another tool's object.
func aged(t *testing.T, l leasehold.Layout, each time.Duration) *slowDeletes {
	t.Helper()
	inner := memstore.New()
	for _, n := range []int{1, 2, 3, 4, 5, 99} {
		body := tokenRecord(l, int64(n), "free")
		if n == 3 {
			body = "another tool's"
		}
		if _, err := inner.Put(t.Context(), layoutKey(n), []byte(body), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(25 * time.Hour)
	return &slowDeletes{Store: inner, each: each, t: t}
}

var withEpochs = []leasehold.Layout{leasehold.LayoutEpochs, leasehold.LayoutEpochsIfMatch}

// The holder that makes the hundredth epoch removes old ones, leaves objects that are not ours, and
// says so. Release and Settle wait until that has ended, but Settle does not wait for a removal under
// a lease that is held.
func TestPastIsRemoved(t *testing.T) {
	ends := map[string]func(*testing.T, *leasehold.Lock, *leasehold.Lease){
		"held": func(t *testing.T, _ *leasehold.Lock, lease *leasehold.Lease) {
			time.Sleep(time.Minute)
			release(t, lease)
		},
		"released": func(t *testing.T, _ *leasehold.Lock, lease *leasehold.Lease) { release(t, lease) },
		"settled": func(t *testing.T, lock *leasehold.Lock, lease *leasehold.Lease) {
			go func() { _ = lease.Release(context.Background()) }()
			<-lease.Done()
			time.Sleep(100 * time.Millisecond) // its release has landed
			if err := lock.Settle(t.Context()); err != nil {
				t.Error(err)
			}
		},
	}
	for _, l := range withEpochs {
		for end, f := range ends {
			t.Run(fmt.Sprintf("%s, %s", l, end), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var log leasetest.Log
					st := aged(t, l, time.Second)
					lock := newLock(t, st, &leasehold.LockOptions{Layout: l, Logger: debugLog(&log)})
					lease := acquire(t, lock)
					time.Sleep(1500 * time.Millisecond)
					if st.underWay.Load() != 1 {
						t.Fatalf("this shows nothing: %d deletes were sent", st.sent.Load())
					}
					began := time.Now()
					if err := lock.Settle(t.Context()); err != nil || time.Since(began) > 0 {
						t.Errorf("a lease that is held has been waited for: %v, %v", time.Since(began), err)
					}
					f(t, lock, lease)
					sent := st.sent.Load()
					if st.underWay.Load() > 0 || end == "held" && sent != 5 || end != "held" && sent != 2 {
						t.Errorf("%d deletes were sent, %d of them still under way", sent, st.underWay.Load())
					}
					time.Sleep(time.Minute)
					if now := st.sent.Load(); now != sent {
						t.Errorf("%d deletes, and a minute later %d", sent, now)
					}
					if _, err := st.Get(t.Context(), layoutKey(3), ""); err != nil {
						t.Errorf("another tool's object: %v", err)
					}
					if whole := strings.Contains(log.String(), `msg="epochs of the past were collected"`); whole != (end == "held") {
						t.Errorf("what is said of it: %s", &log)
					}
					if end == "held" && !strings.Contains(log.String(), " deleted=5") {
						t.Errorf("what is said of it: %s", &log)
					}
				})
			})
		}
	}
}

// A holder that makes the two hundredth epoch while it still removes what the hundredth was to remove
// does not begin again, and the next time it does.
func TestPastIsRemovedOnceAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log leasetest.Log
		st := aged(t, leasehold.LayoutEpochs, 8*time.Second) // five times, and 34 s make a hundred renewals
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs, TTL: time.Second, Logger: debugLog(&log)})
		lease := acquire(t, lock)
		time.Sleep(90 * time.Second)
		if n := strings.Count(log.String(), "epochs of the past were collected"); n != 2 {
			t.Errorf("the past was removed %d times, want twice: %s", n, &log)
		}
		release(t, lease)
	})
}

// An error that keeps the past from being removed is reported, and does no harm to the lease.
func TestPastThatCannotBeRemoved(t *testing.T) {
	for _, l := range withEpochs {
		bubble(t, func(t *testing.T) {
			var log leasetest.Log
			st := newStoreOver(aged(t, l, 0))
			st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "delete"})
			lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: l, Logger: debugLog(&log)}))
			time.Sleep(time.Minute)
			if text := log.String(); !strings.Contains(text, "epochs of the past were not collected") || strings.Contains(text, "epochs of the past were collected") {
				t.Errorf("what is said of it: %s", text)
			}
			release(t, lease)
		})
	}
}

// A claim of the hundredth epoch whose caller has given up, and a renewal of which the lease has
// ended meanwhile, begin nothing: no lease goes on that it could be done under.
func TestPastIsLeftWithoutALease(t *testing.T) {
	for _, l := range withEpochs {
		bubble(t, func(t *testing.T) {
			var log leasetest.Log
			slow := aged(t, l, time.Second)
			st := newStoreOver(slow)
			st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: time.Second})
			lock := newLock(t, st, &leasehold.LockOptions{Layout: l, Logger: debugLog(&log)})
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if _, err := lock.Acquire(ctx); err == nil {
				t.Fatal("acquired")
			}
			if err := lock.Settle(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if slow.sent.Load() > 0 || strings.Contains(log.String(), "epochs of the past") {
				t.Errorf("of a claim that was given up: %d deletes, %s", slow.sent.Load(), &log)
			}
		})
	}
	bubble(t, func(t *testing.T) {
		var log leasetest.Log
		slow := aged(t, leasehold.LayoutEpochs, time.Second)
		if _, err := slow.Put(t.Context(), layoutKey(198), []byte(tokenRecord(leasehold.LayoutEpochs, 198, "free")), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		st := newStoreOver(slow)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: time.Second, When: func(c faultstore.Call) bool {
			return c.Key == layout.EpochKey("jobs/backup", 200)
		}})
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs, Logger: debugLog(&log)})
		lease := acquire(t, lock)
		time.Sleep(5500 * time.Millisecond) // a renewal is under way
		release(t, lease)
		if epoch := recordIn(t, slow, layoutKey(200)); !epoch.Held {
			t.Fatalf("this shows nothing: %+v", epoch)
		}
		if slow.sent.Load() > 0 || strings.Contains(log.String(), "epochs of the past") {
			t.Errorf("of a renewal of a lease that has ended: %d deletes, %s", slow.sent.Load(), &log)
		}
	})
}
