package storeurl

import (
	"context"
	"sync"
	"time"
)

const (
	// fetchWithin bounds the search for credentials, for which several may wait.
	fetchWithin = 30 * time.Second

	last    = 10 * time.Second
	earlier = 5 * time.Second // between two tries to replace what is said to be valid
)

// A validity is how long credentials are used. Its zero value is for those without an end.
type validity struct {
	renew time.Time // when to replace them
	ends  time.Time // when they are not valid any more
}

// kept keeps the credentials of a store for all of its requests. They are replaced when it is time to, and when their
// source has changed. As long as there is nothing to replace them and they are valid, they are used: a renewal of a
// lease should not wait for two services.
type kept[T any] struct {
	fetch   func(context.Context) (T, validity, error)
	changed func() bool // reports that the source is another than at the last call; nil: it never is

	mu     sync.Mutex
	had    bool // there are some
	stale  bool // the source has changed since they were fetched
	value  T
	of     validity
	next   time.Time // no try to replace valid ones before
	flying *flight[T]

	refused bool // by the store, since they were fetched
}

// refuse says that the store refuses the credentials, which are valid as far as their service tells.
func (k *kept[T]) refuse() {
	k.mu.Lock()
	k.refused = true
	k.mu.Unlock()
}

// A flight fetches credentials, for all that wait for them.
type flight[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// get gives credentials that are valid for last at least, as far as their service tells. The wait for them ends with
// the context; the request goes on, since others may wait for the same.
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
