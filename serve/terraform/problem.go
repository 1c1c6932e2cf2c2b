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

// A refusal is why a request was not done. Terraform reads the holder of a lock; of the rest it shows the
// status, and people who ask by other tools see the detail.
type refusal struct {
	status int
	detail string
	holder *LockInfo
	token  leasehold.Token // of the holder, if it is known to go on
}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, detail: fmt.Sprintf(format, args...)}
}

// heldBy refuses because of the holder of a lock.
func heldBy(status int, holder LockInfo) *refusal {
	return &refusal{status: status, detail: "the state is locked by " + holder.holder() + ", with the ID " + holder.ID, holder: &holder}
}

// refusalOf says why the store, or the lock, has not done what was to be done.
func refusalOf(what string, err error) *refusal {
	status := http.StatusServiceUnavailable // Terraform tries that again, a moment later
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

// A problem is the body of an answer that says what went wrong (RFC 9457).
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
		panic(err) // nothing that is answered can fail
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(body, '\n')) // a client that is gone needs none
	}
}
