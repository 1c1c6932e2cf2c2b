package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/store"
)

func (s *survey) bareWrites() (Result, string, error) {
	if s.look == nil {
		return Note, "the store has none", nil
	}
	key := s.prefix + "bare"
	body := s.body()
	if err := s.count(&s.report.Requests.Put, 1, len(body)); err != nil {
		return Unknown, "", err
	}
	ctx, cancel := s.bounded(&s.report.Requests.Put, 1, extra)
	defer cancel()
	err := s.look.Overwrite(ctx, key, body)
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
	var prefixes []string
	for e, err := range s.a.List(s.ctx, s.opts.Prefix+scratch, "") {
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
