// Package gocloud keeps objects in a bucket of gocloud.dev/blob, as far as the bucket's driver
// can carry locks. It is a module of its own, so that gocloud.dev is not among the library's
// dependencies. It is for programs that have a *blob.Bucket already: on S3, Google Cloud Storage
// and Azure the library's own stores tell the store's time as well, and send what has not
// changed only once.
//
//	bucket, err := s3blob.OpenBucket(ctx, client, "my-bucket", nil)
//	...
//	st, err := gocloud.New(bucket, "s3://my-bucket", ons3.Driver{})
//	...
//	lock, err := leasehold.NewLock(st, "locks/backup", nil)
//
// # Drivers
//
// All drivers can create an object only where none is (blob.WriterOptions.IfNotExist). An
// update on the condition of a version is not portable, and neither is the version. A [Driver]
// has both by the types that the bucket's driver gives to As:
//
//	s3blob     ons3.Driver     all layouts     a version is an ETag
//	gcsblob    ongcs.Driver    all layouts     a version is a generation
//	azureblob  onazure.Driver  all layouts     a version is an ETag
//	memblob    CreateOnly      epochs, marker  a version is the MD5 of the body
//	fileblob   none            none: New refuses it
//
// With [CreateOnly] an update is refused with [store.ErrRefused], and NewLock refuses the
// layouts that need one, since a [Store] is a store.Proof of what its driver can carry.
//
// When fileblob creates a file, it looks whether there is one, and then renames another to that
// name. Nothing holds the two steps together, so two writers may both be told that they created
// it. Use package filestore for directories.
//
// # One write, one request
//
// The SDKs repeat a request whose answer was lost. A create that landed is then told that the
// object exists, which is [store.ErrPrecondition], although its writer has won. So the drivers
// send each write once, whatever the client of the bucket does otherwise. Reads,
// listings and deletes are repeated as the client has it. A write without an answer is
// [store.ErrUnknownOutcome], even if it was never sent: an SDK does not say.
//
// # What it does not do
//
// The portable API does not tell the store's time, so Date is always zero and a lock has no fast
// start. Get reads the whole object each time, even if it has not changed. There are no large
// bodies ([store.Large]) and no settings for a probe ([store.Inspector]).
package gocloud

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"unicode/utf8"

	"gocloud.dev/blob"

	"github.com/leasehold/leasehold/store"
)

// A Store is a bucket. It is safe for concurrent use. It does not close the bucket, which
// belongs to the caller.
type Store struct {
	bucket *blob.Bucket
	driver Driver
	url    string
}

var _ store.Store = (*Store)(nil)

// New gives the store of a bucket. It sends nothing. The URL names the bucket in messages, and
// tells one store from another: a bucket does not know its own name. For a prefix use
// blob.PrefixedBucket. The error matches [store.ErrInvalid] if the bucket is none of the
// driver's, and [store.ErrRefused] if it is one of fileblob.
func New(bucket *blob.Bucket, at string, driver Driver) (*Store, error) {
	if bucket == nil || driver == nil {
		return nil, fmt.Errorf("gocloud: %w: the bucket or the driver is nil", store.ErrInvalid)
	}
	if u, err := url.Parse(at); err != nil || u.Scheme == "" || u.User != nil {
		return nil, fmt.Errorf("gocloud: %w: %q does not say where the bucket is: write a URL without secrets, such as s3://my-bucket", store.ErrInvalid, at)
	}
	var directory os.FileInfo
	if bucket.As(&directory) {
		return nil, fmt.Errorf("gocloud: %w: fileblob looks first and writes then, so two writers can create one object: use package filestore", store.ErrRefused)
	}
	if err := driver.Suits(bucket); err != nil {
		return nil, fmt.Errorf("gocloud: %s: %w: %w", at, store.ErrInvalid, err)
	}
	return &Store{bucket, driver, at}, nil
}

// Proves returns nil if the driver can carry the use, which is the name of a layout or another
// that package probe knows. NewLock, NewElection and NewSession ask it, so epochs and markers do
// without If-Match where the driver has no updates. It speaks of the driver alone: whether the
// server keeps to its conditions, probe.Run finds out.
func (s *Store) Proves(_, use string) error {
	switch {
	case use == "fast start":
		return fmt.Errorf("%s: %w: gocloud.dev/blob does not tell the store's time, on which a fast start rests", s.url, store.ErrRefused)
	case s.driver.Updates(), use == "epochs without If-Match", use == "marker without If-Match", use == "fencelog.Log":
		return nil
	}
	return fmt.Errorf("%s: %w: %q needs updates on the condition of a version, which this driver does not have: use the layout epochs", s.url, store.ErrRefused, use)
}

// Get reads the object: see [store.Store].
func (s *Store) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := store.CheckKey("get", key); err != nil {
		return nil, err
	}
	r, err := s.bucket.NewReader(ctx, key, nil)
	if err != nil {
		return nil, s.fail(ctx, "get", key, err)
	}
	defer func() { _ = r.Close() }()
	body, err := io.ReadAll(io.LimitReader(r, store.MaxBody+1))
	switch {
	case err != nil:
		return nil, s.fail(ctx, "get", key, err)
	case len(body) > store.MaxBody:
		return nil, failed("get", key, store.ErrTooLarge, fmt.Errorf("%d bytes, more than %d", r.Size(), store.MaxBody))
	case int64(len(body)) != r.Size():
		return nil, failed("get", key, store.ErrUnavailable, fmt.Errorf("of %d bytes came %d", r.Size(), len(body)))
	}
	version := s.driver.Version(r.As, sum(body))
	switch version {
	case "":
		return nil, failed("get", key, store.ErrUnavailable, errNoVersion)
	case unless:
		return nil, failed("get", key, store.ErrNotModified, store.ErrSentAgain)
	}
	return &store.Object{Key: key, Body: body, Version: version, LastModified: r.ModTime()}, nil
}

// Put writes the object if the condition holds: see [store.Store].
func (s *Store) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := store.CheckPut(ctx, key, body, only); err != nil {
		return nil, err
	}
	if !only.Absent() && !s.driver.Updates() {
		return nil, failed("put", key, store.ErrRefused, errors.New("the driver has no update on the condition of a version: use the layout epochs"))
	}
	writing, w := s.driver.Write(ctx, only.Match(), sum(body))
	begun := false // else nothing was sent
	err := s.bucket.Upload(writing, key, bytes.NewReader(body), &blob.WriterOptions{
		ContentType:  "application/octet-stream", // else it is guessed of the body
		CacheControl: "no-store, no-transform",   // Google's caches keep what is public for an hour
		IfNotExist:   only.Absent(),
		BeforeWrite: func(as func(any) bool) error {
			err := w.Before(as)
			begun = err == nil
			return err
		},
	})
	switch {
	case err != nil && !begun: // by the driver, or the bucket is closed
		return nil, failed("put", key, store.ErrRefused, err)
	case err != nil:
		return nil, s.fail(ctx, "put", key, err)
	}
	version := w.Version()
	if version == "" {
		return nil, failed("put", key, store.ErrUnknownOutcome, errNoVersion)
	}
	return &store.Object{Key: key, Version: version}, nil
}

var errNoVersion = errors.New("the answer has no version")

// Delete removes the object: see [store.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := store.CheckKey("delete", key); err != nil {
		return err
	}
	if err := s.bucket.Delete(ctx, key); err != nil {
		if e := s.fail(ctx, "delete", key, err); !errors.Is(e.Kind, store.ErrNotExist) {
			return e
		}
	}
	return nil
}

// List yields objects a page for each request: see [store.Store]. A listing that is in any other
// order than that of the bytes ends in an error, at the first key that is out of place. It may
// come so if a driver writes a character of a key in another way, as azureblob does with "?".
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		fail := func(err *store.Error) { yield(store.Entry{}, err) }
		if !utf8.ValidString(prefix) {
			fail(failed("list", prefix, store.ErrInvalid, errors.New("the prefix is not valid UTF-8")))
			return
		}
		if store.CheckKey("list", prefix) != nil && store.CheckKey("list", prefix+"x") != nil {
			return // no key begins so
		}
		listed := s.bucket.List(&blob.ListOptions{Prefix: prefix, BeforeList: func(as func(any) bool) error {
			if after != "" {
				s.driver.Begin(as, prefix, after)
			}
			return nil
		}})
		for last := ""; ; {
			o, err := listed.Next(ctx)
			switch {
			case err == io.EOF: //nolint:errorlint // what wraps it is a connection that broke
				return
			case err != nil:
				fail(s.fail(ctx, "list", prefix, err))
				return
			case o.Key <= last:
				fail(failed("list", prefix, store.ErrUnavailable, fmt.Errorf("%q is listed after %q: %w", o.Key, last, store.ErrUnordered)))
				return
			}
			last = o.Key
			if o.Key <= after || store.CheckKey("list", o.Key) != nil {
				continue // what no store wrote: "logs/" for a folder, say
			}
			version := s.driver.Version(o.As, o.MD5)
			if version == "" {
				fail(failed("list", prefix, store.ErrUnavailable, fmt.Errorf("%q: %w", o.Key, errNoVersion)))
				return
			}
			if !yield(store.Entry{Key: o.Key, Version: version, Size: o.Size, LastModified: o.ModTime}, nil) {
				return
			}
		}
	}
}

// String gives the URL that New was told.
func (s *Store) String() string { return s.url }

func sum(body []byte) []byte {
	sum := md5.Sum(body)
	return sum[:]
}
