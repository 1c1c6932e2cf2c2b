package probe

import (
	"errors"
	"strings"

	"github.com/leasehold/leasehold/store"
)

// settings is how many requests it takes at most to ask for them.
const settings = 5

// settings makes a finding of each.
func (s *survey) settings() (Result, string, error) {
	if s.look == nil {
		return Note, "the store has none", nil
	}
	if err := s.count(&s.report.Requests.Inspect, settings, 0); err != nil {
		return Unknown, "", err
	}
	ctx, cancel := s.bounded(&s.report.Requests.Inspect, settings, extra)
	defer cancel()
	all := s.look.Settings(ctx)
	for _, set := range all {
		f := Finding{Name: set.Name, Result: Note, Detail: set.Value}
		switch {
		case errors.Is(set.Err, store.ErrDenied):
			f.Result, f.Detail = Unknown, "these credentials may not ask"
		case set.Err != nil:
			f.Result, f.Detail = Unknown, "the server does not tell"
		case set.Value == "":
			f.Detail = "none"
		default:
			f.Detail = advise(set)
			s.purge = s.purge || set.Name == "versioning"
		}
		s.found(f)
	}
	return Note, "asked for", nil
}

// advise says what a setting means for locks, where it matters.
func advise(set store.Setting) string {
	switch {
	case set.Name == "versioning" && set.Value == "enabled":
		return "enabled: every renewal leaves a version that is paid for, until a lifecycle rule ends noncurrent versions"
	case set.Name == "soft delete":
		return set.Value + ", and paid for: every renewal overwrites the lock's object, so turn it off where locks lie"
	case set.Name == "retention" || set.Name == "holds":
		return set.Value + ": no lock can be renewed, released or deleted"
	case set.Name == "hierarchical namespace":
		return set.Value + ": no lock can lie below another (a/b below a), and listings may come in another order than that of bytes"
	case set.Name == "object lock" && strings.Contains(set.Value, "kept"):
		return set.Value + ": and so are all renewals of a lock, which cannot be deleted before"
	case set.Name == "encryption" && strings.HasPrefix(set.Value, "aws:kms"):
		return set.Value + ": versions are no hashes, so peers ask the store once more at a hand-over; each request may cost one of the key service"
	case set.Name == "lifecycle" && strings.Contains(set.Value, "objects under"):
		return set.Value + ": a lock that expires is a lock that is deleted, and its tokens begin anew"
	}
	return set.Value
}
