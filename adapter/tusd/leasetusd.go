// Package leasetusd locks the uploads of several tusd servers that share a bucket. A [Locker] is a handler.Locker of
// github.com/tus/tusd/v2: at most one request at a time has an upload, whichever server it came to, and a request that
// wants the upload makes the one that has it stop, also on another server.
//
//	locker, err := leasetusd.New(st, nil)
//	config := handler.Config{StoreComposer: composer, BasePath: "/files/"}
//	locker.Configure(&config)
//	h, err := handler.NewHandler(config)
//
// An upload has a lock of package leasehold, and while one server waits for another an object beside it, which says for
// the end of which lease it waits: the holder looks there. It guarantees what leases do: see the documentation of
// package leasehold. The README says what happens when one is lost, and what all of it costs.
package leasetusd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

var _, _ = handler.Locker((*Locker)(nil)), handler.Lock((*lock)(nil))

// Options are the options of [New]. The zero value, like nil, gives the defaults.
type Options struct {
	// LockOptions are those of the locks. TTL is 30 s by default. The Layout must have tokens. The Logger is told why
	// requests are stopped.
	leasehold.LockOptions

	// Look is how often a request that has an upload looks whether another server wants it, by one read. A request that
	// is done sooner sends none. One that waits looks twice as often, and more often at first. Default 1 s; at least
	// 20 ms.
	Look time.Duration
}

// A Locker makes the locks of uploads. It is safe for concurrent use. Make one for each process, and Close it.
type Locker struct {
	st    store.Store
	opts  Options
	locks *leasehold.Locks
	here  sync.Map // by name: how the request of this process that has the upload is told to let go, a func()
}

// New makes the locker of the uploads whose locks lie in st. It sends nothing. It fails if an option cannot be used, and
// says which.
func New(st store.Store, opts *Options) (*Locker, error) {
	l := &Locker{st: st}
	o := &l.opts
	if opts != nil {
		*o = *opts
	}
	o.TTL, o.Look = cmp.Or(o.TTL, 30*time.Second), cmp.Or(o.Look, time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Look < 20*time.Millisecond || !o.Layout.Tokens() {
		return nil, fmt.Errorf("leasetusd: a Look of %v, Layout %q: take 20 ms or more, and a layout with tokens", o.Look, o.Layout)
	}
	var err error
	if l.locks, err = leasehold.NewLocks(st, &o.LockOptions); err != nil {
		return nil, fmt.Errorf("leasetusd: %w", err)
	}
	return l, nil
}

// Configure makes the locker that of a server, whose StoreComposer is there already. It has tusd end a request's context
// TTL/3 after the request was told to stop (GracefulRequestCompletionTimeout), and a request is told so TTL/3 before its
// lease ends. So what a request writes to the data store has ended before another server can have the upload.
func (l *Locker) Configure(config *handler.Config) {
	config.StoreComposer.UseLocker(l)
	config.GracefulRequestCompletionTimeout = l.opts.TTL / 3
}

// Close has Lock fail with leasehold.ErrClosed from now on, and waits until every upload has been unlocked: shut the
// HTTP server down first. If ctx ends before that, the error matches ctx.Err(), and Close may be called again. It does
// not close the store.
func (l *Locker) Close(ctx context.Context) error { return l.locks.Close(ctx) }

// NewLock makes the lock of an upload, and sends nothing. Every ID but the empty one has a lock of its own: in "locks/",
// with the ID as one segment, escaped as in a URL, or by its SHA-256 if it is long.
func (l *Locker) NewLock(id string) (handler.Lock, error) {
	if id == "" {
		return nil, errors.New("leasetusd: an upload without an ID has no lock")
	}
	name := "u-" + url.PathEscape(id)
	if len(name) > 180 {
		name = fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(id)))
	}
	return &lock{locker: l, name: name}, nil
}

// A lock is the lock of an upload for one request.
type lock struct {
	locker *Locker
	name   string
	lease  atomic.Pointer[leasehold.Lease] // nil unless the request has the upload
}

// Lock waits until it has the upload, and has whoever else has it stop. If ctx ends first, the error matches
// handler.ErrLockTimeout, and leasehold.ErrHeld if another had it. requestUnlock is called once at most, on any
// goroutine: when another request wants the upload, when the lease is about to end since it is not being renewed, and
// when it has ended. It may call Unlock.
func (l *lock) Lock(ctx context.Context, requestUnlock func()) error {
	var wished leasehold.Token
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, l.locker.opts.Look/2) {
		stop, here := l.locker.here.Load(l.name)
		if stop, ok := stop.(func()); ok {
			stop()
		}
		lease, err := l.locker.locks.TryAcquire(ctx, "locks/"+l.name)
		if err == nil {
			l.begin(lease, sync.OnceFunc(requestUnlock))
			return nil
		}
		held, ok := errors.AsType[*leasehold.HeldError](err)
		if !ok && ctx.Err() == nil {
			return fmt.Errorf("leasetusd: %w", err)
		}
		if ok && !here && held.Info.Held && held.Info.Token != wished {
			if failed := l.wish(ctx, held.Info.Token); failed == nil {
				wished = held.Info.Token
			} else {
				err = fmt.Errorf("%w, and the holder cannot be told that it is wanted: %w", err, failed)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("leasetusd: %w: %w: %w", handler.ErrLockTimeout, ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// wish tells the holder on another server, whose lease has that token, that it is waited for.
func (l *lock) wish(ctx context.Context, token leasehold.Token) error {
	o, err := l.locker.st.Get(ctx, "wanted/"+l.name, "")
	only := store.IfAbsent()
	switch {
	case err == nil && string(o.Body) == token.String():
		return nil
	case err == nil:
		only = store.IfMatch(o.Version)
	case !errors.Is(err, store.ErrNotExist):
		return err
	}
	_, err = l.locker.st.Put(ctx, "wanted/"+l.name, []byte(token.String()), only)
	return err
}

// begin has the request told to stop when there is a reason.
func (l *lock) begin(lease *leasehold.Lease, stop func()) {
	l.lease.Store(lease)
	l.locker.here.Store(l.name, stop)
	go func() {
		if why := l.watch(lease); !errors.Is(why, leasehold.ErrReleased) {
			l.locker.opts.Logger.Warn("the request that has an upload is told to stop", "lock", lease.Key(), "why", why)
			stop()
		}
	}()
}

// watch waits until the request is to let go, or has, and says why.
func (l *lock) watch(lease *leasehold.Lease) error {
	o := &l.locker.opts
	left := func() time.Duration { return time.Until(lease.Deadline()) - o.TTL/3 } // it grows with each renewal
	for {
		select {
		case <-lease.Done():
			return lease.Err()
		case <-time.After(min(o.Look, left())):
		}
		ctx, cancel := context.WithTimeout(lease.Context(), left())
		wish, err := l.locker.st.Get(ctx, "wanted/"+l.name, "")
		cancel()
		if err == nil && string(wish.Body) == lease.Token().String() {
			return errors.New("another server wants the upload")
		}
		if left() <= 0 {
			return cmp.Or(lease.Err(), errors.New("no renewal came through in time, and the lease is about to end"))
		}
	}
}

// Unlock gives the upload back. All writes to the data store must have ended. If the lease was lost before, the error
// matches leasehold.ErrLost. If the store does not answer within 5 s, it matches context.DeadlineExceeded, and the
// release goes on.
func (l *lock) Unlock() error {
	lease := l.lease.Swap(nil)
	if lease == nil {
		return fmt.Errorf("leasetusd: the lock locks/%s is not held by this request", l.name)
	}
	l.locker.here.Delete(l.name)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return lease.Release(ctx)
}
