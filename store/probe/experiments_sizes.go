package probe

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/store"
)

// A size of bodies for which the conditions are tried and raced too: a server may treat
// what is large in another way. A record of a lock or a session has up to 64 KiB; what
// is larger is a fence's.
type size struct {
	name             string
	bytes            int
	share, least     int // of the races
	creates, updates []string
}

var sizes = []size{
	{"2 KiB", 2 << 10, 10, 10, byCreate, byUpdate},
	{"64 KiB", 64 << 10, 50, 4, byCreate, byUpdate},
	{"1 MiB", store.MaxBody, 300, 2, byLarge, byLargeSwap},
}

// sizedFirst is how many bodies of the size are written before the races, and sizedAsked
// how many requests that takes; triedFew is how often what must be refused is tried.
const (
	triedFew   = 2
	sizedFirst = 1 + triedFew
	sizedAsked = 4 + 2*triedFew
)

// withLargeBodies are the experiments with larger bodies: creates and updates of each size.
var withLargeBodies = func() (all []experiment) {
	for _, z := range sizes {
		e := experiment{size: z.bytes, share: z.share, least: z.least, fixed: sizedAsked}
		e.name, e.uses, e.each = raceCreate+" of "+z.name, z.creates, 4
		e.after, e.run = []string{raceCreate}, z.racingCreates
		all = append(all, e)
		e.name, e.uses, e.each = raceUpdate+" of "+z.name, z.updates, 3
		e.fixed += 2 * min(lanes*spreadLess, max(z.least, 1)*lanes)
		e.after, e.run = []string{raceUpdate}, z.racingUpdates
		all = append(all, e)
	}
	return all
}()

func (z size) races(s *survey) int { return max(s.opts.Races/z.share, z.least) }

func (z size) racingCreates(s *survey) (Result, string, error) {
	key := fmt.Sprintf("sized-%d", z.bytes)
	body := s.bodyOf(z.bytes)
	result, detail, err := s.unsampled(func() (Result, string, error) {
		made, err := s.write(s.a, key, body, store.IfAbsent())
		if err != nil {
			return Unknown, "", err
		}
		return s.keeps(key, store.IfAbsent(), made, z.bytes)
	})
	if result != OK {
		return result, detail, err
	}
	_, result, detail, err = s.racingCreates(fmt.Sprintf("sizes-%d", z.bytes), z.bytes, z.races(s), 0)
	return result, detail, err
}

func (z size) racingUpdates(s *survey) (Result, string, error) {
	key := fmt.Sprintf("grows-%d", z.bytes)
	body := s.bodyOf(z.bytes)
	result, detail, err := s.unsampled(func() (Result, string, error) {
		was, err := s.object(key)
		if err != nil {
			return Unknown, "", err
		}
		now, err := s.write(s.a, key, body, store.IfMatch(was.Version))
		if err != nil {
			return Unknown, "", err
		}
		return s.keeps(key, store.IfMatch(was.Version), now, z.bytes)
	})
	if result != OK {
		return result, detail, err
	}
	return s.racingUpdates(fmt.Sprintf("lane-%d", z.bytes), z.bytes, z.races(s), spreadLess)
}

// keeps checks that the object is as it was written, and refuses a write of that size.
func (s *survey) keeps(key string, only store.Condition, made *store.Object, size int) (Result, string, error) {
	o, err := s.read(s.b, key, "")
	switch {
	case errors.Is(err, store.ErrNotExist):
		return Bad, fmt.Sprintf("a body of %d bytes was told to have landed, and there was no object after it", size), nil
	case err != nil:
		return Unknown, "", err
	case !bytes.Equal(o.Body, made.Body):
		return Bad, fmt.Sprintf("%d bytes were written, and %d others are read", size, len(o.Body)), nil
	}
	return s.mustRefuse(key, only, made, size, triedFew)
}

// unsampled keeps what large bodies take out of the figures for small ones.
func (s *survey) unsampled(run func() (Result, string, error)) (Result, string, error) {
	s.setRacing(true)
	defer s.setRacing(false)
	return run()
}
