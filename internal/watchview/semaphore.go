package watchview

import (
	"fmt"
	"slices"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/plain"
)

// HoldersOf names the holder of a lock, or those of a semaphore, in a line; "": nobody is known to hold it.
func HoldersOf(i leasehold.Info) string {
	switch {
	case len(i.Holders) > 0:
	case i.Held:
		return plain.Word(i.Holder)
	default:
		return ""
	}
	text := plain.Word(i.Holders[0].Holder)
	if more := len(i.Holders) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// SemaphoreChange is what happened to a semaphore between two looks; "" is nothing. Before is zero if there
// was none. The kinds are those of [leasehold.ChangeKind]: elected, when a slot is taken after none was;
// resigned, when none is any more; expired, when a holder looks to be gone that did not; and "changed" when the
// holders or those that wait are others.
func SemaphoreChange(before, after leasehold.Info) string {
	held := func(i leasehold.Info) bool { return len(i.Holders) > 0 }
	switch {
	case held(after) && !held(before):
		return leasehold.Elected.String()
	case held(before) && !held(after):
		return leasehold.Resigned.String()
	case before.Size == 0:
		return ""
	case len(goneOf(after)) > len(goneOf(before)):
		return leasehold.Expired.String()
	case !sameEntries(before.Holders, after.Holders), !sameEntries(before.Waiters, after.Waiters):
		return "changed"
	}
	return ""
}

// goneOf are the holders that look to be gone.
func goneOf(i leasehold.Info) []leasehold.Entry {
	return slices.DeleteFunc(slices.Clone(i.Holders), func(s leasehold.Entry) bool { return !s.Abandoned })
}

func sameEntries(a, b []leasehold.Entry) bool {
	return slices.EqualFunc(a, b, func(a, b leasehold.Entry) bool { return a.ID == b.ID })
}
