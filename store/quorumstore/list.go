package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// abreast is how many keys of a listing are read at a time.
const abreast = 16

// keys returns the keys a majority of the members has, under the configuration in force.
func (s *Store) keys(ctx context.Context, prefix, after string) (keys []string, err error) {
	v, err := s.view(ctx)
	for err == nil {
		from := after
		if from != "" {
			from = s.opts.Prefix + from
		}
		keys, err = v.list(ctx, s.opts.Prefix+prefix, from, false)
		if !errors.Is(err, register.ErrMoved) {
			break
		}
		v, err = s.follow(ctx, v)
	}
	if err != nil {
		return nil, failed(ctx, "list", prefix, register.Failed, err)
	}
	for i, key := range keys {
		keys[i] = strings.TrimPrefix(key, s.opts.Prefix)
	}
	return keys, nil
}

// list returns the sorted union of the members' keys. A member counts if its marker, read
// afterwards, shows that it has lost nothing (rules Q5 and Q6). list waits for a majority, or
// with all for every member that answers.
func (v *view) list(ctx context.Context, prefix, after string, all bool) ([]string, error) {
	type answer struct {
		keys []string
		err  error
	}
	answers := make(chan answer, len(v.members))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range v.members {
		go func() {
			keys, err := v.listOf(ctx, i, prefix, after)
			answers <- answer{keys, err}
		}()
	}
	errs := []error{register.ErrNoMajority}
	var keys []string
	lists := 0
	for range v.members {
		a := <-answers
		switch {
		case errors.Is(a.err, register.ErrMoved):
			return nil, a.err
		case a.err != nil:
			errs = append(errs, a.err)
			continue
		}
		keys = append(keys, a.keys...)
		if lists++; lists >= v.cfg.Majority() && !all {
			break
		}
	}
	if lists < v.cfg.Majority() {
		return nil, errors.Join(errs...)
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

func (v *view) listOf(ctx context.Context, member int, prefix, after string) (keys []string, err error) {
	m, place := v.members[member], v.cfg.Members[member]
	var marker *register.Marker
	err = v.s.listing(ctx, m, prefix, after, func(e store.Entry) {
		if !strings.HasPrefix(e.Key, reserved) {
			keys = append(keys, e.Key)
		}
	})
	if err == nil {
		marker, _, err = v.s.readMarker(ctx, m)
	}
	v.hears(member, err)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", place.Place, err)
	case marker == nil || marker.Name != place.Marker:
		return nil, fmt.Errorf("%s: %w", place.Place, ErrLost)
	case marker.Number > v.cfg.Number:
		return nil, register.ErrMoved
	case !marker.Whole:
		return nil, fmt.Errorf("%s: %w", place.Place, register.ErrNotFilled)
	}
	return keys, nil
}

// listing lists a member. The total time is unlimited, as long as each entry arrives within
// Options.Timeout.
func (s *Store) listing(ctx context.Context, m store.Store, prefix, after string, found func(store.Entry)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(s.opts.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	for e, err := range m.List(ctx, prefix, after) {
		if err != nil {
			return orCause(ctx, err)
		}
		found(e)
		late.Reset(s.opts.Timeout)
	}
	return nil
}

// orCause returns the cause of ctx once that has ended. For a member, a request that took too long
// was just canceled, which is not the member's fault.
func orCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// confirm yields the objects under these keys. It reads each one, some ahead of the yielded
// one.
func (s *Store) confirm(ctx context.Context, keys []string, yield func(store.Entry, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		entry store.Entry
		there bool
		err   error
	}
	ahead := make(chan chan answer, abreast)
	go func() {
		defer close(ahead)
		for _, key := range keys {
			one := make(chan answer, 1)
			select {
			case ahead <- one:
			case <-ctx.Done():
				return
			}
			go func() {
				a, _, err := s.call(ctx, "list", key, register.Call{Kind: register.Look})
				size := max(int64(len(a.Value.Body)), a.Value.Beside)
				one <- answer{store.Entry{Key: key, Version: store.Version(a.Value.Version), Size: size}, a.Value.Exists(), err}
			}()
		}
	}()
	for one := range ahead {
		a := <-one
		if a.err != nil {
			yield(store.Entry{}, a.err)
			return
		}
		if a.there && !yield(a.entry, nil) {
			return
		}
	}
	if err := ctx.Err(); err != nil {
		yield(store.Entry{}, failed(ctx, "list", "", register.Failed, err))
	}
}

// each calls do for each key, several at a time, until one fails.
func each(ctx context.Context, keys []string, do func(ctx context.Context, key string) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan string)
	var workers sync.WaitGroup
	for range abreast {
		workers.Go(func() {
			for key := range todo {
				if err := do(ctx, key); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, key := range keys {
		select {
		case todo <- key:
		case <-ctx.Done():
		}
	}
	close(todo)
	workers.Wait()
	return context.Cause(ctx)
}
