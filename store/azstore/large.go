package azstore

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

const (
	firstBlock = 8 << 20
	laterBlock = 128 << 20
	laterFrom  = 10_000 // so that up to 78 GiB need only small blocks in memory
	maxBlocks  = 50_000 // of a blob, as https://learn.microsoft.com/rest/api/storageservices/put-block-list says
)

// blockSize returns the size of the n-th block, from 0. The body's size is unknown.
func blockSize(n int) int64 {
	if n < laterFrom {
		return firstBlock
	}
	return laterBlock
}

// PutLarge writes the object, up to 4.9 TiB: see [store.Large]. A body under 8 MiB takes one
// request, a larger one a request per block and one that combines them. PutLarge holds one
// block in memory, of 8 MiB, or 128 MiB beyond 78 GiB, in a buffer of up to three times that.
//
// Azure has no request to delete uncommitted blocks. So the blocks of an upload that failed, or
// whose process was killed, stay invisible until Azure removes them a week later, and may cost
// money until then. The error says so.
func (s *Store) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := s.check("put", key); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, &store.Error{Op: "put", Key: key, Kind: store.ErrUnavailable, Cause: err}
	}
	u := &upload{s: s, key: key, r: r}
	err := u.read()
	switch {
	case err == nil && u.last:
		err = u.whole(ctx)
	case err == nil:
		err = u.inBlocks(ctx)
	}
	if err != nil {
		return 0, err
	}
	return u.size, nil
}

// An upload is one PutLarge in progress.
type upload struct {
	s   *Store
	key string
	r   io.Reader

	block bytes.Buffer // read but not sent yet
	last  bool         // r has ended with it
	size  int64        // of all that was read
	sent  []string     // the IDs of the blocks
}

// read reads the next block. CopyN distinguishes the end of r from an error that wraps io.EOF;
// with io.ReadFull and errors.Is, a truncated body would pass as complete.
func (u *upload) read() error {
	u.block.Reset()
	n, err := io.CopyN(&u.block, u.r, blockSize(len(u.sent)))
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

func (u *upload) body() io.ReadSeekCloser {
	return streaming.NopCloser(bytes.NewReader(u.block.Bytes()))
}

// whole writes the block as the whole object.
func (u *upload) whole(ctx context.Context) error {
	c := &call{Call: exchange.Call{Op: "put", Key: u.key}, create: true}
	out, err := u.s.blob(u.s.again, u.key).Upload(c.watch(ctx), u.body(), nil)
	if err == nil && versionOf(out.ETag) == "" {
		err = errNoETag
	}
	if err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

// inBlocks writes the block that was read and the rest of r.
func (u *upload) inBlocks(ctx context.Context) error {
	err := u.send(ctx)
	for err == nil && !u.last {
		if err = u.read(); err == nil && u.block.Len() > 0 {
			err = u.send(ctx)
		}
	}
	if err == nil {
		err = u.commit(ctx)
	}
	if e, ok := errors.AsType[*store.Error](err); ok {
		e.Cause = fmt.Errorf("%w; blocks that were sent stay, unseen, until Azure removes them a week from now", e.Cause)
	}
	return err
}

func (u *upload) send(ctx context.Context) error {
	if len(u.sent) == maxBlocks {
		return u.failed(store.ErrTooLarge, fmt.Errorf("more than %d bytes", u.size-int64(u.block.Len())))
	}
	id := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%05d", len(u.sent))) // all must have the same length
	c := &call{Call: exchange.Call{Op: "put", Key: u.key, Part: true}}
	if _, err := u.s.blob(u.s.again, u.key).StageBlock(c.watch(ctx), id, u.body(), nil); err != nil {
		return c.fail(ctx, err)
	}
	u.sent = append(u.sent, id)
	return nil
}

// commit makes an object of the blocks. Until then, readers see nothing.
func (u *upload) commit(ctx context.Context) error {
	c := &call{Call: exchange.Call{Op: "put", Key: u.key}}
	out, err := u.s.blob(u.s.again, u.key).CommitBlockList(c.watch(ctx), u.sent, nil)
	if err == nil && versionOf(out.ETag) == "" {
		err = errNoETag
	}
	if err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

// GetLarge opens the object: see [store.Large]. It takes one request, whose connection stays
// open until the reader is closed.
func (s *Store) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if err := s.check("get", key); err != nil {
		return nil, 0, err
	}
	c := &call{Call: exchange.Call{Op: "get", Key: key}}
	out, err := s.blob(s.once, key).DownloadStream(c.watch(ctx), nil)
	if err == nil && c.Status() == http.StatusNotModified {
		err = errNotModified // there was no condition, but the SDK reports it as a success
	}
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
