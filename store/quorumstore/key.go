package quorumstore

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	crand "crypto/rand"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// A key runs the register of one key: it sends the register's requests, and passes the answers
// to it.
type key struct {
	view *view
	name string

	mu      sync.Mutex
	reg     *register.Register
	calls   int
	waiting map[int]chan register.Answer
	timer   *time.Timer
	due     time.Duration
}

func newKey(v *view, name string) *key {
	return &key{view: v, name: name, waiting: map[int]chan register.Answer{}, reg: register.New(v.cfg, crand.Text(), int(v.whole.Load()), random)}
}

func random() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:])
}

// call waits for the answer, or for the end of ctx.
func (k *key) call(ctx context.Context, c register.Call) register.Answer {
	answer := make(chan register.Answer, 1)
	k.mu.Lock()
	k.calls++
	c.ID = k.calls
	k.waiting[c.ID] = answer
	k.step(c)
	k.mu.Unlock()
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
	}
	k.mu.Lock()
	k.step(register.Cancel{ID: c.ID, Err: ctx.Err()})
	k.mu.Unlock()
	return <-answer
}

// step must be called with the mutex locked.
func (k *key) step(ev register.Event) {
	now := time.Since(k.view.began)
	for _, a := range k.reg.Step(ev, now) {
		switch a := a.(type) {
		case register.Answer:
			k.waiting[a.ID] <- a
			delete(k.waiting, a.ID)
		case register.Get:
			go k.get(a)
		case register.Put:
			go k.put(a)
		case register.Check:
			go k.check(a)
		case register.Drop:
			go k.drop(a)
		}
	}
	due, ok := k.reg.Due()
	if !ok || due == k.due {
		return
	}
	if k.due = due; k.timer != nil {
		k.timer.Stop()
	}
	k.timer = time.AfterFunc(due-now, func() { k.back(register.Tick{}) })
}

// back passes an answer to the register.
func (k *key) back(ev register.Event) {
	k.mu.Lock()
	k.step(ev)
	k.mu.Unlock()
}

func (k *key) beyond(v register.Value) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reg.Beyond(v)
}

func (k *key) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reg.Idle()
}

func (k *key) get(a register.Get) {
	k.view.ask(a.Member, func(ctx context.Context, m store.Store) error {
		ev := register.Shown{Member: a.Member, Request: a.Request}
		o, err := m.Get(ctx, k.name, store.Version(a.Unless))
		switch {
		case err == nil:
			ev.At, ev.Old = string(o.Version), k.view.old(a.Member, o.LastModified)
			ev.Acceptor, ev.Err = register.Decode(k.view.cfg.Quorum, o.Body)
		case errors.Is(err, store.ErrNotModified):
			ev.Same = true
		case errors.Is(err, store.ErrNotExist):
		default:
			ev.Err = err
		}
		if ev.Same || err == nil && ev.Err == nil {
			k.view.s.health.found(k.view.cfg.Members[a.Member].Place)
		}
		k.back(ev)
		return err
	})
}

func (k *key) put(a register.Put) {
	k.view.ask(a.Member, func(ctx context.Context, m store.Store) error {
		ev := register.Stored{Member: a.Member, Request: a.Request}
		body, err := a.Acceptor.Encode()
		if err == nil {
			only := store.IfAbsent()
			if a.Over != "" {
				only = store.IfMatch(store.Version(a.Over))
			}
			var o *store.Object
			if o, err = m.Put(ctx, k.name, body, only); err == nil {
				ev.At = string(o.Version)
			}
		}
		ev.Fate, ev.Err = fateOf(err), err
		k.back(ev)
		return err
	})
}

// drop deletes on a condition. Collect has tested that the member supports it.
func (k *key) drop(a register.Drop) {
	k.view.ask(a.Member, func(ctx context.Context, m store.Store) error {
		ev := register.Stored{Member: a.Member, Request: a.Request}
		err := deleteIf(ctx, m, k.name, store.Version(a.Over))
		ev.Fate, ev.Err = fateOf(err), err
		k.back(ev)
		return err
	})
}

// fateOf returns the outcome of a conditional write or delete.
func fateOf(err error) register.Fate {
	switch {
	case err == nil:
		return register.Landed
	case errors.Is(err, store.ErrUnknownOutcome), errors.Is(err, store.ErrConflict):
		return register.Unknown
	case errors.Is(err, store.ErrPrecondition), errors.Is(err, store.ErrNotExist):
		return register.Refused
	}
	return register.Unsent
}

func (k *key) check(a register.Check) {
	k.view.ask(a.Member, func(ctx context.Context, m store.Store) error {
		marker, _, err := k.view.s.readMarker(ctx, m)
		whole := k.view.whole.Load()>>a.Member&1 != 0
		k.view.sees(a.Member, marker)
		k.back(register.Marked{Member: a.Member, Request: a.Request, Marker: marker, Err: err})
		if err != nil {
			return err
		}
		if of := k.view.cfg.Members[a.Member]; marker == nil || marker.Name != of.Marker || whole && !marker.Whole {
			return ErrLost
		}
		k.view.s.health.found(k.view.cfg.Members[a.Member].Place)
		return nil
	})
}
