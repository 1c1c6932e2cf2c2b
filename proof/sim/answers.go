package sim

import (
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/store"
)

// An Answer is what a store returns instead of the result: an HTTP status, or nothing.
type Answer struct {
	Status int    // 0: no answer
	Code   string // the error code in the body
	Final  bool   // a permanent error
}

// Answers returns the answers for lasting failures, including a few from no known store.
func Answers() []Answer { return answers }

var answers = []Answer{
	{},
	{Status: 400, Code: "InvalidRequest", Final: true},
	{Status: 401, Code: "Unauthorized", Final: true},
	{Status: 403, Code: "AccessDenied", Final: true},
	{Status: 404, Code: "NoSuchBucket", Final: true},
	{Status: 404, Code: "Elsewhere", Final: true}, // not an S3 code: neither the object nor the bucket is missing
	{Status: 405, Code: "MethodNotAllowed", Final: true},
	{Status: 408, Code: "RequestTimeout"},
	{Status: 409, Code: "ConditionalRequestConflict"},
	{Status: 411, Code: "MissingContentLength", Final: true},
	{Status: 412, Code: "PreconditionFailed"},
	{Status: 418, Code: "Teapot", Final: true},
	{Status: 429, Code: "TooManyRequests"},
	{Status: 500, Code: "InternalError"},
	{Status: 501, Code: "NotImplemented", Final: true},
	{Status: 503, Code: "SlowDown"},
	{Status: 599, Code: "Unheard"},
}

func (a Answer) String() string {
	if a.Status == 0 {
		return "no answer"
	}
	return fmt.Sprintf("%d %s", a.Status, a.Code)
}

// Unsettled reports whether a write with this answer may have landed.
func (a Answer) Unsettled() bool {
	return a.Status == 0 || a.Status == 408 || a.Status >= 500 && !a.Final
}

// Kinds returns what a real store's error matches, its kind first. A test compares them with
// package s3store.
func (a Answer) Kinds(op string) []error {
	writes := op == "put" || op == "delete"
	switch {
	case a.Unsettled() && writes && a.Code == "SlowDown":
		return []error{store.ErrUnknownOutcome, store.ErrThrottled}
	case a.Unsettled() && writes:
		return []error{store.ErrUnknownOutcome}
	case a.Code == "SlowDown", a.Status == 429:
		return []error{store.ErrThrottled}
	case a.Status == 401, a.Status == 403:
		return []error{store.ErrDenied}
	case a.Code == "NoSuchBucket":
		return []error{store.ErrNoBucket}
	case a.Final:
		return []error{store.ErrRefused}
	case a.Status == 409 && writes:
		return []error{store.ErrConflict}
	case a.Status == 412 && writes:
		return []error{store.ErrPrecondition}
	}
	return []error{store.ErrUnavailable}
}

func (a Answer) to(r *request) *store.Error {
	kinds := a.Kinds(r.op)
	e := r.fails(kinds[0])
	e.Cause = errors.New(a.String())
	if len(kinds) > 1 {
		e.Cause = fmt.Errorf("%w: %w", e.Cause, kinds[1])
	}
	return e
}
