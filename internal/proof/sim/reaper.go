package sim

import (
	"errors"
	"slices"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/retry"
	"github.com/leasehold/leasehold/store"
)

// reapers watch the sessions that candidates wait for, each one.
type reapers []*reaper

// A reaper waits until a session is over, and ends it when it was waited out.
type reaper struct {
	m       *member
	all     *reapers
	stopped bool
	fails   int   // looks for the session in a row
	heard   int64 // Freed.Count of the last heartbeat
	protocol.SessionWatch[*member]
}

// attend has the session watched that the candidate waits for.
func (w *world) attend(m *member) {
	key, r := m.c.Awaits(), m.vigil
	switch {
	case r == nil && key == "", r != nil && key == r.m.on.key:
		return
	case r != nil:
		w.leave(r, m)
	}
	if m.vigil = nil; key == "" {
		return
	}
	all := &m.own
	if m.session != nil {
		all = &m.session.reapers
	}
	m.vigil = w.watch(all, key, m)
}

// watch adds a candidate to those that wait for the end of a session.
func (w *world) watch(all *reapers, key string, m *member) *reaper {
	i := slices.IndexFunc(*all, func(r *reaper) bool { return r.m.on.key == key })
	if i < 0 {
		r := &reaper{all: all}
		r.m = &member{process: m.process, on: w.find(key).heartbeat.on, ttl: m.ttl, reaps: r}
		r.m.lay = func(st store.Store) layout.Layout { return layout.Heartbeat{Store: st, Key: key} }
		w.candidate(r.m, protocol.Config{TTL: m.ttl, Holder: m.process.String(), Layout: record.LayoutSession, Reaper: true, Follow: true})
		r.m.on.reapers = append(r.m.on.reapers, r.m)
		i, *all = len(*all), append(*all, r)
		w.soon(m.process, func() { w.reap(r) })
	}
	r := (*all)[i]
	if r.Join(m, m.looked) {
		w.soon(m.process, func() { w.step(m, protocol.Recheck{}) })
	}
	return r
}

// leave takes out a candidate; without any the session is not watched any more.
func (w *world) leave(r *reaper, m *member) {
	if !r.Leave(m) {
		return
	}
	r.remove()
	r.stopped = true
	w.renew(r.m)
	w.soon(m.process, func() { w.step(r.m, protocol.Cancel{}) })
}

func (r *reaper) remove() {
	*r.all = slices.DeleteFunc(*r.all, func(other *reaper) bool { return other == r })
}

// reap begins to wait until the session is over.
func (w *world) reap(r *reaper) {
	if !r.stopped {
		r.m.wants = true
		w.step(r.m, protocol.Acquire{Wait: true})
	}
}

// each gives an event to some who wait, in any order.
func (w *world) each(some []*member, event func() protocol.Event) {
	for _, m := range some {
		w.soon(m.process, func() { w.step(m, event()) })
	}
}

// reaped is what a reaper does about what its candidate finds.
func (w *world) reaped(r *reaper, action protocol.Action) {
	switch a := action.(type) {
	case protocol.Seen:
		w.heartbeat(r)
	case protocol.Reaped:
		r.m.wants = false
		r.remove()
		w.each(r.Waiters(), func() protocol.Event {
			return protocol.SessionExpired{Session: r.m.on.key, Look: w.choose(2) == 1}
		})
	case protocol.Failed:
		if r.stopped {
			return
		}
		if errors.Is(a.Err, store.ErrDenied) || errors.Is(a.Err, record.ErrForeign) {
			w.each(r.Waiters(), func() protocol.Event { return protocol.Cancel(a) })
		}
		r.fails++
		w.timeout(r.m.real(retry.Pause(r.fails, nil)), r.m.process, func() { w.reap(r) })
	}
}

// heartbeat takes one in. If it tells of releases that were not known, those who wait for such
// a lock look at it.
func (w *world) heartbeat(r *reaper) {
	record, _, _ := r.m.c.Observed()
	if f := record.Freed; f != nil {
		if f.Count-r.heard > int64(len(f.Last)) {
			w.met(HintMissed, f)
		}
		r.heard = f.Count
	}
	nudged := r.Beat(record, w.clock(r.m.process), func(m *member) string { return m.on.key })
	w.each(nudged, func() protocol.Event { return protocol.Recheck{} })
}
