package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/store"
)

// An experiment makes one finding.
type experiment struct {
	name  string
	vital bool // where it fails with an error, nothing can be found out
	// How many requests it makes if the store answers them: so many, and so many for
	// each race.
	fixed, each int
	after       []string // findings without which it makes no sense
	run         func(*survey) (Result, string, error)
}

// The names of the findings.
const (
	canRead      = "read"
	canCreate    = "create where nothing is"
	canDelete    = "delete"
	createOver   = "create over an object"
	canUpdate    = "update of the current version"
	updateStale  = "update of an older version"
	updateAbsent = "update where nothing is"
	newVersions  = "a new version for each body"
	oldVersions  = "an old version for an old body"
	quotes       = "versions without their quotes"
	afterDelete  = "create after a delete"
	updateGone   = "update after a delete"
	bareWrites   = "writes without a condition"
	deleteIf     = "delete on a condition"
	unchanged    = "read unless unchanged"
	readsCurrent = "reads show what was just written"
	canList      = "list"
	listsCurrent = "listings show what was just written"
	raceCreate   = "racing creates"
	raceUpdate   = "racing updates"
	trouble      = "answers that were none"
	tellsTime    = "times in answers"
	tellsAge     = "age by the store's clock"
	clockRate    = "this machine's clock"
)

// repeats is how often what must be refused is tried, in sequence.
const repeats = 8

// experiments are in the order in which they are made. What costs little and rules out
// much comes first.
var experiments = []experiment{
	{name: canRead, vital: true, fixed: 1, run: (*survey).reading},
	{name: canCreate, vital: true, fixed: 3, run: (*survey).creating},
	{name: "settings", fixed: settings, run: (*survey).settings}, // early, to know how to clean up
	{name: canDelete, fixed: 5, after: []string{canCreate}, run: (*survey).deleting},
	{name: createOver, fixed: 2 + 2*repeats, after: []string{canCreate}, run: (*survey).creatingOver},
	{name: canUpdate, fixed: 4, after: []string{canCreate}, run: (*survey).updating},
	{name: newVersions, fixed: 2 * repeats, after: []string{canUpdate}, run: (*survey).changing},
	{name: updateStale, fixed: 3 + 2*repeats, after: []string{canUpdate}, run: (*survey).updatingStale},
	{name: updateAbsent, fixed: 1 + 2*repeats, after: []string{canCreate}, run: (*survey).updatingAbsent},
	{name: oldVersions, fixed: 3, after: []string{canUpdate}, run: (*survey).returning},
	{name: quotes, fixed: 3, after: []string{canUpdate}, run: (*survey).unquoting},
	{name: unchanged, fixed: 5, after: []string{canUpdate}, run: (*survey).conditionalReads},
	{name: afterDelete, fixed: 4, after: []string{canDelete}, run: (*survey).afterDelete},
	{name: updateGone, fixed: 4, after: []string{canDelete, canUpdate}, run: (*survey).updatingGone},
	{name: bareWrites, fixed: 2, after: []string{canCreate}, run: (*survey).bareWrites},
	{name: canList, fixed: 2*len(listed) + 3, after: []string{canDelete}, run: (*survey).listing},
	{name: listsCurrent, fixed: 4 * fresh, after: []string{canList}, run: (*survey).freshListings},
	{name: readsCurrent, fixed: 4*reads + 4*reads/10, after: []string{canUpdate, canDelete}, run: (*survey).freshReads},
	{name: deleteIf, fixed: 3 + (2+2*rivals)*deletes, after: []string{canUpdate, canDelete}, run: (*survey).conditionalDeletes},
	{name: raceCreate, each: 3, after: []string{canCreate, createOver, canDelete}, run: (*survey).racingCreates},
	{name: raceUpdate, fixed: lanes * spread, each: 2, after: []string{canUpdate, updateStale, canDelete}, run: (*survey).racingUpdates},
	{name: "left by earlier probes", fixed: 1, after: []string{canList}, run: (*survey).leftovers},
	{name: tellsTime, fixed: 1, after: []string{canCreate}, run: (*survey).times},
	{name: tellsAge, fixed: 1 + 2*ages, after: []string{tellsTime}, run: (*survey).ages},
	{name: clockRate, after: []string{canCreate}, run: (*survey).clock},
	{name: trouble, run: (*survey).trouble},
}

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
		if _, err := s.read(s.b, key, ""); !isAny(err, store.ErrNotExist, store.ErrDenied) {
			return Bad, fmt.Sprintf("after a delete a read said: %v", err), nil
		}
		return OK, "", nil
	})
}

// mustRefuse tries a write that must not land.
func (s *survey) mustRefuse(key string, only store.Condition, was *store.Object) (Result, string, error) {
	for n := range repeats {
		c := s.either(n)
		body := s.body()
		_, err := s.write(c, key, body, only)
		if err == nil {
			return Bad, fmt.Sprintf("try %d of %d succeeded: the store does not keep the condition", n+1, repeats), nil
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
	return OK, fmt.Sprintf("refused, %d times of %[1]d", repeats), nil
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
	was, err := s.object("object")
	if err != nil {
		return Unknown, "", err
	}
	return s.mustRefuse("object", store.IfAbsent(), was)
}

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

func (s *survey) changing() (Result, string, error) {
	seen := map[store.Version]bool{}
	for range repeats {
		was, err := s.object("object")
		if err != nil {
			return Unknown, "", err
		}
		o, err := s.write(s.a, "object", s.body(), store.IfMatch(was.Version))
		if err != nil {
			return Unknown, "", err
		}
		seen[was.Version] = true
		if seen[o.Version] {
			return Bad, fmt.Sprintf("the version %s came again for another body", o.Version), nil
		}
	}
	return OK, "", nil
}

func (s *survey) updatingStale() (Result, string, error) {
	was, err := s.object("object")
	if err != nil {
		return Unknown, "", err
	}
	now, err := s.write(s.b, "object", s.body(), store.IfMatch(was.Version))
	if err != nil {
		return Unknown, "", err
	}
	return s.mustRefuse("object", store.IfMatch(was.Version), now)
}

func (s *survey) updatingAbsent() (Result, string, error) {
	o, err := s.object("object")
	if err != nil {
		return Unknown, "", err
	}
	return s.mustRefuse("absent", store.IfMatch(o.Version), nil)
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

func (s *survey) conditionalReads() (Result, string, error) {
	was, err := s.object("object")
	if err != nil {
		return Unknown, "", err
	}
	_, err = s.read(s.b, "object", was.Version)
	switch {
	case err == nil:
		return Bad, "the object was given as if it had changed", nil
	case !errors.Is(err, store.ErrNotModified):
		return Unknown, "", err
	}
	again := errors.Is(err, store.ErrSentAgain)
	now, err := s.write(s.a, "object", s.body(), store.IfMatch(was.Version))
	if err != nil {
		return Unknown, "", err
	}
	o, err := s.read(s.b, "object", was.Version)
	switch {
	case errors.Is(err, store.ErrNotModified):
		return Bad, "said to be unchanged after a write", nil
	case err != nil:
		return Unknown, "", err
	case o.Version != now.Version:
		return Bad, "shown with an older version", nil
	case again:
		return Note, "no 304: what has not changed is sent again, which costs its transfer", nil
	}
	return OK, "", nil
}

// gone makes an object and deletes it again, and gives what it was.
func (s *survey) gone(key string) (*store.Object, error) {
	o, err := s.object(key)
	if err != nil {
		return nil, err
	}
	return o, s.remove(s.a, key)
}

func (s *survey) afterDelete() (Result, string, error) {
	return s.certain("deleted", func(key string) (Result, string, error) {
		if _, err := s.gone(key); err != nil {
			return Unknown, "", err
		}
		_, err := s.write(s.b, key, s.body(), store.IfAbsent())
		switch {
		case err == nil:
			return OK, "", nil
		case errors.Is(err, store.ErrPrecondition):
			return Bad, "refused, although the object was deleted: a lock that is deleted can never be had again", nil
		}
		return Unknown, "", err
	})
}

func (s *survey) updatingGone() (Result, string, error) {
	return s.certain("gone", func(key string) (Result, string, error) {
		o, err := s.gone(key)
		if err != nil {
			return Unknown, "", err
		}
		_, err = s.write(s.b, key, s.body(), store.IfMatch(o.Version))
		switch {
		case err == nil:
			return Bad, "an update of the deleted version succeeded", nil
		case isAny(err, store.ErrPrecondition, store.ErrNotExist):
			return OK, "", nil
		}
		return Unknown, "", err
	})
}

func (s *survey) bareWrites() (Result, string, error) {
	if s.look == nil {
		return Note, "the store has none", nil
	}
	key := s.prefix + "bare"
	if err := s.count(&s.report.Requests.Put, 1); err != nil {
		return Unknown, "", err
	}
	ctx, cancel := bounded(s.ctx)
	defer cancel()
	err := s.look.Overwrite(ctx, key, s.body())
	s.expect(key, err)
	switch {
	case err == nil:
		return Note, "allowed: a program that knows nothing of locks can overwrite one, where no policy of the bucket refuses it", nil
	case errors.Is(err, store.ErrDenied):
		return Note, "refused, by a policy", nil
	}
	return Unknown, "", err
}

func (s *survey) trouble() (Result, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var said []string
	for _, kind := range []error{store.ErrConflict, store.ErrThrottled, store.ErrUnknownOutcome, store.ErrUnavailable} {
		if n := s.busy[kind]; n > 0 {
			said = append(said, fmt.Sprintf("%d times %q", n, kind))
		}
	}
	if said == nil {
		return OK, "none", nil
	}
	return Note, strings.Join(said, ", "), nil
}

func (s *survey) leftovers() (Result, string, error) {
	if err := s.count(&s.report.Requests.List, 1); err != nil {
		return Unknown, "", err
	}
	ctx, cancel := bounded(s.ctx)
	defer cancel()
	var prefixes []string
	for e, err := range s.a.Store.List(ctx, scratch, "") {
		if err != nil {
			return denied(err, "list")
		}
		prefix, _, _ := strings.Cut(e.Key, "/")
		if !strings.HasPrefix(s.prefix, prefix) && !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
		if len(prefixes) == 3 {
			break
		}
	}
	if prefixes == nil {
		return OK, "none", nil
	}
	return Note, "objects under " + strings.Join(prefixes, ", ") + ": delete them, unless another probe is at work", nil
}
