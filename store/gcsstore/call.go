package gcsstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/leasehold/leasehold/store/internal/exchange"
)

// A call is one store call. It sees its requests pass through the HTTP client.
type call struct {
	exchange.Call
	bucket, name string   // of the object, as the server knows it
	refusal      *refusal // the response, if its status is 300 or above
	noToken      bool     // there was no token, so nothing was sent
	revoked      bool     // the token is refused, but one was accepted before
}

// errRefused means a response of 300 and above; the refusal has its content.
var errRefused = errors.New("the server refused")

// request returns a request about the object of that name, or about the bucket if name is "".
// The path is "/storage/v1/b/" or, for uploads, "/upload/storage/v1/b/".
func (s *Store) request(method, path, name string, query url.Values, body []byte) *http.Request {
	if s.project != "" {
		query.Set("userProject", s.project)
	}
	u := *s.endpoint
	u.Path = path + s.bucket + "/o"
	u.RawPath = path + url.PathEscape(s.bucket) + "/o"
	if name != "" {
		u.Path += "/" + name
		u.RawPath += "/" + url.PathEscape(name) // slashes in a name are not slashes of the path
	}
	u.RawQuery = query.Encode()
	return newRequest(method, &u, body)
}

func newRequest(method string, u *url.URL, body []byte) *http.Request {
	req := &http.Request{
		Method: method, URL: u, Host: u.Host, Header: http.Header{},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	switch {
	case len(body) > 0:
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	case method != http.MethodGet:
		// This makes net/http send "Content-Length: 0", which servers want.
		req.Body, req.TransferEncoding = http.NoBody, []string{"identity"}
	}
	return req
}

// do sends the request of the call with a token. If the response is not a success, the error is
// errRefused.
func (s *Store) do(ctx context.Context, c *call, req *http.Request) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // net/http would not say that it sent nothing
	}
	if s.token != nil {
		token, err := s.token(ctx)
		if err != nil {
			c.noToken = !c.Handed() // otherwise the outcome of the request before decides
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := s.send(ctx, c, req)
	switch {
	case s.token == nil:
	case err == nil:
		s.accepted.Store(true)
	case c.Status() == http.StatusUnauthorized:
		if c.revoked = s.accepted.Load(); s.refused != nil {
			s.refused()
		}
	}
	return answer, err
}

// send sends the request as it is.
func (s *Store) send(ctx context.Context, c *call, req *http.Request) (*http.Response, error) {
	c.refusal = nil
	answer, err := c.Send(s.client, req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 {
		c.refusal = refuse(answer)
		return nil, errRefused
	}
	return answer, nil
}

// maxJSON bounds what is read of a successful response. The longest is a listing page: 1000
// names of 1 KiB with every character escaped, and their attributes.
const maxJSON = 16 << 20

// read reads JSON to its end, so the connection can be reused.
func read(r io.Reader, into any) error {
	body, err := io.ReadAll(io.LimitReader(r, maxJSON))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer is not what Google Cloud Storage says but %q: does the endpoint lead there?", exchange.Words(body))
	}
	return nil
}

// metadata is what is set for an object when it is written.
type metadata struct {
	CacheControl string `json:"cacheControl"`
	ContentType  string `json:"contentType"`
}

// stored keeps caches, including public ones, from storing the object, and proxies from
// changing it.
var stored = metadata{CacheControl: "no-store, no-transform", ContentType: "application/octet-stream"}

var errNoGeneration = errors.New("the answer has no generation: is this Google Cloud Storage?")

// insert writes an object by one request with two parts, the metadata and the body
// (https://cloud.google.com/storage/docs/uploading-objects#uploading-an-object).
func (s *Store) insert(ctx context.Context, c *call, body []byte, query url.Values) (*resource, error) {
	about, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	var parts bytes.Buffer
	w := multipart.NewWriter(&parts) // with a random boundary that no body contains
	for _, part := range []struct {
		kind string
		text []byte
	}{{"application/json; charset=UTF-8", about}, {stored.ContentType, body}} {
		to, failed := w.CreatePart(textproto.MIMEHeader{"Content-Type": {part.kind}})
		if failed == nil {
			_, failed = to.Write(part.text)
		}
		if failed != nil {
			return nil, failed
		}
	}
	if err = w.Close(); err != nil {
		return nil, err
	}
	query.Set("uploadType", "multipart")
	query.Set("name", c.name)
	query.Set("fields", "generation,timeCreated")
	req := s.request(http.MethodPost, "/upload/storage/v1/b/", "", query, parts.Bytes())
	req.Header.Set("Content-Type", "multipart/related; boundary="+w.Boundary())
	answer, err := s.do(ctx, c, req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	return written(answer.Body)
}

// written reads the response to a write that landed.
func written(answer io.Reader) (*resource, error) {
	r := &resource{}
	if err := read(answer, r); err != nil {
		return nil, err
	}
	if !isGeneration(r.Generation) {
		return nil, errNoGeneration
	}
	return r, nil
}

// A refusal is the content of a response of 300 and above: JSON, or a line of text if the
// request was for an object's body
// (https://cloud.google.com/storage/docs/json_api/v1/status-codes).
type refusal struct {
	exchange.Refusal      // its code, such as "notFound", is in JSON only
	google           bool // the response is from a server of Google Cloud Storage
}

// requestIDHeader is in every response of Google Cloud Storage.
const requestIDHeader = "X-Guploader-Uploadid"

// refuse reads a response body.
func refuse(answer *http.Response) *refusal {
	body, empty := exchange.Refused(answer)
	r := &refusal{Refusal: exchange.Refusal{Empty: empty}, google: answer.Header.Get(requestIDHeader) != ""}
	var said struct {
		Error struct {
			Message string
			Errors  []struct{ Reason string }
		}
	}
	switch {
	case json.Unmarshal(body, &said) == nil && (said.Error.Message != "" || len(said.Error.Errors) > 0):
		if r.Message = line(said.Error.Message); len(said.Error.Errors) > 0 {
			r.Code = said.Error.Errors[0].Reason
		}
	case r.google && len(body) < 2<<10 && !bytes.ContainsAny(body, "<{"):
		r.Message = line(string(body))
	default:
		r.Text = exchange.Words(body)
	}
	return r
}

// line returns a text on one line.
func line(text string) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
}

// requestID returns the server's ID for the request.
func (c *call) requestID() string { return c.Header().Get(requestIDHeader) }
