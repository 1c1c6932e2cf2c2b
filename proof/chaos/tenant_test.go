package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// tenantVariable makes this binary a tenant: the URL of the lock.
const tenantVariable = "CHAOS_TENANT"

// ttl is that of all leases.
const ttl = 2 * time.Second

// shards is how many locks there are that only tenants want.
const shards = 4

// A tenancy is a process that holds what it can under one session after another, and works
// under it itself. So it has neither guardian nor job: when it is stopped, all of it is, and
// when it wakes up, it has to know by itself which leases are over.
type tenancy struct {
	st     store.Store
	keys   []string // of the locks
	names  []string // to the checker
	socket string
	worker int
	asked  context.Context // ends when the process is asked to end
}

// rent is the life of a tenant, until it is asked to end.
func rent(url, socket string) error {
	worker, err := strconv.Atoi(os.Getenv(workerVariable))
	if err != nil {
		return err
	}
	st, key, err := storeurl.OpenLock(context.Background(), url)
	if err != nil {
		return err
	}
	asked, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	y := &tenancy{st: st, socket: socket, worker: worker, asked: asked}
	for i := range 1 + shards {
		name, at := theLock, key
		if i > 0 {
			name = fmt.Sprint("shard", i)
			at += "-" + name
		}
		y.keys, y.names = append(y.keys, at), append(y.names, name)
	}
	for asked.Err() == nil {
		if err := y.hold(); err != nil {
			fmt.Fprintln(os.Stderr, "tenant:", err)
			time.Sleep(100 * time.Millisecond) // or a store that is away would be asked without end
		}
	}
	return nil
}

// hold begins a session, holds under it what it can, and closes it after a while, or when
// it is lost.
func (y *tenancy) hold() error {
	s, err := leasehold.NewSession(y.asked, y.st, &leasehold.SessionOptions{TTL: ttl, Holder: fmt.Sprint("tenant", y.worker)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(y.asked, ttl+rand.N(8*ttl))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), 2*ttl)
		defer done()
		if err := s.Close(last); err != nil {
			fmt.Fprintln(os.Stderr, "tenant: close:", err)
		}
	})()
	var all sync.WaitGroup
	for i, key := range y.keys {
		lock, err := leasehold.NewLock(y.st, key, &leasehold.LockOptions{TTL: ttl, Holder: fmt.Sprint("tenant", y.worker), Session: s})
		if err != nil {
			return err
		}
		all.Go(func() {
			for s.Err() == nil && ctx.Err() == nil {
				if err := y.work(ctx, i, lock); err != nil && ctx.Err() == nil {
					fmt.Fprintf(os.Stderr, "tenant: %s: %v\n", y.names[i], err)
				}
				pause := rand.N(ttl / 2) // let another have it
				if i == 0 {              // most of the time it is the workers'
					pause = 4*ttl + rand.N(8*ttl)
				}
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
	return nil
}

// work holds a lock for a while, and tells the checker every 20 ms of it: at an instant at
// which the lease was valid, as is only known afterwards.
func (y *tenancy) work(ctx context.Context, i int, lock *leasehold.Lock) error {
	lease, err := lock.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), ttl)
		defer done()
		_ = lease.Release(last) // the session tells of what matters
	}()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", y.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	w := word{Worker: y.worker, PID: os.Getpid(), Guardian: os.Getpid(), Lock: y.names[i], Token: int64(lease.Token())}
	for end := clock.Now() + ttl/2 + rand.N(2*ttl); w.At < end; time.Sleep(20 * time.Millisecond) {
		w.At = clock.Now()
		if !lease.Valid() {
			return lease.Err()
		}
		if err := out.Encode(w); err != nil {
			return err
		}
		var good bool
		if err := in.Decode(&good); err != nil || !good {
			return err
		}
	}
	return nil
}
