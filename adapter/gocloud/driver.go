package gocloud

import (
	"context"
	"encoding/hex"

	"gocloud.dev/blob"

	"github.com/leasehold/leasehold/store"
)

// A Driver does what gocloud.dev/blob leaves to one driver, by the types that this gives to As.
// Each "as" is the As of the value that the method is about. All methods must be safe for concurrent use.
type Driver interface {
	// Suits returns why the driver is not for this bucket.
	Suits(bucket *blob.Bucket) error

	// Updates reports whether a write can have the condition of a version.
	Updates() bool

	// Write prepares one write, and gives the context to make it in. The condition of the write
	// is the version match. If that is empty, the option IfNotExist is set already. The write
	// must be sent once, whether it is answered or not. The sum is the MD5 of the body.
	Write(ctx context.Context, match store.Version, sum []byte) (context.Context, Write)

	// Version gives the version of what a blob.Reader or a blob.ListObject shows, or "". The
	// sum is the MD5 of the body, or nil if a listing does not tell it.
	Version(as func(any) bool, sum []byte) store.Version

	// Begin has a listing of prefix begin with the key after, or behind it. It is called by
	// BeforeList of blob.ListOptions, and may do nothing: then the listing costs more.
	Begin(as func(any) bool, prefix, after string)

	// Answer gives the HTTP status of the server's answer and its code for what is wrong, or 0
	// and "" if the error tells of no answer.
	Answer(err error) (status int, code string)
}

// A Write is one write of a [Driver].
type Write struct {
	Before  func(as func(any) bool) error // as BeforeWrite of blob.WriterOptions; an error refuses the write
	Version func() store.Version          // that it has made, once it has landed
}

// CreateOnly is the driver for memblob, and for others of which you know that they keep to
// IfNotExist when writers race, send each write once, and list the MD5 of each object. There
// are no updates with it, so it carries the layouts epochs and marker only.
type CreateOnly struct{}

var _ Driver = CreateOnly{}

// Suits returns nil: what the bucket is like cannot be seen.
func (CreateOnly) Suits(*blob.Bucket) error { return nil }

// Updates reports false.
func (CreateOnly) Updates() bool { return false }

// Write adds nothing to a write.
func (CreateOnly) Write(ctx context.Context, _ store.Version, sum []byte) (context.Context, Write) {
	return ctx, Write{
		Before:  func(func(any) bool) error { return nil },
		Version: func() store.Version { return store.Version(hex.EncodeToString(sum)) },
	}
}

// Version gives the sum.
func (CreateOnly) Version(_ func(any) bool, sum []byte) store.Version {
	return store.Version(hex.EncodeToString(sum))
}

// Begin does nothing.
func (CreateOnly) Begin(func(any) bool, string, string) {}

// Answer knows no answers, so the code of gocloud.dev decides.
func (CreateOnly) Answer(error) (int, string) { return 0, "" }
