// Package leasekubernetes lets the leader election of Kubernetes' client-go, and with it controller-runtime's,
// elect through a bucket instead of the API server: a [Lock] is a resourcelock.Interface on a lock of
// leasehold's.
//
// The lock decides who leads. Create and Update acquire it without waiting, and succeed for its holder only;
// leasehold renews the lease in the background. What client-go adds are its timers: a follower does not try
// before it takes the holder for gone, and a leader gives up when its Updates have failed for a while. That
// while must end before the lease does; see [Timing].
package leasekubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/store"
)

var _ resourcelock.Interface = (*Lock)(nil)

var resource = corev1.Resource("locks")

// A Lock is one candidate in the elections of one elector at a time.
//
// A term begins with a Create or Update that acquires the lock. It ends with an Update whose holder is empty,
// which client-go sends for ReleaseOnCancel and which frees the lock; with client-go's event "stopped
// leading"; or when no Update has succeeded for a third of the TTL. The latter two leave the lock to end with its
// TTL, as client-go does. A term whose lease was lost does not get another one: its Updates fail until it has
// ended, so that nobody leads across a gap in which another did.
type Lock struct {
	lock   *leasehold.Lock
	place  string
	ttl    time.Duration
	config resourcelock.ResourceLockConfig
	newest atomic.Pointer[term]
}

// A term is the time from an acquisition until the elector has stopped. Before the first is one that is over and has
// no lease.
type term struct {
	lease  *leasehold.Lease
	record resourcelock.LeaderElectionRecord // as the elector has written it last
	silent *time.Timer                       // ends the term
	over   atomic.Bool                       // it has ended
}

// New makes a candidate for the lock that lies in st under key. It sends nothing. It fails as leasehold.NewLock
// does, without an Identity, with a TTL under 2 s since client-go's seconds are whole ones, and with a Session, whose
// TTL would count.
//
// The config's Identity takes the place of the options' Holder. It should be another one in each process, for
// people and logs; the election does not rest on that. The EventRecorder gets what client-go tells of the
// election, as events of an object of the kind "Lock"; its default is none.
func New(st store.Store, key string, opts *leasehold.LockOptions, config resourcelock.ResourceLockConfig) (*Lock, error) {
	o := *cmp.Or(opts, &leasehold.LockOptions{})
	o.TTL, o.Holder = cmp.Or(o.TTL, leasehold.DefaultTTL), config.Identity
	if config.Identity == "" || o.TTL < 2*time.Second || o.Session != nil {
		return nil, fmt.Errorf("lock %q: give the candidate an Identity, a TTL of 2 s or more, and no Session", key)
	}
	lock, err := leasehold.NewLock(st, key, &o)
	if err != nil {
		return nil, err
	}
	l, none := &Lock{lock: lock, place: layout.Object{Store: st, Key: key}.String(), ttl: o.TTL, config: config}, &term{}
	none.over.Store(true)
	l.newest.Store(none)
	return l, nil
}

// Timing are the three times of an elector.
type Timing struct{ LeaseDuration, RenewDeadline, RetryPeriod time.Duration }

// Timing gives those that go with the lock's TTL: a third, a sixth and a twelfth of it. Shorter ones are
// allowed, and longer ones are refused, by [Lock.Elector] or by the elector's Create and Update.
//
// An elector goes on for RetryPeriod + RenewDeadline after its last Update that succeeded. client-go has
// 1.2 × RetryPeriod < RenewDeadline, so that is less than 11/6 × RenewDeadline, or 11/36 of the TTL if
// RenewDeadline is at most a sixth. An Update succeeds only if a third (12/36) of the TTL is left to the lease. So the
// elector has stopped before the lease ends, even if no renewal gets through any more. A lease is valid for 11/12 of
// its TTL from a renewal, and renewed after a third: without trouble 7/12 are left, and a renewal may take a
// quarter of the TTL before an Update fails, and half of it before the elector gives up.
//
// RenewDeadline can be seen only when the elector renews, as the deadline of its context. Until then it is
// known to be less than LeaseDuration, of which the record has the whole seconds. So these and one more must
// be left when the lock is acquired.
func (l *Lock) Timing() Timing { return Timing{l.ttl / 3, l.ttl / 6, l.ttl / 12} }

func (l *Lock) tooLong(what string, is time.Duration) error {
	return fmt.Errorf("%s: the elector's %s of %v is too long for the TTL of %v, which goes with %+v: see Lock.Timing", l.place, what, is, l.ttl, l.Timing())
}

// Lease is that of the newest term, nil before the first: for its Token, which resources can check, and for its
// Context. Get it once when the work begins, since the next term has another one.
func (l *Lock) Lease() *leasehold.Lease { return l.newest.Load().lease }

// Get reads who leads. If nobody ever has, the error is NotFound. The leader's own record is what it has written
// last, without a request, and has no holder once the lease has ended.
//
// The holder is this lock's Identity only while this Lock has a valid lease: another one of that name is told
// apart by its token. LeaseDurationSeconds is the holder's TTL, and LeaderTransitions the number of the lock's
// terms after the first.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var r resourcelock.LeaderElectionRecord
	if t := l.newest.Load(); !t.over.Load() {
		if r = t.record; t.lease.Err() != nil {
			r.HolderIdentity = ""
		}
	} else if info, err := l.lock.Inspect(ctx); err != nil {
		return nil, nil, err
	} else if !info.Exists {
		return nil, nil, apierrors.NewNotFound(resource, l.lock.Key())
	} else {
		r = l.record(info)
	}
	raw, err := json.Marshal(r)
	return &r, raw, err
}

// record tells client-go of a lock that this Lock does not hold.
func (l *Lock) record(info leasehold.Info) (r resourcelock.LeaderElectionRecord) {
	r.AcquireTime, r.RenewTime = metav1.NewTime(info.AcquiredAt), metav1.NewTime(info.RenewedAt)
	r.LeaderTransitions = int(min(max(info.Term-1, 0), 1<<31-1)) // the API has 32 bits
	r.LeaseDurationSeconds = 1
	if info.Held {
		r.LeaseDurationSeconds = int((info.TTL + time.Second - 1) / time.Second)
		if r.HolderIdentity = info.Holder; info.Holder == "" || info.Holder == l.config.Identity {
			// An elector that reads its own name takes itself for the leader, and one that reads none takes
			// nobody for it.
			r.HolderIdentity = fmt.Sprintf("%s (token %v)", info.Holder, info.Token)
		}
	}
	return r
}

// Create acquires the lock, without waiting. If it is held the error is AlreadyExists and matches
// leasehold.ErrHeld.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.acquire(ctx, r, apierrors.NewAlreadyExists(resource, l.lock.Key()))
}

// Update goes on with the term by a look at its lease, and sends nothing. If there is no term, it acquires the lock;
// if another holds that, the error is Conflict and matches leasehold.ErrHeld. A record without a holder frees the
// lock, unless the elector gives up since the store takes no renewals: client-go tells the work afterwards, so the
// lock is left to its TTL. If the lease was lost, the error matches leasehold.ErrLost.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	t := l.newest.Load()
	if t.over.Load() {
		return l.acquire(ctx, r, apierrors.NewConflict(resource, l.lock.Key(), leasehold.ErrHeld))
	} else if until, ok := ctx.Deadline(); ok && r.HolderIdentity != "" && time.Until(until) > l.ttl/6 {
		return l.tooLong("RenewDeadline", time.Until(until).Round(time.Millisecond))
	}
	left := time.Until(t.lease.Deadline())
	if err := t.lease.Err(); err != nil {
		return fmt.Errorf("%s: %w", l.place, err)
	} else if left < l.ttl/3 || !t.silent.Reset(l.ttl/3) {
		return fmt.Errorf("%s: the store takes no renewals: %v of the lease are left, and a third of the TTL is needed to go on", l.place, left)
	} else if r.HolderIdentity == "" {
		defer t.end()
		return t.lease.Release(ctx)
	}
	t.record = r
	return nil
}

// acquire begins a term.
func (l *Lock) acquire(ctx context.Context, r resourcelock.LeaderElectionRecord, held error) error {
	longest := time.Duration(r.LeaseDurationSeconds+1) * time.Second
	if r.HolderIdentity != l.config.Identity {
		return fmt.Errorf("%s: %q cannot lead by the lock of %q", l.place, r.HolderIdentity, l.config.Identity)
	} else if longest > l.ttl*3/4 {
		return l.tooLong("LeaseDuration", longest-time.Second)
	} else if last := l.newest.Load(); last.over.Load() && last.lease != nil {
		_ = last.lease.Release(ctx) // TryAcquire says whether the lock is free now
	}
	lease, err := l.lock.TryAcquire(ctx)
	if errors.Is(err, leasehold.ErrHeld) {
		return fmt.Errorf("%w: %w", err, held)
	} else if err != nil {
		return err
	} else if left := time.Until(lease.Deadline()); left < max(longest, l.ttl/3) {
		return errors.Join(fmt.Errorf("%s: the store took so long that %v of the lease are left", l.place, left), lease.Release(ctx))
	}
	t := &term{lease: lease, record: r}
	t.silent = time.AfterFunc(l.ttl/3, t.end)
	l.newest.Store(t)
	return nil
}

// end leaves the lock to end with its TTL, unless it was released.
func (t *term) end() {
	if !t.over.Swap(true) {
		t.lease.Abandon(errors.New("the elector has stopped leading, or not updated the lock for a third of the TTL"))
	}
}

// Close frees what is left of this candidate's last lease, and returns when nothing is under way any more. Call it
// when the elector has returned and the work has ended. It does not close the store.
func (l *Lock) Close(ctx context.Context) error {
	if t := l.newest.Load(); t.lease != nil {
		t.end()
		_ = t.lease.Release(ctx) // Settle says whether anything is under way
	}
	return l.lock.Settle(ctx)
}

// RecordEvent hands an event to the EventRecorder. Of those of client-go, "stopped leading" ends the term.
func (l *Lock) RecordEvent(event string) {
	if event == "stopped leading" {
		l.newest.Load().end()
	}
	if l.config.EventRecorder != nil {
		of := &corev1.ObjectReference{APIVersion: "leasehold/v1", Kind: "Lock", Name: l.lock.Key()}
		l.config.EventRecorder.Eventf(of, corev1.EventTypeNormal, "LeaderElection", "%s %s", l.config.Identity, event)
	}
}

// Identity is the candidate's name.
func (l *Lock) Identity() string { return l.config.Identity }

// Describe is where the lock lies, as a URL without secrets.
func (l *Lock) Describe() string { return l.place }
