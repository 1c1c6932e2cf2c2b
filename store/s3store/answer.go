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

// A refusal is the content of a response of 300 and above. The store parses it itself, because
// the SDK does not distinguish a code from the server, a code derived from the status, and a
// page from another kind of server.
type refusal struct {
	exchange.Refusal
	requestID string
}

const requestIDHeader = "X-Amz-Request-Id"

// refuse reads a response body and restores it.
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

// parse parses <Error><Code>…</Code>…</Error> as far as it is well-formed.
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

// maxXML bounds what the SDK reads of a successful response. The longest is a listing page:
// 1000 keys of 1 KiB with every character escaped as "&quot;", and their attributes.
const maxXML = 16 << 20

// isListing accepts ListBucketResult and ListVersionsResult of S3, and variants of other
// servers, such as ListBucketVersionsResult.
func isListing(root string) bool {
	return strings.HasPrefix(root, "List") && strings.HasSuffix(root, "Result") && root != "ListAllMyBucketsResult"
}

// fromS3 reports whether the response is from an S3 server, by headers that only such a server
// sets. CloudFront, which can front any server, has others (X-Amz-Cf-Id).
func fromS3(header http.Header) bool {
	return header.Get(requestIDHeader) != "" || header.Get("X-Amz-Id-2") != ""
}

// plain returns an SDK error without the prefix common to all of them.
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
