package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/leasehold/leasehold/store"
)

// A Call is one call of a store: what it is for, and what became of its requests.
type Call struct {
	Op, Key string // as in store.Error
	Part    bool   // a put that by itself shows no reader anything

	Exchange
}

// Writes reports that the call changes what readers see.
func (c *Call) Writes() bool { return c.Op == "put" && !c.Part || c.Op == "delete" }

// Refused reports whether the server answered anything but success.
func (c *Call) Refused() bool { return c.Status() >= 300 }

// A Verdict is the kind of an error and, if there is something to say, what its reader might do about it.
type Verdict struct {
	Kind   error
	Advice string
}

// Judge gives the verdict on an error where that does not rest on the words of one service. Without a verdict
// there is an answer that changes nothing, and those words say which (see [Call.Otherwise]). The status
// decides wherever there is one: what the body says can be cut off or missing. Throttled reports
// that the answer asks for fewer requests.
func (c *Call) Judge(err error, throttled bool) (v Verdict, ok bool) {
	status := c.Status()
	switch {
	case status == 0 && !c.Handed():
		return Verdict{Kind: store.ErrUnavailable}, true
	case status == 0 && c.Unsent():
		return Verdict{store.ErrUnavailable, "no connection to the server, nothing was sent; check the endpoint and the network"}, true
	case status == 0:
		return Verdict{Kind: c.unsettled()}, true
	case errors.Is(err, store.ErrTooLarge):
		return Verdict{Kind: store.ErrTooLarge}, true
	case errors.Is(err, store.ErrSentAgain), status == http.StatusNotModified && c.Op == "get":
		return Verdict{Kind: store.ErrNotModified}, true
	case status == http.StatusNotImplemented:
		return Unknown(), true
	case status >= 300 && status < 400 && !ChangesNothing(status) && c.Header().Get("Location") != "":
		return Verdict{c.unsettled(), c.leads()}, true
	case !ChangesNothing(status) && throttled && !c.Writes():
		return Verdict{Kind: store.ErrThrottled}, true
	case !ChangesNothing(status):
		return Verdict{Kind: c.unsettled()}, true
	}
	return Verdict{}, false
}

// Unknown is the verdict on a request that the server does not know.
func Unknown() Verdict {
	return Verdict{store.ErrRefused, "the server does not know this request, so it cannot carry locks"}
}

// unsettled is the kind of a call that may have been carried out.
func (c *Call) unsettled() error {
	if c.Writes() {
		return store.ErrUnknownOutcome
	}
	return store.ErrUnavailable
}

// Otherwise is the verdict on an answer that changes nothing, where all is said by its status. Advice is for
// requests that are refused for good.
func (c *Call) Otherwise(advice string) Verdict {
	switch c.Status() {
	case http.StatusPreconditionFailed:
		if c.Writes() {
			return Verdict{Kind: store.ErrPrecondition}
		}
		return Verdict{Kind: store.ErrUnavailable}
	case http.StatusTooManyRequests:
		return Verdict{Kind: store.ErrThrottled}
	case http.StatusRequestEntityTooLarge:
		return Verdict{store.ErrRefused, "a lock has a few hundred bytes: does a proxy before the server allow less?"}
	case http.StatusTemporaryRedirect, http.StatusLocked, http.StatusFailedDependency,
		http.StatusTooEarly, http.StatusMisdirectedRequest:
		return Verdict{store.ErrUnavailable, c.leads()} // the next time it may be another
	}
	return Verdict{store.ErrRefused, cmp.Or(advice, c.leads())}
}

// leads says where an answer redirects to, if it does. No redirect is followed.
func (c *Call) leads() string {
	to := c.Header().Get("Location")
	if to == "" {
		return ""
	}
	return fmt.Sprintf("it is redirected to %q, which is not followed: is that the endpoint to use?", Readable(to))
}

// Fail makes the error of the call. The text says what happened, in words that may be others', and err is what it is to
// match; the advice of the verdict follows the text.
func (c *Call) Fail(ctx context.Context, v Verdict, text string, err error, throttled bool, requestID string) *store.Error {
	if c.Unsure() && c.Writes() {
		v.Kind = store.ErrUnknownOutcome
	}
	if text = Redact(text); v.Advice != "" {
		text += "; " + v.Advice
	}
	var cause error = &Failure{Text: text, Err: err}
	if c.Writes() && c.Status() >= 500 && throttled {
		cause = fmt.Errorf("%w: %w", store.ErrThrottled, cause)
	}
	// An SDK and net/http may say what became of the connection, or why the context was
	// cancelled, instead of that it has ended.
	if ended := ctx.Err(); ended != nil && !c.Refused() && !errors.Is(err, ended) {
		cause = fmt.Errorf("%w: %w", ended, cause)
	}
	return &store.Error{Op: c.Op, Key: c.Key, Kind: v.Kind, Cause: cause, Date: c.Date(), RequestID: requestID}
}
