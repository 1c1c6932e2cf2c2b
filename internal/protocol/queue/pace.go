package queue

import (
	"cmp"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// pace decides how often waiters poll. It affects only cost and speed: a leaving holder passes its slots on
// in the same write, and a poll only finds that out.
//
// Polls cost money, and in a queue of a hundred only the first few can be next. So the head polls often, and
// the others when they may have become the head: the table says how long slots are held, and that times
// the place in the queue is when. So the cost of a turn hardly grows with the queue. Holders measure
// turns, not waiters: a queue that polled too late would see longer turns, and poll later still.
//
// If all before a waiter give up at the same moment, it notices at its next poll: within two thirds of the
// turns that were before it, or LineLook. A shorter interval would cost a long queue more than all its
// other polls.
//
// Several slots may become free at the same moment: a writer's for all waiting readers, or those of holders
// that died together. So a waiter that may get slots together with the head polls at least as often as its
// session sends heartbeats.
type pace struct {
	since time.Duration // when the token was last seen to change
	pause time.Duration // the last one
	trip  time.Duration // duration of the last write that landed
	look  time.Duration // duration of the last read that was answered
}

// The longest pauses: of the head, and of the others, because those before them may give up.
const (
	LateLook = 10 * time.Second
	LineLook = 5 * time.Minute
)

const (
	quickLook = 3 * time.Millisecond // the shortest pause
	headLook  = time.Second          // the longest of the head in the first ten minutes, unless a third of a turn is longer
	shortTurn = 5 * time.Second      // turns may become as short as this, however long they were
)

// saw notes a new version of the table.
func (p *pace) saw(before, after record.Table, now time.Duration) {
	if p.since == 0 || after.Token != before.Token { // nothing may have been known before, and the first token may be where tokens start
		p.since, p.pause = now, 0
	}
}

// turned returns the new average length of a turn after slots were held for that long, including the write
// that passes them on and the poll that finds it. The last write may have been slow because many came at
// the same moment. If it counted in full, waiters would poll later, and turns would become as long. So it
// counts for at most five times the last read, which is what a write took beside a read wherever that was
// measured.
func (p *pace) turned(turn, held time.Duration) time.Duration {
	held = max(held+min(p.trip, 5*p.look)*3/2, time.Millisecond)
	return (3*cmp.Or(turn, held) + held) / 4
}

// next returns the pause before the next poll, with that many ahead in the queue. It grows while nothing
// changes. Otherwise one slot that is held for hours, where others were held for milliseconds, would cost a
// poll every few milliseconds.
func (p *pace) next(t record.Table, ahead int, ttl, now time.Duration) time.Duration {
	waited := now - p.since
	turn, left := p.left(t, now)
	most := LineLook
	if together(t, ahead) {
		most = min(most, protocol.Renewal(ttl))
	}
	switch {
	case turn == 0 && ahead > 0: // this turn has lasted that long so far, and the next ones may be short
		return min(max(min(max(waited/2, protocol.FirstPoll*time.Duration(ahead)), LateLook), waited/8), most)
	case turn == 0: // the length of a turn is not known yet
		p.pause = max(p.pause*3/2, protocol.FirstPoll)
	case ahead > 0: // a little more than half of the way, because the next poll is nearer; one long turn says little about the next
		place := time.Duration(ahead)
		return min(max(min((left+turn*place)*3/5, shortTurn*(place+1)), waited/8, quickLook), most)
	case left > 0:
		p.pause = max(left/2, p.pause/2)
	default: // it takes longer than most; a waiter that became the head by a death does not start again
		p.pause = max(p.pause*3/2, waited/16)
	}
	least := min(max(turn/10, quickLook), headLook)
	p.pause = min(max(p.pause, least), max(turn/3, headLook, waited/600), LateLook)
	return p.pause
}

// together reports whether a waiter with that many ahead gets its slots with the head if all holders leave
// at the same moment.
func together(t record.Table, ahead int) bool {
	need := int64(0)
	for _, w := range t.Waiters[:min(ahead+1, len(t.Waiters))] {
		need += w.Weight
	}
	return need <= t.Size
}

// left returns the time between two holders that leave, and the time until the next one leaves.
func (p *pace) left(t record.Table, now time.Duration) (turn, left time.Duration) {
	turn = t.Turn / time.Duration(max(len(t.Holders), 1))
	return turn, max(p.since+turn-now, 0)
}

// near reports whether a waiter with so many ahead should watch every heartbeat of its predecessor: it may become the
// head before it would otherwise notice that its predecessor died. seen is when the table was last read. If nobody has
// left a slot yet, a turn is taken to be as long as the first one has lasted so far.
func (p *pace) near(t record.Table, ahead int, ttl, seen time.Duration) bool {
	turn, left := p.left(t, seen)
	turn = cmp.Or(turn, seen-p.since)
	return ahead <= 2 || left+turn*time.Duration(ahead) < protocol.Patience(ttl)
}
