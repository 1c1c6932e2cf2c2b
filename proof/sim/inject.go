package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/store"
)

// An injector causes faults from time to time.
type injector struct {
	*fleet
	server    *server
	network   *network
	users     *users
	quorum    *quorum
	collector *call // of old epochs; nil: none
}

func (in *injector) tick() {
	if in.healed {
		return
	}
	in.processFault(in.victim())
	in.storeFault()
	if in.quorum.on() {
		if in.choose(4) > 0 {
			in.scribble()
		}
		in.quorum.trouble()
	}
	in.collect()
	in.server.sweep()
	if !in.quorum.on() {
		in.server.reclaim()
	}
	in.after(in.pick(3*time.Second, time.Second, 500*time.Millisecond, 200*time.Millisecond), nil, in.tick)
}

// victim returns a member, usually one with a lease, because most depends on it.
func (in *injector) victim() *member {
	m := in.members[in.choose(len(in.members))]
	for _, holder := range in.members {
		if holder.leased && in.choose(4) != 3 {
			return holder
		}
	}
	return m
}

func (in *injector) processFault(m *member) {
	for _, f := range processFaults {
		if in.meets(f) {
			in.inject(m, f)
			return
		}
	}
}

func (in *injector) inject(m *member, f Fault) {
	if in.odds[f] == 0 || in.healed {
		return // disturb plans any fault, also those that this history does not have
	}
	switch f {
	case Crash:
		in.met(Crash, m)
		in.users.start(m.process)
	case Pause:
		in.pause(m)
	case Suspend:
		in.suspend(m)
	case Denied:
		m.denied = in.now + in.duration()
	case CutRequests:
		m.noRequests = in.now + in.duration()
	case CutAnswers:
		m.noAnswers = in.now + in.duration()
	case CutBoth:
		m.noRequests = in.now + in.duration()
		m.noAnswers = m.noRequests
	case WallJump:
		in.met(WallJump, m)
		m.wall = in.pick(-time.Hour, time.Hour, -5*time.Second, 48*time.Hour, -48*time.Hour)
	case Drift:
		in.rerate(m.process)
	}
}

func (in *injector) duration() time.Duration {
	return in.pick(500*time.Millisecond, 2*time.Second, 5*time.Second, 15*time.Second, 40*time.Second)
}

func (in *injector) pause(m *member) {
	if in.now < m.paused {
		return // it has stopped already
	}
	left := m.real(m.deadline() - m.clock())
	m.stops++
	m.paused = in.now + in.pick(100*time.Millisecond, left-time.Millisecond, left+5*time.Second, left+40*time.Second)
	in.logf("%v is paused until %v", m, m.paused)
	if m.leased && m.paused > in.now+left {
		in.met(Pause, m)
	}
}

// suspend stops a member's machine for a while. Its clock continues, and its timers have as much
// left afterwards as before. The candidates' alarms have at most a second.
func (in *injector) suspend(m *member) {
	if in.now < m.paused {
		return
	}
	in.pause(m)
	p, slept := m.process, m.paused-in.now
	if m.leased && slept > m.real(m.deadline()-p.clock()) {
		in.met(Suspend, m)
	}
	for i, e := range in.events {
		switch {
		case e.to != p.machine || e.life != p.life:
		case e.by == alarm:
			in.events[i].at += slept
		case e.by == tick && e.at < p.paused:
			left := min(e.at-in.now, time.Duration(in.choose(3))*time.Second/2)
			in.events[i].at = p.paused + left
		}
	}
	in.events.order()
}

func (in *injector) storeFault() {
	switch {
	case in.meets(Throttled):
		in.server.throttled = in.now + in.duration()
	case in.hit(SlowStore):
		in.slow = in.now + in.duration()
	case in.skewed && in.hit(StoreJump):
		in.server.skew = in.pick(-time.Hour, -10*time.Second, time.Minute, 48*time.Hour)
	case in.server.poisoned != "":
		if !in.server.tablePoisoned() || in.choose(4) == 0 { // long enough to meet some callers
			in.server.unpoison()
		}
	case in.meets(Poison):
		in.server.poison()
	case in.arm == Deleted && in.table != nil && in.choose(8) == 7:
		if t := in.table; in.server.remove(t.key) {
			in.met(TableDeleted)
			t.deleted, t.there = true, false
		}
	case in.arm == Deleted && in.choose(20) == 19:
		l := in.locks[in.choose(len(in.locks))]
		if in.server.remove(l.key) {
			in.met(Deletion)
			l.deleted, l.names = true, nil
		}
	}
}

// collect starts a collection of epochs, however young they are.
func (in *injector) collect() {
	if !in.cfg.Numbered || in.collector != nil {
		return
	}
	l := in.locks[in.choose(len(in.locks))]
	what := layout.Collection{Keep: in.choose(3) / 2, Limit: 12 - 4*in.choose(5)}
	collection := begin(nil, nil, func(ctx context.Context) {
		epochs, _ := in.lay(remote{}, l.key, 0).(layout.Epochs)
		for _, err := range epochs.Collect(ctx, what) {
			_ = err // the rest stays
		}
	})
	collection.done = func() { in.collector = nil }
	in.collector = collection
	in.after(2*time.Second, nil, func() { in.network.giveUp(collection) })
	in.network.resume(collection)
}

// scribble makes a process write or delete an object unrelated to locks.
func (in *injector) scribble() {
	p := in.processes[in.choose(len(in.processes))]
	key, body, deletes := fmt.Sprintf("scribbles/%d", in.choose(2)), fmt.Appendf(nil, "scribble %d", len(in.quorum.writes)), in.choose(3) > 0
	c := begin(p, nil, func(ctx context.Context) {
		var st remote
		o, err := st.Get(ctx, key, "")
		switch {
		case errors.Is(err, store.ErrNotExist):
			_, err = st.Put(ctx, key, body, store.IfAbsent())
		case err == nil && deletes:
			err = st.Delete(ctx, key)
		case err == nil:
			_, err = st.Put(ctx, key, body, store.IfMatch(o.Version))
		}
		_ = err // checked when it was answered
	})
	c.done = func() {}
	in.after(in.pick(time.Second, 20*time.Second), nil, func() { in.network.giveUp(c) })
	in.network.resume(c)
}
