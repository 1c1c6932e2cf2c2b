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

// lock answers LOCK. A second one with the ID that holds the lock already is answered as the first was:
// Terraform sends a request again whose answer it did not get.
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
	// From here on no earlier run can store a state, so the one that this run reads stays what it is.
	if _, err := h.claim(c, holder); err != nil {
		if lease != nil {
			h.letGo(c, lease)
		}
		f = refusalOf("the state could not be claimed", err)
		if f.status == http.StatusConflict {
			// Terraform takes that for the answer that says who holds the lock. Another has it by now, and is told of
			// when Terraform asks again; or the lock's object was deleted, and its tokens began anew.
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

// hold keeps a lock until it is unlocked. It is false if the handler was closed meanwhile, and keeps none.
func (h *Handler) hold(name string, e *holding) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.held[name] = e
	return true
}

// lockInfo reads the body of LOCK or UNLOCK.
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

// letGo releases a lease of which nobody was told.
func (h *Handler) letGo(c *call, lease *leasehold.Lease) {
	if err := lease.Release(c.ctx); err != nil {
		h.log.Warn("a lock was not released, and ends with its TTL", "state", c.place.name, "error", err)
	}
}

// acquire takes the lock, or says who holds it. It does not wait: Terraform asks again.
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

// settle refuses because of the lock that this process has given itself, as long as it is held; and lets go of
// it if it is not: somebody has broken it, or it could not be renewed in time.
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

// release releases a lock that this process has given, if it is held yet. An error that matches
// [leasehold.ErrLost] is none: it is not held by this process any more. Unless ctx ends first, the process holds
// nothing after it, even if the store refused to free the lock: that lock ends with its TTL, or is broken.
func (h *Handler) release(ctx context.Context, name string, e *holding) error {
	err := e.lease.Release(ctx)
	if err != nil && ctx.Err() != nil {
		return err // it goes on in the background, and another call waits for that
	}
	h.mu.Lock()
	if h.held[name] == e {
		delete(h.held, name) // the lease is at its end, also where the store has refused to free the lock
	}
	h.mu.Unlock()
	if errors.Is(err, leasehold.ErrLost) {
		return nil
	}
	return err
}

// room refuses when this process holds too many locks. Those that were lost are none.
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
		leave := h.turns.try(name) // who waited would keep its own turn from others
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

// unlock answers UNLOCK. A run sends all that it has sent to lock. force-unlock sends nothing, or the ID alone:
// Terraform 1.11 asks for the ID and does not send it.
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

// breakLock frees a lock that another process has given, or that this one has lost.
func (h *Handler) breakLock(c *call, info LockInfo) *refusal {
	now, err := h.locks.Inspect(c.ctx, c.place.lock)
	if err != nil {
		return refusalOf("the lock could not be read", err)
	}
	id, holder := info.ID, lockInfoOf(now)
	switch {
	// A run unlocks that was displaced. It has what it wants. Were it refused, Terraform would advise
	// its user to unlock by force, and that would be the lock of the successor.
	case info.Operation != "" && (!now.Held || holder.ID != id):
		h.log.Warn("a run unlocks that does not hold the lock any more", "state", c.place.name, "id", id, "who", info.Who)
		return nil
	case !now.Held && id != "" && holder.ID == id: // Terraform has asked before, and got no answer
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
