// Package fencehttp carries tokens in HTTP requests. [Middleware] makes a service reject
// requests of a former holder. [Transport] ends a client's lease when a service rejects it.
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

// Header carries a request's token, and the newest token in a response that rejects it.
const Header = "Leasehold-Token"

// errRubbish means the header's value is not a token.
var errRubbish = errors.New("the header " + Header + " is not a token")

// Options are the options of [Middleware]. The zero value and nil mean the defaults.
type Options struct {
	// Resource returns the name of the resource of a request. Two names of the same thing are
	// two resources, and are not fenced from each other. Default: the path of the URL. That
	// suits handlers with a fixed set of paths and one path per resource, because a Checker
	// keeps each name it has seen.
	Resource func(*http.Request) string

	// Optional reports whether a request without a token may skip the check, for example
	// because it only reads. Requests with a token are always checked. Default: none may.
	Optional func(*http.Request) bool

	// Logger gets the error if a Checker fails, because clients do not. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Middleware serves a request only if the gate admits its token in the header Leasehold-Token.
// The handler must stop when the request's context ends, and must not use the request after it
// has returned. With [fence.HolderFrom], it gets the token for the resources it writes to.
//
// Middleware rejects other requests itself, with [Error]: 412 if the token is stale, 400 if it
// is not a token or occurs twice, 428 if it is missing, 503 if the Checker fails or the
// request's context ends at the gate. It passes the ResponseWriter on unchanged.
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

// tokenOf returns the token of a request or a response.
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

// problem is the body of a rejection: RFC 9457.
type problem struct {
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Resource string `json:"resource,omitempty"`
	Token    int64  `json:"token,omitempty"`
	Newest   int64  `json:"newest,omitempty"`
}

// Error rejects a request with an application/problem+json response. For a [*fence.FencedError] that
// is 412, with its token, the newest token and the resource in the body, and the newest token
// in the header Leasehold-Token. Errors of [Middleware] have their own status; for all others
// it is 503 without their text. Handlers can also call Error if a resource has rejected their
// own writes.
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
	_, _ = w.Write(body) // a client that left needs no response
}

// A Transport is an [http.RoundTripper] that sends a token with every request, in the header
// Leasehold-Token. It sends nothing if the holder has no token or its lease has ended. Use the
// lease's context for the request, so the request ends with the lease.
//
// A response that rejects the token ends the lease (see [FromResponse]), and is returned
// unchanged. So use a Transport only with servers you trust with that, and with a client that
// does not follow redirects to other servers.
type Transport struct {
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper
	// Holder is the sender of the requests. Default: the one in the request's context; see
	// WithHolder.
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
			_ = r.Body.Close() // a RoundTripper must always close it
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
		_ = fence.Refuse(h, fenced.Resource, fenced.Newest) // the response reports it
	}
	return resp, nil
}

// FromResponse returns a [*fence.FencedError] if the response rejects a token, or nil. It does if its
// status is 412 and its header has a larger token than the request. FromResponse does not read
// the body, so Resource is the URL of the request.
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
		return nil // another precondition failed, such as If-Match
	}
	at := *r.URL
	at.User, at.RawQuery, at.Fragment = nil, "", ""
	return &fence.FencedError{Resource: at.String(), Token: sent.Token(), Newest: newest.Token()}
}
