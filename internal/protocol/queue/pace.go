package queue

import (
	"cmp"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// pace is how those who wait look at a table. It is about cost and speed and about nothing else:
// who leaves gives the seat away in the same write, and a look only finds that out.
//
// Each look costs money, and in a line of a hundred only the first few can be next. So the head looks often,
// and the others when they may have become the head: the table says for how long seats are held, and that
// times the place in the line is when. So what one turn costs hardly grows with the line. Turns are what
// holders measure, and not what those who wait see: a line that looked too late would see longer turns,
// and look later still.
//
// Whoever becomes the head by what nobody foresees, since all before it give up at one moment, finds out at its next
// look: within two thirds of the turns that were before it, or LineLook. A shorter one would cost a long line more
// than all of its other looks.
//
// Several seats may become free at one moment: that of a writer for all readers that wait, or those of holders
// that died together. So whoever may get one together with the head looks at least as often as its session has a
// heartbeat, beside which a look costs little.
type pace struct {
	since time.Duration // when a token was last seen to be new
	pause time.Duration // the last one
	trip  time.Duration // how long the last write took that landed
	look  time.Duration // how long the last look took that was answered
}

// How often those look who wait for long: the head, and each of the others, since those before it may give up.
const (
	LateLook = 10 * time.Second
	LineLook = 5 * time.Minute
)

const (
	quickLook = 3 * time.Millisecond // the shortest pause
	headLook  = time.Second          // the longest of the head in the first ten minutes, or a third of a turn
	shortTurn = 5 * time.Second      // turns may be as short as this though they were longer
)

// saw takes in a table that is new.
func (p *pace) saw(before, after record.Table, now time.Duration) {
	if p.since == 0 || after.Token != before.Token { // nothing may be known of before, and the first grant be that of its base
		p.since, p.pause = now, 0
	}
}

// turned is the length of a turn, when another seat has been held for so long: the average of the last few,
// with the write that passes one on, and the look that finds it. The last write may have been one of a crowd, all of
// whom came at one moment, and turns that are thought to be as long would be so: those who wait would look as late. So it
// counts for five times the last look at most, which is what one takes beside a look wherever that was measured.
func (p *pace) turned(turn, held time.Duration) time.Duration {
	held = max(held+min(p.trip, 5*p.look)*3/2, time.Millisecond)
	return (3*cmp.Or(turn, held) + held) / 4
}

// next is how long to wait before another look at a table, with so many before it in the line. The longer
// nothing has changed the longer it is, or one seat that is held for hours where others were held for
// milliseconds would cost a look every few of these.
func (p *pace) next(t record.Table, ahead int, ttl, now time.Duration) time.Duration {
	waited := now - p.since
	turn, left := p.left(t, now)
	most := LineLook
	if together(t, ahead) {
		most = min(most, protocol.Renewal(ttl))
	}
	switch {
	case turn == 0 && ahead > 0: // a turn is longer than that so far, and the next ones may be short
		return min(max(min(max(waited/2, protocol.FirstPoll*time.Duration(ahead)), LateLook), waited/8), most)
	case turn == 0: // nothing is known yet of how fast it goes
		p.pause = max(p.pause*3/2, protocol.FirstPoll)
	case ahead > 0: // a little more than half of the way, since the next look is nearer; but one long turn says little of the next
		place := time.Duration(ahead)
		return min(max(min((left+turn*place)*3/5, shortTurn*(place+1)), waited/8, quickLook), most)
	case left > 0:
		p.pause = max(left/2, p.pause/2)
	default: // it takes longer than most; one that has come to the head by a death does not begin anew
		p.pause = max(p.pause*3/2, waited/16)
	}
	least := min(max(turn/10, quickLook), headLook)
	p.pause = min(max(p.pause, least), max(turn/3, headLook, waited/600), LateLook)
	return p.pause
}

// together reports that one with so many before it gets its seats with the head, if all who hold some leave at one
// moment.
func together(t record.Table, ahead int) bool {
	need := int64(0)
	for _, w := range t.Waiters[:min(ahead+1, len(t.Waiters))] {
		need += w.Weight
	}
	return need <= t.Size
}

// left is how long it takes from one who leaves to the next, and until the next one does.
func (p *pace) left(t record.Table, now time.Duration) (turn, left time.Duration) {
	turn = t.Turn / time.Duration(max(len(t.Holders), 1))
	return turn, max(p.since+turn-now, 0)
}

// near reports whether a waiter with so many ahead should watch every heartbeat of its predecessor: it may become the
// head before it would otherwise notice that its predecessor died. seen is when the table was last read. If nobody has
// left a seat yet, a turn is taken to be as long as the first one has lasted so far.
func (p *pace) near(t record.Table, ahead int, ttl, seen time.Duration) bool {
	turn, left := p.left(t, seen)
	turn = cmp.Or(turn, seen-p.since)
	return ahead <= 2 || left+turn*time.Duration(ahead) < protocol.Patience(ttl)
}
