package sim

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
)

// holdCalm is the longest hold of a slot after the faults.
const holdCalm = time.Second

// converge gives a part a turn after the faults, under a live session.
func (ts *tables) converge(p *process) {
	if part := p.part; ts.healed && part != nil && part.turns == 0 && len(part.callers) == 0 && !ts.excused(part) {
		ts.join(part)
	}
}

// waits returns a part with an unfinished turn, or nil.
func (ts *tables) waits() *part {
	for _, p := range ts.parts() {
		if len(p.callers) > 0 || p.turns == 0 && !ts.excused(p) {
			return p
		}
	}
	return nil
}

// patience returns how long, in real time, the turns of all waiters take, one after the other.
// The dead are waited out together: a waiter behind them notices within a TTL. A waiter that is
// not at the head reads once in five minutes, and may learn about its slot that late.
func (ts *tables) patience() time.Duration {
	turns := time.Duration(0)
	for _, p := range ts.parts() {
		turns += time.Duration(len(p.callers)) + 1
	}
	ttl := ts.longest
	dead := ttl + protocol.Patience(ttl) + protocol.Renewal(ttl)*5/4
	turn := queue.LineLook*5/4 + holdCalm + time.Second
	return (dead+turns*turn)*protocol.Drift/(protocol.Drift-1) + 2*time.Second
}
