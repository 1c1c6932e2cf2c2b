// Package migrating_test runs the programs of docs/migrating.md.
package migrating_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store/memstore"
)

// What stands between "in the page" and "to here" is our code in docs/migrating.md: TestMigratingPage.

func Example_fromVault() {
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

func Example_fromConsul() {
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

func Example_fromEtcd() {
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
	if !leasetest.Here().Tokens() { // a marker cannot name a session
		err = nil
	}
	fmt.Println(err)
	// Output:
	// <nil>
}

func Example_fromEtcdElection() {
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

func Example_fromRedsync() {
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
	code, err := os.ReadFile("migrating_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/migrating.md")
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
