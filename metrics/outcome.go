package metrics

import (
	"context"
	"errors"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// outcomes are names of store errors. The first match counts.
var outcomes = []struct {
	name string
	err  error
}{
	// The caller no longer waited for the answer. That says nothing about the store, whatever
	// else the error matches.
	{"cancelled", context.Canceled},
	{"not_exist", store.ErrNotExist},
	{"not_modified", store.ErrNotModified},
	{"unknown", store.ErrUnknownOutcome}, // before throttled, because an error may match both
	{"precondition", store.ErrPrecondition},
	{"conflict", store.ErrConflict},
	{"throttled", store.ErrThrottled},
	{"denied", store.ErrDenied},
	{"no_bucket", store.ErrNoBucket},
	{"too_large", store.ErrTooLarge},
	{"invalid", store.ErrInvalid},
	{"refused", store.ErrRefused},
	{"unavailable", store.ErrUnavailable},
	{"foreign", leasehold.ErrForeignObject},
}

// Outcomes are all results of Outcome.
var Outcomes = func() []string {
	names := []string{"ok"}
	for _, o := range outcomes {
		names = append(names, o.name)
	}
	return append(names, "other")
}()

// Failures are the outcomes that mean that a store is failing or misconfigured.
var Failures = []string{"unknown", "throttled", "denied", "no_bucket", "refused", "unavailable", "other"}

// Outcome returns a store error's name: "ok" for nil, "cancelled" if the caller cancelled the
// call, "foreign" for an object that is not a lock, "other" for an unknown error.
func Outcome(err error) string {
	if err == nil {
		return "ok"
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return "other"
}

// AcquireOutcome returns an acquisition's outcome: "acquired", "held", "gave_up" or "failed".
// The end of the caller's context takes precedence, because its error may also name the holder
// and the store error.
func AcquireOutcome(err error) string {
	switch {
	case err == nil:
		return "acquired"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrUnavailable):
		return "gave_up"
	case errors.Is(err, leasehold.ErrHeld):
		return "held"
	}
	return "failed"
}

// lossCauses are the names of reasons for lost leases. The first match counts, because the end
// of a session has a reason too.
var lossCauses = []struct {
	name string
	err  error
}{
	{"session", leasehold.ErrSessionOver},
	{"broken", leasehold.ErrBroken},
	{"time_up", leasehold.ErrTimeUp},
	{"gave_up", protocol.ErrGivenUp},
	{"expired", protocol.ErrExpired},
	{"taken", protocol.ErrTaken},
	{"vanished", protocol.ErrVanished},
	{"freed", protocol.ErrFreed},
	{"foreign", leasehold.ErrForeignObject},
}

var causes = func() (names []string) {
	for _, c := range lossCauses {
		names = append(names, c.name)
	}
	return append(names, "other")
}()

func lossCause(err error) string {
	for _, c := range lossCauses {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return "other"
}
