// Package fencehttp carries tokens in HTTP requests: a service refuses those of a former holder
// ([Middleware]), and a client's lease ends when it is refused ([Transport]).
package fencehttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/leasehold/leasehold/fence"
)

// Header has a request's token, and in the answer that refuses it the newest one.
const Header = "Leasehold-Token"

// errRubbish: there is something in the place of a token, and it is none.
var errRubbish = errors.New("the header " + Header + " is not a token")

// Options are the options of [Middleware]. The zero value, like nil, gives
// the defaults.
type Options struct {
	// Resource names what a request is about. Two names for one thing are two
	// resources, and fence nothing from each other. Default: the path of the URL,
	// which suits a handler that takes no path for another, and knows all of them: a
	// Checker keeps each name that it is asked about.
	Resource func(*http.Request) string

	// Optional says of a request without a token that it may go on without being
	// checked, as those that only read may. One that has a token is checked all the
	// same. Default: none.
	Optional func(*http.Request) bool

	// Logger gets what made a Checker fail: a client is not told. Default: slog.Default().
	Logger *slog.Logger
}

// Middleware lets a handler serve a request only when the gate admits its token, the
// header Leasehold-Token. The handler must give up when its request's context ends,
// and must not use the request once it has returned. It finds the token by
// [fence.HolderFrom], for the resources that it writes to.
//
// Other requests it answers itself, as [Error] does: 412 to a token that is stale,
// 400 to one that is not a token or is there twice, 428 where it is missing, 503 when
// the Checker fails or the request's context ends at the gate. The ResponseWriter is
// handed on as it is.
func Middleware(g *fence.Gate, opts *Options) func(http.Handler) http.Handler {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Resource == nil {
		o.Resource = func(r *http.Request) string { return r.URL.Path }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, err := tokenOf(r.Header)
			if errors.Is(err, fence.ErrNoToken) && o.Optional != nil && o.Optional(r) {
				next.ServeHTTP(w, r)
				return
			}
			if err != nil {
				Error(w, err)
				return
			}
			resource := o.Resource(r)
			ctx, leave, err := g.Enter(r.Context(), resource, token)
			if err != nil {
				if !errors.Is(err, fence.ErrFenced) && r.Context().Err() == nil {
					o.Logger.WarnContext(r.Context(), "a token could not be checked", "resource", resource, "token", token.Token(), "error", err)
				}
				Error(w, err)
				return
			}
			defer leave()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// tokenOf reads the token of a request or an answer.
func tokenOf(h http.Header) (fence.Token, error) {
	values := h.Values(Header)
	switch len(values) {
	case 0:
		return 0, fmt.Errorf("%w: send the one of your lease in the header %s", fence.ErrNoToken, Header)
	case 1:
		token, err := fence.ParseToken(values[0])
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errRubbish, err)
		}
		return token, nil
	}
	return 0, fmt.Errorf("%w: it is there %d times", errRubbish, len(values))
}

// problem is the body of a refusal: RFC 9457.
type problem struct {
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Resource string `json:"resource,omitempty"`
	Token    int64  `json:"token,omitempty"`
	Newest   int64  `json:"newest,omitempty"`
}

// Error answers a request with why it is refused, as application/problem+json. A
// [*FencedError] gives 412, its token, the newest one and the resource in the body, and
// the newest in the header Leasehold-Token. Every other error gives a status of its own
// if it came from [Middleware], else 503 without its text. It is also for handlers
// whose own writes a resource has refused.
func Error(w http.ResponseWriter, err error) {
	p := problem{
		Title: "The token could not be checked", Status: http.StatusServiceUnavailable,
		Detail: "Nothing was done. Try again.",
	}
	if fenced, ok := errors.AsType[*fence.FencedError](err); ok {
		p = problem{
			Title: "Fenced", Status: http.StatusPreconditionFailed, Detail: fenced.Error(),
			Resource: fenced.Resource, Token: int64(fenced.Token), Newest: int64(fenced.Newest),
		}
		w.Header().Set(Header, fenced.Newest.String())
	} else if errors.Is(err, fence.ErrNoToken) {
		p = problem{Title: "A token is required", Status: http.StatusPreconditionRequired, Detail: err.Error()}
	} else if errors.Is(err, errRubbish) {
		p = problem{Title: "Not a token", Status: http.StatusBadRequest, Detail: err.Error()}
	}
	body, _ := json.Marshal(p) // strings and numbers
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // who has gone needs no answer
}

// A Transport is an [http.RoundTripper] that sends a token along with every request, in
// the header Leasehold-Token. It sends nothing for a holder without a token or whose
// lease has ended; the request's context should be the lease's, so that the request
// ends with the lease. An answer that refuses the token ends the lease (see
// [FromResponse]), and is returned as it is. So use it towards servers whose word on
// that counts, and with a client that follows no redirects to others.
type Transport struct {
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper
	// Holder is on whose behalf they are sent. Default: the one that the request's
	// context carries; see WithHolder.
	Holder fence.Holder
}

// RoundTrip sends the request.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h, base := t.Holder, t.Base
	if h == nil {
		h = fence.HolderFrom(r.Context())
	}
	if base == nil {
		base = http.DefaultTransport
	}
	if err := fence.Admit(h); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes it whatever happens
		}
		return nil, fmt.Errorf("nothing was sent: %w", err)
	}
	out := r.Clone(r.Context())
	out.Header.Set(Header, h.Token().String())
	resp, err := base.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if fenced := fencedBy(resp, out); fenced != nil {
		_ = fence.Refuse(h, fenced.Resource, fenced.Newest) // the answer tells
	}
	return resp, nil
}

// FromResponse returns the [*FencedError] that an answer stands for, or nil: it is one
// if its status is 412 and its header has a larger token than its request had. The
// body is left unread, so Resource is the URL of the request.
func FromResponse(resp *http.Response) error {
	if fenced := fencedBy(resp, resp.Request); fenced != nil {
		return fenced
	}
	return nil
}

func fencedBy(resp *http.Response, r *http.Request) *fence.FencedError {
	if r == nil || resp.StatusCode != http.StatusPreconditionFailed {
		return nil
	}
	sent, err := tokenOf(r.Header)
	if err != nil {
		return nil
	}
	newest, err := tokenOf(resp.Header)
	if err != nil || newest <= sent {
		return nil // the precondition was another one, such as If-Match
	}
	at := *r.URL
	at.User, at.RawQuery, at.Fragment = nil, "", ""
	return &fence.FencedError{Resource: at.String(), Token: sent.Token(), Newest: newest.Token()}
}
