package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/memstore"
)

// A job that must not run twice at once, however many machines start it.
func ExampleLock_Do() {
	st := memstore.New() // or storeurl.Open(ctx, "s3://bucket/prefix")
	lock, err := leasehold.NewLock(st, "jobs/backup", nil)
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(context.Background(), func(ctx context.Context, lease *leasehold.Lease) error {
		// ctx ends before anybody else can hold the lock. lease.Token() goes
		// along with whatever a former holder must not overwrite.
		fmt.Println("backing up; valid:", lease.Valid(), "ended:", ctx.Err() != nil)
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// backing up; valid: true ended: false
	// error: <nil>
}

// TryAcquire never waits: its error names the holder.
func ExampleLock_TryAcquire() {
	ctx := context.Background()
	st := memstore.New()
	first, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{Holder: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := first.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}

	second, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{Holder: "web-2"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = second.TryAcquire(ctx)
	var held *leasehold.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Info.Holder)
	}
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// held by web-1
}

// A service that works on one order at a time, on whichever machine a request for it arrives.
func ExampleLocks() {
	ctx := context.Background()
	orders, err := leasehold.NewLocks(memstore.New(), &leasehold.LockOptions{Holder: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	for _, order := range []string{"orders/17", "orders/4", "orders/17"} {
		err = orders.Do(ctx, order, func(_ context.Context, lease *leasehold.Lease) error {
			_, busy := orders.TryAcquire(ctx, order)
			fmt.Println("working on", lease.Key(), "and others find it held:", errors.Is(busy, leasehold.ErrHeld))
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err = orders.Close(ctx); err != nil { // when the service shuts down
		log.Fatal(err)
	}
	// Output:
	// working on orders/17 and others find it held: true
	// working on orders/4 and others find it held: true
	// working on orders/17 and others find it held: true
}

// Tokens grow with every acquisition, by any holder, so that a late write of a
// former holder can be told from the current one's. Markers have none.
func ExampleLease_Token() {
	ctx := context.Background()
	st := memstore.New()
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
	fmt.Println(tokens[1]-tokens[0], tokens[2]-tokens[1])
	// Output:
	// 1 1
}

// A service of which one instance at a time does the work.
func ExampleElection_Run() {
	ctx, shutDown := context.WithCancel(context.Background())
	el, err := leasehold.NewElection(memstore.New(), "leaders/scheduler", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "web-1"}})
	if err != nil {
		log.Fatal(err)
	}
	err = el.Run(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		leader, _ := el.Leader()
		fmt.Println("leading:", leader.Holder, lease.Valid())
		shutDown()
		<-ctx.Done() // stop working, and only then return
		return nil
	})
	fmt.Println(err, el.IsLeader())
	// Output:
	// leading: web-1 true
	// context canceled false
}

// What stands between "in the page" and "to here" is our code in docs/migrating.md: TestMigratingPage.

func Example_migratingFromVault() {
	ctx, st := context.Background(), memstore.New()
	work := func(<-chan struct{}) error { return nil }
	err := func() error {
		// in the page
		lock, err := leasehold.NewLock(st, "core/lock", &leasehold.LockOptions{Holder: "node-1"})
		if err != nil {
			return err
		}
		lease, err := lock.Acquire(ctx) // the end of ctx is what stop is
		if err != nil {
			return err
		}
		defer lease.Release(ctx) // when the work has stopped
		info, err := lock.Inspect(ctx)
		if err != nil {
			return err
		}
		fmt.Println("active:", info.Held, info.Holder)
		return work(lease.Done())
		// to here
	}()
	fmt.Println(err)
	// Output:
	// active: true node-1
	// <nil>
}

func Example_migratingFromConsul() {
	ctx, st := context.Background(), memstore.New()
	work := func(context.Context, leasehold.Token) error { return nil }
	err := func() error {
		// in the page
		lock, err := leasehold.NewLock(st, "service/leader", &leasehold.LockOptions{
			Holder: "web-1", TTL: 15 * time.Second,
		})
		if err != nil {
			return err
		}
		return lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			return work(ctx, lease.Token()) // ctx ends when the lease is lost
		})
		// to here
	}()
	fmt.Println(err)
	// Output:
	// <nil>
}

func Example_migratingFromEtcd() {
	ctx, st := context.Background(), memstore.New()
	work := func(context.Context, leasehold.Token) error { return nil }
	err := func() error {
		// in the page
		s, err := leasehold.NewSession(ctx, st, &leasehold.SessionOptions{TTL: 15 * time.Second})
		if err != nil {
			return err
		}
		defer s.Close(ctx) // when all its leases have been released
		locks, err := leasehold.NewLocks(st, &leasehold.LockOptions{Session: s})
		if err != nil {
			return err
		}
		return locks.Do(ctx, "jobs/backup", func(ctx context.Context, lease *leasehold.Lease) error {
			return work(ctx, lease.Token())
		})
		// to here
	}()
	if !here().Tokens() { // a marker cannot name a session
		err = nil
	}
	fmt.Println(err)
	// Output:
	// <nil>
}

func Example_migratingFromEtcdElection() {
	ctx, st := context.Background(), memstore.New()
	lead := func(context.Context) error { return errors.New("is leading") }
	err := func() error {
		// in the page
		e, err := leasehold.NewElection(st, "leader", &leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{Holder: "web-1"},
		})
		if err != nil {
			return err
		}
		lease, err := e.Campaign(ctx)
		if err != nil {
			return err
		}
		defer e.Resign(ctx)
		return lead(lease.Context())
		// to here
	}()
	fmt.Println(err)
	// Output:
	// is leading
}

func Example_migratingFromRedsync() {
	ctx, st := context.Background(), memstore.New()
	locks, err := leasehold.NewLocks(st, &leasehold.LockOptions{TTL: 8 * time.Second})
	work := func(context.Context, leasehold.Token) error { return nil }
	errSkip := errors.New("another has it")
	if err == nil {
		err = func() error {
			// in the page
			lease, err := locks.TryAcquire(ctx, "order/17")
			if errors.Is(err, leasehold.ErrHeld) {
				return errSkip
			}
			if err != nil {
				return err
			}
			defer lease.Release(ctx)
			return work(lease.Context(), lease.Token()) // it is renewed meanwhile
			// to here
		}()
	}
	fmt.Println(err, locks.Close(ctx))
	// Output:
	// <nil> <nil>
}

// TestMigratingPage: our code in docs/migrating.md is that of the examples above, which are run, one for one and in
// their order.
func TestMigratingPage(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range regexp.MustCompile(`(?s)\n(\t+)// in the page\n(.*?)\t+// to here\n`).FindAllSubmatch(code, -1) {
		want = append(want, strings.TrimPrefix(strings.ReplaceAll("\n"+string(m[2]), "\n"+string(m[1]), "\n"), "\n"))
	}
	for _, m := range regexp.MustCompile("(?s)\n```go\n(.*?)```\n").FindAllSubmatch(page, -1) {
		got = append(got, string(m[1]))
	}
	if len(want) != 5 || len(got) != len(want) {
		t.Fatalf("the page has %d blocks of ours, and the examples %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("block %d of ours in the page is\n%s\nand in the examples\n%s", i+1, got[i], want[i])
		}
	}
}
