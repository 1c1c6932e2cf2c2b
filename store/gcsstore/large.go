package gcsstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

const (
	// chunk is the size of a request: a multiple of 256 KiB, as the protocol requires.
	chunk = 8 << 20

	// repeats is how often PutLarge retries a request whose response was lost or was a
	// temporary error: after firstPause, and then twice as long each time.
	repeats    = 3
	firstPause = 250 * time.Millisecond

	// cancelWithin bounds how long a failed PutLarge takes to clean up. Its own context has
	// often ended.
	cancelWithin = 10 * time.Second
)

// PutLarge writes the object, up to 5 TiB: see [store.Large]. A body under 8 MiB takes one
// request, a larger one a resumable upload, with one request to begin and one per 8 MiB.
// PutLarge holds 8 MiB in memory, in a buffer of up to 24 MiB. After a temporary error, it
// sends a request up to four times, with a total backoff of less than two seconds. It does not
// resend the part of a chunk that has arrived.
func (s *Store) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := store.CheckKey("put", key); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, &store.Error{Op: "put", Key: key, Kind: store.ErrUnavailable, Cause: err}
	}
	u := &upload{s: s, key: key, r: r}
	err := u.read()
	switch {
	case err == nil && u.last:
		err = u.repeat(ctx, u.call(false), func(c *call) error {
			_, failed := s.insert(ctx, c, u.chunk.Bytes(), url.Values{})
			return failed
		})
	case err == nil:
		err = u.inChunks(ctx)
	}
	if err != nil {
		return 0, err
	}
	return u.size, nil
}

// An upload is one PutLarge in progress. Its requests are described in
// https://cloud.google.com/storage/docs/performing-resumable-uploads.
type upload struct {
	s   *Store
	key string
	r   io.Reader

	chunk bytes.Buffer // read but not sent yet
	last  bool         // r has ended with it
	size  int64        // of all that was read

	// session is the URI of the upload. It permits writing the object without credentials: none
	// are sent with it, and messages must not contain it.
	session *url.URL
}

func (u *upload) call(part bool) *call {
	return &call{Call: exchange.Call{Op: "put", Key: u.key, Part: part}, name: u.s.prefix + u.key, bucket: u.s.bucket}
}

// read reads the next chunk. CopyN distinguishes the end of r from an error that wraps io.EOF;
// with io.ReadFull and errors.Is, a truncated body would pass as complete.
func (u *upload) read() error {
	u.chunk.Reset()
	n, err := io.CopyN(&u.chunk, u.r, chunk)
	u.size += n
	u.last = err == io.EOF //nolint:errorlint // see above
	if err != nil && !u.last {
		return &store.Error{Op: "put", Key: u.key, Kind: store.ErrInvalid, Cause: fmt.Errorf("reading the body, after %d bytes: %w", u.size, err)}
	}
	return nil
}

// inChunks writes the chunk that was read and the rest of r.
func (u *upload) inChunks(ctx context.Context) error {
	if err := u.begin(ctx); err != nil {
		return err
	}
	err := u.send(ctx)
	for !u.last && err == nil {
		if err = u.read(); err == nil {
			err = u.send(ctx)
		}
	}
	if err != nil {
		return u.cancel(ctx, err)
	}
	return nil
}

// begin begins the session. If the response is lost, the session it would have named has no
// bytes and costs nothing.
func (u *upload) begin(ctx context.Context) error {
	about, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	var session string
	err = u.repeat(ctx, u.call(true), func(c *call) error {
		query := url.Values{"uploadType": {"resumable"}, "name": {c.name}}
		req := u.s.request(http.MethodPost, "/upload/storage/v1/b/", "", query, about)
		req.Header.Set("Content-Type", "application/json; charset=UTF-8")
		answer, failed := u.s.do(ctx, c, req)
		if failed == nil {
			session = answer.Header.Get("Location")
			_ = answer.Body.Close()
		}
		return failed
	})
	if err != nil {
		return err
	}
	u.session, err = url.Parse(session)
	if err != nil || u.session.Host == "" || u.session.Scheme != u.s.endpoint.Scheme {
		return &store.Error{
			Op: "put", Key: u.key, Kind: store.ErrUnavailable,
			Cause: errors.New("the answer names no session for the upload: is this Google Cloud Storage?"),
		}
	}
	return nil
}

// repeat sends a request until it succeeds, fails permanently, or has failed too often.
func (u *upload) repeat(ctx context.Context, c *call, send func(*call) error) error {
	for failures := 0; ; {
		err := send(c)
		if err == nil {
			return nil
		}
		if failures++; !again(ctx, c, failures) {
			return c.fail(ctx, err)
		}
	}
}

// again reports whether to retry a request after that many failures, and waits before it.
func again(ctx context.Context, c *call, failures int) bool {
	switch status := c.Status(); {
	case !c.Handed() || failures > repeats:
		return false
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, throttles(c.reason()):
	case status >= 300 && status < 500, status == http.StatusNotImplemented:
		return false
	}
	pause := time.NewTimer(firstPause << (failures - 1))
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send sends a chunk. The server may accept only a part of it, and says how much; if a response
// is missing, send asks for it. Only the last chunk, which may be empty, makes the object
// visible.
func (u *upload) send(ctx context.Context) error {
	c := u.call(!u.last)
	rest, asks := u.chunk.Bytes(), false
	for failures := 0; ; {
		if err := ctx.Err(); err != nil {
			return u.stopped(c, err)
		}
		from := u.size - int64(len(rest))
		var answer *http.Response
		var err error
		if asks {
			answer, err = u.put(ctx, c, nil, "*")
		} else {
			answer, err = u.put(ctx, c, rest, fmt.Sprintf("%d-%d", from, u.size-1))
		}
		switch {
		case err == nil && u.last:
			_, err = written(answer.Body)
			_ = answer.Body.Close()
			if err == nil {
				return nil
			}
		case err == nil:
			_ = answer.Body.Close()
			return c.fail(ctx, errors.New("the server ended the upload before its end"))
		case c.Status() == http.StatusPermanentRedirect: // meaning "continue"
			has := persisted(c.Header().Get("Range"))
			if has < from || has > u.size || has == from && !asks {
				return u.stopped(c, fmt.Errorf("the server was sent the bytes from %d to %d, and says that it has %d", from, u.size, has))
			}
			if rest, asks = rest[has-from:], false; len(rest) == 0 && !u.last {
				return nil
			}
			continue
		}
		if failures++; !again(ctx, c, failures) {
			return c.fail(ctx, err)
		}
		asks = true
	}
}

// stopped returns the error of a chunk that was not sent.
func (u *upload) stopped(c *call, cause error) error {
	e := &store.Error{Op: "put", Key: u.key, Kind: store.ErrUnavailable, Cause: cause, Date: c.Date(), RequestID: c.requestID()}
	if c.Unsure() && c.Writes() {
		e.Kind = store.ErrUnknownOutcome // an earlier request may still complete the upload
	}
	return e
}

// put sends body in the session. If it is empty, put asks how many bytes the server has or, if
// those are all, completes the upload.
func (u *upload) put(ctx context.Context, c *call, body []byte, which string) (*http.Response, error) {
	req := newRequest(http.MethodPut, u.session, body)
	total := "*" // not known yet
	if u.last {
		total = strconv.FormatInt(u.size, 10)
	}
	if len(body) == 0 {
		which = "*"
	}
	req.Header.Set("Content-Range", "bytes "+which+"/"+total)
	return u.s.send(ctx, c, req)
}

// persisted returns how many bytes the server has, from a header such as "bytes=0-8388607", or
// none.
func persisted(which string) int64 {
	_, end, _ := strings.Cut(which, "-")
	last, err := strconv.ParseInt(end, 10, 64)
	if err != nil {
		return 0
	}
	return last + 1
}

// cancel ends the session, whose bytes are invisible, and returns the upload's error. The
// server confirms it with a nonstandard status.
func (u *upload) cancel(ctx context.Context, why error) error {
	const cancelled = 499
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
	defer stop()
	c := u.call(true)
	answer, err := u.s.send(ctx, c, newRequest(http.MethodDelete, u.session, nil))
	if err == nil {
		_ = answer.Body.Close()
		return why
	}
	switch c.Status() {
	case cancelled, http.StatusNotFound, http.StatusGone:
		return why
	}
	if e, ok := errors.AsType[*store.Error](why); ok {
		e.Cause = fmt.Errorf("%w; what was sent stays on the server until the session of the upload ends, after a week: %s", e.Cause, exchange.Redact(c.text(err)))
	}
	return why
}

// GetLarge opens the object: see [store.Large]. It takes one request, whose connection stays
// open until the reader is closed.
func (s *Store) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if err := store.CheckKey("get", key); err != nil {
		return nil, 0, err
	}
	c := &call{Call: exchange.Call{Op: "get", Key: key}, name: s.prefix + key, bucket: s.bucket}
	answer, _, err := s.download(ctx, c, "")
	if err != nil {
		return nil, 0, err
	}
	if answer.ContentLength < 0 {
		_ = answer.Body.Close()
		return nil, 0, c.fail(ctx, exchange.ErrNoLength)
	}
	return &download{ReadCloser: answer.Body, ctx: ctx, call: c}, answer.ContentLength, nil
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
