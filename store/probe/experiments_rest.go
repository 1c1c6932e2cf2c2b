package probe

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/store"
)

// A server may keep conditions, or the time of the last write, in a memory that forgets. So
// some objects are left alone from early on, and written to again when each of them has been
// at rest for so long: longer than a lock is between two renewals.
const (
	rest        = 10 * time.Second
	restKeys    = 3 // that are only created, and as many that are updated once
	restRefused = 3 // writes that each must refuse
)

// resting are the objects that are left alone.
type resting struct {
	created, updated []*rested
	gone             *rested // it was deleted
	last             time.Time
}

// A rested is one of them: what is there, and the version that was there before.
type rested struct {
	key string
	now *store.Object
	was store.Version
	at  string // the path, until another object takes its place
}

// leaveCreated makes the objects that are only created, and one that is deleted.
func (s *survey) leaveCreated() error {
	for n := range restKeys {
		key := fmt.Sprintf("rests-%d", n)
		o, err := s.object(key)
		if err != nil {
			return err
		}
		s.resting.created = append(s.resting.created, &rested{key: key, now: o, at: s.path(key)})
	}
	o, err := s.gone("rests-gone")
	if err == nil {
		s.resting.gone = &rested{key: "rests-gone", was: o.Version}
	}
	s.resting.last = time.Now()
	return err
}

// leaveUpdated makes the objects that are updated once.
func (s *survey) leaveUpdated() error {
	for n := range restKeys {
		key := fmt.Sprintf("rests-updated-%d", n)
		was, err := s.object(key)
		if err != nil {
			return err
		}
		now, err := s.over(s.either(n), key, was)
		if err != nil {
			return err
		}
		s.resting.updated = append(s.resting.updated, &rested{key: key, now: now, was: was.Version, at: s.path(key)})
	}
	s.resting.last = time.Now()
	return nil
}

// awaitRest waits until all of them have been at rest for long enough, and drops those that a
// request without an answer may yet change.
func (s *survey) awaitRest() error {
	unsettled := func(r *rested) bool { return !s.settled(r.key) || s.path(r.key) != r.at }
	s.resting.created = slices.DeleteFunc(s.resting.created, unsettled)
	s.resting.updated = slices.DeleteFunc(s.resting.updated, unsettled)
	select {
	case <-time.After(time.Until(s.resting.last.Add(rest))):
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// creatingOverRested creates objects over those at rest.
func (s *survey) creatingOverRested() (Result, string, error) {
	if err := s.awaitRest(); err != nil {
		return Unknown, "", err
	}
	all := slices.Concat(s.resting.created, s.resting.updated)
	if len(all) < restKeys {
		return Unknown, "too many writes had no answer", nil
	}
	for _, r := range all {
		if result, detail, err := s.refuses(r.key, store.IfAbsent(), r.now, smallBody, restRefused); result != OK {
			return result, detail, err
		}
	}
	return OK, fmt.Sprintf("%d writes over %d objects, refused after %v", len(all)*restRefused, len(all), s.sinceRest()), nil
}

func (s *survey) sinceRest() time.Duration { return time.Since(s.resting.last).Round(time.Second) }

// updatingRested names versions of objects at rest: an old one, the current one, and that of one
// that was deleted.
func (s *survey) updatingRested() (Result, string, error) {
	if err := s.awaitRest(); err != nil {
		return Unknown, "", err
	}
	all := s.resting.updated
	if len(all) < 2 {
		return Unknown, "too many writes had no answer", nil
	}
	for n, r := range all {
		result, detail, err := s.refuses(r.key, store.IfMatch(r.was), r.now, smallBody, restRefused)
		if result != OK {
			return result, detail, err
		}
		was := r.now.Version
		now, err := s.over(s.either(n), r.key, r.now)
		switch {
		case isAny(err, store.ErrPrecondition, store.ErrNotExist):
			return Bad, "the version that was there was refused", nil
		case err != nil:
			return Unknown, "", err
		}
		// The witness judges its age.
		o, err := s.read(s.either(n+1), r.key, "")
		switch {
		case err != nil:
			return Unknown, "", err
		case !bytes.Equal(o.Body, now.Body):
			return Bad, "after an update another body was there", nil
		}
		if result, detail, err = s.refuses(r.key, store.IfMatch(was), now, smallBody, 1); result != OK {
			return result, detail, err
		}
	}
	if g := s.resting.gone; g != nil && s.settled(g.key) {
		if result, detail, err := s.refuses(g.key, store.IfMatch(g.was), nil, smallBody, restRefused); result != OK {
			return result, "of one that was deleted: " + detail, err
		}
	}
	return OK, fmt.Sprintf("%d objects after %v: old versions were refused, the current one was not", len(all), s.sinceRest()), nil
}

// deletingRested deletes an object at rest on a version that it had before, and reports whether it went.
func (s *survey) deletingRested() (bool, error) {
	if len(s.resting.updated) == 0 {
		return false, nil
	}
	r := s.resting.updated[0]
	if err := s.deleteIf(r.key, r.was); err == nil {
		_, err = s.read(s.a, r.key, "")
		return errors.Is(err, store.ErrNotExist), nil
	} else if !isAny(err, store.ErrPrecondition, store.ErrNotExist, store.ErrConflict) {
		return false, err
	}
	return false, nil
}
