package storeurl

import (
	"net/http"
	"sync"
)

// A tokenError says why there is no token for a store. It has the library's error only as text,
// because errors.As could otherwise find an address in it that is not the store's.
type tokenError struct {
	kind  error // store.ErrDenied, or store.ErrUnavailable if a retry may succeed
	text  string
	ended error // of the context; nil if it did not end
}

func (e *tokenError) Error() string { return e.text }

func (e *tokenError) Unwrap() []error {
	if e.ended == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.ended}
}

// An outcome is how the last request for a token ended. The clouds' libraries keep only a part
// of an error's text, which does not say whether it is temporary.
type outcome struct {
	mu     sync.Mutex
	asked  bool
	status int // 0: there was no answer
}

func (o *outcome) note(answer *http.Response, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked, o.status = true, 0
	if err == nil && answer != nil {
		o.status = answer.StatusCode
	}
}

// unanswered reports whether a service was asked, but could not be reached or could not answer.
func (o *outcome) unanswered() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked && !refuses(o.status)
}

// refuses reports whether a token service with this response would respond the same way again.
func refuses(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	return false
}
