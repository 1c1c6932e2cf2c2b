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

// fail makes the error of the call.
func (c *call) fail(ctx context.Context, err error) *store.Error {
	v := c.classify(err)
	if c.Unsure() && c.writes() {
		v.kind = store.ErrUnknownOutcome
	}
	cause := c.worded(err, v.advice)
	if c.writes() && c.Status() >= 500 && throttles(c.reason()) {
		cause = fmt.Errorf("%w: %w", store.ErrThrottled, cause)
	}
	// net/http may say what became of the connection, or why the context was cancelled,
	// instead of that it has ended.
	if ended := ctx.Err(); ended != nil && !c.refused() && !errors.Is(err, ended) {
		cause = fmt.Errorf("%w: %w", ended, cause)
	}
	return &store.Error{Op: c.op, Key: c.key, Kind: v.kind, Cause: cause, Date: c.Date(), RequestID: c.requestID()}
}

// worded says what happened, and what to do about it.
func (c *call) worded(err error, advice string) error {
	var text string
	sent, isURL := errors.AsType[*url.Error](err)
	switch {
	case c.refusal != nil:
		text = c.refusal.words(c.Status())
	case isURL && sent == err: //nolint:errorlint // only the outermost says what was asked
		text = fmt.Sprintf("%s %s: %v", strings.ToUpper(sent.Op), exchange.Readable(sent.URL), sent.Err)
	default:
		text = err.Error()
	}
	if advice != "" {
		text += "; " + advice
	}
	return &exchange.Failure{Text: text, Err: err}
}

func (c *call) writes() bool { return c.op == "put" && !c.part || c.op == "delete" }

// refused reports whether the server answered anything but success.
func (c *call) refused() bool { return c.Status() >= 300 }

// reason gives the server's word for the error, or "".
func (c *call) reason() string {
	if c.refusal == nil {
		return ""
	}
	return c.refusal.reason
}

// A verdict is the kind of an error and, if there is something to say, what its
// reader might do about it.
type verdict struct {
	kind   error
	advice string
}

const (
	onNoBucket  = "make the bucket, or check its name and the endpoint"
	onThrottled = "Google Cloud Storage takes about one write a second to one object: write less often, or spread the writes over more objects"
)

// classify judges the error. The status decides wherever there is one. The reason only
// refines it: it comes in the body, which can be cut off or missing.
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
	case status == http.StatusNotImplemented:
		return verdict{store.ErrRefused, "the server does not know this request, so it cannot carry locks"}
	case !exchange.ChangesNothing(status):
		if !c.writes() && throttles(c.reason()) {
			return verdict{kind: store.ErrThrottled}
		}
		return verdict{kind: c.unsettled()}
	}
	return c.turnedAway(status)
}

// unanswered is for a call without an answer.
func (c *call) unanswered(err error) verdict {
	switch {
	case c.noToken && errors.Is(err, store.ErrDenied):
		return verdict{store.ErrDenied, "there is no access token, nothing was sent"}
	case c.noToken:
		return verdict{store.ErrUnavailable, "there is no access token for now, nothing was sent"}
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
func (c *call) turnedAway(status int) verdict {
	reason := c.reason()
	switch {
	case status == http.StatusPreconditionFailed && c.writes():
		return verdict{kind: store.ErrPrecondition}
	case (status == http.StatusTooManyRequests || throttles(reason)) && c.op == "put":
		return verdict{store.ErrThrottled, onThrottled}
	case status == http.StatusTooManyRequests || throttles(reason):
		return verdict{kind: store.ErrThrottled}
	}
	switch status {
	case http.StatusUnauthorized:
		return verdict{store.ErrDenied, "check the credentials: there are none, or they are not valid any more"}
	case http.StatusForbidden:
		return verdict{store.ErrDenied, c.onForbidden(reason)}
	case http.StatusNotFound:
		return c.notFound()
	case http.StatusConflict:
		return verdict{kind: c.conflict(reason)}
	case http.StatusGone:
		if c.part {
			return verdict{store.ErrUnavailable, "the session of this upload has ended"}
		}
	case http.StatusRequestEntityTooLarge:
		return verdict{store.ErrRefused, "a lock has a few hundred bytes: does a proxy before the server allow less?"}
	case http.StatusTemporaryRedirect, http.StatusPreconditionFailed, http.StatusLocked,
		http.StatusFailedDependency, http.StatusTooEarly, http.StatusMisdirectedRequest:
		return verdict{kind: store.ErrUnavailable} // the next time it may be another
	}
	return verdict{store.ErrRefused, c.onRefused()}
}

// throttles reports that the reason asks for fewer requests. It comes with 429 and with 403.
func throttles(reason string) bool {
	return reason == "rateLimitExceeded" || reason == "userRateLimitExceeded"
}

func (c *call) onForbidden(reason string) string {
	switch {
	case reason == "retentionPolicyNotMet" || reason == "objectUnderActiveHold":
		return "the bucket keeps objects from being overwritten: use one without a retention policy and without holds"
	case reason != "" && reason != "forbidden" && reason != "insufficientPermissions":
		return ""
	case c.op == "get":
		return "Google Cloud Storage also says so of an object that does not exist, where storage.objects.list is not allowed"
	case c.op == "put":
		return "writing needs storage.objects.create and storage.objects.delete"
	}
	return ""
}

// notFound: an object is absent only by the word of Google Cloud Storage, which names it. A
// web server and a proxy that has lost the server behind it say 404 as well, and a store that
// took those for an absent object would find every lock free.
//
// The words, of JSON and of text, are in none of the references; they are in what the service
// sends. The reference of JSON has "Not Found", without a name, and so have emulators.
func (c *call) notFound() verdict {
	r := c.refusal
	byName := r.said == "No such object: "+c.bucket+"/"+c.name
	byStore := r.reason == "notFound" || r.reason == "" && r.said != "" && r.google
	switch {
	case byName && (c.op == "get" || c.op == "delete"):
		return verdict{kind: store.ErrNotExist}
	case strings.Contains(r.said, "bucket does not exist"):
		return verdict{store.ErrNoBucket, onNoBucket}
	case byStore && c.part:
		return verdict{store.ErrUnavailable, "either the bucket is missing, or the session of this upload has ended"}
	case byStore && (c.op == "put" || c.op == "list"):
		// Neither can miss an object, so the bucket is missing.
		return verdict{store.ErrNoBucket, onNoBucket}
	case byStore && c.op == "delete":
		return verdict{kind: store.ErrNotExist} // whichever is missing, the object is not there
	}
	// It may pass: a proxy says so while the server behind it starts.
	return verdict{store.ErrUnavailable, "this is not how Google Cloud Storage says that an object does not exist: does the endpoint lead there?"}
}

func (c *call) conflict(reason string) error {
	if c.writes() && (reason == "" || reason == "conflict") {
		return store.ErrConflict
	}
	return store.ErrUnavailable
}

func (c *call) onRefused() string {
	if to := c.Header().Get("Location"); to != "" {
		return fmt.Sprintf("it leads to %q: is that the endpoint to use?", exchange.Readable(to))
	}
	if strings.Contains(c.refusal.said, "requester pays") {
		return "say which project pays for the requests: UserProject"
	}
	return ""
}
