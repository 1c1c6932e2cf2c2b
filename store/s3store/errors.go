package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/leasehold/leasehold/store"
)

var (
	errNoETag   = errors.New("the answer has no ETag: is this an S3 server?")
	errNoLength = errors.New("the answer does not say how long the object is")
)

// fail makes the error of the call.
func (c *call) fail(ctx context.Context, err error) error {
	v := c.classify(err)
	if c.unsure && c.writes() {
		v.kind = store.ErrUnknownOutcome
	}
	if c.writes() && c.status() == http.StatusServiceUnavailable && strings.HasPrefix(code(err), "SlowDown") {
		err = fmt.Errorf("%w: %w", store.ErrThrottled, err)
	}
	// The SDK and net/http may say what became of the connection, or why the
	// context was cancelled, instead of that it has ended.
	if ended := ctx.Err(); ended != nil && !c.refused() && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	if v.advice != "" {
		err = fmt.Errorf("%s: %w", v.advice, err)
	}
	return &store.Error{Op: c.op, Key: c.key, Kind: v.kind, Cause: err, Date: c.date(), RequestID: c.requestID()}
}

func (c *call) writes() bool { return c.op == "put" && !c.part || c.op == "delete" }

// refused reports whether the server answered anything but success.
func (c *call) refused() bool { return c.status() >= 300 }

// A verdict is the kind of an error and, if there is something to say, what its
// reader might do about it.
type verdict struct {
	kind   error
	advice string
}

// classify judges the error. The status decides wherever there is one. The code
// only refines it: it comes in the body, which can be cut off or missing.
func (c *call) classify(err error) verdict {
	status := c.status()
	switch {
	case status == 0:
		return c.unanswered(err)
	case errors.Is(err, store.ErrTooLarge):
		return verdict{kind: store.ErrTooLarge}
	case errors.Is(err, store.ErrSentAgain):
		return verdict{kind: store.ErrNotModified}
	case status < 300 || status == http.StatusRequestTimeout:
		return verdict{kind: c.unsettled()}
	case status >= 500:
		return c.brokenDown(code(err))
	}
	return c.turnedAway(status, err)
}

// unanswered is for a call without an answer.
func (c *call) unanswered(err error) verdict {
	switch {
	case !c.handed.Load() && strings.Contains(err.Error(), "get identity: "):
		return verdict{store.ErrDenied, "no AWS credentials to be had: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role is attached"}
	case !c.handed.Load():
		return verdict{kind: store.ErrUnavailable}
	case c.sought.Load() && !c.sent.Load():
		return verdict{store.ErrUnavailable, "no connection to the server, nothing was sent; check the endpoint and the network"}
	}
	return verdict{kind: c.unsettled()}
}

// unsettled is the kind of a call that may have been carried out.
func (c *call) unsettled() error {
	if c.writes() {
		return store.ErrUnknownOutcome
	}
	return store.ErrUnavailable
}

// brokenDown is for an answer of 500 and above.
func (c *call) brokenDown(code string) verdict {
	switch {
	case c.status() == http.StatusNotImplemented || code == "NotImplemented":
		return verdict{store.ErrRefused, "the server does not know this request, so it cannot carry locks"}
	case !c.writes() && strings.HasPrefix(code, "SlowDown"):
		return verdict{kind: store.ErrThrottled}
	}
	return verdict{kind: c.unsettled()}
}

// turnedAway is for an answer of 300 to 499: nothing landed.
func (c *call) turnedAway(status int, err error) verdict {
	switch status {
	case http.StatusNotModified:
		return verdict{kind: store.ErrNotModified}
	case http.StatusPreconditionFailed:
		return verdict{kind: store.ErrPrecondition}
	case http.StatusTooManyRequests:
		return verdict{kind: store.ErrThrottled}
	case http.StatusUnauthorized, http.StatusForbidden:
		return verdict{store.ErrDenied, c.onDenied(code(err))}
	case http.StatusNotFound:
		return c.notFound(code(err))
	case http.StatusConflict:
		return verdict{kind: conflict(code(err))}
	case http.StatusMovedPermanently:
		return verdict{store.ErrRefused, c.onRedirect(err)}
	case http.StatusMethodNotAllowed, http.StatusLengthRequired:
		return verdict{kind: store.ErrRefused}
	case http.StatusBadRequest:
		return verdict{badRequest(code(err)), c.onRedirect(err)}
	}
	return verdict{store.ErrUnavailable, c.onRedirect(err)}
}

func (c *call) onDenied(code string) string {
	switch {
	case code == "RequestTimeTooSkewed":
		return "set this machine's clock: it is too far from the server's"
	case c.op == "get":
		return "also what S3 says of an object that does not exist to who lacks s3:ListBucket"
	}
	return ""
}

func (c *call) notFound(code string) verdict {
	if code == "NoSuchUpload" {
		return verdict{store.ErrUnavailable, "somebody else has ended this upload in parts: is there a lifecycle rule that ends them too soon?"}
	}
	// A create cannot miss an object, so what it misses is the bucket, even
	// where the answer does not say.
	if code == "NoSuchBucket" || c.op == "list" || c.create {
		return verdict{store.ErrNoBucket, "make the bucket, or check its name and the endpoint"}
	}
	return verdict{kind: store.ErrNotExist}
}

func conflict(code string) error {
	switch code {
	case "ConditionalRequestConflict", "OperationAborted", "", "Conflict", "UnknownError":
		return store.ErrConflict
	case "ObjectParentIsFile", "ExistingObjectIsDirectory": // of versitygw
		return store.ErrInvalid
	}
	return store.ErrUnavailable
}

// badRequest: some servers, S3 itself among them, also say 400 when the request was
// not what was sent, and then another one may fare better.
func badRequest(code string) error {
	switch code {
	case "RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch":
		return store.ErrUnavailable
	case "SlowDown":
		return store.ErrThrottled
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired":
		return store.ErrDenied
	case "KeyTooLongError", "InvalidURI", "XMinioInvalidObjectName", "XMinioParentIsObject":
		return store.ErrInvalid
	}
	return store.ErrRefused
}

// onRedirect says which region to use, if the answer does.
func (c *call) onRedirect(err error) string {
	region := c.answer.Header.Get("X-Amz-Bucket-Region")
	if region == "" {
		// "the region 'us-east-1' is wrong; expecting 'eu-west-1'"
		if _, rest, found := strings.Cut(err.Error(), "expecting '"); found {
			region, _, _ = strings.Cut(rest, "'")
		}
	}
	if region == "" {
		return ""
	}
	return fmt.Sprintf("the bucket is in the region %s: set region=%[1]s in its URL, or AWS_REGION", region)
}

// code gives the server's word for the error, or "".
func code(err error) string {
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		return answer.ErrorCode()
	}
	return ""
}
