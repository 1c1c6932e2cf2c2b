package s3store

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store/internal/exchange"
)

// A call is one store call. It sees its requests pass through the HTTP client.
type call struct {
	exchange.Call
	create  bool // a put that creates, so what can be missing is the bucket
	repeats bool // the client may retry the request as configured

	refusal *refusal     // the response, if its status is 300 or above
	creds   *credentials // nil: the requests have none
}

// options sets the options of the call, whatever those of the client are.
func (c *call) options(o *s3.Options) {
	if !c.repeats {
		o.Retryer = aws.NopRetryer{}
	}
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	c.creds, _ = o.Credentials.(*credentials)
	o.HTTPClient = &watched{client: o.HTTPClient, call: c}
}

// watched is the HTTP client of one call.
type watched struct {
	client s3.HTTPClient
	call   *call
}

func (w *watched) Do(req *http.Request) (*http.Response, error) {
	c := w.call
	c.refusal = nil
	answer, err := c.Send(w.client, req)
	if err != nil {
		return answer, err
	}
	c.creds.accept(answer.StatusCode)
	switch {
	case c.Refused():
		c.refusal = refuse(answer)
	case c.Op == "list":
		return answer, exchange.CheckListing(answer, maxXML, isListing, "S3", "an S3 server")
	case c.Op != "get": // the store reads the body of a get itself
		exchange.Limit(answer, maxXML)
	}
	return answer, nil
}

// requestID returns the server's ID for the request.
func (c *call) requestID() string {
	if c.refusal != nil {
		return c.refusal.requestID
	}
	return c.Header().Get(requestIDHeader)
}
