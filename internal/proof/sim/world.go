package sim

import "time"

// A world is one history while it is played: the queue of events, and the parts.
type world struct {
	*fleet
	server     *server
	lasting    *lasting
	ledger     *ledger
	returns    *returns
	network    *network
	peers      *peers
	candidates *candidates
	users      *users
	injector   *injector
}

// newWorld puts the parts together. Each knows those before it; what it tells to later ones
// goes by functions.
func newWorld(h *history) *world {
	f := &fleet{history: h}
	w := &world{fleet: f}
	w.server = &server{fleet: f, objects: bucket{}}
	w.lasting = &lasting{fleet: f}
	w.ledger = &ledger{fleet: f}
	w.returns = &returns{fleet: f, server: w.server, lasting: w.lasting}
	w.network = &network{fleet: f, server: w.server, lasting: w.lasting, ledger: w.ledger}
	w.peers = &peers{fleet: f, network: w.network, lasting: w.lasting}
	w.candidates = &candidates{
		fleet: f, network: w.network, lasting: w.lasting, ledger: w.ledger, returns: w.returns, peers: w.peers,
	}
	w.users = &users{fleet: f, server: w.server, network: w.network, lasting: w.lasting, ledger: w.ledger, candidates: w.candidates}
	w.injector = &injector{fleet: f, server: w.server, network: w.network, candidates: w.candidates, users: w.users}

	w.ledger.sessionOver = w.users.tryOnce
	w.candidates.writes, w.candidates.converge = w.injector.duringWrite, w.users.converge
	w.candidates.heartbeat, w.candidates.over = w.users.heartbeat, w.users.sessionOver
	return w
}

// next lets the next event happen.
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
		e.do()
	case e.life != p.life:
		return
	case w.now < p.paused:
		// All at once when it goes on, in any order.
		e.at = p.paused + time.Duration(w.choose(3))*time.Millisecond
		w.push(e)
		return
	default:
		e.do()
	}
	w.mix(uint64(w.now), e.seq)
	w.ledger.oneLease()
	w.ledger.orphans()
}

// end leaves nothing of the coroutines behind.
func (w *world) end() {
	for _, p := range w.processes {
		p.end()
	}
	if w.network.collector != nil {
		w.network.collector.end()
	}
}
