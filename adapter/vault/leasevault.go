// Package leasevault is a storage backend of HashiCorp Vault with high availability, on object storage: its data are
// objects of a store, and what makes one server the active one is a lock of leasehold.
package leasevault

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/sdk/physical"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// Where data and locks lie. A name may be that of an entry and of a directory of entries, which not every store can
// keep as it is: "a" and "a/b" lie under data/a= and data/a+/b=.
const dataPrefix, lockPrefix, entrySuffix, dirSuffix = "data/", "locks/", "=", "+"

// valueKey is where the record of a lock has its value. A header of so many bytes is before the value of each entry: the
// format, which is 0, and 16 random bytes. A write is tried so often, since a rival or a lost answer may make one fail.
const valueKey, header, tries = "vault", 17, 8

// A Backend is the storage of one Vault server. Make it by [New]. It is safe for concurrent use.
type Backend struct {
	st    store.Store
	locks *leasehold.Locks
}

var _ physical.Backend = (*Backend)(nil)

var _ physical.HABackend = (*Backend)(nil)

// New makes the backend of a server. Options are those of its locks, and may be nil. It sends nothing.
func New(st store.Store, opts *leasehold.LockOptions) (*Backend, error) {
	locks, err := leasehold.NewLocks(st, opts)
	if err != nil {
		return nil, err
	}
	return &Backend{st, locks}, nil
}

// Close waits until no lock is held or wanted any more: see [leasehold.Locks.Close]. It does not close the store.
func (b *Backend) Close(ctx context.Context) error { return b.locks.Close(ctx) }

// dir is where the entries lie whose keys begin with prefix, which is empty or ends with a slash.
func dir(prefix string) string {
	return dataPrefix + strings.ReplaceAll(escape(prefix), "/", dirSuffix+"/")
}

// escape makes names that every store can keep, and keeps their slashes.
func escape(key string) string { return strings.ReplaceAll(url.PathEscape(key), "%2F", "/") }

// object is the key of an entry's object.
func object(key string) string {
	i := strings.LastIndexByte(key, '/') + 1
	return dir(key[:i]) + escape(key[i:]) + entrySuffix
}

// Put writes an entry, whatever is there: by a read, and a write on the condition that it is still that. Values of up to
// 1 MiB less 17 bytes can be kept.
func (b *Backend) Put(ctx context.Context, entry *physical.Entry) error {
	// A body of its own for each write gives each a version of its own, so that one whose answer was lost cannot land
	// when the same value is there again.
	key, body := object(entry.Key), make([]byte, header, header+len(entry.Value))
	_, _ = rand.Read(body[1:]) // it never fails
	body = append(body, entry.Value...)
	for try := 1; ; try++ {
		only := store.IfAbsent()
		now, err := b.st.Get(ctx, key, "")
		if err == nil {
			only = store.IfMatch(now.Version)
		} else if !errors.Is(err, store.ErrNotExist) {
			return err
		}
		_, err = b.st.Put(ctx, key, body, only)
		if errors.Is(err, store.ErrTooLarge) {
			return fmt.Errorf("%s: %w", physical.ErrValueTooLarge, err)
		}
		// It has met another write, or may have landed: a look shows what is there now.
		again := func(kind error) bool { return errors.Is(err, kind) }
		if try == tries || !slices.ContainsFunc([]error{store.ErrPrecondition, store.ErrNotExist, store.ErrConflict, store.ErrUnknownOutcome}, again) {
			return err
		}
	}
}

// Get reads an entry, and gives nil if there is none.
func (b *Backend) Get(ctx context.Context, key string) (*physical.Entry, error) {
	o, err := b.st.Get(ctx, object(key), "")
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil, nil //nolint:nilnil // their contract
	case err != nil:
		return nil, err
	case len(o.Body) < header || o.Body[0] != 0:
		return nil, fmt.Errorf("the object %q is none that a Vault on leasehold has written: move it away", o.Key)
	}
	return &physical.Entry{Key: key, Value: o.Body[header:]}, nil
}

// Delete deletes an entry. That there is none is no error.
func (b *Backend) Delete(ctx context.Context, key string) error { return b.st.Delete(ctx, object(key)) }

// List gives the names of entries under a prefix, which is taken for one that ends with a slash, and those of
// directories, with one. It reads the listing of all that lies below.
func (b *Backend) List(ctx context.Context, prefix string) (names []string, err error) {
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	last, below := "", dir(prefix)
	for e, err := range b.st.List(ctx, below, "") {
		if err != nil {
			return nil, err
		}
		name, _, isDir := strings.Cut(strings.TrimPrefix(e.Key, below), dirSuffix+"/")
		if isDir {
			name += "/"
		}
		if plain, err := url.PathUnescape(strings.TrimSuffix(name, entrySuffix)); err == nil && name != last {
			names = append(names, plain)
		}
		last = name
	}
	return names, nil
}

// HAEnabled is true.
func (b *Backend) HAEnabled() bool { return true }

// A Lock is one server's wish for a lock, by [Backend.LockWith]. It can be locked again when it was unlocked.
type Lock struct {
	b          *Backend
	key, value string

	mu    sync.Mutex // held while it is locked or unlocked
	lease *leasehold.Lease
}

// LockWith gives a lock that is not held, and never fails: a key that no store can keep is an error of Lock. Whoever
// holds it has its value in the record.
func (b *Backend) LockWith(key, value string) (physical.Lock, error) {
	return &Lock{b: b, key: lockPrefix + url.PathEscape(key), value: value}, nil
}

// Lock waits for the lock. The channel that it returns is closed when the lease is lost or released: before anybody
// else can hold the lock, if clocks run at nearly one rate. If stop is closed first, it returns nil and no error. An
// error matches [leasehold.ErrHeld] if this Lock is held already; others are as for [leasehold.Lock.Acquire].
func (l *Lock) Lock(stop <-chan struct{}) (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease != nil {
		return nil, fmt.Errorf("%w by this very Lock of %q: Unlock it first", leasehold.ErrHeld, l.key)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	lease, err := l.b.locks.Acquire(ctx, l.key, leasehold.WithMeta(map[string]string{valueKey: l.value}))
	switch {
	case err == nil:
		l.lease = lease
		return lease.Done(), nil
	case ctx.Err() != nil:
		return nil, nil //nolint:nilnil // their contract
	}
	return nil, err
}

// Unlock releases the lock, after the work under it has stopped; one that is not held is no error. An error that
// matches [leasehold.ErrLost] says that the lease had been lost; after any error others may wait for a TTL.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil {
		return nil
	}
	err := l.lease.Release(context.Background()) // which takes a TTL at most
	l.lease = nil
	return err
}

// Value is whether any server holds the lock, as its record says, and the value of that one. It reads the record.
func (l *Lock) Value() (bool, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	info, err := l.b.locks.Inspect(ctx, l.key)
	if err != nil || !info.Held {
		return false, "", err
	}
	return true, info.Meta[valueKey], nil
}
