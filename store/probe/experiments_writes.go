package probe

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/leasehold/leasehold/store"
)

// denied reports the right that is missing.
func denied(err error, right string) (Result, string, error) {
	if errors.Is(err, store.ErrDenied) {
		return Unknown, "these credentials may not " + right, nil
	}
	return Unknown, "", err
}

func (s *survey) reading() (Result, string, error) {
	_, err := s.read(s.a, "nothing", "")
	switch {
	case errors.Is(err, store.ErrNotExist):
		return OK, "an object that is not there is told from one that must not be read", nil
	case errors.Is(err, store.ErrDenied):
		return Note, "denied for an object that is not there: either reading is, or, on S3, these credentials lack s3:ListBucket", nil
	case err == nil:
		return Bad, "there is an object that nobody can have written", nil
	}
	return Unknown, "", err
}

func (s *survey) creating() (Result, string, error) {
	if err := s.spells.begin(s); errors.Is(err, store.ErrDenied) {
		return Unknown, "", err
	}
	body := s.body()
	made, err := s.write(s.a, "first", body, store.IfAbsent())
	if err != nil {
		if errors.Is(err, store.ErrPrecondition) {
			return Bad, "refused, although there is nothing", nil
		}
		return Unknown, "", err
	}
	o, err := s.read(s.b, "first", "")
	if errors.Is(err, store.ErrNotExist) {
		return Bad, "what one connection has written does not exist for another: do they lead to two copies?", nil
	}
	if err != nil {
		return Unknown, "", err
	}
	if o.Version != made.Version || !bytes.Equal(o.Body, body) {
		return Bad, fmt.Sprintf("version %s was written and %s is read, %d bytes of %d", made.Version, o.Version, len(o.Body), len(body)), nil
	}
	return OK, "", nil
}

func (s *survey) deleting() (Result, string, error) {
	if err := s.remove(s.a, "nothing"); err != nil {
		return denied(err, "delete")
	}
	return s.certain("removed", func(key string) (Result, string, error) {
		if _, err := s.gone(key); err != nil {
			return Unknown, "", err
		}
		return s.isGone(s.b, key, "")
	})
}

// mustRefuse tries a write that must not land, so many times, and has what is there read
// again in the end. Nobody may write the object afterwards.
func (s *survey) mustRefuse(key string, only store.Condition, was *store.Object, size, times int) (Result, string, error) {
	result, detail, err := s.refuses(key, only, was, size, times)
	if result == OK && s.settled(key) {
		w := watch{key: key, told: "writes that were refused"}
		if was != nil {
			w.allowed = [][]byte{was.Body}
		}
		s.watch(w, false)
	}
	return result, detail, err
}

// refuses tries a write that must not land, so many times.
func (s *survey) refuses(key string, only store.Condition, was *store.Object, size, times int) (Result, string, error) {
	for n := range times {
		c := s.either(n)
		body := s.bodyOf(between(least(size), size))
		if was != nil {
			body = s.bodyOver(was.Body, size)
		}
		_, err := s.write(c, key, body, only)
		if err == nil {
			return Bad, fmt.Sprintf("try %d of %d succeeded: the store does not keep the condition", n+1, times), nil
		}
		if !isAny(err, store.ErrPrecondition, store.ErrNotExist) {
			return Unknown, "", err
		}
		now, err := s.read(c, key, "")
		switch {
		case was == nil && errors.Is(err, store.ErrNotExist):
		case was == nil && err == nil:
			return Bad, "it was refused, and there is an object now", nil
		case err != nil:
			return Unknown, "", err
		case now.Version != was.Version || bytes.Equal(now.Body, body):
			return Bad, "it was refused, and has changed the object", nil
		}
	}
	return OK, fmt.Sprintf("refused, %d times of %[1]d", times), nil
}

// object gives the scratch object of that name as it is, making it if need be.
func (s *survey) object(key string) (*store.Object, error) {
	o, err := s.read(s.a, key, "")
	if isAny(err, store.ErrNotExist, store.ErrDenied) {
		return s.write(s.a, key, s.body(), store.IfAbsent())
	}
	return o, err
}

func (s *survey) creatingOver() (Result, string, error) {
	if s.report.Finding(canDelete).Result == OK {
		if err := s.leaveCreated(); err != nil {
			return Unknown, "", err
		}
	}
	was, err := s.object("over")
	if err != nil {
		return Unknown, "", err
	}
	return s.mustRefuse("over", store.IfAbsent(), was, smallBody, repeats)
}

// over changes an object, whose last state is was. In a store that refuses every update, an
// object changes only by being deleted and created anew, so that is what over does there.
func (s *survey) over(c *counted, key string, was *store.Object) (*store.Object, error) {
	return s.overWith(c, key, was, s.bodyOver(was.Body, smallBody))
}

func (s *survey) overWith(c *counted, key string, was *store.Object, body []byte) (*store.Object, error) {
	if !s.createOnly {
		return s.write(c, key, body, store.IfMatch(was.Version))
	}
	if err := s.remove(c, key); err != nil {
		return nil, err
	}
	if !s.settled(key) {
		return nil, errMayVanish
	}
	return s.write(c, key, body, store.IfAbsent())
}

// errMayVanish: if the object vanishes now, that says nothing against the store.
var errMayVanish = errors.New("a delete had no answer, and may yet remove what is made after it")

// updating also finds out how the store wants its versions to be named.
func (s *survey) updating() (Result, string, error) {
	was, err := s.object("object")
	if err != nil {
		return Unknown, "", err
	}
	_, err = s.write(s.a, "object", s.body(), store.IfMatch(was.Version))
	switch {
	case err == nil:
		return OK, "", nil
	case !isAny(err, store.ErrPrecondition, store.ErrNotExist):
		s.createOnly = errors.Is(err, store.ErrRefused)
		return Unknown, "", err
	case s.look == nil || s.look.Unquoted() == nil:
		return Bad, fmt.Sprintf("refused, although the version is %s: %v", was.Version, err), nil
	}
	if !s.unquote(was.Version) {
		return Bad, fmt.Sprintf("refused, although the version is %s, with its quotes and without: %v", was.Version, err), nil
	}
	return OK, "only without the quotes of versions: see unquoted_etags", nil
}

// unquote goes on without the quotes of versions if the store takes them so.
func (s *survey) unquote(current store.Version) bool {
	a, ok := s.a.Store.(store.Inspector)
	b, okB := s.b.Store.(store.Inspector)
	if !ok || !okB {
		return false
	}
	before := [2]*counted{s.a, s.b}
	s.connect(a.Inspect().Unquoted(), b.Inspect().Unquoted())
	if _, err := s.write(s.a, "object", s.body(), store.IfMatch(current)); err != nil {
		s.a, s.b = before[0], before[1]
		s.look = a.Inspect()
		return false
	}
	s.report.UnquotedETags = true
	s.report.Store = s.a.String()
	return true
}

// changes is how often a body is changed in one place, in each of two sizes.
const changes = 2 * places

// alike is how many bodies much alike are written: those that are changed too, since a version of a part of a body
// shows where that part has stayed.
const alike = 2 * (1 + changes)

// changing writes new bodies, and some that differ from one of them in one place only.
func (s *survey) changing() (Result, string, error) {
	seen := map[store.Version]bool{}
	was, err := s.object("object")
	if err != nil {
		return Unknown, "", err
	}
	over := func(body []byte) (Result, string, error) {
		seen[was.Version] = true
		o, err := s.overWith(s.a, "object", was, body)
		if err != nil {
			return Unknown, "", err
		}
		if seen[o.Version] {
			return Bad, fmt.Sprintf("the version %s came again for another body", o.Version), nil
		}
		was = o
		return OK, "", nil
	}
	for range repeats {
		if result, detail, err := over(s.body()); result != OK {
			return result, detail, err
		}
	}
	for _, size := range []int{smallBody, bigRecord} {
		body := s.bodyOf(size)
		if result, detail, err := over(body); result != OK {
			return result, detail, err
		}
		for n := range changes {
			if result, detail, err := over(s.changed(body, n%places)); result != OK {
				return result, detail, err
			}
		}
	}
	return OK, fmt.Sprintf("%d bodies, %d of them much alike", repeats+alike, alike), nil
}

// bigRecord is the size of a record with long names.
const bigRecord = 2000

// rewrites is how often one object is written over before the last of what was there is named, and
// enoughRewrites how often at least, where the store asks for fewer writes of one object.
const (
	rewrites       = 48
	enoughRewrites = repeats
)

// updatingStale names versions that there were: a moment ago, or long ago.
func (s *survey) updatingStale() (Result, string, error) {
	if s.report.Finding(canDelete).Result == OK {
		if err := s.leaveUpdated(); err != nil {
			return Unknown, "", err
		}
	}
	other, err := s.object("object")
	if err != nil {
		return Unknown, "", err
	}
	now, err := s.object("stale")
	if err != nil {
		return Unknown, "", err
	}
	var past []store.Version
	for n := range rewrites {
		past = append(past, now.Version)
		var o *store.Object
		if o, err = s.overWith(s.either(n+1), "stale", now, s.bodyOver(now.Body, smallBody)); err == nil {
			now = o
			var result Result
			var detail string
			stale := past[n]
			if n%2 == 1 {
				stale = past[rand.IntN(n)]
			}
			if result, detail, err = s.refuses("stale", store.IfMatch(stale), now, smallBody, 1); result == Bad {
				return result, fmt.Sprintf("after %d updates: %s", n+1, detail), err
			}
		}
		switch {
		case err == nil:
		case transient(err) && n >= enoughRewrites:
			return OK, fmt.Sprintf("refused, %d times of %[1]d; then there was no answer: %v", n, err), nil
		default:
			return Unknown, "", err
		}
	}
	if other.Version == now.Version {
		// Versions that are counted by object: there is nothing to be told apart.
	} else if result, detail, wrong := s.refuses("stale", store.IfMatch(other.Version), now, smallBody, fewRivals); result != OK {
		return result, "the version of another object: " + detail, wrong
	}
	if result, detail, wrong := s.refuses("stale", store.IfAbsent(), now, smallBody, fewRivals); result != OK {
		return result, "a create over it: " + detail, wrong
	}
	result, detail, err := s.mustRefuse("stale", store.IfMatch(past[rewrites-1]), now, smallBody, repeats)
	if result == OK {
		detail = fmt.Sprintf("refused, %d times of %[1]d", rewrites+fewRivals+repeats)
	}
	return result, detail, err
}

func (s *survey) updatingAbsent() (Result, string, error) {
	o, err := s.object("object")
	if err != nil {
		return Unknown, "", err
	}
	return s.mustRefuse("absent", store.IfMatch(o.Version), nil, smallBody, repeats)
}

func (s *survey) returning() (Result, string, error) {
	first, second := s.body(), s.body()
	a, err := s.write(s.a, "returns", first, store.IfAbsent())
	if err != nil {
		return Unknown, "", err
	}
	b, err := s.write(s.a, "returns", second, store.IfMatch(a.Version))
	if err != nil {
		return Unknown, "", err
	}
	c, err := s.write(s.a, "returns", first, store.IfMatch(b.Version))
	switch {
	case err != nil:
		return Unknown, "", err
	case c.Version == a.Version:
		return Note, "the same bytes bring an old version back, so a body needs something that is new in each write, as every record of leasehold has", nil
	}
	return Note, "each write has a version of its own, even of the same bytes", nil
}

func (s *survey) unquoting() (Result, string, error) {
	if s.report.UnquotedETags {
		return Note, "the only ones that this store takes", nil
	}
	was, err := s.object("object")
	if err != nil {
		return Unknown, "", err
	}
	bare := strings.Trim(string(was.Version), `"`)
	if bare == string(was.Version) {
		return Note, "they have none", nil
	}
	_, err = s.write(s.a, "object", s.body(), store.IfMatch(store.Version(bare)))
	switch {
	case err == nil:
		return Note, "taken as well", nil
	case isAny(err, store.ErrPrecondition, store.ErrNotExist):
		return Note, "refused", nil
	}
	return Unknown, "", err
}
