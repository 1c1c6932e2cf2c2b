package peer

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
)

// A Queue is notified when other processes have changed it. It is a [semaphore.Semaphore], a
// [semaphore.Lock] or a [semaphore.RWLock] of this process.
type Queue interface {
	Key() string
	Changed(version store.Version)
}

var (
	_ Queue           = (*semaphore.Semaphore)(nil)
	_ Queue           = (*semaphore.Lock)(nil)
	_ Queue           = (*semaphore.RWLock)(nil)
	_ semaphore.Peers = (*Client)(nil)
)

// hear takes a notification from another process that it has changed a semaphore.
func (h *Handler) hear(w http.ResponseWriter, r *http.Request) *refusal {
	if no := h.authorize(r); no != nil {
		return no
	}
	if r.ContentLength != 0 {
		return &refusal{http.StatusBadRequest, "a word of a change has no body", [2]string{"Connection", "close"}}
	}
	q, err := question(r.URL.RawQuery)
	if err != nil {
		return &refusal{status: http.StatusBadRequest, why: err.Error()}
	}
	queues := h.queues[q.Lock]
	if len(queues) == 0 {
		return &refusal{status: http.StatusNotFound, why: fmt.Sprintf("there is no semaphore %q here", q.Lock)}
	}
	for _, queue := range queues {
		queue.Changed(store.Version(q.Known))
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Changed notifies the process at an address, as for [Client.Ask], that the semaphore under key
// has changed to this version: see [semaphore.Peers]. It takes at most [ClientOptions.Timeout],
// and returns when ctx ends. Errors name the address and the problem. You may ignore them,
// because correctness does not depend on notifications.
func (c *Client) Changed(ctx context.Context, address, key string, version store.Version) error {
	if err := c.changed(ctx, address, url.Values{"lock": {key}, "version": {string(version)}}); err != nil {
		return fmt.Errorf("telling %s: %w", address, err)
	}
	return nil
}

func (c *Client) changed(ctx context.Context, address string, word url.Values) error {
	place, err := c.place(address)
	if err != nil {
		return err
	}
	if err = c.begin(); err != nil {
		return err
	}
	defer c.asking.Done()
	ctx, end := c.open(ctx)
	defer end()
	place.RawQuery = word.Encode()
	answer, err := c.send(ctx, http.MethodPost, place, c.opts.Timeout)
	if err != nil {
		return err
	}
	switch answer.StatusCode {
	case http.StatusNoContent:
		return nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return errToken(answer)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Errorf("it knows nothing of the semaphore, or of the path %s (%s): give its handler the Queues", place.Path, answer.Status)
	}
	return fmt.Errorf("it answers %s: %.200q", answer.Status, answer.body)
}
