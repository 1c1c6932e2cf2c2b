package sim

import (
	"fmt"
	"slices"
	"time"
)

// A world is a history in progress.
type world struct {
	*fleet
	lasting    *lasting
	ledger     *ledger
	returns    *returns
	slots      *slots
	server     *server
	quorum     *quorum
	network    *network
	peers      *peers
	papers     *papers
	candidates *candidates
	tables     *tables
	users      *users
	injector   *injector
}

// newWorld makes the parts. Each knows some of those before it, and none of those after it.
func newWorld(h *history) *world {
	f := &fleet{history: h}
	w := &world{fleet: f}
	w.lasting = &lasting{fleet: f}
	b := &bucket{fleet: f, objects: map[string]object{}}
	w.ledger = &ledger{fleet: f, bucket: b}
	w.returns = &returns{fleet: f, bucket: b, lasting: w.lasting}
	w.slots = &slots{fleet: f, bucket: b, lasting: w.lasting, returns: w.returns}
	w.server = &server{bucket: b, lasting: w.lasting, ledger: w.ledger, slots: w.slots}
	w.quorum = &quorum{fleet: f, server: w.server}
	w.network = &network{fleet: f, server: w.server, lasting: w.lasting, slots: w.slots, quorum: w.quorum}
	w.peers = &peers{fleet: f, lasting: w.lasting}
	w.papers = &papers{fleet: f, ledger: w.ledger}
	w.candidates = &candidates{fleet: f, network: w.network, lasting: w.lasting, ledger: w.ledger, returns: w.returns, peers: w.peers, papers: w.papers}
	w.tables = &tables{fleet: f, server: w.server, lasting: w.lasting, slots: w.slots, network: w.network, candidates: w.candidates}
	w.users = &users{fleet: f, server: w.server, network: w.network, lasting: w.lasting, ledger: w.ledger, papers: w.papers, candidates: w.candidates, tables: w.tables}
	w.injector = &injector{fleet: f, server: w.server, quorum: w.quorum, network: w.network, users: w.users}
	return w
}

func (w *world) begin(cfg Config) {
	w.fenced = !cfg.Unfenced
	w.arm = []Arm{Bound, Bound, Bound, Bound, Bound, Bound, Far, Deleted, Lasting, Lasting}[w.choose(10)]
	if cfg.Arm != "" {
		w.arm = cfg.Arm
	}
	// Most histories use the default layout, and few those that promise less.
	w.way = ways[[...]int{0, 0, 0, 0, 1, 1, 2, 2, 3, 4}[w.choose(10)]]
	for _, way := range ways {
		if way.name == cfg.Layout {
			w.way = way
		}
	}
	switch {
	case w.arm == Deleted: // the other layouts promise nothing then
		w.way, w.dated, w.existing = ways[0], true, w.choose(2) == 1
	case w.arm == Far && w.cfg.Tokenless: // nor do these
		w.way = ways[0]
	}
	w.ttls = ttls
	if w.arm == Lasting {
		w.dated = true
		w.lasting.draw(cfg.Brief)
		w.populate()
		return
	}
	w.dated = w.dated || w.choose(3) != 2
	w.skewed = w.arm == Bound && !w.cfg.WriteOnce && w.choose(3) == 2
	for f := range w.odds[:pastFaults] {
		w.odds[f] = odds[w.choose(len(odds))]
	}
	if cfg.Quorum || w.arm == Bound && w.name == ways[0].name && w.choose(4) == 3 {
		w.several()
	}
	w.populate()
}

// several plays the history on a quorum. There are no other writers, and it reports no time.
func (w *world) several() {
	w.arm, w.way, w.dated, w.skewed, w.existing = Bound, ways[0], false, false, false
	w.odds[Poison], w.odds[StoreJump] = 0, 0
	for f := MemberDown; f < Faults; f++ {
		w.odds[f] = odds[w.choose(len(odds))]
	}
	if w.odds[Tombstones] = []int{0, 8, 3, 2}[w.choose(4)]; w.odds[Tombstones] == 2 {
		w.odds[MemberReplaced] = 0 // one change at a time
	}
	w.quorum.begin(3 + 2*(w.choose(4)/3))
}

// populate creates the locks and the processes. Processes with sessions want all locks, the
// others want one.
func (w *world) populate() {
	sessions := !w.cfg.Tokenless && w.choose(4) > 0
	locks := 1
	if sessions {
		locks += w.choose(3)
	}
	for i := range locks {
		l := &lock{key: fmt.Sprintf("l%d", i)}
		if w.existing {
			w.server.initialize(l)
		}
		w.locks = append(w.locks, l)
	}
	for i := range 2 + w.choose(3) {
		if sessions && (i == 0 || w.choose(3) != 2) {
			w.join(i, w.locks, true)
			continue
		}
		one := w.choose(locks)
		w.join(i, w.locks[one:one+1], false)
	}
	if sessions {
		w.tables.begin()
	}
}

func (w *world) join(i int, locks []*lock, sessions bool) {
	p := &process{number: i, sessions: sessions}
	p.machine = &machine{schedule: &w.schedule, rate: rateOne, base: time.Duration(i) * time.Hour}
	w.processes = append(w.processes, p)
	if sessions && w.choose(4) == 3 {
		locks = append(slices.Clip(locks), locks[0]) // a process may have two candidates
	}
	for _, l := range locks {
		m := &member{process: p, on: l, ttl: w.pick(w.ttls[:]...)}
		if sessions && w.choose(4) > 0 {
			m.ttl = w.ttls[0] // so that more leases end
		}
		p.locks = append(p.locks, m)
		l.members = append(l.members, m)
		w.members = append(w.members, m)
	}
	w.users.start(p)
	w.rerate(p)
}

func (w *world) next() {
	e := w.events.pop()
	if w.atOnce++; e.at > w.now {
		w.now, w.atOnce = e.at, 0
	}
	if w.atOnce > 10_000 {
		w.violated(Sense, "somebody is busy, and no time passes")
		return
	}
	switch p := e.to; {
	case p == nil:
		w.happen(e)
	case e.life != p.life:
		return
	case w.now < p.paused:
		// They all happen when it continues, in any order.
		e.at = p.paused + time.Duration(w.choose(3))*time.Millisecond
		w.push(e)
		return
	default:
		w.happen(e)
	}
	w.mix(uint64(w.now), e.seq)
	w.ledger.oneLease()
	w.ledger.orphans()
	w.slots.check()
}

// happen does what was planned. Parts know only those below them, and what they want of those
// above comes as a demand.
func (w *world) happen(e event) {
	switch d := e.demand.(type) {
	case nil:
		e.do()
	case injection:
		w.injector.inject(d.into, d.f)
	case abandonment:
		w.users.abandon(d.c)
	case rivalry:
		w.users.rival(d.c)
	case attempt:
		w.users.tryOnce(d.m)
	case beginning:
		w.users.ensureSession(d.p)
	case convergence:
		w.users.converge(d.m)
	case turn:
		w.tables.converge(d.p)
	default:
		panic(fmt.Sprintf("sim: nobody takes the demand %T", d))
	}
}

func (w *world) end() {
	for _, p := range w.processes {
		p.end()
	}
	if w.injector.collector != nil {
		w.injector.collector.end()
	}
}
