package store

import (
	"context"
	"errors"
)

// Inspector is a Store with additional operations for probe.Run, which finds out how its server
// behaves. Locks do not need them.
type Inspector interface {
	// Inspect returns the additional operations. It sends nothing.
	Inspect() Inspection
}

// An Inspection writes and deletes without the care that locks need, as other programs do. Use
// it only for scratch objects. Its errors are those of a Store, and its methods are safe for
// concurrent use.
type Inspection interface {
	// DeleteIf deletes the object if it has the version v, by the store's own condition on
	// deletes. No rule of the protocol depends on it.
	DeleteIf(ctx context.Context, key string, v Version) error

	// Overwrite writes the object without a condition.
	Overwrite(ctx context.Context, key string, body []byte) error

	// Settings returns the settings of the bucket, container or directory, with at most one
	// request per setting and five in all. A setting that may not be read has an error.
	Settings(ctx context.Context) []Setting

	Purger

	// Unquoted returns the store for servers that compare versions without their quotes, or nil
	// if it is one already.
	Unquoted() Store

	// Policy returns the smallest policy, in the language of the store's access control, that
	// lets a program do these operations: "get", "put", "list", "delete" or "large".
	Policy(operations ...string) (string, error)
}

// A Purger can delete what Delete leaves behind.
type Purger interface {
	// Purge deletes everything under the directory: objects, previous versions, delete markers
	// and empty directories. It returns how many requests it made.
	Purge(ctx context.Context, directory string) (requests int, err error)
}

// A Setting is a setting of a store's bucket, container or directory.
type Setting struct {
	// Name is "versioning", "soft delete", "object lock", "retention", "holds", "encryption",
	// "lifecycle", "noncurrent versions" or "hierarchical namespace".
	Name  string
	Value string // "" if there is none
	Err   error  // why it is not known
}

// ErrUnordered is the cause of the error of a listing that was not in byte order. Use another
// store, because listings in pages rely on the order.
var ErrUnordered = errors.New("not in byte order")

// ErrSentAgain is the cause of an [ErrNotModified] for which the server sent the whole object
// again. The answer is right, and costs more traffic than it should.
var ErrSentAgain = errors.New("the server sent the same version again")
