package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

const (
	firstPart = 8 << 20
	maxParts  = 10_000 // limit of S3

	// abortWithin bounds how long a failed PutLarge takes to clean up. Its own context has
	// often ended.
	abortWithin = 10 * time.Second
)

// partSize returns the size of the n-th part, from 0. The body's size is unknown, and S3 allows
// at most 10,000 parts, so parts must grow for 5 TiB to fit. They grow only after 7.8 GiB,
// because some servers want parts of equal size.
func partSize(n int) int64 {
	return firstPart + int64(max(0, n-1000))*firstPart/60
}

// PutLarge writes the object, up to 5 TiB: see [store.Large]. A body under 8 MiB takes one
// request, a larger one a multipart upload with one part after the other. PutLarge holds one
// part in memory: 8 MiB in a buffer of up to 24 MiB. Parts grow only beyond 7.8 GiB: to 160 MiB
// at 100 GiB, and to 1.2 GiB at 5 TiB.
func (s *Store) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := store.CheckKey("put", key); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, &store.Error{Op: "put", Key: key, Kind: store.ErrUnavailable, Cause: err}
	}
	u := &upload{s: s, key: key, path: aws.String(s.prefix + key), r: r}
	err := u.read()
	switch {
	case err == nil && u.last:
		err = u.whole(ctx)
	case err == nil:
		err = u.inParts(ctx)
	}
	if err != nil {
		return 0, err
	}
	return u.size, nil
}

// An upload is one PutLarge in progress.
type upload struct {
	s    *Store
	key  string
	path *string // the key under the prefix
	r    io.Reader

	part bytes.Buffer // read but not sent yet
	last bool         // r has ended with it
	size int64        // of all that was read
	id   *string      // of the multipart upload
	sent []types.CompletedPart
}

// read reads the next part. CopyN distinguishes the end of r from an error that wraps io.EOF;
// with io.ReadFull and errors.Is, a truncated body would pass as complete.
func (u *upload) read() error {
	u.part.Reset()
	n, err := io.CopyN(&u.part, u.r, u.s.partSize(len(u.sent)))
	u.size += n
	u.last = err == io.EOF //nolint:errorlint // see above
	if err != nil && !u.last {
		return u.failed(store.ErrInvalid, fmt.Errorf("reading the body, after %d bytes: %w", u.size, err))
	}
	return nil
}

func (u *upload) failed(kind, cause error) error {
	return &store.Error{Op: "put", Key: u.key, Kind: kind, Cause: cause}
}

// whole writes the part as the whole object.
func (u *upload) whole(ctx context.Context) error {
	c := &call{Call: exchange.Call{Op: "put", Key: u.key}, create: true, repeats: true}
	out, err := u.s.client.PutObject(ctx, u.s.put(u.path, u.part.Bytes()), c.options)
	if err == nil && aws.ToString(out.ETag) == "" {
		err = errNoETag
	}
	if err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

// inParts writes the part that was read and the rest of r.
func (u *upload) inParts(ctx context.Context) error {
	// If the answer is lost, the upload it would have named has no parts and costs nothing.
	c := &call{Call: exchange.Call{Op: "put", Key: u.key, Part: true}, create: true, repeats: true}
	out, err := u.s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &u.s.bucket, Key: u.path,
		ServerSideEncryption: types.ServerSideEncryption(u.s.opts.Encryption), SSEKMSKeyId: u.s.kmsKey(),
	}, c.options)
	if err != nil {
		return c.fail(ctx, err)
	}
	u.id = out.UploadId
	for err = u.send(ctx); err == nil && !u.last; {
		if err = u.read(); err == nil && u.part.Len() > 0 {
			err = u.send(ctx)
		}
	}
	if err == nil {
		err = u.complete(ctx)
	}
	if err != nil {
		return u.abort(ctx, err)
	}
	return nil
}

func (u *upload) send(ctx context.Context) error {
	if len(u.sent) == maxParts {
		return u.failed(store.ErrTooLarge, fmt.Errorf("more than %d bytes", u.size-int64(u.part.Len())))
	}
	number := aws.Int32(int32(len(u.sent) + 1)) //nolint:gosec // at most maxParts
	c := &call{Call: exchange.Call{Op: "put", Key: u.key, Part: true}, repeats: true}
	out, err := u.s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &u.s.bucket, Key: u.path, UploadId: u.id, PartNumber: number, Body: bytes.NewReader(u.part.Bytes()),
		ContentMD5: u.s.contentMD5(u.part.Bytes()),
	}, c.options)
	if err != nil {
		return c.fail(ctx, err)
	}
	u.sent = append(u.sent, types.CompletedPart{PartNumber: number, ETag: out.ETag})
	return nil
}

// complete makes an object of the parts. Until then, readers see nothing.
func (u *upload) complete(ctx context.Context) error {
	c := &call{Call: exchange.Call{Op: "put", Key: u.key}, repeats: true}
	out, err := u.s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &u.s.bucket, Key: u.path, UploadId: u.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.sent},
	}, c.options)
	if err == nil && aws.ToString(out.ETag) == "" {
		err = errNoETag
	}
	if err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

// abort removes the parts, which are invisible but cost money, and returns the upload's error.
// If the object has landed after all, the upload no longer exists, and the server says so.
func (u *upload) abort(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	c := &call{Call: exchange.Call{Op: "put", Key: u.key, Part: true}, repeats: true}
	_, err := u.s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.s.bucket, Key: u.path, UploadId: u.id}, c.options)
	if e, ok := errors.AsType[*store.Error](why); ok && err != nil && c.code() != "NoSuchUpload" {
		e.Cause = fmt.Errorf("%w; its parts stay, under the upload ID %s, until that is aborted: %s", e.Cause, aws.ToString(u.id), exchange.Redact(plain(err)))
	}
	return why
}

// GetLarge opens the object: see [store.Large]. It takes one request, whose connection stays
// open until the reader is closed.
func (s *Store) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if err := store.CheckKey("get", key); err != nil {
		return nil, 0, err
	}
	c := &call{Call: exchange.Call{Op: "get", Key: key}}
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key)}, c.options)
	if err != nil {
		return nil, 0, c.fail(ctx, err)
	}
	size := c.Length()
	if size < 0 {
		_ = out.Body.Close()
		return nil, 0, c.fail(ctx, exchange.ErrNoLength)
	}
	return &download{ReadCloser: out.Body, ctx: ctx, call: c}, size, nil
}

// A download is an object's body. If it is shorter than announced, net/http returns an error.
type download struct {
	io.ReadCloser
	ctx  context.Context
	call *call
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // only EOF itself is the end
		err = d.call.fail(d.ctx, err)
	}
	return n, err
}
