package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/leasehold/leasehold/store"
)

// silence is how long an answer may take without a word.
const silence = 5 * time.Second

// A timeoutStore is a store for commands that ask it as often as there are objects: no single
// answer may take longer than the patience.
type timeoutStore struct {
	store.Store
	slow func() // is called when an answer takes long; or nil
}

// Proves passes the question on: see store.Proof.
func (p timeoutStore) Proves(storeName, use string) error {
	return store.Proves(p.Store, storeName, use)
}

// withTimeout gives a store each of whose answers is waited for, and says so if one takes long.
func (a *app) withTimeout(st store.Store) timeoutStore { return timeoutStore{st, a.slow} }

// slow says once that an answer takes long.
func (a *app) slow() {
	a.slowly.Do(func() { a.console.tell("%s has not answered for %v: waiting for %v at most", a.at, silence, patience) })
}

// aloud prints a message if it takes long until the returned function is called.
func (p timeoutStore) aloud() (done func()) {
	if p.slow == nil {
		return func() {}
	}
	timer := time.AfterFunc(silence, p.slow)
	return func() { timer.Stop() }
}

func (p timeoutStore) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer p.aloud()()
	obj, err := p.Store.Get(ctx, key, unless)
	return obj, late(err)
}

func (p timeoutStore) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer p.aloud()()
	obj, err := p.Store.Put(ctx, key, body, only)
	return obj, late(err)
}

func (p timeoutStore) Delete(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer p.aloud()()
	return late(p.Store.Delete(ctx, key))
}

func (p timeoutStore) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		limited, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		limit := time.AfterFunc(patience, func() { cancel(context.DeadlineExceeded) })
		defer limit.Stop()
		done := p.aloud()
		defer func() { done() }()
		for entry, err := range p.Store.List(limited, prefix, after) {
			if cause := context.Cause(limited); err != nil && cause != nil {
				err = fmt.Errorf("%w: %w", cause, err)
			}
			limit.Stop() // what is done with it may take as long as it takes
			done()
			if !yield(entry, late(err)) {
				return
			}
			limit.Reset(patience)
			done = p.aloud()
		}
	}
}

// late says how long the store did not answer.
func late(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the store did not answer for %v: %w", patience, err)
	}
	return err
}
