package s3store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/awsidentity"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

var errNoETag = errors.New("the answer has no ETag: is this an S3 server?")

// fail returns the call's error.
func (c *call) fail(ctx context.Context, err error) *store.Error {
	text := plain(err)
	if identity := noIdentity(err); identity != nil {
		text = strings.TrimPrefix(plain(identity), "get credentials: ")
	}
	if c.refusal != nil {
		text = c.refusal.Words(c.Status())
	}
	return c.Fail(ctx, c.classify(err), text, err, throttles(c.code()), c.requestID())
}

// classify judges the error. The code only refines the status.
func (c *call) classify(err error) exchange.Verdict {
	if identity := noIdentity(err); identity != nil && c.Status() == 0 && !c.Handed() {
		return onIdentity(identity)
	}
	code := c.code()
	switch {
	case c.Status() >= 500 && code == "NotImplemented":
		return exchange.Unknown()
	}
	if v, ok := c.Judge(err, throttles(code)); ok {
		return v
	}
	return c.turnedAway(c.Status(), code)
}

// noIdentity returns the reason why the SDK has no credentials for the request, or nil if it
// failed for another reason.
func noIdentity(err error) error {
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.HasPrefix(err.Error(), "get identity: ") {
			return errors.Unwrap(err)
		}
	}
	return nil
}

// onIdentity judges why there are no credentials. A provider's error may say so itself.
func onIdentity(err error) exchange.Verdict {
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "nothing was sent to the store"}
	case errors.Is(err, store.ErrDenied):
		return exchange.Verdict{Kind: store.ErrDenied, Advice: "nothing was sent to the store"}
	}
	v := awsidentity.Judge(err)
	return exchange.Verdict{Kind: cmp.Or(v.Kind, store.ErrDenied), Advice: v.Advice}
}

// turnedAway judges a response that changed nothing.
func (c *call) turnedAway(status int, code string) exchange.Verdict {
	if status == http.StatusPreconditionFailed && c.Writes() {
		return exchange.Verdict{Kind: store.ErrPrecondition}
	}
	if v := judge(code); v.Kind != nil {
		return v
	}
	if refused, expired := refusesCredentials(status, code); refused {
		if c.creds.refuse(expired) {
			return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "these credentials are refused before their end, and are fetched again"}
		}
		return exchange.Verdict{Kind: store.ErrDenied, Advice: c.onDenied(code)}
	}
	switch status {
	case http.StatusForbidden:
		return exchange.Verdict{Kind: store.ErrDenied, Advice: c.onDenied(code)}
	case http.StatusNotFound:
		return c.notFound(code)
	case http.StatusConflict:
		return exchange.Verdict{Kind: c.conflict(code)}
	}
	return c.Otherwise(cmp.Or(c.onRegion(), c.onChecksum()))
}

// refusesCredentials reports whether the response is about the credentials rather than their
// permissions, and whether it calls them expired.
func refusesCredentials(status int, code string) (refused, expired bool) {
	switch code {
	case "ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired":
		return true, true
	case "InvalidToken", "InvalidAccessKeyId", "InvalidClientTokenId":
		return true, false
	}
	return status == http.StatusUnauthorized, false
}

// judge returns the verdict on a code that means the same with every status, or none. It takes
// precedence over the status, which differs between servers.
func judge(code string) exchange.Verdict {
	switch code {
	case "RequestTimeout", "RequestTimeoutException", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch":
		// The body did not arrive intact, so a retry may succeed. S3 uses status 400.
		return exchange.Verdict{Kind: store.ErrUnavailable}
	case "RequestTimeTooSkewed":
		return exchange.Verdict{Kind: store.ErrDenied, Advice: "set this machine's clock: it is too far from the server's"}
	case "KeyTooLongError", "InvalidURI", "XMinioInvalidObjectName", "XMinioParentIsObject",
		"ObjectParentIsFile", directoryAtKey: // the last two are versitygw's
		return exchange.Verdict{Kind: store.ErrInvalid}
	}
	if throttles(code) {
		return exchange.Verdict{Kind: store.ErrThrottled}
	}
	return exchange.Verdict{}
}

// throttles reports whether the code asks for fewer requests.
func throttles(code string) bool {
	_, known := retry.DefaultThrottleErrorCodes[code]
	return known || strings.HasPrefix(code, "SlowDown")
}

func (c *call) onDenied(code string) string {
	switch {
	case code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch":
		return "check the credentials, and that they are those of this server"
	case c.Op == "get" && (code == "AccessDenied" || code == ""):
		return "S3 also says so of an object that does not exist, where s3:ListBucket is not allowed"
	}
	return ""
}

// notFound judges a 404. An object is absent only if S3 says so. Web servers, proxies without a
// backend, and servers that do not know the access key use 404 as well. A store that treated
// these as an absent object would find every lock free.
func (c *call) notFound(code string) exchange.Verdict {
	absent := code == "NoSuchKey" || c.refusal.Empty && fromS3(c.Header())
	switch {
	case code == "NoSuchUpload":
		return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "somebody else has ended this upload in parts: is there a lifecycle rule that ends them too soon?"}
	case code == "NoSuchBucket", absent && (c.Op == "list" || c.create):
		// A create cannot miss an object, so the bucket is missing, even if the response does
		// not say so.
		return exchange.Verdict{Kind: store.ErrNoBucket, Advice: "make the bucket, or check its name and the endpoint"}
	case absent:
		return exchange.Verdict{Kind: store.ErrNotExist}
	case code == "XAdminUserNotFound": // of versitygw
		return exchange.Verdict{Kind: store.ErrRefused, Advice: "the server does not know the access key: check the credentials"}
	case code != "":
		return exchange.Verdict{Kind: store.ErrRefused, Advice: "this is about neither an object nor a bucket: check the credentials and the endpoint"}
	}
	// This may be temporary: a proxy responds like this while its backend starts.
	return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "this is not how S3 says that an object does not exist: does the endpoint lead to an S3 server?"}
}

func (c *call) conflict(code string) error {
	switch code {
	case "ConditionalRequestConflict", "OperationAborted", "", "Conflict":
		if c.Writes() {
			return store.ErrConflict
		}
	}
	return store.ErrUnavailable
}

// onRegion returns which region to use, if the response says so.
func (c *call) onRegion() string {
	region := c.Header().Get("X-Amz-Bucket-Region")
	if region == "" {
		// "the region 'us-east-1' is wrong; expecting 'eu-west-1'"
		if _, rest, found := strings.Cut(c.refusal.Message, "expecting '"); found {
			region, _, _ = strings.Cut(rest, "'")
		}
	}
	if region != "" {
		return fmt.Sprintf("the bucket is in the region %s: set region=%[1]s in its URL, or AWS_REGION", region)
	}
	return ""
}

// onChecksum returns which setting a bucket with Object Lock needs.
func (c *call) onChecksum() string {
	if c.Writes() && strings.Contains(c.refusal.Message, "Content-MD5") {
		return "the bucket requires a checksum: set content_md5=true in its URL"
	}
	return ""
}

// code returns the server's error code, or "".
func (c *call) code() string {
	if c.refusal == nil {
		return ""
	}
	return c.refusal.Code
}
