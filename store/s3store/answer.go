package s3store

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
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
	exchange.Refusal
	requestID string
}

const requestIDHeader = "X-Amz-Request-Id"

// refuse reads the body of an answer and leaves it to be read again.
func refuse(answer *http.Response) *refusal {
	body, empty := exchange.Refused(answer)
	r := &refusal{Refusal: exchange.Refusal{Empty: empty}}
	if r.parse(body); r.Code == "" {
		r.Text = exchange.Words(body)
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
			r.Code = text
		case "Message":
			r.Message = text
		case "RequestId":
			r.requestID = text
		}
	}
}

// maxXML bounds what the SDK reads of a success. The longest is a page of a listing: of 1000 keys of 1 KiB, every character of them
// written as "&quot;", and what is said of each.
const maxXML = 16 << 20

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
