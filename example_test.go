package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A job that must not run twice at the same time, however many machines start it.
func ExampleLock_Do() {
	st := memstore.New() // or storeurl.Open(ctx, "s3://bucket/prefix")
	lock, err := leasehold.NewLock(st, "jobs/backup", nil)
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(context.Background(), func(ctx context.Context, lease *leasehold.Lease) error {
		// ctx ends before anyone else can hold the lock. Send lease.Token() with every
		// write that a former holder must not make.
		fmt.Println("backing up; valid:", lease.Valid(), "ended:", ctx.Err() != nil)
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// backing up; valid: true ended: false
	// error: <nil>
}

// A cron job that several machines start at the hour, and that must run once. The lock stays
// taken for ten minutes, so that a machine whose clock is late does not run it again.
func ExampleLock_TryAcquire() {
	ctx, st := context.Background(), memstore.New()
	report := func(machine string) error {
		lock, err := leasehold.NewLock(st, "cron/report", &leasehold.LockOptions{Holder: machine, Layout: leasehold.LayoutObject})
		if err != nil {
			return err
		}
		lease, err := lock.TryAcquire(ctx, leasehold.WithHoldAtLeast(10*time.Minute))
		if held, ok := errors.AsType[*leasehold.HeldError](err); ok {
			fmt.Println(machine, "skips it, after", held.Info.Holder)
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println(machine, "writes the report")
		return lease.Release(ctx)
	}
	fmt.Println(report("web-1"), report("web-2"))
	// Output:
	// web-1 writes the report
	// web-2 skips it, after web-1
	// <nil> <nil>
}

// A service of which one instance leads. When it is shut down, it finishes its work, and the
// next instance leads at once.
func ExampleElection_Run() {
	st := memstore.New()
	ctx, stop := context.WithCancel(context.Background()) // or signal.NotifyContext
	first, err := leasehold.NewElection(st, "leaders/scheduler", nil)
	if err != nil {
		log.Fatal(err)
	}
	err = first.Run(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		stop() // as SIGTERM would
		<-ctx.Done()
		fmt.Println("finishing, still the leader:", lease.Valid())
		return nil
	})
	fmt.Println("first:", err)

	second, err := leasehold.NewElection(st, "leaders/scheduler", nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = second.TryCampaign(context.Background())
	fmt.Println("second leads:", second.IsLeader(), err)
	// Output:
	// finishing, still the leader: true
	// first: context canceled
	// second leads: true <nil>
}

// One lock per user: requests for a user are served one at a time, on whichever machine they
// arrive.
func ExampleLocks() {
	ctx := context.Background()
	users, err := leasehold.NewLocks(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"users/17", "users/4", "users/17"} {
		err = users.Do(ctx, user, func(ctx context.Context, lease *leasehold.Lease) error {
			_, err := users.TryAcquire(ctx, user)
			fmt.Println("serving", lease.Key(), "and others find:", errors.Is(err, leasehold.ErrHeld))
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(users.Close(ctx)) // when the service shuts down
	// Output:
	// serving users/17 and others find: true
	// serving users/4 and others find: true
	// serving users/17 and others find: true
	// <nil>
}

// A process that holds many locks for a long time: one heartbeat keeps them all.
func ExampleSession() {
	ctx, st := context.Background(), memstore.New()
	session, err := leasehold.NewSession(ctx, st, &leasehold.SessionOptions{TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	tenants, err := leasehold.NewLocks(st, &leasehold.LockOptions{Session: session, Layout: leasehold.LayoutObject})
	if err != nil {
		log.Fatal(err)
	}
	for n := range 100 {
		if _, err = tenants.TryAcquire(ctx, fmt.Sprintf("tenants/%d", n)); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(len(session.Leases()), "leases; the session has ended:", session.Err() != nil)
	for _, lease := range session.Leases() { // when their work has stopped
		err = errors.Join(err, lease.Release(ctx))
	}
	fmt.Println(errors.Join(err, session.Close(ctx)))
	// Output:
	// 100 leases; the session has ended: false
	// <nil>
}

// Tokens grow with every lease, whoever holds it, so a resource can tell a late write of a
// former holder from one of the present holder: see package fence.
func ExampleLease_Token() {
	ctx, st := context.Background(), memstore.New()
	var tokens []leasehold.Token
	for range 3 {
		lock, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		if err != nil {
			log.Fatal(err)
		}
		err = lock.Do(ctx, func(_ context.Context, lease *leasehold.Lease) error {
			tokens = append(tokens, lease.Token())
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(slices.IsSorted(tokens), tokens[2]-tokens[0])
	// Output:
	// true 2
}

// Test your program with memstore, which needs no server, and faultstore, which makes any store
// fail: here the first write lands, but its answer is lost.
func Example_testing() {
	ctx := context.Background()
	st := faultstore.Wrap(memstore.New(), &faultstore.Options{
		Faults: []faultstore.Fault{{Kind: faultstore.LostAnswer, Op: "put", Nth: 1}},
	})
	lock, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := lock.Acquire(ctx) // reads the record, and recognizes its own write
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("valid:", lease.Valid())
	fmt.Println(lease.Release(ctx))
	// Output:
	// valid: true
	// <nil>
}
