package sim

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
)

// holdCalm is the longest time for which a seat is held when all is healed.
const holdCalm = time.Second

// converge lets a part have a turn when all is healed, under a session that goes on.
func (ts *tables) converge(p *process) {
	if part := p.part; ts.healed && part != nil && part.turns == 0 && len(part.callers) == 0 && !ts.excused(part) {
		ts.join(part)
	}
}

// excused reports that nobody of a part can have a seat: it expects another size, or there is to be an
// object and there is none.
func (ts *tables) excused(p *part) bool {
	t := ts.on
	return t.there && t.now.Size != p.cfg.Size || !t.there && ts.existing
}

// waits is a part with somebody who waits, or is to have a turn, or has not come to its end.
func (ts *tables) waits() *part {
	for _, p := range ts.parts() {
		if len(p.callers) > 0 || p.turns == 0 && !ts.excused(p) {
			return p
		}
	}
	return nil
}

// patience is how long it takes, in real time, until all who wait have had their turn, one after the
// other. The dead are waited out at one moment: one who waits behind them notices in a TTL that they are
// late. One that is not at the head looks once in five minutes, and so may find out so late that it has a seat.
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
