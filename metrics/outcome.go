package metrics

import (
	"context"
	"errors"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// outcomes are the kinds of error of a store, by name. The first that an error matches is its own.
var outcomes = []struct {
	name string
	err  error
}{
	// Nobody has waited for the answer any more. That says nothing of the store, whatever kind it has.
	{"cancelled", context.Canceled},
	{"not_exist", store.ErrNotExist},
	{"not_modified", store.ErrNotModified},
	{"unknown", store.ErrUnknownOutcome}, // before throttled: it may be both
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

// Outcomes are all that Outcome returns.
var Outcomes = func() []string {
	names := []string{"ok"}
	for _, o := range outcomes {
		names = append(names, o.name)
	}
	return append(names, "other")
}()

// Failures are the outcomes by which a store is not doing well, or is not set up as it must be.
var Failures = []string{"unknown", "throttled", "denied", "no_bucket", "refused", "unavailable", "other"}

// Outcome names the kind of an error of a store: "ok" for nil, "cancelled" if the caller did not want it
// any more, "foreign" for an object that is no lock, "other" for an error of no kind.
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

// AcquireOutcome names what came of an acquisition: "acquired", "held", "gave_up" or "failed". The end of the caller's context comes first, since the
// error that it gets then may say who holds the lock, and why the store fails.
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

// lossCauses are why leases are lost, by name. The first that an error matches is its own: the end of a
// session has a reason too.
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
