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

// A call is one call of a store, and watches its requests pass through the HTTP client.
type call struct {
	exchange.Call
	create  bool     // a put that needs no object
	from    string   // where a listing begins; empty: with the first
	refusal *refusal // what the answer says, if it is one of 300 and above
}

// watch gives the context by which the client finds the call: the SDK has options of a client,
// but none of a call.
func (c *call) watch(ctx context.Context) context.Context {
	return context.WithValue(ctx, calls{}, c)
}

type calls struct{} // the key of a call in its context

// starting says where a listing begins. The SDK has an option for that, and its pager of v1.7.0
// forgets it. Later ones link Apache Arrow, which nothing here needs.
type starting struct{}

func (starting) Do(req *policy.Request) (*http.Response, error) {
	if c, ok := req.Raw().Context().Value(calls{}).(*call); ok && c.from != "" {
		query := req.Raw().URL.Query()
		query.Set("startFrom", c.from)
		req.Raw().URL.RawQuery = query.Encode()
	}
	return req.Next()
}

// watched is the HTTP client of a store. The requests that credentials make for tokens do not
// come here.
type watched struct{ client exchange.Doer }

func (w watched) Do(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c := ctx.Value(calls{}).(*call) //nolint:errcheck,forcetypeassert // nobody else has the client
	if err := ctx.Err(); err != nil {
		return nil, err // and so nothing is sent, nor taken for sent
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
	case c.Op != "get": // whose body is no business of the SDK's
		exchange.Limit(answer, maxXML)
	}
	return answer, nil
}

// requestID gives the service's name for the request.
func (c *call) requestID() string {
	return c.Header().Get("x-ms-request-id")
}

// codeHeader has the service's word for what is wrong, in every answer that refuses, so that it
// arrives even where the body breaks off:
// https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2
const codeHeader = "X-Ms-Error-Code"

// code gives that word, or "".
func (c *call) code() string {
	if c.refusal == nil {
		return ""
	}
	return c.refusal.Code
}

// A credential marks the errors of another, none of whose requests go to the store.
type credential struct{ azcore.TokenCredential }

func (c credential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := c.TokenCredential.GetToken(ctx, o)
	if err != nil {
		err = &tokenError{err}
	}
	return token, err
}

// A tokenError says that there was no token to be had.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

// A refusal is what the body of an answer of 300 and above says.
type refusal struct {
	exchange.Refusal
	detail string // more about credentials that are not good
	header string // which header is wrong
}

// refuse reads the body of an answer and leaves it to be read again.
func refuse(answer *http.Response) *refusal {
	body, empty := exchange.Refused(answer)
	r := &refusal{Refusal: exchange.Refusal{Code: answer.Header.Get(codeHeader), Empty: empty}}
	var said struct {
		XMLName                   xml.Name `xml:"Error"`
		Message                   string
		AuthenticationErrorDetail string
		HeaderName                string
	}
	// What has been read before an error stands.
	if err := xml.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &said); err != nil && said.Message == "" {
		r.Text = exchange.Words(body)
		return r
	}
	// The lines after the first repeat the request's ID and the time.
	r.Message, _, _ = strings.Cut(strings.TrimSpace(said.Message), "\n")
	r.detail, r.header = said.AuthenticationErrorDetail, said.HeaderName
	return r
}

// maxXML bounds what the SDK reads of a success. The longest is a page of a listing: of 5000
// names of 1 KiB, every character of them written as "&quot;", and what is said of each.
const maxXML = 64 << 20

func isListing(root string) bool { return root == "EnumerationResults" }

// plain is an error in one line, without the rules that those of azidentity draw.
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
