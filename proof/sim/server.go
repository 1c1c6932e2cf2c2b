package sim

import (
	"bytes"
	"math"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// A server is the store, and tells the checks what has landed.
type server struct {
	*bucket
	lasting   *lasting
	ledger    *ledger
	slots     *slots
	throttled time.Duration // until then
}

// land carries out a request.
func (st *server) land(r *request) answer {
	of, number, numbered := layout.Epoch(r.key)
	top := int64(0)
	if numbered {
		top = st.highest(of)
	}
	before, existed := st.objects[r.key]
	a := st.serve(r)
	st.logf("    lands: %s %q %v: %v", r.op, r.key, r.only, a.error())
	if !r.writes() || a.err != nil {
		return a
	}
	st.mix(sum(r.body))
	if r.from.from != nil {
		st.lasting.changed(r)
	}
	if r.from.over {
		st.met(LateRequest, r.op)
	}
	if r.op == "put" && existed && r.key == st.poisoned && before.version == st.poisonIs {
		st.violated(Foreign, "%q was written over", r.key)
	}
	if r.from.part != nil {
		st.slots.landed(r, before, existed)
		return a
	}
	if r.op == "put" && r.from.from != nil {
		st.ledger.written(r, number-top)
		if l := r.from.from.on; l.over && !st.healed { // the locks under this session can be had
			m := st.members[st.choose(len(st.members))]
			st.demand(st.pick(10*time.Millisecond, 100*time.Millisecond, time.Second), m.machine, attempt{m})
		}
	}
	switch {
	case r.op == "delete" && numbered && existed:
		st.met(Collected, r.key)
		if number == top {
			st.violated(Highest, "epoch %d was deleted", number)
		}
	case r.op == "put" && numbered && number < top && r.only.Absent():
		st.met(Recreated, r.key) // it must not count, and its sender must notice
	case !r.claims(), numbered && number <= top: // such a claim ends a lease
	default:
		st.ledger.claimed(r, number)
		st.ledger.remembered(r, true)
		return a
	}
	if r.op == "put" && r.from.from != nil && (!numbered || number >= top) {
		st.ledger.remembered(r, false)
	}
	return a
}

func (st *server) initialize(l *lock) {
	r := candidate.First(candidate.Config{TTL: ttls[0], Holder: "init"}, "init", st.date(), epoch)
	st.put(l.key, encode(r))
	l.top = r.Token
}

// poison replaces the object with an unrecognized one. With epochs, it takes the place of the
// next one. Markers are left alone: replacing one would be a deletion.
func (st *server) poison() {
	l := st.locks[st.choose(len(st.locks))]
	key := l.key
	if st.cfg.Numbered {
		key = layout.EpochKey(key, st.last(key)+1)
	}
	if n := len(st.sessions); n > 0 && st.choose(3) == 2 {
		key = st.sessions[n-1].String()
	}
	t := st.table
	if t != nil && st.choose(2) == 1 {
		key = t.key
	}
	before, exists := st.objects[key]
	if exists && st.cfg.Tokenless || !exists && key[0] == 's' {
		return
	}
	st.poisoned, st.instead = key, nil
	if exists {
		st.instead = &before
	}
	st.poisonIs = st.put(key, st.foreignBody(l, key[0] == 's')).version
	if st.met(Poison, key); st.tablePoisoned() {
		st.met(TablePoisoned, key)
	}
}

// foreignBody returns an unrecognized object, which may look much like a record.
func (st *server) foreignBody(l *lock, session bool) []byte {
	r := record.Record{Token: l.top + 1, Layout: st.cfg.Layout, Holder: "stranger", TTL: time.Second, WriteID: "stranger.1"}
	if st.cfg.Tokenless {
		r.Token = 0
	}
	format := `"format":1`
	switch st.choose(5) {
	case 0:
		return []byte("this is no record")
	case 1:
		format = `"format":2`
	case 2:
		r.Layout.Name = "another"
	case 3:
		r.Layout.Name = "another"
		if !session {
			r.Layout.Name = record.LayoutSession
		}
	default:
		// This record is readable. With epochs it would be the highest, and others could be
		// collected. A lock under a session would seem free.
		if r.Token = math.MaxInt64; st.cfg.Numbered || len(st.sessions) > 0 {
			format = `"format":3`
		}
	}
	return bytes.Replace(encode(r), []byte(`"format":1`), []byte(format), 1)
}

func (st *server) unpoison() {
	key, before := st.poisoned, st.instead
	st.poisoned = ""
	for _, l := range st.locks {
		l.restored = l.restored || l.key == key
	}
	switch {
	case st.objects[key].version != st.poisonIs: // a released marker
	case before == nil:
		st.remove(key)
	default:
		st.put(key, before.body)
	}
	st.logf("the poison %q is removed", key)
}

// sweep deletes an expired marker, by the store's clock, if no client can.
func (st *server) sweep() {
	key := st.locks[0].key
	o, exists := st.objects[key]
	if !exists || !st.cfg.WriteOnce || st.poisoned != "" {
		return
	}
	if epoch.Add(st.now).Sub(o.written) > protocol.Stale(st.longest) {
		st.logf("the marker is swept")
		st.remove(key)
	}
}

func (st *server) sweepInterval() time.Duration { return max(time.Second, st.longest/1000) }

func (st *server) reclaim() {
	for _, s := range st.sessions {
		l := s.heartbeat.on
		if l.there && l.over && !l.reused && len(l.inFlight) == 0 && l.key != st.poisoned && st.choose(2) == 1 {
			st.met(Reclaimed, s)
			st.remove(l.key)
			l.there = false
		}
	}
}
