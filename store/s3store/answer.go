package s3store

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold/leasehold/store/internal/exchange"
)

// A refusal is what an answer of 300 and above says. It is read here because the SDK
// does not tell three things apart that differ: a code that the server gave, a code
// that the SDK made of the status, and a page that no S3 server wrote.
type refusal struct {
	code, message, requestID string // of an error in the form of S3

	text  string // what begins a body in any other form
	empty bool   // there was no body
}

const requestIDHeader = "X-Amz-Request-Id"

// refuse reads the body of an answer and leaves it to be read again.
func refuse(answer *http.Response) *refusal {
	body, empty := exchange.Refusal(answer)
	r := &refusal{empty: empty}
	if r.parse(body); r.code == "" {
		r.text = exchange.Words(body)
	}
	if id := answer.Header.Get(requestIDHeader); id != "" {
		r.requestID = id
	}
	return r
}

// parse reads <Error><Code>…</Code>…</Error> as far as it goes.
func (r *refusal) parse(body []byte) {
	d := xml.NewDecoder(bytes.NewReader(body))
	inside := false
	for {
		token, err := d.Token()
		if err != nil {
			return
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if !inside {
			if inside = start.Name.Local == "Error"; !inside && start.Name.Local != "ErrorResponse" {
				return
			}
			continue
		}
		var text string
		if d.DecodeElement(&text, &start) != nil {
			return
		}
		text = strings.TrimSpace(text)
		switch start.Name.Local {
		case "Code":
			r.code = text
		case "Message":
			r.message = text
		case "RequestId":
			r.requestID = text
		}
	}
}

// maxXML bounds what the SDK reads of a success. The longest is a page of a listing: of 1000 keys of 1 KiB, every character of them
// written as "&quot;", and what is said of each.
const maxXML = 16 << 20

type closing struct {
	io.Reader
	io.Closer
}

func limited(body io.ReadCloser) io.ReadCloser {
	return closing{io.LimitReader(body, maxXML), body}
}

// listing checks that an answer is one. The SDK reads whatever comes, and takes the pages
// of a web server, and no page at all, for a listing without objects.
func listing(answer *http.Response) error {
	const most = 4 << 10
	body := bufio.NewReaderSize(limited(answer.Body), most)
	begin, err := body.Peek(most)
	d := xml.NewDecoder(bytes.NewReader(begin))
	d.Strict = false
	for {
		token, bad := d.Token()
		start, ok := token.(xml.StartElement)
		switch {
		case ok && isListing(start.Name.Local):
			answer.Body = closing{body, answer.Body}
			return nil
		case bad == nil && !ok:
			continue // <?xml version="1.0"?>
		case err != nil && err != io.EOF:
			return errors.Join(err, answer.Body.Close())
		}
		_ = answer.Body.Close()
		return fmt.Errorf("the answer is no listing of S3 but %q: does the endpoint lead to an S3 server?", exchange.Words(begin))
	}
}

// isListing knows ListBucketResult and ListVersionsResult of S3, and their variants of
// other servers, ListBucketVersionsResult for one.
func isListing(root string) bool {
	return strings.HasPrefix(root, "List") && strings.HasSuffix(root, "Result") && root != "ListAllMyBucketsResult"
}

// fromS3 reports that a server of S3 gave the answer, by the headers that only such a
// server sets. CloudFront, which stands in front of anything, has others (X-Amz-Cf-Id).
func fromS3(header http.Header) bool {
	return header.Get(requestIDHeader) != "" || header.Get("X-Amz-Id-2") != ""
}

// worded says what happened, and what to do about it.
func (c *call) worded(err error, advice string) error {
	text := plain(err)
	if c.refusal != nil {
		text = c.refusal.words(c.Status())
	}
	if advice != "" {
		text += "; " + advice
	}
	return &exchange.Failure{Text: text, Err: err}
}

func (r *refusal) words(status int) string {
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	switch {
	case r.code != "" && r.message != "" && r.message != r.code:
		return fmt.Sprintf("%d %s: %s", status, r.code, strings.TrimSuffix(r.message, "."))
	case r.code != "":
		return fmt.Sprintf("%d %s", status, r.code)
	case r.text != "":
		return fmt.Sprintf("%s: %q", text, r.text)
	case r.empty:
		return text + ", without a body"
	}
	return text
}

// plain is an error of the SDK without what every one of its errors begins with.
func plain(err error) string {
	for {
		switch e := err.(type) { //nolint:errorlint // one layer after the other
		case *smithy.OperationError, s3.ResponseError, *smithyhttp.ResponseError,
			*smithyhttp.RequestSendError, *smithy.CanceledError, *smithy.DeserializationError:
			inner := errors.Unwrap(err)
			if inner == nil {
				return err.Error()
			}
			err = inner
		case *url.Error:
			return fmt.Sprintf("%s %s: %s", strings.ToUpper(e.Op), exchange.Readable(e.URL), plain(e.Err))
		default:
			return err.Error()
		}
	}
}
