package quorumstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold/leasehold/store"
)

// health is the outcome of requests to each member.
type health struct {
	logger *slog.Logger

	mu      sync.Mutex
	members map[string]*memberHealth
}

type memberHealth struct {
	err     error
	since   time.Time
	answers bool      // its marker or an object of the quorum was seen: they may have been missing before
	told    time.Time // when the logger last got that it fails
	known   bool      // and has not got since that it answers again
}

// reminder is how long an unstable member is not logged again.
const reminder = time.Minute

// found records that a member has its marker, or an object of the quorum: it has lost nothing, or was
// replaced. The request that has shown it is noted next.
func (h *health) found(place string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.members[place]; m != nil {
		m.answers = true
	}
}

// note records how a request to a member has ended. Errors that are not the member's fault
// count as success, for example the regular answers of a store: a key may be a directory if it
// keeps files. A member that has lost its objects also gives regular
// answers, so it is one until its marker or an object is seen, whatever it says meanwhile.
func (h *health) note(place string, err error) {
	for _, fine := range []error{
		store.ErrNotExist, store.ErrNotModified, store.ErrPrecondition, store.ErrConflict, store.ErrInvalid, context.Canceled,
	} {
		if errors.Is(err, fine) {
			err = nil
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.members[place]
	if m == nil {
		m = &memberHealth{}
		h.members[place] = m
	}
	was := m.err
	if errors.Is(was, ErrLost) && !m.answers {
		return
	}
	m.answers = false
	if m.err = err; was == nil {
		m.since = time.Now()
	}
	switch {
	case h.logger == nil:
	case err != nil && !m.known && time.Since(m.told) >= reminder:
		m.told, m.known = time.Now(), true
		h.logger.Warn("a member of the quorum fails; the others go on without it", "member", place, "cause", err)
	case err == nil && m.known:
		m.known = false
		h.logger.Info("a member of the quorum answers again", "member", place, "after", time.Since(m.since).Round(time.Millisecond), "cause", was)
	}
}

// of returns a member's error, and since when it has had it.
func (h *health) of(place string) (time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.members[place]; m != nil && m.err != nil {
		return m.since, m.err
	}
	return time.Time{}, nil
}
