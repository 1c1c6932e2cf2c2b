package azstore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/leasehold/leasehold/store/internal/exchange"
)

// A call is one call of a store, and watches its requests pass through the HTTP client.
type call struct {
	op, key string
	create  bool   // a put that needs no object
	part    bool   // a put that by itself shows no reader anything
	from    string // where a listing begins; empty: with the first

	exchange.Exchange
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
	case c.refused():
		c.refusal = refuse(answer)
	case c.op == "list":
		return answer, listing(answer)
	case c.op != "get": // whose body is no business of the SDK's
		answer.Body = limited(answer.Body)
	}
	return answer, nil
}

// requestID gives the service's name for the request.
func (c *call) requestID() string {
	return c.Header().Get("x-ms-request-id")
}

// code gives the service's word for what is wrong, or "". It is a header of every answer that
// refuses, so it arrives even where the body breaks off:
// https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2
func (c *call) code() string {
	if !c.refused() {
		return ""
	}
	return c.Header().Get("x-ms-error-code")
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
	message string // of an error in the form of Azure
	detail  string // more about credentials that are not good
	header  string // which header is wrong

	text  string // what begins a body in any other form
	empty bool   // there was no body
}

// refuse reads the body of an answer and leaves it to be read again.
func refuse(answer *http.Response) *refusal {
	body, empty := exchange.Refusal(answer)
	r := &refusal{empty: empty}
	var said struct {
		XMLName                   xml.Name `xml:"Error"`
		Message                   string
		AuthenticationErrorDetail string
		HeaderName                string
	}
	// What has been read before an error stands.
	if err := xml.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &said); err != nil && said.Message == "" {
		r.text = exchange.Words(body)
		return r
	}
	// The lines after the first repeat the request's ID and the time.
	r.message, _, _ = strings.Cut(strings.TrimSpace(said.Message), "\n")
	r.detail, r.header = said.AuthenticationErrorDetail, said.HeaderName
	return r
}

// maxXML bounds what the SDK reads of a success. The longest is a page of a listing: of 5000
// names of 1 KiB, every character of them written as "&quot;", and what is said of each.
const maxXML = 64 << 20

type closing struct {
	io.Reader
	io.Closer
}

func limited(body io.ReadCloser) io.ReadCloser {
	return closing{io.LimitReader(body, maxXML), body}
}

// listing checks that an answer is one: the SDK takes no page at all for a listing without
// objects.
func listing(answer *http.Response) error {
	const most = 4 << 10
	body := bufio.NewReaderSize(limited(answer.Body), most)
	begin, err := body.Peek(most)
	d := xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(begin, []byte("\ufeff"))))
	d.Strict = false
	for {
		token, bad := d.Token()
		start, ok := token.(xml.StartElement)
		switch {
		case ok && start.Name.Local == "EnumerationResults":
			answer.Body = closing{body, answer.Body}
			return nil
		case bad == nil && !ok:
			continue // <?xml version="1.0"?>
		case err != nil && err != io.EOF:
			return errors.Join(err, answer.Body.Close())
		}
		_ = answer.Body.Close()
		return fmt.Errorf("the answer is no listing of Azure but %q: does the endpoint lead to Azure Blob Storage?", exchange.Words(begin))
	}
}

// words says what the service answered.
func (c *call) words() string {
	r, text := c.refusal, fmt.Sprintf("%d %s", c.Status(), http.StatusText(c.Status()))
	switch code := c.code(); {
	case code != "" && r.message != "":
		return fmt.Sprintf("%d %s: %s", c.Status(), code, strings.TrimSuffix(r.message, "."))
	case code != "":
		return fmt.Sprintf("%d %s", c.Status(), code)
	case r.message != "":
		return text + ": " + strings.TrimSuffix(r.message, ".")
	case r.text != "":
		return fmt.Sprintf("%s: %q", text, r.text)
	case r.empty:
		return text + ", without a body"
	}
	return text
}

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
