// Package leasedapr is a lock component of Dapr over leasehold: a lock.Store on object storage.
//
// A lock of Dapr is taken for ExpiryInSeconds, is never renewed, and is unlocked by whoever knows its resource and its
// owner, by way of any sidecar. So a lease here is of a fixed length, and is detached as soon as it is acquired: it is
// the record in the store alone, and no sidecar needs to know more.
package leasedapr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/dapr/components-contrib/lock"
	"github.com/dapr/components-contrib/metadata"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// ownerKey is where the record of a lock has the LockOwner.
const ownerKey = "dapr-owner"

// A Store is the lock component of one sidecar. Its zero value is ready for InitLockStore, and after that it is safe for
// concurrent use. Close it.
type Store struct {
	// Open opens the store that the property url names. Default: [storeurl.Open]. A store that is an io.Closer is
	// closed by Close.
	Open func(ctx context.Context, url string) (store.Store, error)
	// Logger receives failures in the background. Default: none.
	Logger *slog.Logger

	prefix string
	st     store.Store
	locks  *leasehold.Locks // nil before InitLockStore

	waiting sync.Map     // of held, which are freed when they are over
	freeing sync.RWMutex // is locked for reading meanwhile
}

// held is a lock that is held through any sidecar.
type held struct {
	key   string
	token leasehold.Token
}

var _ lock.Store = (*Store)(nil)

// InitLockStore opens the store that the property url names, as package storeurl has it; all keys begin with the
// property prefix, which is "dapr" by default. It sends nothing to the store. Call it once, before all else.
func (s *Store) InitLockStore(ctx context.Context, meta lock.Metadata) (err error) {
	if s.locks != nil {
		return errors.New("leasehold: the lock store was initialized already")
	}
	if s.Open == nil {
		s.Open = storeurl.Open
	}
	place, _ := metadata.GetMetadataProperty(meta.Properties, "url")
	prefix, _ := metadata.GetMetadataProperty(meta.Properties, "prefix")
	if s.st, err = s.Open(ctx, place); err != nil {
		return fmt.Errorf("leasehold: the property url: %w", err)
	}
	s.prefix = cmp.Or(prefix, "dapr")
	s.locks, err = leasehold.NewLocks(s.st, &leasehold.LockOptions{Logger: s.Logger})
	return err
}

// GetComponentMetadata tells the properties of the component.
func (*Store) GetComponentMetadata() metadata.MetadataMap { return properties }

var properties = metadata.MetadataMap{"url": {Type: "string"}, "prefix": {Type: "string"}}

// key is where the lock of a resource lies, which may have any name: no two have one key.
func (s *Store) key(resource, owner string) (string, error) {
	if s.locks == nil || resource == "" || owner == "" {
		return "", fmt.Errorf("leasehold: the lock %.99q of %.99q: call InitLockStore first, and name a ResourceID and a LockOwner", resource, owner)
	}
	return s.prefix + "/" + url.PathEscape(resource), nil
}

// TryLock takes the lock for ExpiryInSeconds, which count from the call, and never waits for another: Success is false
// if another has it. An error says that the lock was not taken, or only when its expiry was over, and then it is being
// freed. At the expiry the lock is free again, as long as this component is not closed; else others take it when it
// has not changed for 1.2 expiries since they first wanted it.
func (s *Store) TryLock(ctx context.Context, req *lock.TryLockRequest) (*lock.TryLockResponse, error) {
	began, refused := time.Now(), &lock.TryLockResponse{}
	key, err := s.key(req.ResourceID, req.LockOwner)
	if err != nil {
		return refused, err
	}
	expiry := time.Duration(req.ExpiryInSeconds) * time.Second
	ttl := expiry + expiry/11 + 20*time.Millisecond // a lease is valid for eleven twelfths of its TTL less 10 ms
	lease, err := s.locks.TryAcquire(ctx, key, leasehold.WithTTL(ttl), leasehold.WithoutRenewal(), leasehold.WithMaxHold(expiry),
		leasehold.WithMeta(map[string]string{ownerKey: req.LockOwner}))
	if other := (*leasehold.HeldError)(nil); errors.As(err, &other) {
		if other.Info.Held && other.Info.Meta[ownerKey] != "" {
			s.freeAfter(other.Info.TTL*6/5, held{key, other.Info.Token})
		}
		return refused, nil
	}
	if err != nil {
		return refused, fmt.Errorf("leasehold: no lock with an expiry of %v: %w", expiry, err)
	}
	valid := lease.Valid()
	if _, err = detached.From(ctx, lease); err != nil {
		return refused, fmt.Errorf("leasehold: %w", err)
	}
	left := expiry - time.Since(began)
	s.freeAfter(left, held{key, lease.Token()})
	if !valid || left <= 0 {
		return refused, fmt.Errorf("leasehold: the lock %q was acquired only when its expiry of %v was over: %w", key, expiry, leasehold.ErrTimeUp)
	}
	return &lock.TryLockResponse{Success: true}, nil
}

// Unlock frees the lock of an owner, by whichever sidecar it was taken. An error comes with InternalError.
func (s *Store) Unlock(ctx context.Context, req *lock.UnlockRequest) (*lock.UnlockResponse, error) {
	var info leasehold.Info
	key, err := s.key(req.ResourceID, req.LockOwner)
	if err == nil {
		info, err = s.locks.Inspect(ctx, key)
	}
	status := lock.LockDoesNotExist
	if info.Held {
		status = lock.LockBelongsToOthers
	}
	if h := (held{key, info.Token}); info.Held && info.Meta[ownerKey] == req.LockOwner {
		if err = s.free(ctx, h); err == nil {
			status = lock.Success
			s.waiting.Delete(h)
		}
	}
	if errors.Is(err, admin.ErrTokenChanged) {
		err = nil // it has become another's since we looked
	} else if err != nil {
		status = lock.InternalError
	}
	return &lock.UnlockResponse{Status: status}, err
}

// free frees the lock if it has still this token.
func (s *Store) free(ctx context.Context, h held) error {
	l, err := leasehold.NewLock(s.st, h.key, nil)
	if err == nil {
		_, err = admin.Break(ctx, l, h.token)
	}
	return err
}

// freeAfter frees the lock when its lease, which is never renewed, is over. The first call for it counts.
func (s *Store) freeAfter(d time.Duration, h held) {
	if _, known := s.waiting.LoadOrStore(h, true); known {
		return
	}
	time.AfterFunc(d, func() {
		s.freeing.RLock()
		defer s.freeing.RUnlock()
		if _, due := s.waiting.LoadAndDelete(h); !due {
			return // it was unlocked here, or all is closed
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.free(ctx, h); err != nil && !errors.Is(err, admin.ErrTokenChanged) && s.Logger != nil {
			s.Logger.Warn("a lock that has expired was not freed; others wait it out", "lock", h.key, "error", err)
		}
	})
}

// Close ends what the component does, when its other calls have returned. Locks that are held stay, until others have
// waited them out.
func (s *Store) Close() error {
	s.freeing.Lock() // waits for what goes on
	s.waiting.Clear()
	s.freeing.Unlock()
	if s.locks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := s.locks.Close(ctx)
	if c, ok := s.st.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}
