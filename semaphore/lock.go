package semaphore

import (
	"context"

	"github.com/leasehold/leasehold/store"
)

// A Lock is a fair lock: a semaphore with one seat. It is served in the order of arrival, to goroutines of one
// process and candidates of others alike, and a release hands it over. Its tokens fence, since
// each lease follows the one before. It is safe for concurrent use.
type Lock struct{ s *Semaphore }

// NewLock makes this process's part in the fair lock that lies in st under key. It sends nothing: see
// [New].
func NewLock(st store.Store, key string, opts *Options) (*Lock, error) {
	s, err := newSemaphore(st, key, 1, opts)
	if err != nil {
		return nil, err
	}
	return &Lock{s}, nil
}

// Key is the name of the lock in its store.
func (l *Lock) Key() string { return l.s.Key() }

// Acquire waits in line until it holds the lock: see [Semaphore.Acquire].
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) { return l.s.Acquire(ctx, 1) }

// TryAcquire acquires the lock if it is free and nobody waits: see [Semaphore.TryAcquire].
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) { return l.s.TryAcquire(ctx, 1) }

// Do acquires the lock, calls f and releases the lock: see [Semaphore.Do].
func (l *Lock) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	return l.s.Do(ctx, 1, f)
}

// Inspect reads the lock without taking part in it: see [Semaphore.Inspect].
func (l *Lock) Inspect(ctx context.Context) (Info, error) { return l.s.Inspect(ctx) }

// Changed takes in the word of another process: see [Semaphore.Changed].
func (l *Lock) Changed(version store.Version) { l.s.Changed(version) }

// Close ends the session that the lock has begun: see [Semaphore.Close].
func (l *Lock) Close(ctx context.Context) error { return l.s.Close(ctx) }

// RWSize is the size of a reader/writer lock: what a writer takes, and more than readers can be.
const RWSize = 1 << 20

// An RWLock is a reader/writer lock: any number of readers at a time, or one writer. All wait in one
// line, so a writer has its turn after those who came before it, however many readers keep coming.
// A writer's token fences; a reader's names its grant. It is safe for concurrent use.
//
// The methods have the names of [sync.RWMutex]'s, and return leases in place of having unlocks.
type RWLock struct{ s *Semaphore }

// NewRWLock makes this process's part in the reader/writer lock that lies in st under key. It sends
// nothing: see [New].
func NewRWLock(st store.Store, key string, opts *Options) (*RWLock, error) {
	s, err := newSemaphore(st, key, RWSize, opts)
	if err != nil {
		return nil, err
	}
	return &RWLock{s}, nil
}

// Key is the name of the lock in its store.
func (l *RWLock) Key() string { return l.s.Key() }

// Lock waits in line until it holds the lock for writing: see [Semaphore.Acquire].
func (l *RWLock) Lock(ctx context.Context) (*Lease, error) { return l.s.Acquire(ctx, RWSize) }

// TryLock acquires the lock for writing if nobody holds it or waits: see [Semaphore.TryAcquire].
func (l *RWLock) TryLock(ctx context.Context) (*Lease, error) { return l.s.TryAcquire(ctx, RWSize) }

// RLock waits in line until it holds the lock for reading: see [Semaphore.Acquire].
func (l *RWLock) RLock(ctx context.Context) (*Lease, error) { return l.s.Acquire(ctx, 1) }

// TryRLock acquires the lock for reading if no writer holds it and nobody waits: see
// [Semaphore.TryAcquire].
func (l *RWLock) TryRLock(ctx context.Context) (*Lease, error) { return l.s.TryAcquire(ctx, 1) }

// Do calls f while it holds the lock for writing: see [Semaphore.Do].
func (l *RWLock) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	return l.s.Do(ctx, RWSize, f)
}

// RDo calls f while it holds the lock for reading: see [Semaphore.Do].
func (l *RWLock) RDo(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	return l.s.Do(ctx, 1, f)
}

// Inspect reads the lock without taking part in it: see [Semaphore.Inspect]. Its size is [RWSize], and a
// writer's weight too.
func (l *RWLock) Inspect(ctx context.Context) (Info, error) { return l.s.Inspect(ctx) }

// Changed takes in the word of another process: see [Semaphore.Changed].
func (l *RWLock) Changed(version store.Version) { l.s.Changed(version) }

// Close ends the session that the lock has begun: see [Semaphore.Close].
func (l *RWLock) Close(ctx context.Context) error { return l.s.Close(ctx) }
