package s3lect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

var (
	// ErrStorageNotFound: there is no such object. A Storage returns it, wrapped or not; s3lect
	// then creates the object.
	ErrStorageNotFound = errors.New("object not found")
	// ErrStoragePrecondition: the ETag is not that of the object. A Storage returns it, wrapped or
	// not; s3lect then reads the object again.
	ErrStoragePrecondition = errors.New("precondition failed")
)

// Storage reads and writes objects. An implementation must be safe for concurrent
// use. It may retry its requests; an attempt that landed and was then refused is told
// from a rival's by reading.
type Storage interface {
	// Get reads an object and its ETag, in whichever form PutIfMatch takes it. It
	// returns ErrStorageNotFound if there is no such object.
	Get(ctx context.Context, key string) (data []byte, etag string, err error)

	// PutIfMatch writes an object if its ETag is still etag, or, if etag is empty, if
	// there is no such object. Otherwise it returns ErrStoragePrecondition. At most
	// one of any number of writes on the same condition may land.
	PutIfMatch(ctx context.Context, key string, data []byte, etag string) error
}

// storeVariable is where the store of a LockfilePath that is no URL is named.
const storeVariable = "LEASEHOLD_STORE"

// locate finds the lockfile. The name is what the election calls it.
func locate(storage Storage, lockfilePath string) (p place, key, name string, err error) {
	ctx := context.Background() // for reading configuration files only
	if storage != nil {
		return keeper{storage}, lockfilePath, clean(lockfilePath), nil
	}
	if strings.Contains(lockfilePath, "://") {
		p, key, err = storeurl.OpenLock(ctx, lockfilePath)
		return p, key, key, err
	}
	url := os.Getenv(storeVariable)
	if url == "" {
		return nil, "", "", fmt.Errorf("there is no Storage, and the LockfilePath %q does not say which bucket: set Storage, or make it s3://BUCKET/KEY, or set the environment variable %s to s3://BUCKET",
			lockfilePath, storeVariable)
	}
	if p, err = storeurl.Open(ctx, url); err != nil {
		err = fmt.Errorf("%s: %w", storeVariable, err)
	}
	return p, lockfilePath, lockfilePath, err
}

// clean makes of a key that S3 accepts one that every store does: without the slash at
// its beginning, for one.
func clean(key string) string { return strings.Trim(path.Clean("/"+key), "/") }

// A keeper is the place that a Storage of the user is.
type keeper struct{ storage Storage }

func (k keeper) String() string { return fmt.Sprintf("%T", k.storage) }

func (k keeper) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	data, etag, err := k.storage.Get(ctx, key)
	switch version := store.Version(etag); {
	case errors.Is(err, ErrStorageNotFound):
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist, Cause: err}
	case err != nil:
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrUnavailable, Cause: ended(ctx, err)}
	case version == "":
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrUnavailable, Cause: errors.New("the Storage gives no ETag: nothing can be written on a condition without one")}
	case version == unless:
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
	default:
		return &store.Object{Key: key, Body: data, Version: version}, nil
	}
}

// Put also reads, because PutIfMatch does not tell which ETag it has made.
func (k keeper) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnavailable, Cause: err}
	}
	err := k.storage.PutIfMatch(ctx, key, body, string(only.Match()))
	switch {
	case errors.Is(err, ErrStoragePrecondition):
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition, Cause: err}
	case errors.Is(err, ErrStorageNotFound) && !only.Absent():
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrNotExist, Cause: err}
	case err != nil:
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome, Cause: ended(ctx, err)}
	}
	o, err := k.Get(ctx, key, "")
	if err != nil {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome, Cause: fmt.Errorf("it landed, and then: %w", err)}
	}
	if !bytes.Equal(o.Body, body) {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome, Cause: errors.New("it landed, and another was there when it was read back")}
	}
	o.Body = nil
	return o, nil
}

// ended adds to an error that the context has ended, if it does not say so itself.
func ended(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil && !errors.Is(err, over) {
		return fmt.Errorf("%w: %w", over, err)
	}
	return err
}
