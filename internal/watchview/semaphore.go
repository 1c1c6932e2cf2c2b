package watchview

import (
	"fmt"
	"slices"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/semaphore"
)

// HoldersOf names those who hold slots of a semaphore, in a line; "": nobody does.
func HoldersOf(i *semaphore.Info) string {
	if len(i.Holders) == 0 {
		return ""
	}
	text := plain.Word(i.Holders[0].Holder)
	if more := len(i.Holders) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// SemaphoreChange is what happened to a semaphore between two looks; "" is nothing. Before is nil if there
// was none. The kinds are those of [leasehold.ChangeKind]: elected, when a slot is taken after none was;
// resigned, when none is any more; expired, when a holder looks to be gone that did not; and "changed" when the
// holders or those that wait are others.
func SemaphoreChange(before, after *semaphore.Info) string {
	held := func(i *semaphore.Info) bool { return i != nil && len(i.Holders) > 0 }
	switch {
	case held(after) && !held(before):
		return leasehold.Elected.String()
	case held(before) && !held(after):
		return leasehold.Resigned.String()
	case before == nil:
		return ""
	case len(goneOf(after)) > len(goneOf(before)):
		return leasehold.Expired.String()
	case !sameEntries(before.Holders, after.Holders), !sameEntries(before.Waiters, after.Waiters):
		return "changed"
	}
	return ""
}

// goneOf are the holders that look to be gone.
func goneOf(i *semaphore.Info) []semaphore.Entry {
	return slices.DeleteFunc(slices.Clone(i.Holders), func(s semaphore.Entry) bool { return !s.Abandoned })
}

func sameEntries(a, b []semaphore.Entry) bool {
	return slices.EqualFunc(a, b, func(a, b semaphore.Entry) bool { return a.ID == b.ID })
}
