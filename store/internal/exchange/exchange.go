// Package exchange watches the requests of one call of a store pass through an HTTP client.
//
// The errors of the clouds' SDKs do not tell the two things that matter most: whether anything can have
// reached the server, and what the server's own answer was. (An error of an SDK can also carry the answer of
// another service, which was asked for credentials: its 404 says nothing about the object.) All stores that
// speak HTTP judge by what is seen here.
package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/store"
)

// A Doer sends requests, as an http.Client does.
type Doer interface {
	Do(req *http.Request) (*http.Response, error)
}

// NoRedirects is the CheckRedirect of an http.Client that takes an answer of 3xx for the answer. No store and no
// service for credentials leads elsewhere in its everyday work; what does may lead to itself.
func NoRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// An Exchange is what is known of the requests of one call. Most calls have one; where a client repeats
// some, they come one after the other.
type Exchange struct {
	handed atomic.Bool // the request was handed to the HTTP client
	sought atomic.Bool // net/http looked for a connection
	sent   atomic.Bool // there was a connection, so bytes may have left

	answer *http.Response
	unsure bool
}

// Send sends a request. An error means that there is no answer of the server that was asked.
func (x *Exchange) Send(client Doer, req *http.Request) (*http.Response, error) {
	x.begin()
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { x.sought.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { x.sent.Store(true) },
	}
	// Only here, not in the context of the call: that one also reaches the
	// requests for credentials.
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	if err := pack(req); err != nil {
		return nil, err
	}
	if standard, ok := client.(*http.Client); ok {
		stays := *standard
		stays.CheckRedirect = NoRedirects
		client = &stays
	}
	answer, err := client.Do(req)
	if err != nil {
		return answer, err
	}
	if answer.Request != nil && answer.Request.Response != nil {
		// It is the answer to another request: net/http makes a PUT that is
		// redirected into a GET, whose success would be taken for the PUT's.
		_ = answer.Body.Close()
		return nil, fmt.Errorf("the server redirected the request to %s", Readable(answer.Request.URL.String()))
	}
	x.answer = answer
	return answer, nil
}

// maxPacked is the length of a body that net/http sends together with its headers: what
// its buffer holds.
const maxPacked = 4 << 10

// pack has a small body leave with its headers. A body of which net/http does not know that
// it is in memory, as those of SDKs, is sent after them: a second packet, a second call of
// the kernel, and a server that begins, and waits. GetBody is unset, without which
// net/http sends no PUT again.
func pack(req *http.Request) error {
	req.GetBody = nil
	if req.Body == nil || req.ContentLength <= 0 || req.ContentLength > maxPacked {
		return nil
	}
	body := make([]byte, req.ContentLength)
	if _, err := io.ReadFull(req.Body, body); err != nil {
		return fmt.Errorf("read the body of the request: %w", err)
	}
	err := req.Body.Close()
	req.Body = io.NopCloser(bytes.NewReader(body))
	return err
}

// begin is called before each request. The outcome of this one says nothing about
// those before it.
func (x *Exchange) begin() {
	x.unsure = x.unsure || !ChangesNothing(x.Status()) && x.handed.Load() && !x.Unsent()
	x.handed.Store(true)
	x.sought.Store(false)
	x.sent.Store(false)
	x.answer = nil
}

// Handed reports that a request was handed to the HTTP client: that the call did not fail before.
func (x *Exchange) Handed() bool { return x.handed.Load() }

// Unsent reports that no connection was had for the last request, so that nothing of it has left.
func (x *Exchange) Unsent() bool { return x.sought.Load() && !x.sent.Load() }

// Unsure reports that a request before the last one may have been carried out.
func (x *Exchange) Unsure() bool { return x.unsure }

// Header gives the header of the server's answer, or none.
func (x *Exchange) Header() http.Header {
	if x.answer == nil {
		return nil
	}
	return x.answer.Header
}

// Length gives the length of the body of the server's answer, or -1 where that does not say.
func (x *Exchange) Length() int64 {
	if x.answer == nil {
		return -1
	}
	return x.answer.ContentLength
}

// Status gives the HTTP status of the server's answer, or 0.
func (x *Exchange) Status() int {
	if x.answer == nil {
		return 0
	}
	return x.answer.StatusCode
}

// Date gives the server's time in its answer. An answer that passed a cache
// carries the time of some earlier one.
func (x *Exchange) Date() time.Time {
	if x.answer == nil || x.answer.Header.Get("Age") != "" || x.answer.Header.Get("Via") != "" {
		return time.Time{}
	}
	date, err := http.ParseTime(x.answer.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}

// ChangesNothing reports that an answer of this status says by itself that the request
// was not carried out. RFC 9110 gives the statuses of 400 and above to requests that
// the server will not process, and 501 to those that it cannot. They come before the
// server, or what stands before it, has done anything: it has not yet read what it is
// to store (405, 411, 501), or not found it good (400). Left out are those that are
// said after something may have been done: a time-out (408), a page to go on to (302,
// 303), all numbers that no standard knows (499 is said of a client that left while its
// request was under way), and the errors of servers but 501.
func ChangesNothing(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
		http.StatusUnavailableForLegalReasons, http.StatusNotImplemented:
		return true
	case http.StatusRequestTimeout:
		return false
	}
	return status >= 400 && status <= http.StatusRequestHeaderFieldsTooLarge
}

// ErrNoLength: a body ends where the connection ends, and a connection that broke looks the same.
var ErrNoLength = errors.New("the answer does not say how long the object is")

// Read reads the body of the answer whole or not at all: a record's, of store.MaxBody at most. r is that body,
// or what a client has made of it.
func (x *Exchange) Read(r io.Reader) ([]byte, error) {
	size := x.answer.ContentLength
	switch {
	case size > store.MaxBody:
		return nil, fmt.Errorf("%w: %d bytes, more than %d", store.ErrTooLarge, size, store.MaxBody)
	case size < 0 && len(x.answer.TransferEncoding) == 0 && x.answer.ProtoMajor == 1:
		return nil, ErrNoLength
	}
	body, err := io.ReadAll(io.LimitReader(r, store.MaxBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > store.MaxBody {
		return nil, fmt.Errorf("%w: more than %d bytes", store.ErrTooLarge, store.MaxBody)
	}
	return body, nil
}
