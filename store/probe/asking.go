package probe

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/store"
)

// transient reports that the error is an answer that is none.
func transient(err error) bool {
	return !errors.Is(err, store.ErrUnordered) && isAny(err, store.ErrThrottled, store.ErrConflict, store.ErrUnavailable, store.ErrUnknownOutcome)
}

// again calls ask until it has an answer.
func (s *survey) again(ask func() error) error {
	pause := 50 * time.Millisecond
	for n := 1; ; n++ {
		err := ask()
		if !transient(err) || n == tries {
			return err
		}
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
		pause *= 4
	}
}

// certain runs an experiment on a key again, on another one, while a write of it has had
// no answer: such a write may land at any time, after a delete too.
func (s *survey) certain(key string, run func(key string) (Result, string, error)) (result Result, detail string, err error) {
	for n := range tries {
		before := s.doubts()
		result, detail, err = run(fmt.Sprintf("%s-%d", key, n))
		if s.doubts() == before || err != nil && !contradicts(err) {
			return result, detail, err
		}
	}
	return Unknown, "too many writes had no answer", nil
}

func (s *survey) doubts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy[store.ErrUnknownOutcome]
}

// retirements counts the objects that had to be replaced.
func (s *survey) retirements() (n int) {
	for _, times := range s.retired {
		n += times
	}
	return n
}

// path is the whole name of a scratch object. One of which it could not be found out
// whether a write has landed is left alone, and another takes its place.
func (s *survey) path(key string) string {
	if n := s.retired[key]; n > 0 {
		return fmt.Sprintf("%s%s.%d", s.prefix, key, n)
	}
	return s.prefix + key
}

// write puts an object, until it is known what became of it, and gives it with its body. Of what is told 412 it finds
// out whether it landed, if an earlier try may have.
func (s *survey) write(c *counted, key string, body []byte, only store.Condition) (o *store.Object, err error) {
	unsure := false
	err = s.again(func() error {
		o, err = c.Put(s.ctx, s.path(key), body, only)
		if unsure && isAny(err, store.ErrPrecondition, store.ErrNotExist) {
			switch now, readErr := c.Get(s.ctx, s.path(key), ""); {
			case readErr == nil && string(now.Body) == string(body):
				o, err = now, nil
			case transient(readErr):
				err = readErr
			}
		}
		unsure = unsure || errors.Is(err, store.ErrUnknownOutcome)
		return err
	})
	if unsure && transient(err) {
		// It may be there all the same, as A6 of the protocol has it.
		now, readErr := c.Get(s.ctx, s.path(key), "")
		if readErr == nil && string(now.Body) == string(body) {
			return now, nil
		}
		s.retire(key)
	}
	if err != nil {
		return nil, err
	}
	made := *o
	made.Body = body
	return &made, nil
}

// retire leaves the object alone. Experiments in lanes have keys of their own for that.
func (s *survey) retire(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.samples.racing {
		s.retired[key]++
	}
}

func (s *survey) read(c *counted, key string, unless store.Version) (o *store.Object, err error) {
	err = s.again(func() error {
		o, err = c.Get(s.ctx, s.path(key), unless)
		return err
	})
	return o, err
}

func (s *survey) remove(c *counted, key string) error {
	return s.again(func() error { return c.Delete(s.ctx, s.path(key)) })
}

// list gives the entries of the scratch objects that begin with prefix.
func (s *survey) list(c *counted, prefix, after string) (entries []store.Entry, err error) {
	if after != "" {
		after = s.prefix + after
	}
	err = s.again(func() error {
		entries = nil
		for e, listErr := range c.List(s.ctx, s.prefix+prefix, after) {
			if listErr != nil {
				return listErr
			}
			e.Key = e.Key[min(len(s.prefix), len(e.Key)):]
			entries = append(entries, e)
		}
		return nil
	})
	return entries, err
}

func isAny(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}
