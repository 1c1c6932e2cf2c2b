package terraform

import (
	"context"
	"errors"
	"net/http"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store"
)

// lock answers LOCK. A LOCK with the ID that already holds the lock gets the same answer as the
// first, because Terraform repeats requests whose answer it did not get.
func (h *Handler) lock(c *call) *refusal {
	info, f := h.lockInfo(c)
	switch {
	case f != nil:
		return f
	case info.ID == "":
		return refuse(http.StatusBadRequest, "the body names no ID for the lock")
	}
	if f = h.turn(c); f != nil {
		return f
	}
	lease, f := h.acquire(c, info)
	var holder fence.Holder = lease
	switch {
	case f == nil:
	case f.holder != nil && f.holder.ID == info.ID && f.token != leasehold.NoToken:
		holder, lease = fence.Token(f.token), nil
	default:
		return f
	}
	// From here on no earlier run can store a state, so the state read by this run does not
	// change.
	if _, err := h.claim(c, holder); err != nil {
		if lease != nil {
			h.letGo(c, lease)
		}
		f = refusalOf("the state could not be claimed", err)
		if f.status == http.StatusConflict {
			// Terraform would read a conflict as an answer with the lock's holder. Either
			// another run holds the lock by now, and Terraform learns of it when it retries, or
			// the lock's object was deleted and tokens started again.
			f.status = http.StatusServiceUnavailable
		}
		return f
	}
	if lease != nil {
		if !h.hold(c.place.name, &holding{info.ID, lease}) {
			h.letGo(c, lease)
			return refuse(http.StatusServiceUnavailable, "the server stops")
		}
		h.log.Info("locked", "state", c.place.name, "id", info.ID, "who", info.Who, "operation", info.Operation, "token", int64(lease.Token()))
	}
	writeJSON(c.w, c.Request, http.StatusOK, "application/json", info)
	return nil
}

// hold keeps a lock until it is unlocked. It returns false, and keeps none, if the handler was
// closed.
func (h *Handler) hold(name string, e *holding) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.held[name] = e
	return true
}

func (h *Handler) lockInfo(c *call) (LockInfo, *refusal) {
	body, f := h.body(c, maxLockBody)
	if f != nil {
		return LockInfo{}, f
	}
	info, err := parseLockInfo(body)
	if err != nil {
		return info, refuse(http.StatusBadRequest, "%v", err)
	}
	return info, nil
}

func (h *Handler) claim(c *call, holder fence.Holder) (*fence.Value, error) {
	guarded, err := fence.NewObject(h.st, c.place.state, nil)
	if err != nil {
		return nil, err
	}
	return guarded.Claim(c.ctx, holder)
}

// letGo releases a lease unknown to all clients.
func (h *Handler) letGo(c *call, lease *leasehold.Lease) {
	if err := lease.Release(c.ctx); err != nil {
		h.log.Warn("a lock was not released, and ends with its TTL", "state", c.place.name, "error", err)
	}
}

// acquire takes the lock, or returns a refusal with its holder. It does not wait, because
// Terraform retries.
func (h *Handler) acquire(c *call, info LockInfo) (*leasehold.Lease, *refusal) {
	if f := h.settle(c); f != nil {
		return nil, f
	}
	if f := h.room(c); f != nil {
		return nil, f
	}
	lease, err := h.locks.TryAcquire(c.ctx, c.place.lock, leasehold.WithHolder(info.holder()), leasehold.WithMeta(info.meta()))
	if held, is := errors.AsType[*leasehold.HeldError](err); is {
		f := heldBy(http.StatusLocked, lockInfoOf(held.Info))
		if !held.Info.Abandoned {
			f.token = held.Info.Token
		}
		return nil, f
	}
	if err != nil {
		return nil, refusalOf("the state could not be locked", err)
	}
	return lease, nil
}

// settle refuses the request if this process holds the lock. A lock that it has lost, because
// it was broken or not renewed in time, is released first.
func (h *Handler) settle(c *call) *refusal {
	e := h.holding(c.place.name)
	if e == nil {
		return nil
	}
	now, err := h.locks.Inspect(c.ctx, c.place.lock)
	if err != nil {
		return refusalOf("the lock could not be read", err)
	}
	if e.lease.Err() == nil && now.Held && now.Token == e.lease.Token() {
		f := heldBy(http.StatusLocked, lockInfoOf(now))
		f.token = now.Token
		return f
	}
	if err = h.release(c.ctx, c.place.name, e); err != nil {
		return refusalOf("an earlier lock could not be let go of", err)
	}
	return nil
}

func (h *Handler) holding(name string) *holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[name]
}

// release releases a lock of this process. [leasehold.ErrLost] is not an error here. Unless ctx
// ends first, the process holds nothing afterwards, even if the store did not free the lock: it
// then ends with its TTL, or is broken.
func (h *Handler) release(ctx context.Context, name string, e *holding) error {
	err := e.lease.Release(ctx)
	if err != nil && ctx.Err() != nil {
		return err // it continues in the background, and another call waits for it
	}
	h.mu.Lock()
	if h.held[name] == e {
		delete(h.held, name) // the lease has ended even if the store did not free the lock
	}
	h.mu.Unlock()
	if errors.Is(err, leasehold.ErrLost) {
		return nil
	}
	return err
}

// room refuses the request if this process holds too many locks, not counting lost ones.
func (h *Handler) room(c *call) *refusal {
	h.mu.Lock()
	lost := map[string]*holding{}
	n := len(h.held)
	if n >= h.opts.Locks {
		for name, e := range h.held {
			if e.lease.Err() != nil {
				lost[name] = e
			}
		}
	}
	h.mu.Unlock()
	for name, e := range lost {
		leave := h.turns.try(name) // waiting here would block others from this request's own turn
		if leave == nil {
			continue
		}
		if h.release(c.ctx, name, e) == nil {
			n--
		}
		leave()
	}
	if n >= h.opts.Locks {
		return refuse(http.StatusServiceUnavailable, "there are too many locks at a time: the most is %d", h.opts.Locks)
	}
	return nil
}

// unlock answers UNLOCK. A run sends the same body as for LOCK. force-unlock sends nothing, or
// only the ID: Terraform 1.11 asks for the ID and does not send it.
func (h *Handler) unlock(c *call) *refusal {
	info, f := h.lockInfo(c)
	if f != nil {
		return f
	}
	if f = h.turn(c); f != nil {
		return f
	}
	id, name := info.ID, c.place.name
	if e := h.holding(name); e != nil && (id == "" || e.id == id) {
		lost := e.lease.Err()
		if err := h.release(c.ctx, name, e); err != nil {
			return refusalOf("the lock could not be released", err)
		}
		if lost == nil {
			h.log.Info("unlocked", "state", name, "id", e.id)
			writeJSON(c.w, c.Request, http.StatusOK, "application/json", info)
			return nil
		}
	}
	if f = h.breakLock(c, info); f != nil {
		return f
	}
	writeJSON(c.w, c.Request, http.StatusOK, "application/json", info)
	return nil
}

// breakLock frees a lock given by another process, or lost by this one.
func (h *Handler) breakLock(c *call, info LockInfo) *refusal {
	now, err := h.locks.Inspect(c.ctx, c.place.lock)
	if err != nil {
		return refusalOf("the lock could not be read", err)
	}
	id, holder := info.ID, lockInfoOf(now)
	switch {
	// This is a displaced run. It has what it wants. If it were refused, Terraform would advise
	// its user to force-unlock, and that would free the successor's lock.
	case info.Operation != "" && (!now.Held || holder.ID != id):
		h.log.Warn("a run unlocks that does not hold the lock any more", "state", c.place.name, "id", id, "who", info.Who)
		return nil
	case !now.Held && id != "" && holder.ID == id: // Terraform repeats a request, having got no answer
		return nil
	case !now.Held:
		return refuse(http.StatusConflict, "the state %s is not locked", c.place.name)
	case id != "" && holder.ID != id:
		return heldBy(http.StatusConflict, holder)
	}
	lock, err := leasehold.NewLock(h.st, c.place.lock, h.lockOptions())
	if err == nil {
		_, err = admin.Break(c.ctx, lock, now.Token)
	}
	switch {
	case errors.Is(err, admin.ErrTokenChanged), errors.Is(err, store.ErrPrecondition):
		return refuse(http.StatusConflict, "the lock of %s has changed hands meanwhile: %v", c.place.name, err)
	case err != nil:
		return refusalOf("the lock could not be broken", err)
	}
	h.log.Warn("a lock was broken", "state", c.place.name, "id", holder.ID, "who", holder.Who, "token", int64(now.Token))
	return nil
}
