package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/semaphore"
)

// errHeld: another candidate holds the lock.
var errHeld = errors.New("it is held")

// A candidate is one process's way to locks. Where the subject does not say otherwise it is
// used by one goroutine at a time.
type candidate interface {
	// acquire waits until it holds the lock of that name, with whatever pauses its makers
	// chose, and returns what releases it.
	acquire(ctx context.Context, name string) (release func(context.Context) error, err error)
	// try acquires it if it is free, and else returns errHeld.
	try(ctx context.Context, name string) (release func(context.Context) error, err error)
	close()
}

// A subject is something that grants locks.
type subject struct {
	name string
	// ownServer: it does not run on S3, and brings a server. Then open gets no place.
	ownServer bool
	// processes, if it is not 0, is how many candidates the tasks share, as those of so many
	// processes do. Each may be used concurrently.
	processes int
	// open makes a candidate that is to keep a lock for ttl if it dies. An error that is
	// errMissing leaves the subject out.
	open func(ctx context.Context, b *bench, p *place, ttl time.Duration) (candidate, error)
}

// errMissing: a program that the subject needs is not here.
var errMissing = errors.New("it cannot be had here")

// fairLock is what the fair lock of package semaphore is called.
const (
	fairLock      = "leasehold, fair lock"
	fairWithPeers = "leasehold, fair lock with peers"
	tasksOfOne    = "leasehold, tasks of one process"
	fairOfOne     = "leasehold, fair lock, tasks of one process"
)

// subjects are all that are compared as locks. etcd's two are the recipe that ZooKeeper's users have:
// each that waits has an entry of its own in order, and is told when the one before it goes.
var subjects = []subject{
	{name: "leasehold", open: openLeasehold("")},
	{name: "leasehold, session", open: openLeasehold("session")},
	{name: fairLock, open: openFair(false)},
	{name: "litestream v0.5.18", open: openLitestream},
	{name: "lock by If-Match, published 2025", open: openIfMatch},
	{name: "election by epochs, published 2024", open: openEpochs},
	{name: "create-and-delete, published 2024", open: openCreateDelete},
	{name: "s3lect v1.0.2, its loop", open: openS3lect},
	{name: "redsync on Redis, in memory", ownServer: true, open: openRedis(false)},
	{name: "redsync on Redis, fsync", ownServer: true, open: openRedis(true)},
	{name: "etcd mutex, fsync", ownServer: true, open: openEtcd(false)},
	{name: "etcd election, fsync", ownServer: true, open: openEtcd(true)},
	{name: "PostgreSQL advisory lock, in memory", ownServer: true, open: openAdvisory},
	{name: "PostgreSQL lease row, fsync", ownServer: true, open: openRow},
}

// defaultTTL is that of the locks, where nothing dies.
const defaultTTL = 15 * time.Second

// An entrant is a subject that was opened at a place.
type entrant struct {
	subject
	place string
	candidate
}

// enter opens the subjects for a place, and those with servers of their own for none.
func (b *bench) enter(ctx context.Context, p *place, ttl time.Duration) (all []*entrant, err error) {
	for _, s := range subjects {
		if s.ownServer != (p == nil) {
			continue
		}
		c, err := s.open(ctx, b, p, ttl)
		if errors.Is(err, errMissing) {
			b.note("%s: %v", s.name, err)
			continue
		}
		if err != nil {
			leave(all)
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		where := own
		if p != nil {
			where = p.name
		}
		all = append(all, &entrant{s, where, c})
	}
	return all, nil
}

// own is the place of those that bring a server.
const own = "its own server, on this machine"

func leave(all []*entrant) {
	for _, e := range all {
		e.close()
	}
}

// A timing is what a number of operations took.
type timing struct {
	p50, p99 float64 // µs
	allocs   float64 // for each operation, in this process
}

// measure runs f n times, one after the other.
func measure(n int, f func() error) (timing, error) {
	took := make([]float64, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range took {
		began := time.Now()
		if err := f(); err != nil {
			return timing{}, err
		}
		took[i] = float64(time.Since(began).Nanoseconds()) / 1000
	}
	runtime.ReadMemStats(&after)
	slices.Sort(took)
	return timing{quantile(took, 0.5), quantile(took, 0.99), float64(after.Mallocs-before.Mallocs) / float64(n)}, nil
}

func (b *bench) addTiming(experiment, place, subject string, round int, t timing) {
	b.add(experiment, place, subject, "p50 µs", round, t.p50)
	b.add(experiment, place, subject, "p99 µs", round, t.p99)
	b.add(experiment, place, subject, "allocations", round, t.allocs)
}

// turns calls f for each in an order that is drawn anew.
func turns[T any](all []T, f func(T) error) error {
	for _, i := range rand.Perm(len(all)) {
		if err := f(all[i]); err != nil {
			return err
		}
	}
	return nil
}

// openLeasehold gives plain locks of this library, each with a lease of its own or all under one
// session.
func openLeasehold(how string) func(context.Context, *bench, *place, time.Duration) (candidate, error) {
	return func(ctx context.Context, _ *bench, p *place, ttl time.Duration) (candidate, error) {
		st, err := p.store()
		if err != nil {
			return nil, err
		}
		c := &ours[*leasehold.Lease]{locks: map[string]locker[*leasehold.Lease]{}}
		opts := &leasehold.LockOptions{TTL: ttl}
		if how == "session" {
			if opts.Session, err = leasehold.NewSession(ctx, st, &leasehold.SessionOptions{TTL: ttl}); err != nil {
				return nil, err
			}
			c.ends = append(c.ends, opts.Session.Close)
		}
		c.make = func(name string) (locker[*leasehold.Lease], error) {
			l, err := leasehold.NewLock(st, "ours/"+how+name, opts)
			return plainLock{l}, err
		}
		return c, nil
	}
}

// openFair gives fair locks, each of which begins a session by itself. With peers whoever leaves tells the
// next one.
func openFair(peers bool) func(context.Context, *bench, *place, time.Duration) (candidate, error) {
	return func(_ context.Context, _ *bench, p *place, ttl time.Duration) (candidate, error) {
		st, err := p.store()
		if err != nil {
			return nil, err
		}
		c := &ours[*leasehold.Lease]{locks: map[string]locker[*leasehold.Lease]{}}
		c.make = func(name string) (locker[*leasehold.Lease], error) {
			opts := &semaphore.Options{TTL: ttl}
			var h *hearing
			if peers {
				var err error
				if h, err = hear(); err != nil {
					return nil, err
				}
				opts.Peers, opts.Address = h.client, h.address()
			}
			l, err := semaphore.NewLock(st, "fair/"+name, opts)
			if err != nil {
				return nil, err
			}
			c.ends = append(c.ends, l.Close)
			if h != nil {
				h.begin([]peer.Queue{l})
				c.ends = append(c.ends, func(context.Context) error { h.close(); return nil })
			}
			return l, nil
		}
		return c, nil
	}
}

// A locker is a lock of this library, whose leases are L.
type locker[L lease] interface {
	Acquire(context.Context) (L, error)
	TryAcquire(context.Context) (L, error)
}

// A plainLock is acquired without options.
type plainLock struct{ *leasehold.Lock }

func (l plainLock) Acquire(ctx context.Context) (*leasehold.Lease, error) { return l.Lock.Acquire(ctx) }

func (l plainLock) TryAcquire(ctx context.Context) (*leasehold.Lease, error) {
	return l.Lock.TryAcquire(ctx)
}

type lease interface{ Release(context.Context) error }

type ours[L lease] struct {
	mu    sync.Mutex
	locks map[string]locker[L]
	make  func(name string) (locker[L], error)
	ends  []func(context.Context) error // of its sessions
}

func (o *ours[L]) lock(name string) (l locker[L], err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l = o.locks[name]; l == nil {
		if l, err = o.make(name); err != nil {
			return nil, err
		}
		o.locks[name] = l
	}
	return l, nil
}

func (o *ours[L]) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	return o.granted(name, func(l locker[L]) (L, error) { return l.Acquire(ctx) })
}

func (o *ours[L]) try(ctx context.Context, name string) (func(context.Context) error, error) {
	return o.granted(name, func(l locker[L]) (L, error) { return l.TryAcquire(ctx) })
}

func (o *ours[L]) granted(name string, by func(locker[L]) (L, error)) (func(context.Context) error, error) {
	l, err := o.lock(name)
	if err != nil {
		return nil, err
	}
	lease, err := by(l)
	if errors.Is(err, leasehold.ErrHeld) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (o *ours[L]) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, end := range o.ends {
		_ = end(ctx)
	}
}
