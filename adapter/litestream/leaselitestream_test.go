package leaselitestream_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/litestream"
	"go.uber.org/goleak"

	"github.com/leasehold/leasehold"
	leaselitestream "github.com/leasehold/leasehold/adapter/litestream"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"))
}

const ttl = 30 * time.Second // as it is by default

func open(t testing.TB, st store.Store, holder string) *leaselitestream.Leaser {
	t.Helper()
	l, err := leaselitestream.New(st, "db", &leasehold.LockOptions{Holder: holder})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t testing.TB, l *leaselitestream.Leaser) *litestream.Lease {
	t.Helper()
	lease, err := l.AcquireLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func renew(t testing.TB, l *leaselitestream.Leaser, lease *litestream.Lease) *litestream.Lease {
	t.Helper()
	lease, err := l.RenewLease(t.Context(), lease)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// follow acquires as soon as it can be, by asking every second.
func follow(t testing.TB, l *leaselitestream.Leaser) *litestream.Lease {
	t.Helper()
	for {
		lease, err := l.AcquireLease(t.Context())
		if err == nil {
			return lease
		}
		if _, held := errors.AsType[*litestream.LeaseExistsError](err); !held {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

func release(t testing.TB, l *leaselitestream.Leaser, lease *litestream.Lease) {
	t.Helper()
	if err := l.ReleaseLease(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

// A generation never comes again: after a release, a take-over from an owner that is gone, and a crash of all.
func TestGenerations(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		last := int64(0)
		for i := range 4 {
			a, b := open(t, st, "a"), open(t, st, "b") // new processes each time
			lease := follow(t, a)
			if lease.Generation <= last || lease.Owner != "a" || lease.IsExpired() || lease.TTL() > ttl {
				t.Errorf("round %d: %+v after generation %d", i, lease, last)
			}
			if renewed := renew(t, a, lease); renewed.Generation != lease.Generation || renewed.ETag == lease.ETag {
				t.Errorf("%+v was renewed as %+v", lease, renewed)
			} else if i%2 == 0 {
				release(t, a, renewed)
			}
			next := follow(t, b)
			if next.Generation <= lease.Generation {
				t.Errorf("generation %d follows %d", next.Generation, lease.Generation)
			}
			last = next.Generation
			if i%2 == 1 {
				release(t, b, next)
			}
			time.Sleep(2 * ttl) // in which the owner of the first rounds is silent
		}
	})
}

func TestExists(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := open(t, st, "a"), open(t, st, "b")
		lease := acquire(t, a)
		for name, l := range map[string]*leaselitestream.Leaser{"its owner": a, "another": b} {
			_, err := l.AcquireLease(t.Context())
			exists, ok := errors.AsType[*litestream.LeaseExistsError](err)
			if !ok || !errors.Is(err, leasehold.ErrHeld) || exists.Owner != "a" || !exists.ExpiresAt.After(time.Now()) {
				t.Errorf("%s is told %v, %+v", name, err, exists)
			}
		}
		release(t, a, renew(t, a, lease))
	})
}

// An owner that does not call RenewLease loses the lease after a TTL, though its process lives, and one that calls it
// keeps it. No lease is valid beyond what its owner was told last when another has it.
func TestSilentOwner(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := open(t, st, "a"), open(t, st, "b")
		lease := acquire(t, a)
		ctx := a.Context(lease)
		for range 100 {
			time.Sleep(ttl * 9 / 10)
			lease = renew(t, a, lease)
			if left := lease.TTL(); left <= ttl/2 || left > ttl {
				t.Fatalf("it is told of %v", left)
			}
			if _, err := b.AcquireLease(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
				t.Fatal(err)
			}
		}
		silent := time.Now()
		next := follow(t, b)
		if !lease.IsExpired() || ctx.Err() == nil || !errors.Is(context.Cause(ctx), leasehold.ErrLost) {
			t.Errorf("another has the lease, and the first: %+v, %v", lease, context.Cause(ctx))
		}
		if took := time.Since(silent); took < ttl || took > 2*ttl+ttl/4 {
			t.Errorf("another has the lease after %v of silence", took)
		}
		if _, err := a.RenewLease(t.Context(), lease); !errors.Is(err, litestream.ErrLeaseNotHeld) || !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("RenewLease: %v", err)
		}
		if err := a.ReleaseLease(t.Context(), lease); !errors.Is(err, litestream.ErrLeaseNotHeld) || !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("ReleaseLease: %v", err)
		}
		release(t, b, next)
		lease = acquire(t, a)
		release(t, a, lease)
	})
}

// A lease that somebody breaks is lost with the next renewal, and its owner is told at once then.
func TestBroken(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := open(t, st, "a")
		lease := acquire(t, a)
		lock, err := leasehold.NewLock(st, "db", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Break(t.Context(), lock, leasehold.Token(lease.Generation)); err != nil {
			t.Fatal(err)
		}
		<-a.Context(lease).Done()
		if _, err := a.RenewLease(t.Context(), lease); !errors.Is(err, litestream.ErrLeaseNotHeld) || !errors.Is(err, leasehold.ErrBroken) {
			t.Errorf("RenewLease: %v", err)
		}
		next := acquire(t, a) // which lets go of the lost one
		if next.Generation <= lease.Generation {
			t.Errorf("generation %d follows %d", next.Generation, lease.Generation)
		}
		release(t, a, next)
	})
}

// Copies of leases that are not the last are refused, and so is what is no lease.
func TestCopies(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := open(t, st, "a"), open(t, st, "b")
		first := acquire(t, a)
		second := renew(t, a, first)
		refused := func(l *leaselitestream.Leaser, lease *litestream.Lease, onRenew, onRelease error) {
			t.Helper()
			if _, err := l.RenewLease(t.Context(), lease); !errors.Is(err, onRenew) {
				t.Errorf("RenewLease: %v, want %v", err, onRenew)
			}
			if err := l.ReleaseLease(t.Context(), lease); !errors.Is(err, onRelease) {
				t.Errorf("ReleaseLease: %v, want %v", err, onRelease)
			}
		}
		refused(a, nil, leaselitestream.ErrLeaseRequired, leaselitestream.ErrLeaseRequired)
		refused(a, &litestream.Lease{Generation: second.Generation}, leaselitestream.ErrLeaseETagRequired, leaselitestream.ErrLeaseETagRequired)
		refused(a, first, litestream.ErrLeaseNotHeld, litestream.ErrLeaseNotHeld)
		refused(b, second, litestream.ErrLeaseNotHeld, litestream.ErrLeaseNotHeld)
		if ctx := a.Context(second); ctx.Err() != nil {
			t.Error("its context has ended")
		}
		release(t, a, second)
		refused(a, second, litestream.ErrLeaseNotHeld, leaselitestream.ErrLeaseAlreadyReleased)
		third := acquire(t, a)
		refused(a, first, litestream.ErrLeaseNotHeld, litestream.ErrLeaseNotHeld)
		refused(a, second, litestream.ErrLeaseNotHeld, leaselitestream.ErrLeaseAlreadyReleased)
		for _, lease := range []*litestream.Lease{nil, first, second} {
			if ctx := a.Context(lease); ctx.Err() == nil || !errors.Is(context.Cause(ctx), litestream.ErrLeaseNotHeld) {
				t.Errorf("the context of %+v: %v", lease, context.Cause(ctx))
			}
		}
		release(t, a, third)
	})
}

func TestNew(t *testing.T) {
	for _, key := range []string{"", "/", "a//b", "../a", ".", "a\x00", "a\n", "\xff", strings.Repeat("x", 1000)} {
		if _, err := leaselitestream.New(memstore.New(), key, nil); err == nil || !strings.HasPrefix(err.Error(), "leaselitestream: ") {
			t.Errorf("key %.20q: %v", key, err)
		}
	}
	if _, err := leaselitestream.New(memstore.New(), "db", &leasehold.LockOptions{Layout: leasehold.LayoutMarker}); err == nil {
		t.Error("leases without generations are not refused")
	}
	l, err := leaselitestream.New(memstore.New(), "a/db", nil)
	if err != nil || l.Type() != leaselitestream.LeaserType {
		t.Error(l, err)
	}
}

func TestEverywhere(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		a, b := open(t, p.Open(t), "a"), open(t, p.Open(t), "b")
		last := int64(0)
		for range 3 {
			for owner, l := range map[string]*leaselitestream.Leaser{"a": a, "b": b} {
				lease := acquire(t, l)
				if lease.Generation <= last || lease.Owner != owner {
					t.Errorf("%+v after generation %d", lease, last)
				}
				last = lease.Generation
				other := map[string]*leaselitestream.Leaser{"a": b, "b": a}[owner]
				_, err := other.AcquireLease(t.Context())
				if exists, ok := errors.AsType[*litestream.LeaseExistsError](err); !ok || exists.Owner != owner {
					t.Errorf("the other is told %v", err)
				}
				release(t, l, renew(t, l, lease))
			}
		}
	})
}

// TestRounds: work under Leaser.Context has ended before another's begins.
func TestRounds(t *testing.T) {
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
		l, err := leaselitestream.New(st, "contended", &leasehold.LockOptions{TTL: adaptertest.TTL, Holder: name})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				lease, err := l.AcquireLease(ctx)
				if err != nil {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				hold(ctx, l, lease, work)
			}
		}()
		return func() {
			cancel()
			<-done
		}
	})
}

// hold works under a lease, renews it meanwhile, and releases it.
func hold(ctx context.Context, l *leaselitestream.Leaser, lease *litestream.Lease, work func(ctx context.Context)) {
	working := l.Context(lease)
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(working)
	}()
	for {
		select {
		case <-done:
			_ = l.ReleaseLease(context.WithoutCancel(ctx), lease) // it may have been lost
			return
		case <-time.After(adaptertest.TTL / 5):
			if renewed, err := l.RenewLease(ctx, lease); err == nil {
				lease = renewed
			}
		}
	}
}

// TestRow: litestream's tests of its leaser on S3 hold for this one, those of them that are not about the requests it sends.
func TestRow(t *testing.T) {
	const s3 = "it scripts the responses to litestream's own leaser, with its lock.json"
	u := adaptertest.Upstream{
		Package: "github.com/benbjohnson/litestream/s3", Dir: "testdata/upstream", Run: "^TestLeaser_",
		Files: map[string]string{"leaser.go": "testdata/leaser.go"},
		LeftOut: map[string]string{
			"TestLeaser_AcquireLease_NewLease": s3, "TestLeaser_AcquireLease_ExpiredLease": s3, "TestLeaser_AcquireLease_ActiveLease": s3,
			"TestLeaser_AcquireLease_RaceCondition412": s3, "TestLeaser_RenewLease": s3, "TestLeaser_ReleaseLease": s3,
			"TestLeaser_ReleaseLease_AlreadyDeleted": s3, "TestLeaser_LockKey": "it tests names in a bucket", "TestLeaser_Type": "it expects the type s3",
		},
	}
	t.Setenv("AWS_CA_BUNDLE", "") // their clients are made with one of net/http, which takes none
	results := u.Test(t)
	adaptertest.Row{Module: "github.com/benbjohnson/litestream", Ran: results.Ran, Passed: results.Passed, LeftOut: u.LeftOut}.Check(t)
}

// TestExample: the README has the program that is run here.
func TestExample(t *testing.T) {
	adaptertest.Readme(t, "example/main.go")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./example", t.TempDir())
	cmd.Stderr = os.Stderr
	if out, err := cmd.Output(); err != nil || !regexp.MustCompile(`^replicating in generation [1-9]\d*\n$`).Match(out) {
		t.Errorf("%v: %s", err, out)
	}
}
