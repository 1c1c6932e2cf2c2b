package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/together"
)

// gone makes an object and deletes it again, and gives what it was.
func (s *survey) gone(key string) (*store.Object, error) {
	o, err := s.object(key)
	if err != nil {
		return nil, err
	}
	return o, s.remove(s.a, key)
}

func (s *survey) afterDelete() (Result, string, error) {
	for n := range rebirths {
		result, detail, err := s.certain(fmt.Sprintf("deleted-%d", n), func(key string) (Result, string, error) {
			if _, err := s.gone(key); err != nil {
				return Unknown, "", err
			}
			_, err := s.write(s.either(n+1), key, s.body(), store.IfAbsent())
			switch {
			case err == nil:
				return OK, "", nil
			case errors.Is(err, store.ErrPrecondition):
				return Bad, "refused, although the object was deleted: a lock that is deleted can never be had again", nil
			}
			return Unknown, "", err
		})
		if result != OK {
			return result, detail, err
		}
	}
	return OK, "", nil
}

// rebirths is how often an object is made anew where one was deleted.
const rebirths = 12

// afterRebirth makes objects where others were deleted, and looks whether they are there,
// and whether what knew the former ones is refused.
func (s *survey) afterRebirth() (Result, string, error) {
	refused := 0
	for n := range rebirths {
		reborn := true
		result, detail, err := s.certain(fmt.Sprintf("reborn-%d", n), func(key string) (Result, string, error) {
			was, err := s.gone(key)
			if err != nil {
				return Unknown, "", err
			}
			now, err := s.write(s.either(n), key, s.body(), store.IfAbsent())
			if errors.Is(err, store.ErrPrecondition) {
				reborn = false
				return OK, "", nil
			}
			if err != nil {
				return Unknown, "", err
			}
			return s.isThere(key, was, now)
		})
		if result != OK {
			return result, detail, err
		}
		if !reborn {
			refused++
		}
	}
	if refused > 0 {
		return Note, fmt.Sprintf("%d of %d creates were refused: see %q", refused, rebirths, afterDelete), nil
	}
	return OK, fmt.Sprintf("%d times of %[1]d", rebirths), nil
}

// isThere checks that an object is the one that was made where another was.
func (s *survey) isThere(key string, was, now *store.Object) (Result, string, error) {
	for n := range 2 {
		switch o, err := s.read(s.either(n), key, ""); {
		case errors.Is(err, store.ErrNotExist):
			return Bad, "a create after a delete was told that it had landed, and there was no object after it", nil
		case err != nil:
			return Unknown, "", err
		case !bytes.Equal(o.Body, now.Body):
			return Bad, "a create after a delete was told that it had landed, and after it another body was there", nil
		}
	}
	if result, detail, err := s.mustRefuse(key, store.IfAbsent(), now, smallBody, 1); result != OK {
		return result, "another create after it: " + detail, err
	}
	if s.report.Finding(updateStale).Result != OK {
		return OK, "", nil // an update is found out about there
	}
	_, err := s.write(s.a, key, s.bodyOver(now.Body, smallBody), store.IfMatch(was.Version))
	switch {
	case err == nil:
		return Bad, "after it, an update of the version that was deleted succeeded", nil
	case isAny(err, store.ErrPrecondition, store.ErrNotExist):
		return OK, "", nil
	}
	return Unknown, "", err
}

func (s *survey) updatingGone() (Result, string, error) {
	return s.certain("gone", func(key string) (Result, string, error) {
		o, err := s.gone(key)
		if err != nil {
			return Unknown, "", err
		}
		_, err = s.write(s.b, key, s.bodyOver(o.Body, smallBody), store.IfMatch(o.Version))
		switch {
		case err == nil:
			return Bad, "an update of the deleted version succeeded", nil
		case isAny(err, store.ErrPrecondition, store.ErrNotExist):
			return OK, "", nil
		}
		return Unknown, "", err
	})
}

// deletes is how often deletes race with updates, and rivals how many of each.
const (
	deletes = 25 * lanes
	rivals  = 2
)

func (s *survey) conditionalDeletes() (Result, string, error) {
	if s.look == nil {
		return Note, "unsafe: a delete removes whatever is there; no lock rests on it", nil
	}
	was, err := s.object("doomed")
	if err != nil {
		return Unknown, "", err
	}
	if _, err = s.write(s.a, "doomed", s.bodyOver(was.Body, smallBody), store.IfMatch(was.Version)); err != nil {
		return Unknown, "", err
	}
	var said []string
	switch err = s.deleteIf("doomed", was.Version); {
	case err == nil:
		said = append(said, "it removes an object of another version")
	case !isAny(err, store.ErrPrecondition, store.ErrNotExist, store.ErrConflict):
		return Unknown, "", err
	}
	switch went, err := s.deletingRested(); {
	case err != nil:
		return Unknown, "", err
	case went:
		said = append(said, "it removes an object at rest of another version")
	}
	both, run := s.racingDeletes()
	if both > 0 {
		said = append(said, fmt.Sprintf("in %d of %d races both a delete and an update succeeded", both, run))
	}
	if said == nil {
		return Note, fmt.Sprintf("it was obeyed, also in %d races with updates; no lock rests on it", run), nil
	}
	return Note, "unsafe: " + strings.Join(said, ", and ") + "; no lock rests on it", nil
}

// racingDeletes counts the races in which both won. They are many at a time, because a
// server that looks first and then deletes leaves little time between the two.
func (s *survey) racingDeletes() (both, run int64) {
	r := new(races)
	var judged atomic.Int64
	s.each(r, deletes, func(lane int, _ int64) {
		key := fmt.Sprintf("doomed-%d", lane)
		o, err := s.object(key)
		if err != nil {
			return // what the last round has left may not be clear
		}
		judged.Add(1)
		var puts, removals atomic.Int64
		together.Run(2*rivals, func(i int) {
			if i%2 == 1 {
				if s.deleteIf(key, o.Version) == nil {
					removals.Add(1)
				}
			} else if _, err := s.either(i/2).Put(s.ctx, s.prefix+key, s.bodyOver(o.Body, smallBody), store.IfMatch(o.Version)); err == nil {
				puts.Add(1)
			}
		})
		if puts.Load() > 0 && removals.Load() > 0 {
			r.wrong.Add(1)
		}
	})
	return r.wrong.Load(), judged.Load()
}

func (s *survey) deleteIf(key string, v store.Version) error {
	return s.delete(s.prefix+key, v, func(ctx context.Context, key string) error { return s.look.DeleteIf(ctx, key, v) })
}
