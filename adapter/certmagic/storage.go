// Package leasecertmagic keeps certmagic's certificates, keys and locks in one bucket, or in whatever else is a
// store.Store: a certmagic.Storage whose locks are leasehold's.
//
// Values lie under values/, as they are, by the names that certmagic gives them and an "="; the locks under locks/, where no
// listing of values shows them; values over 1 MiB under large/, in a store that is a store.Large.
package leasecertmagic

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/adapter/certmagic/internal/byname"
	"github.com/leasehold/leasehold/adapter/certmagic/internal/tree"
	"github.com/leasehold/leasehold/store"
)

// A Storage is a certmagic.Storage. It is safe for concurrent use.
//
// Its calls honor the end of their contexts, and retry failures of the store for half a minute. An error
// matches fs.ErrNotExist if there is no such key, and only then, and store.ErrInvalid if it is none: a key has no slash
// at its ends, and no segments that are empty, "." or "..".
//
// What is stored or deleted of a certificate while this process has certmagic's lock of its name ends
// with the lease of that lock. Since a write is conditional on what was there, one that is on its way then does not
// replace what the next holder has stored; a delete that is on its way may.
type Storage struct {
	st    store.Store
	tree  *tree.Tree
	locks *byname.Locks
}

// ErrNotHeld is the error of calls for a lock that this Storage does not hold.
var ErrNotHeld = byname.ErrNotHeld

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New keeps values and locks in st. The options are those of the locks, nil for the defaults: their Trace is told of
// leases that are lost. It sends nothing, and fails as leasehold.NewLocks.
func New(st store.Store, opts *leasehold.LockOptions) (*Storage, error) {
	locks, err := byname.New(st, func(name string) string { return "locks/" + tree.Escape(name) }, opts)
	if err != nil {
		return nil, err
	}
	return &Storage{st, tree.New(st), locks}, nil
}

// Close refuses all calls for locks but Unlock from now on, and waits until every lock is unlocked and nothing is under
// way, or ctx ends: see leasehold.Locks.Close. It does not close the store, and values can still be read and written.
func (s *Storage) Close(ctx context.Context) error { return s.locks.Close(ctx) }

// String says where the store is.
func (s *Storage) String() string { return "leasehold:" + s.st.String() }

// Store writes the value. If ctx ends meanwhile, the value may be written all the same.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	ctx, cancel := s.under(ctx, key)
	defer cancel(nil)
	return s.tree.Store(ctx, key, value)
}

// Load reads the value.
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	return s.tree.Load(ctx, key)
}

// Delete deletes the value, and all below the key. That there is none is no error.
func (s *Storage) Delete(ctx context.Context, key string) error {
	ctx, cancel := s.under(ctx, key)
	defer cancel(nil)
	return s.tree.Delete(ctx, key)
}

// Exists reports that there is a value, or one below the key, and that the store could be asked.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	_, err := s.tree.Stat(ctx, key)
	return err == nil
}

// List gives the keys of values and directories in the directory dir, or with recursive of all below it, in no order. ""
// is the directory of all; a value has none. It costs one request for each 1000 values below dir, recursive or not.
func (s *Storage) List(ctx context.Context, dir string, recursive bool) ([]string, error) {
	return s.tree.List(ctx, dir, recursive)
}

// Stat describes the value or the directory, which was modified when the newest value below it was.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	info, err := s.tree.Stat(ctx, key)
	if err != nil {
		return certmagic.KeyInfo{}, err
	}
	return certmagic.KeyInfo{Key: key, Modified: info.Modified, Size: info.Size, IsTerminal: !info.Dir}, nil
}

// Lock waits until this process holds the lock, or ctx ends. Then it is renewed until Unlock.
//
// As certmagic.FileStorage, it takes a lock that is free even if ctx has ended before the call, for which it has 5 s;
// it does not wait for one that is held then. The error at the end of ctx matches ctx.Err(), and leasehold.ErrHeld if
// another was seen to hold the lock. Failures of the store are waited out, unless leasehold.Final says that
// it is of no use. A name may be anything but empty.
func (s *Storage) Lock(ctx context.Context, name string) error { return s.locks.Lock(ctx, name) }

// TryLock is Lock that does not wait: it returns false and no error if the lock is held, in this process or
// elsewhere. If the holder seems to be gone, it watches the lock for that holder's TTL and a margin, and takes it
// over if it is; a call that never waited never could.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	return s.locks.TryLock(ctx, name)
}

// Unlock releases the lock, for which it has 5 s if ctx has ended. An error that matches leasehold.ErrLost says that the
// lease was lost before: others may have held the lock since. After any error this process does not hold it any more,
// and others may have to wait its lease out. ErrNotHeld: it was not held.
func (s *Storage) Unlock(ctx context.Context, name string) error { return s.locks.Unlock(ctx, name) }

// RenewLockLease reports that the lock is held. It makes nothing of the duration: leases are renewed until Unlock. If the
// lease was lost, it acquires the lock anew, as TryLock does. If another holds it by now, the error matches
// leasehold.ErrLost and leasehold.ErrHeld, and to call it again later makes sense.
//
// certmagic calls it before each attempt to obtain a certificate, and looks after it whether that is there by now. While
// it fails certmagic goes on with attempts for 30 days, which is why it does not fail for good.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	return s.locks.Renew(ctx, name)
}

// Lease is the lease under which this process holds the lock. Its context ends before anybody else can hold the lock,
// and its token is for resources that refuse a former holder. The error matches ErrNotHeld.
func (s *Storage) Lease(name string) (*leasehold.Lease, error) { return s.locks.Lease(name) }

// certmagic holds the lock issue_cert_NAME while it obtains or renews the certificate in certificates/ISSUER/NAME/.
const (
	issueLock    = "issue_cert_"
	certificates = "certificates/"
)

// under gives the context of a write, which the caller cancels: it ends with the lease of the certificate's lock, if
// this process has that.
func (s *Storage) under(ctx context.Context, key string) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for name, lease := range s.locks.All() {
		domain, ok := strings.CutPrefix(name, issueLock)
		if !ok || !strings.HasPrefix(key, certificates) || certmagic.StorageKeys.Safe(domain) != path.Base(path.Dir(key)) {
			continue
		}
		if lease.Err() != nil { // the function below is called a moment later
			cancel(lease.Err())
		}
		context.AfterFunc(lease.Context(), func() { cancel(lease.Err()) })
	}
	return ctx, cancel
}
