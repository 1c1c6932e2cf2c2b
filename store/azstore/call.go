package azstore

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/leasehold/leasehold/store/internal/exchange"
)

// A call is one store call. It sees its requests pass through the HTTP client.
type call struct {
	exchange.Call
	create  bool     // a put that creates
	from    string   // where a listing begins; empty: at the first object
	refusal *refusal // the response, if its status is 300 or above
}

// watch returns the context through which the client finds the call, because the SDK has
// options only per client.
func (c *call) watch(ctx context.Context) context.Context {
	return context.WithValue(ctx, calls{}, c)
}

type calls struct{} // the context key of a call

// starting sets where a listing begins. The SDK has an option for it, but its pager of v1.7.0
// ignores it. Later versions depend on Apache Arrow, which is not needed otherwise.
type starting struct{}

func (starting) Do(req *policy.Request) (*http.Response, error) {
	if c, ok := req.Raw().Context().Value(calls{}).(*call); ok && c.from != "" {
		query := req.Raw().URL.Query()
		query.Set("startFrom", c.from)
		req.Raw().URL.RawQuery = query.Encode()
	}
	return req.Next()
}

// watched is a store's HTTP client. Token requests of credentials do not use it.
type watched struct{ client exchange.Doer }

func (w watched) Do(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c := ctx.Value(calls{}).(*call) //nolint:errcheck,forcetypeassert // nobody else has the client
	if err := ctx.Err(); err != nil {
		return nil, err // nothing is sent, or counted as sent
	}
	c.refusal = nil
	answer, err := c.Send(w.client, req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			failed.URL = exchange.Readable(failed.URL) // a SAS is in the query
		}
		return answer, err
	}
	switch {
	case c.Refused():
		c.refusal = refuse(answer)
	case c.Op == "list":
		return answer, exchange.CheckListing(answer, maxXML, isListing, "Azure", "Azure Blob Storage")
	case c.Op != "get": // the store reads the body of a get itself
		exchange.Limit(answer, maxXML)
	}
	return answer, nil
}

// requestID returns the service's ID for the request.
func (c *call) requestID() string {
	return c.Header().Get("x-ms-request-id")
}

// codeHeader has the service's error code. It is in every error response, so it arrives even if
// the body breaks off:
// https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2
const codeHeader = "X-Ms-Error-Code"

// code returns the service's error code, or "".
func (c *call) code() string {
	if c.refusal == nil {
		return ""
	}
	return c.refusal.Code
}

// A credential marks the errors of another credential, whose requests never go to the store.
type credential struct{ azcore.TokenCredential }

func (c credential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := c.TokenCredential.GetToken(ctx, o)
	if err != nil {
		err = &tokenError{err}
	}
	return token, err
}

// A tokenError means that there was no token.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

// A refusal is the content of a response of 300 and above.
type refusal struct {
	exchange.Refusal
	detail string // more about invalid credentials
	header string // the invalid header
}

// refuse reads a response body and restores it.
func refuse(answer *http.Response) *refusal {
	body, empty := exchange.Refused(answer)
	r := &refusal{Refusal: exchange.Refusal{Code: answer.Header.Get(codeHeader), Empty: empty}}
	var said struct {
		XMLName                   xml.Name `xml:"Error"`
		Message                   string
		AuthenticationErrorDetail string
		HeaderName                string
	}
	// Fields parsed before an error are kept.
	if err := xml.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &said); err != nil && said.Message == "" {
		r.Text = exchange.Words(body)
		return r
	}
	// Further lines repeat the request's ID and the time.
	r.Message, _, _ = strings.Cut(strings.TrimSpace(said.Message), "\n")
	r.detail, r.header = said.AuthenticationErrorDetail, said.HeaderName
	return r
}

// maxXML bounds what the SDK reads of a successful response. The longest is a listing page:
// 5000 names of 1 KiB with every character escaped as "&quot;", and their attributes.
const maxXML = 64 << 20

func isListing(root string) bool { return root == "EnumerationResults" }

// plain returns an error on one line, without the horizontal rules in azidentity's errors.
func plain(err error) string {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Sprintf("%s %s: %s", strings.ToUpper(failed.Op), exchange.Readable(failed.URL), failed.Err)
	}
	var words []string
	for word := range strings.FieldsSeq(err.Error()) {
		if strings.Trim(word, "-") != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}
