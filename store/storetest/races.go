package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/together"
)

const (
	raceRounds  = 20
	raceWriters = 32
)

func racingCreates(p *trial) {
	p.race(func(string) ([]byte, store.Condition) { return nil, store.IfAbsent() })
}

func racingUpdates(p *trial) {
	p.race(func(key string) ([]byte, store.Condition) {
		before := []byte("before " + key)
		return before, store.IfMatch(p.create(key, before).Version)
	})
}

// race sends many writes of the same condition at once, in rounds, each on a
// key of its own. prepare brings about what the condition asks for.
func (p *trial) race(prepare func(key string) (before []byte, only store.Condition)) {
	clean := 0
	for round := range raceRounds {
		key := fmt.Sprint("race/", round)
		before, only := prepare(key)
		attempts := make([]attempt, raceWriters)
		together.Run(raceWriters, func(i int) {
			a := attempt{body: fmt.Appendf(nil, "round %d writer %d", round, i)}
			a.object, a.err = p.put(p.ctx, key, a.body, only)
			attempts[i] = a
		})
		if p.judge(key, before, attempts) {
			clean++
		}
	}
	if clean == 0 {
		p.report(putWrites, "in none of %d rounds was a writer told that it had landed", raceRounds)
	}
}

// An attempt is one write of a race and its answer.
type attempt struct {
	body   []byte
	object *store.Object
	err    error
}

// maybe reports whether the answer leaves open that the write landed.
func (a attempt) maybe() bool { return errors.Is(a.err, store.ErrUnknownOutcome) }

// judge compares the answers of one round with each other and with the object,
// and reports whether one writer was told that it had won. The losers of a race
// may be told whatever kind of error is true of them: real servers answer 409,
// 429, 500 and 503 to them as well as 412.
func (p *trial) judge(key string, before []byte, attempts []attempt) bool {
	var winner *attempt
	won, maybe, preconditions := 0, 0, 0
	for i := range attempts {
		switch a := &attempts[i]; {
		case a.err == nil:
			winner = a
			won++
		case a.maybe():
			maybe++
		case errors.Is(a.err, store.ErrPrecondition):
			preconditions++
		default:
			p.refused(a.err, putPrecondition, "the loser of a race", store.ErrConflict, store.ErrThrottled, store.ErrUnavailable)
		}
	}
	if won > 1 {
		p.report(compareAndSwap, "%d of %d writes on the same condition of %q were told that they had landed", won, len(attempts), key)
		return true
	}
	o, err := p.read(p.ctx, key, "")
	if errors.Is(err, store.ErrNotExist) && before == nil {
		o, err = &store.Object{}, nil
	}
	if err != nil {
		p.stop(readsLatest, "after a race, get %q said: %v", key, err)
	}
	switch found := written(attempts, o.Body); {
	case winner != nil && found == winner:
		if o.Version != winner.object.Version {
			p.report(putWrites, "the winner of a race was given the version %q, a reader %q", winner.object.Version, o.Version)
		}
	case winner != nil && found != nil && found.maybe():
		p.report(compareAndSwap, "a write was told that it had landed on %q, and after it another landed on the same condition", key)
	case found != nil && !found.maybe():
		p.report(landedIsUnknown, "a write that landed on %q was told: %v", key, found.err)
	case found == nil && !bytes.Equal(o.Body, before):
		p.report(getReads, "after a race, %q is %s, which nobody wrote", key, brief(o.Body))
	case winner != nil:
		p.report(readsLatest, "a write was told that it had landed on %q, and a reader after it saw what was before", key)
	case found == nil && preconditions == len(attempts):
		p.report(preconditionIsTrue, "all of %d writes on %q were told that the condition did not hold, and it did", preconditions, key)
	}
	return winner != nil
}

func written(attempts []attempt, body []byte) *attempt {
	for i := range attempts {
		if bytes.Equal(attempts[i].body, body) {
			return &attempts[i]
		}
	}
	return nil
}

// A tally is the body of the counter: the last writer's name makes each body,
// and so each version, one of its own.
type tally struct {
	Count  int64
	Writer string
}

func counter(p *trial) {
	const writers, increments = 8, 25
	start, _ := json.Marshal(tally{})
	p.create(key, start)
	var landed, unknown atomic.Int64
	together.Run(writers, func(w int) {
		for i := range increments {
			switch err := p.increment(fmt.Sprintf("%d.%d", w, i)); {
			case err == nil:
				landed.Add(1)
			case errors.Is(err, store.ErrUnknownOutcome):
				unknown.Add(1)
			default:
				p.report(putWrites, "a writer of the counter gave up: %v", err)
				return
			}
		}
	})
	var end tally
	if err := json.Unmarshal(p.mustRead(key).Body, &end); err != nil {
		p.stop(getReads, "the counter cannot be read: %v", err)
	}
	if end.Count < landed.Load() || end.Count > landed.Load()+unknown.Load() {
		p.report(compareAndSwap, "the counter stands at %d after %d increments that landed and %d that may have", end.Count, landed.Load(), unknown.Load())
	}
}

// increment adds one to the counter, again as often as somebody comes between.
func (p *trial) increment(writer string) error {
	const tries = 1000
	var err error
	for range tries {
		var o *store.Object
		if o, err = p.read(p.ctx, key, ""); err != nil {
			return err
		}
		var now tally
		if err = json.Unmarshal(o.Body, &now); err != nil {
			return fmt.Errorf("the counter is %s: %w", brief(o.Body), err)
		}
		body, _ := json.Marshal(tally{now.Count + 1, writer})
		_, err = p.put(p.ctx, key, body, store.IfMatch(o.Version))
		if !isAny(err, store.ErrPrecondition, store.ErrConflict, store.ErrThrottled, store.ErrUnavailable) || p.ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("no success in %d tries: %w", tries, err)
}

func readAfterWrite(p *trial) {
	const writes, readers = 200, 2
	o := p.create(key, []byte("0"))
	for i := range writes {
		body := fmt.Append(nil, i+1)
		o = p.update(key, body, o.Version)
		together.Run(readers, func(int) {
			got, err := p.read(p.ctx, key, "")
			switch {
			case err != nil:
				p.report(readsLatest, "after write %d, get said: %v", i+1, err)
			case !bytes.Equal(got.Body, body) || got.Version != o.Version:
				p.report(readsLatest, "after write %d, version %q, a reader saw %s, version %q", i+1, o.Version, brief(got.Body), got.Version)
			}
		})
	}
}

// tornReads has readers look while bodies of different letters and lengths
// replace each other.
func tornReads(p *trial) {
	const writes, readers = 100, 4
	bodies := [2][]byte{bytes.Repeat([]byte("a"), 64<<10), bytes.Repeat([]byte("b"), 40<<10)}
	o := p.create(key, bodies[0])
	var stopped atomic.Bool
	together.Run(readers+1, func(i int) {
		if i > 0 {
			for !stopped.Load() {
				p.readWhole(bodies)
				runtime.Gosched() // on one processor, to the writer
			}
			return
		}
		defer stopped.Store(true)
		for n := range writes {
			next, err := p.put(p.ctx, key, bodies[(n+1)%2], store.IfMatch(o.Version))
			if err != nil {
				p.report(putWrites, "an update with nobody else writing said: %v", err)
				return
			}
			o = next
		}
	})
}

func (p *trial) readWhole(bodies [2][]byte) {
	o, err := p.read(p.ctx, key, "")
	switch {
	case err != nil:
		p.report(neverTorn, "while an object was written over, get said: %v", err)
	case !bytes.Equal(o.Body, bodies[0]) && !bytes.Equal(o.Body, bodies[1]):
		p.report(neverTorn, "a reader saw %s, which is neither of the two bodies", brief(o.Body))
	}
}
