package admin

import (
	"context"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/store"
)

// ErrAmbiguous: there are locks of two layouts under one name, such as an object and epochs. They
// do not notice each other, so that only the caller can say which one is meant.
var ErrAmbiguous = layout.ErrAmbiguous

// Inspect reads a lock without taking it, and finds out its layout, which [leasehold.Info.Layout]
// then names: epochs or epochs+if-match, object, or marker, which stands for both kinds of
// markers, since their records do not differ. A lock that does not exist is an Info that says
// so, not an error; that may be a marker too, which exists only while the lock is held. Another
// tool's marker is not recognized, and gives an error that matches [leasehold.ErrForeignObject].
// A name that has locks of two layouts gives [ErrAmbiguous], which names both. A semaphore is found too.
//
// It costs one read and one listing, whether the lock is there or not. A lock with epochs costs
// one read more, and one listing more if there are very many; a lock under a session, one read
// more; and a semaphore, one read more for each session that it names. If epochs come and go between the listing and the read, both are repeated, 8 times at
// most. A listing ends with an error after 10,000 objects. Where the layout is known
// already, [leasehold.Lock.Inspect] costs less.
//
// If the listing fails, for example because it is denied, and the object under the key is a
// lock, Inspect returns what that says beside the error: a lock with epochs under the same name
// would have been missed.
func Inspect(ctx context.Context, st store.Store, key string) (Entry, error) {
	// A candidate of any layout checks the key, and says where the lock lies.
	lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Info: leasehold.Info{Key: key, Age: -1}}
	s, err := layout.LookAny(ctx, st, key)
	if s.Exists {
		e = entryOf(key, s)
	}
	if err != nil {
		return e, root.Explain(lock, err)
	}
	return newVerdicts(st).judged(ctx, e)
}
