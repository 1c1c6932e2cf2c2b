package register

import (
	"errors"
	"fmt"
)

// beginCollect asks every member what it has. What is known of them from before does not count: it must have been
// seen after all have taken the number.
func (r *Register) beginCollect() {
	for i := range r.members {
		if r.call.Taken>>i&1 == 0 {
			r.fails(fmt.Errorf("%w: %s: %w", ErrNotAll, r.cfg.Members[i].Place, ErrNotTaken))
			return
		}
	}
	r.phase = collecting
}

// collect goes on with that look. It needs every member: one that has missed the deletion still has what was deleted,
// and would bring it back.
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
				m.known = false // so that the whole answer comes, with its age
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

// decide says what becomes of what was found (rule Q7).
func (r *Register) decide() {
	var found Value
	var best Ballot
	same, aged, old, some := true, true, true, false
	for i := range r.members {
		m := &r.members[i]
		switch {
		case !r.mine(i): // and by the marker it has never accepted anything
		case !r.sure(i): // what has promised may yet accept, under an older configuration
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

// drop deletes what every member still has, on the condition that it has not changed since.
func (r *Register) drop() {
	r.phase = dropping
	for i := range r.members {
		if m := &r.members[i]; r.sure(i) {
			m.put = Acceptor{}
			r.send(i, func(request int) Action { return Drop{i, request, m.at} })
		}
	}
}

// dropped answers once every member has.
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
	case gone.count() < len(r.members): // somebody has touched it
		r.answer(Answer{Outcome: Mismatch})
	default:
		r.answer(Answer{Outcome: Done, Votes: int(gone)})
	}
}
