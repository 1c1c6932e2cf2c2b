package quorumstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold/leasehold/store"
)

// health is what the requests to each member have come to.
type health struct {
	logger *slog.Logger

	mu      sync.Mutex
	members map[string]*memberHealth
}

type memberHealth struct {
	err     error
	since   time.Time
	answers bool      // its marker was seen after it had been missed
	told    time.Time // when the logger was told last that it fails
	known   bool      // and was not told since that it answers again
}

// reminder is for how long one that fails and answers by turns is not told of again.
const reminder = time.Minute

// found takes in that a member has its marker, and so has lost nothing, or has been replaced.
func (h *health) found(place string) {
	h.mu.Lock()
	m := h.members[place]
	lost := m != nil && errors.Is(m.err, ErrLost)
	if lost {
		m.answers = true
	}
	h.mu.Unlock()
	if lost {
		h.note(place, nil)
	}
}

// note takes in how a request to a member has ended. What is no fault of the member's is nil, or one of
// the answers that a store gives in good order: a key may be a directory, where it keeps files. A member that has
// lost its objects answers in good order too.
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
	if err == nil && errors.Is(was, ErrLost) && !m.answers {
		return
	}
	m.answers = false
	if m.err = err; err != nil && was == nil {
		m.since = time.Now()
	}
	switch {
	case h.logger == nil:
	case err != nil && !m.known && (m.told.IsZero() || time.Since(m.told) >= reminder):
		m.told, m.known = time.Now(), true
		h.logger.Warn("a member of the quorum fails; the others go on without it", "member", place, "cause", err)
	case err == nil && m.known:
		m.known = false
		h.logger.Info("a member of the quorum answers again", "member", place, "after", time.Since(m.since).Round(time.Millisecond), "cause", was)
	}
}

// of is the fault of a member, and since when it has had it.
func (h *health) of(place string) (time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.members[place]; m != nil && m.err != nil {
		return m.since, m.err
	}
	return time.Time{}, nil
}
