package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

// fail returns the call's error.
func (c *call) fail(ctx context.Context, err error) *store.Error {
	return c.Fail(ctx, c.classify(err), c.text(err), err, throttles(c.reason()), c.requestID())
}

// text describes what happened.
func (c *call) text(err error) string {
	sent, _ := errors.AsType[*url.Error](err)
	switch {
	case c.refusal != nil:
		return c.refusal.Words(c.Status())
	case sent == err: //nolint:errorlint // only the outermost says what was asked
		return fmt.Sprintf("%s %s: %v", strings.ToUpper(sent.Op), exchange.Readable(sent.URL), sent.Err)
	}
	return err.Error()
}

// reason returns the server's error reason, or "".
func (c *call) reason() string {
	if c.refusal == nil {
		return ""
	}
	return c.refusal.Code
}

const (
	onNoBucket  = "make the bucket, or check its name and the endpoint"
	onThrottled = "Google Cloud Storage takes about one write a second to one object: write less often, or spread the writes over more objects"
)

// classify judges the error. The reason only refines the status.
func (c *call) classify(err error) exchange.Verdict {
	switch {
	case c.noToken && errors.Is(err, store.ErrDenied):
		return exchange.Verdict{Kind: store.ErrDenied, Advice: "there is no access token, nothing was sent"}
	case c.noToken:
		return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "there is no access token for now, nothing was sent"}
	}
	if v, ok := c.Judge(err, throttles(c.reason())); ok {
		return v
	}
	return c.turnedAway(c.Status())
}

// turnedAway judges a response that changed nothing.
func (c *call) turnedAway(status int) exchange.Verdict {
	reason := c.reason()
	switch {
	case status == http.StatusPreconditionFailed && c.Writes():
		return exchange.Verdict{Kind: store.ErrPrecondition}
	case (status == http.StatusTooManyRequests || throttles(reason)) && c.Op == "put":
		return exchange.Verdict{Kind: store.ErrThrottled, Advice: onThrottled}
	case throttles(reason):
		return exchange.Verdict{Kind: store.ErrThrottled}
	}
	switch status {
	case http.StatusUnauthorized:
		if c.revoked {
			return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "the access token is refused before its end, and is fetched again"}
		}
		return exchange.Verdict{Kind: store.ErrDenied, Advice: "check the credentials: there are none, or they are not valid any more"}
	case http.StatusForbidden:
		return exchange.Verdict{Kind: store.ErrDenied, Advice: c.onForbidden(reason)}
	case http.StatusNotFound:
		return c.notFound()
	case http.StatusConflict:
		return exchange.Verdict{Kind: c.conflict(reason)}
	case http.StatusGone:
		if c.Part {
			return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "the session of this upload has ended"}
		}
	}
	return c.Otherwise(c.onRefused())
}

// throttles reports whether the reason asks for fewer requests. It comes with 429 and with 403.
func throttles(reason string) bool {
	return reason == "rateLimitExceeded" || reason == "userRateLimitExceeded"
}

func (c *call) onForbidden(reason string) string {
	switch {
	case reason == "retentionPolicyNotMet" || reason == "objectUnderActiveHold":
		return "the bucket keeps objects from being overwritten: use one without a retention policy and without holds"
	case reason != "" && reason != "forbidden" && reason != "insufficientPermissions":
		return ""
	case c.Op == "get":
		return "Google Cloud Storage also says so of an object that does not exist, where storage.objects.list is not allowed"
	case c.Op == "put":
		return "writing needs storage.objects.create and storage.objects.delete"
	}
	return ""
}

// notFound judges a 404. An object is absent only if Google Cloud Storage says so and names it.
// Web servers and proxies without a backend use 404 as well. A store that treated these as an
// absent object would find every lock free.
//
// The messages, in JSON and in text, are undocumented; they were observed. The JSON reference
// has "Not Found" without a name, and emulators send that.
func (c *call) notFound() exchange.Verdict {
	r := c.refusal
	byName := r.Message == "No such object: "+c.bucket+"/"+c.name
	byStore := r.Code == "notFound" || r.Code == "" && r.Message != "" && r.google
	switch {
	case byName && (c.Op == "get" || c.Op == "delete"):
		return exchange.Verdict{Kind: store.ErrNotExist}
	case strings.Contains(r.Message, "bucket does not exist"):
		return exchange.Verdict{Kind: store.ErrNoBucket, Advice: onNoBucket}
	case byStore && c.Part:
		return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "either the bucket is missing, or the session of this upload has ended"}
	case byStore && (c.Op == "put" || c.Op == "list"):
		// Neither can miss an object, so the bucket is missing.
		return exchange.Verdict{Kind: store.ErrNoBucket, Advice: onNoBucket}
	case byStore && c.Op == "delete":
		return exchange.Verdict{Kind: store.ErrNotExist} // whichever is missing, the object does not exist
	}
	// This may be temporary: a proxy responds like this while its backend starts.
	return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "this is not how Google Cloud Storage says that an object does not exist: does the endpoint lead there?"}
}

func (c *call) conflict(reason string) error {
	if c.Writes() && (reason == "" || reason == "conflict") {
		return store.ErrConflict
	}
	return store.ErrUnavailable
}

func (c *call) onRefused() string {
	if strings.Contains(c.refusal.Message, "requester pays") {
		return "say which project pays for the requests: UserProject"
	}
	return ""
}
