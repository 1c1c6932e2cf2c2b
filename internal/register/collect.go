package register

import (
	"errors"
	"fmt"
)

// beginCollect reads the object of every member. Earlier answers do not count: all members must have taken the
// number before.
func (r *Register) beginCollect() {
	for i := range r.members {
		if r.call.Taken>>i&1 == 0 {
			r.fails(fmt.Errorf("%w: %s: %w", ErrNotAll, r.cfg.Members[i].Place, ErrNotTaken))
			return
		}
	}
	r.phase = collecting
}

// collect continues these reads. It needs every member, because one that missed the deletion still has the deleted
// object, and would bring it back.
func (r *Register) collect() {
	waits := false
	for i := range r.members {
		m := &r.members[i]
		switch {
		case m.busy:
			waits = true
			continue
		case !m.fresh, !r.mine(i) && r.again(i):
			if r.free(m) {
				m.known = false // so that the answer is complete, with its age
				r.get(i)
				waits = true
			}
		case !r.mine(i) && !m.checked:
			if r.free(m) {
				r.check(i)
				waits = true
			}
		case !r.mine(i) && !r.never(i):
			m.fault = ErrNotFilled
		}
		if m.fault != nil {
			r.fails(fmt.Errorf("%w: %s: %w", ErrNotAll, r.cfg.Members[i].Place, m.fault))
			return
		}
	}
	if !waits {
		r.decide()
	}
}

// decide removes, settles or keeps what was found (rule Q7).
func (r *Register) decide() {
	var found Value
	var best Ballot
	same, aged, old, some := true, true, true, false
	for i := range r.members {
		m := &r.members[i]
		switch {
		case !r.mine(i): // by its marker, it has never accepted anything
		case !r.sure(i): // a member that has promised may still accept, under an older configuration
			same = false
		default:
			if best.Below(m.acc.Accepted) {
				same = same && best.IsZero()
				found, best = m.acc.Value, m.acc.Accepted
			}
			same = same && m.acc.Accepted == best
			aged = aged && m.old
			old = old && m.old && m.acc.Number < r.cfg.Number
			some = true
		}
	}
	survey := r.call.Kind == Survey
	switch {
	case !some && same:
		r.answer(Answer{Outcome: Done, Votes: 1<<len(r.members) - 1})
	case !found.Deleted:
		r.answer(Answer{Outcome: Mismatch, Value: found})
	case !same && survey:
		r.answer(Answer{Outcome: Done, Value: found})
	case !same:
		r.call.Kind = Settle
		r.round()
	case survey && aged:
		r.answer(Answer{Outcome: Done, Votes: 1<<len(r.members) - 1})
	case survey, !old:
		r.answer(Answer{Outcome: Mismatch, Value: found})
	default:
		r.drop()
	}
}

// drop deletes the object of each member, on the condition that it has not changed.
func (r *Register) drop() {
	r.phase = dropping
	for i := range r.members {
		if m := &r.members[i]; r.sure(i) {
			m.put = Acceptor{}
			r.send(i, func(request int) Action { return Drop{i, request, m.at} })
		}
	}
}

// dropped answers once every member has answered.
func (r *Register) dropped() {
	var errs []error
	gone := set(0)
	for i := range r.members {
		m := &r.members[i]
		switch {
		case m.busy:
			return
		case m.fault != nil:
			errs = append(errs, fmt.Errorf("%s: %w", r.cfg.Members[i].Place, m.fault))
		case m.known && !r.sure(i):
			gone.add(i)
		}
	}
	switch {
	case len(errs) > 0:
		r.fails(errors.Join(append([]error{ErrNotAll}, errs...)...))
	case gone.count() < len(r.members): // it was changed meanwhile
		r.answer(Answer{Outcome: Mismatch})
	default:
		r.answer(Answer{Outcome: Done, Votes: int(gone)})
	}
}
