package cron_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/robfig/cron/v3"

	"github.com/leasehold/leasehold"
	leasecron "github.com/leasehold/leasehold/adapter/cron"
	"github.com/leasehold/leasehold/store/memstore"
)

var (
	st    = memstore.New()
	names atomic.Int32
)

// tick is what the tests have in the place of a millisecond, in which they want goroutines to have come as far as they
// should: a machine that is busy does not do that.
const tick = 50 * time.Millisecond

// lock is a wrapper for any number of jobs, each of a name of its own.
func lock(inner Job) Job {
	locks, err := leasehold.NewLocks(st, nil)
	if err != nil {
		panic(err)
	}
	name := fmt.Sprintf("job-%d", names.Add(1))
	return leasecron.Wrapper(context.Background(), locks, name, &leasecron.Options{HoldAtLeast: -1, Logger: DiscardLogger})(inner)
}

// chained is NewChain with a lock as the last wrapper.
func chained(wrappers ...JobWrapper) Chain { return NewChain(append(wrappers, lock)...) }

// skipIfRunning takes the place of SkipIfStillRunning: a lock does the same.
func skipIfRunning() JobWrapper { return lock }
