package candidate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// TestStreaks: who passes a lock on rests after 32 times as long as a rest takes; for each
// rest in a row that nobody has used, after twice as long, up to 128 times.
func TestStreaks(t *testing.T) {
	t.Parallel()
	const lease = 20 * time.Millisecond
	const rest = (lease + lease/2) * 5 / 4 // see Candidate.rest
	p := newPlayer(candidate.Config{})
	at := time.Duration(0)
	p.step(at, candidate.Acquire{Wait: true})
	p.step(at, freed)
	for i, times := range []time.Duration{32, 64, 128, 128} {
		began, frees := at, false
		for n := 0; !frees; n++ {
			p.step(at, candidate.WriteDone{Version: protocol.Version(fmt.Sprint("v", i, ".", n))})
			at += lease
			p.step(at, candidate.Release{Pass: true})
			for _, a := range p.last {
				w, writes := a.(candidate.Write)
				frees = writes && w.Op == candidate.Free
			}
			if !frees {
				p.step(at, candidate.Acquire{Wait: true})
			}
		}
		if on := at - began; on < times*rest || on > times*rest+lease {
			t.Errorf("streak %d lasted %v, want %v", i+1, on, times*rest)
		}
		p.step(at, candidate.WriteDone{Version: protocol.Version(fmt.Sprint("free", i))})
		p.step(at, candidate.Acquire{Wait: true})
		if wake, _ := p.c.Wake(); wake != at+rest {
			t.Errorf("rest %d is of %v, want %v", i+1, wake-at, rest)
		}
		if i == 3 {
			p.step(at, protocol.Cancel{})
			break
		}
		at += rest
		p.step(at, protocol.Tick{})
		p.step(at, candidate.ReadDone{Shown: protocol.Same})
	}
}
