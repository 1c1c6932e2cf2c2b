package s3store

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// A call is one call of a store. It watches its request pass through the HTTP
// client, because the SDK's error does not tell the two things that matter most:
// whether anything can have reached the server, and what the server's own answer
// was. (An error of the SDK can also carry the answer of another service, which
// was asked for credentials: its 404 says nothing about the object.)
type call struct {
	op, key string
	create  bool // a put that needs no object, so that what it misses is the bucket
	part    bool // a put that by itself shows no reader anything
	repeats bool // the client may send the request again, as it is set to do

	handed atomic.Bool // the request was handed to the HTTP client
	sought atomic.Bool // net/http looked for a connection
	sent   atomic.Bool // there was a connection, so bytes may have left

	answer  *http.Response // the server's answer, or nil
	refusal *refusal       // what it says, if it is one of 300 and above
	unsure  bool           // an earlier request, of those that were repeated, may have landed
}

// options are the options of the call, whatever those of the client are.
func (c *call) options(o *s3.Options) {
	if !c.repeats {
		o.Retryer = aws.NopRetryer{}
	}
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.HTTPClient = &watched{client: o.HTTPClient, call: c}
}

// watched is the HTTP client of one call.
type watched struct {
	client s3.HTTPClient
	call   *call
}

func (w *watched) Do(req *http.Request) (*http.Response, error) {
	c := w.call
	c.begin()
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { c.sought.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.sent.Store(true) },
	}
	// Only here, not in the context of the call: that one also reaches the
	// requests for credentials.
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	if err := pack(req); err != nil {
		return nil, err
	}
	answer, err := w.client.Do(req)
	if err != nil {
		return answer, err
	}
	if answer.Request != nil && answer.Request.Response != nil {
		// It is the answer to another request: net/http makes a PUT that is
		// redirected into a GET, whose success would be taken for the PUT's.
		_ = answer.Body.Close()
		return nil, fmt.Errorf("the server redirected the request to %s", answer.Request.URL.Redacted())
	}
	c.answer = answer
	switch {
	case c.refused():
		c.refusal = refuse(answer)
	case c.op == "list":
		return answer, listing(answer)
	case c.op != "get": // whose body is no business of the SDK's
		answer.Body = limited(answer.Body)
	}
	return answer, nil
}

// maxPacked is the length of a body that net/http sends together with its headers: what
// its buffer holds.
const maxPacked = 4 << 10

// pack has a small body leave with its headers. A body of which net/http does not know that
// it is in memory, as that of the SDK, is sent after them: a second packet, a second call of
// the kernel, and a server that begins, and waits. GetBody stays unset, without which
// net/http sends no PUT again.
func pack(req *http.Request) error {
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
func (c *call) begin() {
	unsent := !c.handed.Load() || c.sought.Load() && !c.sent.Load()
	c.unsure = c.unsure || !changesNothing(c.status()) && !unsent
	c.handed.Store(true)
	c.sought.Store(false)
	c.sent.Store(false)
	c.answer, c.refusal = nil, nil
}

// status gives the HTTP status of the server's answer, or 0.
func (c *call) status() int {
	if c.answer == nil {
		return 0
	}
	return c.answer.StatusCode
}

// date gives the server's time in its answer. An answer that passed a cache
// carries the time of some earlier one.
func (c *call) date() time.Time {
	if c.answer == nil || c.answer.Header.Get("Age") != "" || c.answer.Header.Get("Via") != "" {
		return time.Time{}
	}
	date, err := http.ParseTime(c.answer.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}

// requestID gives the server's name for the request.
func (c *call) requestID() string {
	switch {
	case c.refusal != nil:
		return c.refusal.requestID
	case c.answer != nil:
		return c.answer.Header.Get(requestIDHeader)
	}
	return ""
}
