package probe

import (
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/store"
)

// looks is how often a follower's read must tell what has changed from what has not.
const looks = 20

// mostAsked is how often the same is read before it changes: a cache may keep what is asked for often.
const mostAsked = 6

// conditionalReads does what followers do: they ask again and again for what is not the
// version that they know. A lock that is said to be unchanged never changes hands.
func (s *survey) conditionalReads() (Result, string, error) {
	was, err := s.object("followed")
	if err != nil {
		return Unknown, "", err
	}
	again := false
	for n := range looks {
		reader := s.either(n)
		for range 1 + n%mostAsked {
			_, err = s.read(reader, "followed", was.Version)
			switch {
			case err == nil:
				return Bad, "the object was given as if it had changed", nil
			case !errors.Is(err, store.ErrNotModified):
				return Unknown, "", err
			}
			again = again || errors.Is(err, store.ErrSentAgain)
		}
		now, err := s.over(s.either(n/2), "followed", was)
		if err != nil {
			return Unknown, "", err
		}
		o, err := s.read(reader, "followed", was.Version)
		switch {
		case errors.Is(err, store.ErrNotModified):
			return Bad, "said to be unchanged after a write: a lock never changes hands for those who are told so", nil
		case err != nil:
			return Unknown, "", err
		case o.Version != now.Version:
			return Bad, "shown with an older version", nil
		}
		was = now
	}
	if again {
		return Note, "no 304: what has not changed is sent again, which costs its transfer", nil
	}
	if result, detail, err := s.oftenRead(was); result != OK {
		return result, detail, err
	}
	return OK, fmt.Sprintf("%d times of %[1]d, after a write and without one", looks), nil
}

// oftenRead reads an object so many times, without a condition, before it is written over.
func (s *survey) oftenRead(was *store.Object) (Result, string, error) {
	now, err := s.over(s.b, "followed", was)
	if err != nil {
		return Unknown, "", err
	}
	for n := range mostAsked {
		for range n + 1 {
			if was, err = s.read(s.a, "followed", ""); err != nil {
				return Unknown, "", err
			}
			if was.Version != now.Version {
				return Bad, "shown with an older version, after it had been read often", nil
			}
		}
		if now, err = s.over(s.b, "followed", was); err != nil {
			return Unknown, "", err
		}
	}
	return OK, "", nil
}

// isGone finds out whether a read shows that there is no object. unless is a version that it had.
func (s *survey) isGone(c *counted, key string, unless store.Version) (Result, string, error) {
	switch _, err := s.read(c, key, unless); {
	case isAny(err, store.ErrNotExist, store.ErrDenied):
		return OK, "", nil
	case err == nil:
		return Bad, "a read showed what had just been deleted", nil
	case errors.Is(err, store.ErrNotModified):
		return Bad, "what had just been deleted was said to be unchanged", nil
	default:
		return Unknown, "", err
	}
}

// ends is how often an object with a past is deleted.
const ends = 20

// deletedReads deletes objects that were written over before, and looks whether any of what they
// were is shown again, at once or in the end.
func (s *survey) deletedReads() (Result, string, error) {
	unclear := 0
	for n := range ends {
		result, detail, err := s.certain(fmt.Sprintf("ends-%d", n), func(key string) (Result, string, error) {
			first, err := s.write(s.a, key, s.body(), store.IfAbsent())
			if err != nil {
				return Unknown, "", err
			}
			last := first
			if !s.createOnly {
				if last, err = s.over(s.a, key, first); err != nil {
					return Unknown, "", err
				}
			}
			if err = s.remove(s.a, key); err != nil {
				return Unknown, "", err
			}
			for at, unless := range []store.Version{"", last.Version, first.Version, ""} {
				if result, detail, err := s.isGone(s.either(n+1+at/2), key, unless); result != OK {
					return result, detail, err
				}
			}
			if s.settled(key) {
				s.watch(watch{key: key, told: "a delete"}, false)
			}
			return OK, "", nil
		})
		switch {
		case result == Bad || err != nil:
			return result, detail, err
		case result == Unknown:
			if unclear++; unclear > ends/2 {
				return result, detail, nil
			}
		}
	}
	return OK, fmt.Sprintf("%d deletes of objects that were written over before", ends-unclear), nil
}

func (s *survey) freshReads() (Result, string, error) {
	// Over several keys: some stores take one write of a key in a second.
	const keys = 40
	for n := range reads {
		writer, reader := s.either(n), s.either(n+1)
		key := fmt.Sprintf("read-%d", n%keys)
		o, err := s.object(key)
		if err != nil {
			return Unknown, "", err
		}
		now, err := s.over(writer, key, o)
		if err != nil {
			return Unknown, "", err
		}
		var unless store.Version
		if n%2 == 1 {
			unless = o.Version // as a follower asks
		}
		o, err = s.read(reader, key, unless)
		switch {
		case errors.Is(err, store.ErrNotModified):
			return Bad, fmt.Sprintf("read %d of %d said that nothing had changed", n+1, reads), nil
		case err != nil:
			return Unknown, "", err
		case o.Version != now.Version:
			return Bad, fmt.Sprintf("read %d of %d showed an older version", n+1, reads), nil
		}
	}
	for n := range reads / 10 {
		// A client that was just told that the object is missing must now see it.
		key := fmt.Sprintf("appears-%d", n)
		_, before := s.read(s.b, key, "")
		if _, err := s.write(s.a, key, s.body(), store.IfAbsent()); err != nil {
			return Unknown, "", err
		}
		switch _, after := s.read(s.b, key, ""); {
		case errors.Is(after, store.ErrNotExist):
			return Bad, fmt.Sprintf("an object that had just been written did not exist (before it was said: %v)", before), nil
		case after != nil:
			return Unknown, "", after
		}
		if err := s.remove(s.a, key); err != nil {
			return Unknown, "", err
		}
	}
	return OK, fmt.Sprintf("%d writes over other objects and %d where nothing was", reads, reads/10), nil
}
