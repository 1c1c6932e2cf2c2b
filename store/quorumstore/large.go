package quorumstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// aside writes the body of a value as an object of its own, which a majority has before the value can be
// accepted anywhere. It is written once, and never again.
func (s *Store) aside(ctx context.Context, key string, value *register.Value) error {
	v, err := s.view(ctx)
	if err != nil {
		return failed(ctx, "put", key, register.Failed, err)
	}
	body := value.Body
	value.Body, value.Beside = nil, int64(len(body))
	answers := make(chan error, len(v.members))
	for i, m := range v.cfg.Members {
		go v.ask(i, func(ctx context.Context, st store.Store) error {
			_, err := st.Put(ctx, asideKey+value.Version, body, store.IfAbsent())
			if err != nil {
				err = fmt.Errorf("%s: %w", m.Place, err)
			}
			answers <- err
			return err
		})
	}
	errs := []error{register.ErrNoMajority}
	for written := 0; ; {
		select {
		case err := <-answers:
			if err != nil {
				errs = append(errs, err)
			} else {
				written++
			}
		case <-ctx.Done():
			return failed(ctx, "put", key, register.Failed, ctx.Err())
		}
		switch {
		case written >= v.cfg.Majority():
			return nil
		case len(errs)-1 > len(v.members)-v.cfg.Majority():
			return failed(ctx, "put", key, register.Failed, errors.Join(errs...))
		}
	}
}

// beside reads the body of such a value, from whoever has it.
func (v *view) beside(ctx context.Context, op, key string, value register.Value) ([]byte, error) {
	type answer struct {
		body []byte
		err  error
	}
	answers := make(chan answer, len(v.members))
	for i := range v.members {
		go v.ask(i, func(ctx context.Context, st store.Store) error {
			o, err := st.Get(ctx, asideKey+value.Version, "")
			if err != nil {
				answers <- answer{nil, fmt.Errorf("%s: %w", v.cfg.Members[i].Place, err)}
				return err
			}
			answers <- answer{o.Body, nil}
			return nil
		})
	}
	errs := []error{fmt.Errorf("the body of %s", value.Version)}
	for range v.members {
		select {
		case a := <-answers:
			if a.err == nil && int64(len(a.body)) == value.Beside {
				return a.body, nil
			}
			errs = append(errs, a.err)
		case <-ctx.Done():
			return nil, failed(ctx, op, key, register.Failed, ctx.Err())
		}
	}
	return nil, failed(ctx, op, key, register.Failed, errors.Join(errs...))
}
