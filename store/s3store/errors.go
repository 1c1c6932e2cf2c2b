package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

var errNoETag = errors.New("the answer has no ETag: is this an S3 server?")

// fail makes the error of the call.
func (c *call) fail(ctx context.Context, err error) *store.Error {
	v := c.classify(err)
	if c.Unsure() && c.writes() {
		v.kind = store.ErrUnknownOutcome
	}
	cause := c.worded(err, v.advice)
	if c.writes() && c.Status() >= 500 && throttles(c.code(err)) {
		cause = fmt.Errorf("%w: %w", store.ErrThrottled, cause)
	}
	// The SDK and net/http may say what became of the connection, or why the
	// context was cancelled, instead of that it has ended.
	if ended := ctx.Err(); ended != nil && !c.refused() && !errors.Is(err, ended) {
		cause = fmt.Errorf("%w: %w", ended, cause)
	}
	return &store.Error{Op: c.op, Key: c.key, Kind: v.kind, Cause: cause, Date: c.Date(), RequestID: c.requestID()}
}

func (c *call) writes() bool { return c.op == "put" && !c.part || c.op == "delete" }

// refused reports whether the server answered anything but success.
func (c *call) refused() bool { return c.Status() >= 300 }

// A verdict is the kind of an error and, if there is something to say, what its
// reader might do about it.
type verdict struct {
	kind   error
	advice string
}

// classify judges the error. The status decides wherever there is one. The code
// only refines it: it comes in the body, which can be cut off or missing.
func (c *call) classify(err error) verdict {
	status := c.Status()
	switch {
	case status == 0:
		return c.unanswered(err)
	case errors.Is(err, store.ErrTooLarge):
		return verdict{kind: store.ErrTooLarge}
	case errors.Is(err, store.ErrSentAgain):
		return verdict{kind: store.ErrNotModified}
	case status == http.StatusNotModified && c.op == "get":
		return verdict{kind: store.ErrNotModified}
	case status == http.StatusNotImplemented || status >= 500 && c.code(err) == "NotImplemented":
		return verdict{store.ErrRefused, "the server does not know this request, so it cannot carry locks"}
	case !exchange.ChangesNothing(status):
		if !c.writes() && throttles(c.code(err)) {
			return verdict{kind: store.ErrThrottled}
		}
		return verdict{kind: c.unsettled()}
	}
	return c.turnedAway(status, c.code(err))
}

// unanswered is for a call without an answer.
func (c *call) unanswered(err error) verdict {
	switch {
	case !c.Handed() && strings.Contains(err.Error(), "get identity: "):
		return verdict{store.ErrDenied, "no AWS credentials to be had: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role is attached"}
	case !c.Handed():
		return verdict{kind: store.ErrUnavailable}
	case c.Unsent():
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

// turnedAway is for an answer that changes nothing.
func (c *call) turnedAway(status int, code string) verdict {
	if status == http.StatusPreconditionFailed && c.writes() {
		return verdict{kind: store.ErrPrecondition}
	}
	if v := judge(code); v.kind != nil {
		return v
	}
	switch status {
	case http.StatusTooManyRequests:
		return verdict{kind: store.ErrThrottled}
	case http.StatusUnauthorized, http.StatusForbidden:
		return verdict{store.ErrDenied, c.onDenied(code)}
	case http.StatusNotFound:
		return c.notFound(code)
	case http.StatusConflict:
		return verdict{kind: c.conflict(code)}
	case http.StatusRequestEntityTooLarge:
		return verdict{store.ErrRefused, "a lock has a few hundred bytes: does a proxy before the server allow less?"}
	case http.StatusTemporaryRedirect, http.StatusPreconditionFailed, http.StatusLocked,
		http.StatusFailedDependency, http.StatusTooEarly, http.StatusMisdirectedRequest:
		return verdict{kind: store.ErrUnavailable} // the next time it may be another
	}
	return verdict{store.ErrRefused, c.onRegion()}
}

// judge gives the verdict on a code that means the same under every status, or none.
// It is heard before the status, which servers choose differently.
func judge(code string) verdict {
	switch code {
	case "RequestTimeout", "RequestTimeoutException", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch":
		// The body did not arrive as it was sent, so another try may succeed. S3 says 400.
		return verdict{kind: store.ErrUnavailable}
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired":
		return verdict{kind: store.ErrDenied}
	case "RequestTimeTooSkewed":
		return verdict{store.ErrDenied, "set this machine's clock: it is too far from the server's"}
	case "KeyTooLongError", "InvalidURI", "XMinioInvalidObjectName", "XMinioParentIsObject",
		"ObjectParentIsFile", directoryAtKey: // the last two are versitygw's
		return verdict{kind: store.ErrInvalid}
	}
	if throttles(code) {
		return verdict{kind: store.ErrThrottled}
	}
	return verdict{}
}

// throttles reports that the code asks for fewer requests.
func throttles(code string) bool {
	_, known := retry.DefaultThrottleErrorCodes[code]
	return known || strings.HasPrefix(code, "SlowDown")
}

func (c *call) onDenied(code string) string {
	switch {
	case code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch":
		return "check the credentials, and that they are those of this server"
	case c.op == "get" && (code == "AccessDenied" || code == ""):
		return "S3 also says so of an object that does not exist, where s3:ListBucket is not allowed"
	}
	return ""
}

// notFound: an object is absent only by S3's word. A web server, a proxy that has lost
// the server behind it, and a server that does not know the access key say 404 as well,
// and a store that took those for an absent object would find every lock free.
func (c *call) notFound(code string) verdict {
	absent := code == "NoSuchKey" || c.refusal.empty && fromS3(c.Header())
	switch {
	case code == "NoSuchUpload":
		return verdict{store.ErrUnavailable, "somebody else has ended this upload in parts: is there a lifecycle rule that ends them too soon?"}
	case code == "NoSuchBucket", absent && (c.op == "list" || c.create):
		// A create cannot miss an object, so the bucket is missing, even where the
		// answer does not say so.
		return verdict{store.ErrNoBucket, "make the bucket, or check its name and the endpoint"}
	case absent:
		return verdict{kind: store.ErrNotExist}
	case code == "XAdminUserNotFound": // of versitygw
		return verdict{store.ErrRefused, "the server does not know the access key: check the credentials"}
	case code != "":
		return verdict{store.ErrRefused, "this is about neither an object nor a bucket: check the credentials and the endpoint"}
	}
	// It may pass: a proxy says so while the server behind it starts.
	return verdict{store.ErrUnavailable, "this is not how S3 says that an object does not exist: does the endpoint lead to an S3 server?"}
}

func (c *call) conflict(code string) error {
	switch code {
	case "ConditionalRequestConflict", "OperationAborted", "", "Conflict":
		if c.writes() {
			return store.ErrConflict
		}
	}
	return store.ErrUnavailable
}

// onRegion says which region to use, if the answer does, or else where it leads.
func (c *call) onRegion() string {
	region := c.Header().Get("X-Amz-Bucket-Region")
	if region == "" {
		// "the region 'us-east-1' is wrong; expecting 'eu-west-1'"
		if _, rest, found := strings.Cut(c.refusal.message, "expecting '"); found {
			region, _, _ = strings.Cut(rest, "'")
		}
	}
	if region != "" {
		return fmt.Sprintf("the bucket is in the region %s: set region=%[1]s in its URL, or AWS_REGION", region)
	}
	if to := c.Header().Get("Location"); to != "" {
		return fmt.Sprintf("it leads to %q: is that the endpoint to use?", exchange.Readable(to))
	}
	return ""
}

// code gives the server's word for the error, or "". An answer of success can have one
// too: to the end of an upload in parts.
func (c *call) code(err error) string {
	if c.refusal != nil {
		return c.refusal.code
	}
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		return answer.ErrorCode()
	}
	return ""
}
