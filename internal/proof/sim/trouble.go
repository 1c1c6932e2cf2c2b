package sim

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// trouble is what happens now and then, to the store or to one of the members.
func (w *world) trouble() {
	if w.calm {
		return
	}
	w.sickness(w.victim())
	w.mishap()
	w.collect()
	w.sweep()
	w.reclaim()
	w.after(w.pick(3*time.Second, time.Second, 500*time.Millisecond, 200*time.Millisecond), nil, w.trouble)
}

// victim is a member: mostly one that holds a lease, because most depends on that one.
func (w *world) victim() *member {
	m := w.members[w.choose(len(w.members))]
	for _, holder := range w.members {
		if holder.leased && w.choose(4) != 3 {
			return holder
		}
	}
	return m
}

// sick are the kinds of trouble that one member has.
var sick = [...]Fault{Crash, Pause, Suspend, Denied, CutRequests, CutAnswers, CutBoth, WallJump, Drift}

// sickness is trouble of one member.
func (w *world) sickness(m *member) {
	for _, f := range sick {
		if w.meets(f) {
			w.strike(m, f)
			return
		}
	}
}

// worst lets things happen at the worst moment: while a write is on its way.
func (w *world) worst(c *call) {
	f := sick[w.choose(7)]
	if w.calm || w.choose(4) != 3 {
		return
	}
	m := c.from
	c.lateRequest, c.lateAnswer = w.choose(8) == 7, w.choose(8) == 7
	soon := w.pick(0, 5*time.Millisecond, 30*time.Millisecond, 2*time.Second)
	w.after(soon, nil, func() {
		if w.odds[f] > 0 && !w.calm {
			w.strike(m, f)
		}
	})
	if w.choose(2) == 1 {
		w.after(soon, m.process, func() { w.letGo(m) })
		return
	}
	rival := w.members[w.choose(len(w.members))]
	w.after(soon+5*time.Millisecond, rival.process, func() { w.comes(rival) })
}

// strike lets a member have trouble.
func (w *world) strike(m *member, f Fault) {
	switch f {
	case Crash:
		w.met(Crash, m)
		w.start(m.process)
	case Pause:
		w.pause(m)
	case Suspend:
		w.suspend(m)
	case Denied:
		m.denied = w.now + w.spell()
	case CutRequests:
		m.noRequests = w.now + w.spell()
	case CutAnswers:
		m.noAnswers = w.now + w.spell()
	case CutBoth:
		m.noRequests = w.now + w.spell()
		m.noAnswers = m.noRequests
	case WallJump:
		w.met(WallJump, m)
		m.wall = w.pick(-time.Hour, time.Hour, -5*time.Second, 48*time.Hour, -48*time.Hour)
	case Drift:
		w.rerate(m.process)
	}
}

// spell is how long trouble lasts that ends by itself.
func (w *world) spell() time.Duration {
	return w.pick(500*time.Millisecond, 2*time.Second, 5*time.Second, 15*time.Second, 40*time.Second)
}

// pause stops a member for a while, and mostly for longer than its lease lasts.
func (w *world) pause(m *member) {
	if w.now < m.paused {
		return // it stands still already
	}
	left := m.real(m.deadline() - w.clock(m.process))
	m.stood++
	m.paused = w.now + w.pick(100*time.Millisecond, left-time.Millisecond, left+5*time.Second, left+40*time.Second)
	w.logf("%v is paused until %v", m, m.paused)
	if m.leased && m.paused > w.now+left {
		w.met(Pause, m)
	}
}

// suspend stops the machine of a member for a while: its clock goes on, and its timers have as
// much left afterwards as before. Those that wake the candidates have a second at most.
func (w *world) suspend(m *member) {
	if w.now < m.paused {
		return
	}
	w.pause(m)
	p, slept := m.process, m.paused-w.now
	if m.leased && slept > m.real(m.deadline()-w.clock(p)) {
		w.met(Suspend, m)
	}
	for i, e := range w.queue {
		switch {
		case e.to != p || e.life != p.life:
		case e.by == alarm:
			w.queue[i].at += slept
		case e.by == tick && e.at < p.paused:
			left := min(e.at-w.now, time.Duration(w.choose(3))*time.Second/2)
			w.queue[i].at = p.paused + left
		}
	}
	w.queue.order()
}

// mishap is trouble of the store.
func (w *world) mishap() {
	switch {
	case w.meets(Throttled):
		w.weather.throttled = w.now + w.spell()
	case w.hit(SlowStore):
		w.weather.slow = w.now + w.spell()
	case w.skewed && w.hit(StoreJump):
		w.weather.skew = w.pick(-time.Hour, -10*time.Second, time.Minute, 48*time.Hour)
	case w.weather.poisoned != "":
		w.cure()
	case w.meets(Poison):
		w.poison()
	case w.arm == Deleted && w.choose(20) == 19:
		l := w.locks[w.choose(len(w.locks))]
		if _, exists := w.objects[l.key]; exists {
			w.met(Deletion)
			l.deleted, l.names = true, nil
			delete(w.objects, l.key)
		}
	}
}

// poison puts something into the object's place that is no record of ours: for epochs,
// into that of the next one. Over a marker that would be a deletion by hand.
func (w *world) poison() {
	l := w.locks[w.choose(len(w.locks))]
	key := l.key
	if w.cfg.Numbered {
		key = layout.EpochKey(key, w.objects.highest(key)+1)
	}
	if n := len(w.sessions); n > 0 && w.choose(3) == 2 {
		key = w.sessions[n-1].String()
	}
	before, exists := w.objects[key]
	if exists && w.cfg.Tokenless || !exists && key[0] == 's' {
		return
	}
	w.weather.poisoned, w.weather.instead = key, nil
	if exists {
		w.weather.instead = &before
	}
	w.weather.poison = w.objects.put(key, w.strange(l, key[0] == 's'), w.date()).version
	w.met(Poison, key)
}

// strange is something that is no record of ours, though it may look much like one.
func (w *world) strange(l *lock, session bool) []byte {
	r := record.Record{Token: l.top + 1, Layout: w.cfg.Layout, Holder: "stranger", TTL: time.Second, WriteID: "stranger.1"}
	if w.cfg.Tokenless {
		r.Token = 0
	}
	format := `"format":1`
	switch w.choose(5) {
	case 0:
		return []byte("this is no record")
	case 1:
		format = `"format":2`
	case 2:
		r.Layout = "another"
	case 3:
		r.Layout = "another"
		if !session {
			r.Layout = record.LayoutSession
		}
	default:
		// That one can be read. Of epochs it would be the highest one, and others could be
		// collected; and a lock that was under a session would be taken for free.
		if r.Token = math.MaxInt64; w.cfg.Numbered || len(w.sessions) > 0 {
			format = `"format":3`
		}
	}
	body, err := r.Encode()
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	return bytes.Replace(body, []byte(`"format":1`), []byte(format), 1)
}

// cure brings back exactly what was there.
func (w *world) cure() {
	key, before := w.weather.poisoned, w.weather.instead
	w.weather.poisoned = ""
	for _, l := range w.locks {
		l.cured = l.cured || l.key == key
	}
	switch {
	case w.objects[key].version != w.weather.poison: // a marker that somebody released
	case before == nil:
		delete(w.objects, key)
	default:
		w.objects.put(key, before.body, w.date())
	}
	w.logf("the poison %q is removed", key)
}

// sweep deletes a marker that has expired by the store's clock, where nobody else can.
func (w *world) sweep() {
	key := w.locks[0].key
	o, exists := w.objects[key]
	if !exists || !w.cfg.WriteOnce || w.weather.poisoned != "" {
		return
	}
	if epoch.Add(w.now).Sub(o.written) > protocol.Stale(w.longest) {
		w.logf("the marker is swept")
		delete(w.objects, key)
	}
}
