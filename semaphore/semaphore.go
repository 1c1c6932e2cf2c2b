package semaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
)

// Options are the options of [New], [NewLock] and [NewRWLock]. The zero value and nil mean
// the defaults. Options are copied.
type Options struct {
	// TTL, Holder, Address, Meta and Proof are as in [leasehold.SessionOptions]. They are for
	// the session the semaphore begins if Session is nil. A dead holder keeps its slots for the
	// TTL. Default: 15 s.
	TTL     time.Duration
	Holder  string // also used if Session is set
	Address string
	Meta    map[string]string
	Proof   store.Proof

	// Peers notify other processes of changes this one makes, so those need not find out by
	// polling: waiters that have received slots, and the only holder when waiters come or
	// leave. Package peer does so over HTTPS. If Address is set too, other processes notify
	// this one there, and its server calls Changed. Correctness does not depend on
	// notifications. Default: none.
	Peers Peers

	// Session is the session that leases belong to. It must be in the same store. Default:
	// the semaphore begins one when it needs it, and closes it a TTL after the last use.
	Session *leasehold.Session

	// Existing makes the semaphore never create its object, and fail with store.ErrNotExist
	// if there is none: see [leasehold.LockOptions.Existing].
	Existing bool

	// Trace receives acquisitions, leases and requests, and the events of the semaphore's
	// own session: see [locktrace.Trace]. Default: none.
	Trace *locktrace.Trace

	// Logger receives what no error reports. Default: slog.Default().
	Logger *slog.Logger
}

// maxHolder is the maximum length of a holder's name in bytes. The object has one for each
// holder and waiter.
const maxHolder = 1024

// holder returns the name of an acquisition's holder. Nothing else can be asked for.
func (d *driver) holder(opts []leasehold.AcquireOption) (string, error) {
	t, err := leasehold.Internal.Terms(opts)
	name := t.Holder
	t.Holder = ""
	switch {
	case err != nil:
	case !t.None():
		err = errors.New("of the options for an acquisition, a semaphore has only WithHolder")
	case len(name) > maxHolder:
		err = fmt.Errorf("WithHolder: the name has %d bytes, and may have 1 to %d", len(name), maxHolder)
	case !utf8.ValidString(name): // it would fail the next write, which all callers share
		err = fmt.Errorf("WithHolder: the name %q is not valid UTF-8", name)
	}
	if err != nil {
		err = fmt.Errorf("the semaphore %v: %w", d.at(), err)
	}
	return cmp.Or(name, d.opts.Holder), err
}

// Peers notify other processes that a semaphore has changed. A notification is only a hint:
// if it is lost, late or false, that costs time, or one read.
type Peers interface {
	// Changed notifies the process at address that the semaphore under key has changed to
	// this version: the process has received slots, or others have come or left behind it.
	// Changed returns soon after ctx has ended. Several goroutines may call it at a time.
	Changed(ctx context.Context, address, key string, version store.Version) error
}

// MaxSize is the maximum size of a semaphore: 2^30.
const MaxSize = record.MaxSlots

// A Semaphore is one process's part in a semaphore: an object in a store whose leases hold
// at most a certain weight at a time. Share it among goroutines; their concurrent requests
// are combined into one write. Apart from its session's heartbeat, it sends nothing unless
// it is being acquired or released. It is safe for concurrent use.
//
// Semaphores are Dijkstra's. A queue whose entries live as long as their sessions is known
// from ZooKeeper's recipes and etcd's election, which have one object per waiter.
type Semaphore struct{ d driver }

// New returns this process's part in the semaphore stored in st under key. It sends
// nothing. It fails if the key, the size or an option is invalid.
//
// All processes that share the semaphore must use the same size. The first acquisition
// records it, and a process with another size gets [ErrSize].
func New(st store.Store, key string, size int, opts *Options) (*Semaphore, error) {
	return newSemaphore(st, key, int64(size), opts)
}

func newSemaphore(st store.Store, key string, size int64, opts *Options) (*Semaphore, error) {
	if st == nil {
		return nil, errors.New("the store of a semaphore is nil")
	}
	if err := store.CheckKey("semaphore", key); err != nil {
		return nil, err
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if size < 1 || size > MaxSize {
		return nil, fmt.Errorf("semaphore %q: the size %d is not between 1 and %d", key, size, MaxSize)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Semaphore{driver{st: st, key: key, size: size, opts: o, callers: map[queue.Caller]*caller{}, sessions: map[string]*engine.Session{}}}
	if err := s.d.start(); err != nil {
		return nil, fmt.Errorf("semaphore %q: %w", key, err)
	}
	return s, nil
}

// Key returns the semaphore's name in its store.
func (s *Semaphore) Key() string { return s.d.key }

// Size returns the total weight that leases can hold at a time.
func (s *Semaphore) Size() int { return int(s.d.size) }

// Acquire waits in the queue until it holds slots of that weight, and returns the lease.
// Every lease must be released. Later callers are never served first: a caller that needs
// more than is free blocks all callers behind it.
//
// If there is room and no queue, Acquire costs one write, and one read if this process has
// not read the object recently. While it waits, it polls the object, more often the closer
// it is to the head of the queue.
//
// If ctx ends first, Acquire returns an error that matches ctx.Err() and, if known, names
// the holders. It leaves the queue in the background.
//
// Acquire fails at once if retrying is pointless, for example because access is denied or
// the semaphore has another size ([ErrSize]). If the queue is full ([ErrFull]), it fails
// once it has seen that not all of the waiters are dead. It retries after temporary store
// errors. If its own session is lost meanwhile, it begins another one, at the end of the
// queue.
//
// The only option is [leasehold.WithHolder]: use it to name the actual caller if one process
// takes slots for many. The name has at most 1024 bytes of UTF-8, of which others see the
// first 96.
//
// The lease is valid while its session is, so it sends no requests of its own. Its token is
// larger than that of every earlier grant, and fences only where no other lease can be held
// at the same time: see the package documentation. If the store does not answer its release
// for a TTL, Release returns an error and the session ends, because nothing else could free
// the slots. The lease can neither be detached nor have metadata of its own.
func (s *Semaphore) Acquire(ctx context.Context, weight int, opts ...leasehold.AcquireOption) (*leasehold.Lease, error) {
	return s.d.acquire(ctx, int64(weight), true, opts)
}

// TryAcquire acquires slots of that weight if they are free and there is no queue.
// Otherwise it returns a [*leasehold.HeldError]. Without a session, this costs one read, and
// no session is begun. If the store fails three times in a row, or does not answer for a
// TTL, TryAcquire fails with the last reason.
//
// TryAcquire does not watch holders. Only waiters free the slots of a dead holder, so they
// stay taken if all callers use TryAcquire.
func (s *Semaphore) TryAcquire(ctx context.Context, weight int, opts ...leasehold.AcquireOption) (*leasehold.Lease, error) {
	return s.d.acquire(ctx, int64(weight), false, opts)
}

// Do acquires slots of that weight, calls f, and releases the slots when f has returned or
// panicked. The context passed to f ends with ctx or with the lease, whichever ends first;
// f must then return.
//
// Do returns f's error, joined with an error that matches [leasehold.ErrLost] if the lease
// was lost before f returned. If Acquire fails, Do returns its error without calling f. f
// may release the lease itself.
func (s *Semaphore) Do(ctx context.Context, weight int, f func(ctx context.Context, lease *leasehold.Lease) error, opts ...leasehold.AcquireOption) error {
	lease, err := s.Acquire(ctx, weight, opts...)
	if err != nil {
		return err
	}
	return s.d.work(ctx, lease, f)
}

// Inspect reads the semaphore without taking part in it. It costs one read. If the
// semaphore does not exist, Inspect returns an Info that says so, not an error.
func (s *Semaphore) Inspect(ctx context.Context) (leasehold.Info, error) {
	shown, err := s.d.at().Look(ctx, "")
	switch {
	case errors.Is(err, store.ErrNotExist):
		return leasehold.Info{Key: s.d.key, Age: -1}, nil
	case err != nil:
		return leasehold.Info{}, s.d.explain(err)
	}
	s.d.Tell(queue.TokenSighted{Token: shown.Table.Token})
	return describe(s.d.key, shown.Table, shown.Version), nil
}

// Changed takes a notification from another process that the object has changed to this
// version. If callers of this process wait, they poll sooner. If this process is the only
// holder, it polls soon, so its release need not: after the first time, at most once a second.
// Further notifications are ignored until the object has changed. Changed sends nothing itself
// and returns at once.
func (s *Semaphore) Changed(version store.Version) {
	s.d.Tell(queue.Told{Version: protocol.Version(version)})
}

// Close waits until the semaphore's leases have been released and its abandoned
// acquisitions have ended. It then ends the semaphore's own session, if there is one, and
// waits until notifications of granted slots have been sent. Close releases no leases
// itself, so work in the slots continues. With [Options.Session], it does not wait for
// leases.
//
// If a release or an abandoned acquisition is not settled in half of the time that ctx
// leaves, because many leave at once or the store does not answer, Close ends the session
// anyway. Nothing else uses the session then, and its end frees the slots. Waiters notice
// at their next poll of it, within a third of a TTL.
//
// If ctx ends first, Close returns an error that matches ctx.Err(), and may be called
// again. If ctx ended before the call, Close waits up to 5 s anyway. If the session was
// lost, the error matches [leasehold.ErrLost]. Without Close, the semaphore ends its
// session a TTL after the last use. You can use the semaphore again after Close.
func (s *Semaphore) Close(ctx context.Context) error { return s.d.close(ctx) }

// Errors of this package, besides those of package leasehold.
var (
	// ErrSize: the object has another size than this process expects. Configure the same size in
	// all processes.
	ErrSize = queue.ErrSize
	// ErrFull: the object has no room for more waiters than the thousands it has. Try again later.
	ErrFull = record.ErrTableFull
)

// describe returns the Info for a table under this key.
func describe(key string, t record.Table, v protocol.Version) leasehold.Info {
	return leasehold.Internal.Describe(key, layout.SnapshotOf(t, v))
}

func (d *driver) at() layout.Table { return layout.Table{Store: d.st, Key: d.key} }
