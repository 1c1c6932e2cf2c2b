package semaphore

import (
	"context"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// A Lock is a fair lock: a semaphore with one slot. It serves goroutines of this process
// and candidates in other processes in order of arrival, and a release hands it over. Its
// tokens fence, because leases follow one another. It is safe for concurrent use.
type Lock struct{ s *Semaphore }

// NewLock returns a candidate for the fair lock stored in st under key. It sends nothing:
// see [New].
func NewLock(st store.Store, key string, opts *Options) (*Lock, error) {
	s, err := newSemaphore(st, key, 1, opts)
	if err != nil {
		return nil, err
	}
	return &Lock{s}, nil
}

// Key returns the lock's name in its store.
func (l *Lock) Key() string { return l.s.Key() }

// Acquire waits in the queue until it holds the lock: see [Semaphore.Acquire].
func (l *Lock) Acquire(ctx context.Context) (*leasehold.Lease, error) { return l.s.Acquire(ctx, 1) }

// TryAcquire acquires the lock if it is free and has no waiters: see
// [Semaphore.TryAcquire].
func (l *Lock) TryAcquire(ctx context.Context) (*leasehold.Lease, error) {
	return l.s.TryAcquire(ctx, 1)
}

// Do acquires the lock, calls f and releases the lock: see [Semaphore.Do].
func (l *Lock) Do(ctx context.Context, f func(ctx context.Context, lease *leasehold.Lease) error) error {
	return l.s.Do(ctx, 1, f)
}

// Inspect reads the lock without taking part in it: see [Semaphore.Inspect].
func (l *Lock) Inspect(ctx context.Context) (leasehold.Info, error) { return l.s.Inspect(ctx) }

// Changed takes a notification from another process: see [Semaphore.Changed].
func (l *Lock) Changed(version store.Version) { l.s.Changed(version) }

// Close ends the session the lock began: see [Semaphore.Close].
func (l *Lock) Close(ctx context.Context) error { return l.s.Close(ctx) }

// RWSize is the size of a reader/writer lock. A writer takes all of it; the object has no room
// for that many readers.
const RWSize = 1 << 20

// An RWLock is a reader/writer lock: many readers or one writer can hold it at a time. All
// wait in one queue, so a writer gets its turn after the callers before it, even if readers
// keep coming. A writer's token fences; a reader's token only identifies its grant. An
// RWLock is safe for concurrent use.
//
// The methods are named like those of [sync.RWMutex], but return leases instead of having
// unlock methods.
type RWLock struct{ s *Semaphore }

// NewRWLock returns a candidate for the reader/writer lock stored in st under key. It sends
// nothing: see [New].
func NewRWLock(st store.Store, key string, opts *Options) (*RWLock, error) {
	s, err := newSemaphore(st, key, RWSize, opts)
	if err != nil {
		return nil, err
	}
	return &RWLock{s}, nil
}

// Key returns the lock's name in its store.
func (l *RWLock) Key() string { return l.s.Key() }

// Lock waits in the queue until it holds the lock for writing: see [Semaphore.Acquire].
func (l *RWLock) Lock(ctx context.Context) (*leasehold.Lease, error) { return l.s.Acquire(ctx, RWSize) }

// TryLock acquires the lock for writing if it is free and has no waiters: see
// [Semaphore.TryAcquire].
func (l *RWLock) TryLock(ctx context.Context) (*leasehold.Lease, error) {
	return l.s.TryAcquire(ctx, RWSize)
}

// RLock waits in the queue until it holds the lock for reading: see [Semaphore.Acquire].
func (l *RWLock) RLock(ctx context.Context) (*leasehold.Lease, error) { return l.s.Acquire(ctx, 1) }

// TryRLock acquires the lock for reading if no writer holds it and it has no waiters: see
// [Semaphore.TryAcquire].
func (l *RWLock) TryRLock(ctx context.Context) (*leasehold.Lease, error) {
	return l.s.TryAcquire(ctx, 1)
}

// Do calls f while it holds the lock for writing: see [Semaphore.Do].
func (l *RWLock) Do(ctx context.Context, f func(ctx context.Context, lease *leasehold.Lease) error) error {
	return l.s.Do(ctx, RWSize, f)
}

// RDo calls f while it holds the lock for reading: see [Semaphore.Do].
func (l *RWLock) RDo(ctx context.Context, f func(ctx context.Context, lease *leasehold.Lease) error) error {
	return l.s.Do(ctx, 1, f)
}

// Inspect reads the lock without taking part in it: see [Semaphore.Inspect]. Its size, and
// the weight of a writer, is [RWSize].
func (l *RWLock) Inspect(ctx context.Context) (leasehold.Info, error) { return l.s.Inspect(ctx) }

// Changed takes a notification from another process: see [Semaphore.Changed].
func (l *RWLock) Changed(version store.Version) { l.s.Changed(version) }

// Close ends the session the lock began: see [Semaphore.Close].
func (l *RWLock) Close(ctx context.Context) error { return l.s.Close(ctx) }
