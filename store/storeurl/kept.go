package storeurl

import (
	"context"
	"sync"
	"time"
)

const (
	// fetchWithin bounds the search for credentials. Several requests may wait for it.
	fetchWithin = 30 * time.Second

	last    = 10 * time.Second
	earlier = 5 * time.Second // between two tries to replace credentials that are still valid
)

// A validity is how long credentials are used. The zero value means forever.
type validity struct {
	renew time.Time // when to replace them
	ends  time.Time // when they expire
}

// kept caches a store's credentials for all of its requests. They are replaced in time, and
// when their source has changed. If that fails, they are used as long as they are valid,
// because a renewal of a lease should not depend on two services.
type kept[T any] struct {
	fetch   func(context.Context) (T, validity, error)
	changed func() bool // reports whether the source has changed since the last call; nil: it never does

	mu     sync.Mutex
	had    bool // value is set
	stale  bool // the source has changed since they were fetched
	value  T
	of     validity
	next   time.Time // no try to replace valid ones before
	flying *flight[T]

	refused bool // by the store, since they were fetched
}

// refuse records that the store refuses the credentials, although their service considers them
// valid.
func (k *kept[T]) refuse() {
	k.mu.Lock()
	k.refused = true
	k.mu.Unlock()
}

// A flight fetches credentials for all requests that wait for them.
type flight[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// get returns credentials that are valid for at least last, according to their service. The
// wait ends with the context, but the request continues, because others may wait for it.
func (k *kept[T]) get(ctx context.Context) (T, error) {
	k.mu.Lock()
	now := time.Now()
	valid := k.had && (k.of.ends.IsZero() || now.Before(k.of.ends.Add(-last)))
	fresh := valid && (k.of.renew.IsZero() || now.Before(k.of.renew))
	k.stale = k.stale || k.changed != nil && k.changed()
	stale := k.stale || k.refused && !now.Before(k.next)
	if k.flying == nil && (!valid || stale || !fresh && !now.Before(k.next)) {
		k.flying, k.stale, k.refused = k.begin(ctx), false, false
	}
	f, value := k.flying, k.value
	k.mu.Unlock()
	if valid && !stale {
		return value, nil
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
	if f.err != nil && valid {
		return value, nil
	}
	return f.value, f.err
}

func (k *kept[T]) begin(ctx context.Context) *flight[T] {
	f := &flight[T]{done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchWithin)
	go func() {
		defer cancel()
		var of validity
		f.value, of, f.err = k.fetch(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		if f.err == nil {
			k.had, k.value, k.of = true, f.value, of
		}
		k.next, k.flying = time.Now().Add(earlier), nil
		close(f.done)
	}()
	return f
}
