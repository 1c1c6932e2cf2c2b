package sim

import "time"

// An injector causes faults from time to time.
type injector struct {
	*fleet
	server     *server
	network    *network
	candidates *candidates
	users      *users
	tables     *tables
	quorum     *quorum
}

func (in *injector) tick() {
	if in.healed {
		return
	}
	in.processFault(in.victim())
	in.storeFault()
	in.quorum.trouble()
	in.network.collect()
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

var processFaults = [...]Fault{Crash, Pause, Suspend, Denied, CutRequests, CutAnswers, CutBoth, WallJump, Drift}

func (in *injector) processFault(m *member) {
	for _, f := range processFaults {
		if in.meets(f) {
			in.inject(m, f)
			return
		}
	}
}

// duringWrite causes events at the worst moment: while a member's write is in flight.
func (in *injector) duringWrite(c *call, m *member, abandon, rival func()) {
	f := processFaults[in.choose(7)]
	if in.healed || in.users.paused || in.choose(4) != 3 {
		return
	}
	c.lateRequest, c.lateAnswer = in.choose(8) == 7, in.choose(8) == 7
	soon := in.pick(0, 5*time.Millisecond, 30*time.Millisecond, 2*time.Second)
	in.after(soon, nil, func() {
		if in.odds[f] > 0 && !in.healed {
			in.inject(m, f)
		}
	})
	if in.choose(2) == 1 {
		in.after(soon, m.machine, abandon)
		return
	}
	in.after(soon+5*time.Millisecond, nil, rival)
}

func (in *injector) rival() {
	m := in.members[in.choose(len(in.members))]
	in.soon(m.machine, func() { in.users.arrive(m) })
}

func (in *injector) inject(m *member, f Fault) {
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
		in.candidates.rerate(m.process)
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
		in.server.slow = in.now + in.duration()
	case in.skewed && in.hit(StoreJump):
		in.server.skew = in.pick(-time.Hour, -10*time.Second, time.Minute, 48*time.Hour)
	case in.server.poisoned != "":
		if !in.server.tablePoisoned() || in.choose(4) == 0 { // long enough to meet some callers
			in.server.unpoison()
		}
	case in.meets(Poison):
		in.server.poison()
	case in.arm == Deleted && in.table != nil && in.choose(8) == 7:
		in.tables.remove()
	case in.arm == Deleted && in.choose(20) == 19:
		l := in.locks[in.choose(len(in.locks))]
		if _, exists := in.server.objects[l.key]; exists {
			in.met(Deletion)
			l.deleted, l.names = true, nil
			delete(in.server.objects, l.key)
		}
	}
}
