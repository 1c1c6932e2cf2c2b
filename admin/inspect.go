package admin

import (
	"context"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/store"
)

// ErrAmbiguous: a name has locks of two layouts, such as an object and epochs, which do not notice
// each other. Name the layout you mean.
var ErrAmbiguous = layout.ErrAmbiguous

// Inspect reads a lock or semaphore without taking it, and detects its layout:
// [leasehold.Info.Layout] is epochs, object or marker. To open the lock, also use its
// [leasehold.Info.NoIfMatch].
//
// If the lock does not exist, Inspect returns an Info that says so, not an error. It may still
// be a marker, which exists only while the lock is held. Inspect returns an error that matches
// [leasehold.ErrForeignObject] for another tool's marker, and [ErrAmbiguous], which names both
// layouts, if the name has locks of two.
//
// Inspect costs one read and one listing, whether or not the lock exists. A lock with epochs
// costs one more read, and one more listing if it has very many; a lock under a session, one
// more read; a semaphore, one more read for each session in it. If epochs change between the
// listing and the read, both are repeated, at most 8 times. A listing fails after 10,000
// objects. If you know the layout, [leasehold.Lock.Inspect] costs less.
//
// If the listing fails, for example because access is denied, and the object under the key is a
// lock, Inspect returns that lock together with the error, because it may have missed a lock
// with epochs under the same name.
func Inspect(ctx context.Context, st store.Store, key string) (Entry, error) {
	unproven := st
	if st != nil {
		unproven = struct{ store.Store }{st} // it need not prove anything, because nothing is written
	}
	// NewLock checks the key. The layout does not matter here.
	lock, err := leasehold.NewLock(unproven, key, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Info: leasehold.Info{Key: key, Age: -1}}
	s, err := layout.LookAny(ctx, st, key)
	if s.Exists {
		e = entryOf(key, s)
	}
	if err != nil {
		return e, leasehold.Internal.Explain(lock, err)
	}
	return newVerdicts(st).judged(ctx, e)
}
