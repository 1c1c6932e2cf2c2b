package storeurl

import (
	"net/http"
	"sync"
)

// A tokenError says why there is no token for a store. The error of the cloud's library is a part of the text only:
// its address is that of another service, and readers of errors would take it for the store's.
type tokenError struct {
	kind  error // store.ErrDenied, or store.ErrUnavailable if there may be one the next time
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

// An outcome is how the last of the requests for a token ended. The libraries of the clouds
// keep of an error its text only, in part, which does not tell whether it may pass.
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

// unanswered reports that a service was asked, and could not be reached or could not answer.
func (o *outcome) unanswered() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked && !refuses(o.status)
}

// refuses reports that a service for tokens which answers so will answer so again.
func refuses(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	return false
}
