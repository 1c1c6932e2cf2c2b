package terraform

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store"
)

// A refusal is why a request was refused. Terraform reads the holder of a lock, and otherwise
// shows only the status. The detail is for people who use other tools.
type refusal struct {
	status int
	detail string
	holder *LockInfo
	token  leasehold.Token // of the holder, unless it seems dead
}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, detail: fmt.Sprintf(format, args...)}
}

func heldBy(status int, holder LockInfo) *refusal {
	return &refusal{status: status, detail: "the state is locked by " + holder.holder() + ", with the ID " + holder.ID, holder: &holder}
}

// refusalOf returns why an operation on the store or the lock has failed.
func refusalOf(what string, err error) *refusal {
	status := http.StatusServiceUnavailable // Terraform retries these a moment later
	switch {
	case errors.Is(err, fence.ErrFenced):
		status = http.StatusConflict
	case errors.Is(err, store.ErrNotExist):
		status = http.StatusNotFound
	case errors.Is(err, fence.ErrForeign), errors.Is(err, leasehold.ErrForeignObject), errors.Is(err, errForeign), errors.Is(err, leasehold.ErrTokenTooLarge):
		status = http.StatusUnprocessableEntity
	case errors.Is(err, store.ErrTooLarge):
		status = http.StatusRequestEntityTooLarge
	case store.Final(err), errors.Is(err, errDamaged):
		status = http.StatusInternalServerError
	}
	return refuse(status, "%s: %v", what, err)
}

// A problem is the body of an answer with an error (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, f *refusal) {
	level := h.log.Info
	if f.status >= http.StatusInternalServerError {
		level = h.log.Warn
	}
	level("refused", "method", r.Method, "path", clip(r.URL.Path, maxWho), "status", f.status, "reason", f.detail)
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if f.holder != nil {
		writeJSON(w, r, f.status, "application/json", f.holder)
		return
	}
	writeJSON(w, r, f.status, "application/problem+json", problem{"about:blank", http.StatusText(f.status), f.status, f.detail})
}

func writeJSON(w http.ResponseWriter, r *http.Request, status int, contentType string, data any) {
	body, err := json.Marshal(data)
	if err != nil {
		panic(err) // no answer can fail
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(body, '\n')) // if the client has left, it needs none
	}
}
