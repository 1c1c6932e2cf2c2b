package store

import (
	"context"
	"errors"
)

// Inspector is a Store that can also do and tell what no lock asks of it, so that
// probe.Run can find out what its server is like.
type Inspector interface {
	// Inspect gives the other face of the store. It sends nothing.
	Inspect() Inspection
}

// An Inspection does what a Store must not: it writes and deletes as programs do that
// know nothing of locks. It is for scratch objects only. Its errors are those of a
// Store, and its methods are safe for concurrent use.
type Inspection interface {
	// DeleteIf deletes the object if it has the version v, by the store's own
	// condition on deletes. No rule of the protocol rests on it.
	DeleteIf(ctx context.Context, key string, v Version) error

	// Overwrite writes the object without a condition.
	Overwrite(ctx context.Context, key string, body []byte) error

	// Settings asks what the place is set to, with one request for each setting at most, and
	// five in all. A setting that may not be asked for has an error.
	Settings(ctx context.Context) []Setting

	Purger

	// Unquoted gives the store as it is for servers that compare versions without
	// their quotes, or nil if it is that already.
	Unquoted() Store

	// Policy is the smallest policy, in the words of the store's own access control,
	// under which a program can do these operations: "get", "put", "list", "delete"
	// or "large".
	Policy(operations ...string) (string, error)
}

// A Purger can delete what Delete leaves of objects.
type Purger interface {
	// Purge deletes all that there is and was under the directory: past versions, the
	// marks of deletions, empty directories. It returns how many requests it made.
	Purge(ctx context.Context, directory string) (requests int, err error)
}

// A Setting is something that the place of a store is set to.
type Setting struct {
	// Name is "versioning", "soft delete", "object lock", "retention", "holds", "encryption",
	// "lifecycle", "noncurrent versions" or "hierarchical namespace".
	Name  string
	Value string // "" if there is none
	Err   error  // why it is not known
}

// ErrUnordered is the cause of an error of a listing that was not in byte order.
var ErrUnordered = errors.New("not in byte order")

// ErrSentAgain is the cause of an [ErrNotModified] for which the server sent the whole
// object once more.
var ErrSentAgain = errors.New("the server sent the same version again")
