package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/together"
)

// deleteIf calls DeleteIf and checks what is true of each of its answers, or ends the case.
func (p *trial) deleteIf(ctx context.Context, key string, v store.Version) error {
	st, ok := p.st.(store.Conditional)
	if !ok {
		p.skip("the store under test is no store.Conditional")
	}
	err := st.DeleteIf(ctx, key, v)
	p.typed("delete", key, err)
	return err
}

func deletesOnCondition(p *trial) {
	p.gone("a delete on a condition of no object", p.deleteIf(p.ctx, key, p.create("jobs/other", []byte("other")).Version))
	first := p.create(key, []byte("first"))
	p.refused(p.deleteIf(p.ctx, key, ""), deleteIfZero, "a delete on the condition of no version", store.ErrInvalid)
	p.unchanged(first, []byte("first"), deleteIfZero, "a delete on the condition of no version")
	second := p.update(key, []byte("second"), first.Version)
	p.refused(p.deleteIf(p.ctx, key, first.Version), deleteIfOther, "a delete on the condition of a former version", store.ErrPrecondition)
	p.unchanged(second, []byte("second"), deleteIfOther, "a refused delete")

	ended, cancel := context.WithCancel(p.ctx)
	cancel()
	err := p.deleteIf(ended, key, second.Version)
	p.refused(err, errorsTyped, "a delete on a condition in a context that had ended", context.Canceled)
	if !errors.Is(err, store.ErrUnknownOutcome) {
		p.unchanged(second, []byte("second"), deleteIfUnknown, fmt.Sprintf("a delete that said %q", err))
	}
	if err := p.deleteIf(p.ctx, key, second.Version); err != nil && !errors.Is(err, store.ErrUnknownOutcome) {
		p.report(deleteIfRemoves, "a delete on the condition of the current version said: %v", err)
	}
	p.absent(key, deleteIfRemoves, "a delete on the condition of the current version")
	p.gone("one more of them", p.deleteIf(p.ctx, key, second.Version))
	if o := p.mustRead("jobs/other"); string(o.Body) != "other" {
		p.report(deleteIfRemoves, "after the delete of %q, %q is %s", key, o.Key, brief(o.Body))
	}
	for _, key := range notKeys {
		p.refused(p.deleteIf(p.ctx, key, second.Version), keysChecked, "delete on a condition of a key that CheckKey refuses", store.ErrInvalid)
	}
}

// gone checks what is said of no object.
func (p *trial) gone(what string, err error) {
	if err != nil && !errors.Is(err, store.ErrPrecondition) {
		p.report(deleteIfAbsent, "%s said: %v", what, err)
	}
}

// racingDeletes lets a delete and a write of one condition race, in rounds.
func racingDeletes(p *trial) {
	st, ok := p.st.(store.Conditional)
	if !ok {
		p.skip("the store under test is no store.Conditional")
	}
	wrote, deleted := 0, 0
	for round := range raceRounds {
		key := fmt.Sprint("race/", round)
		before := p.create(key, fmt.Append(nil, "before ", round))
		var put, del error
		together.Run(2, func(i int) {
			if i == 0 {
				_, put = p.put(p.ctx, key, fmt.Append(nil, "after ", round), store.IfMatch(before.Version))
				return
			}
			del = st.DeleteIf(p.ctx, key, before.Version)
			p.typed("delete", key, del)
		})
		o, err := p.read(p.ctx, key, "")
		switch {
		case put == nil && del == nil:
			p.report(deleteIfRace, "a write and a delete of the same version of %q were both told that they had landed", key)
		case put == nil && (err != nil || string(o.Body) != fmt.Sprint("after ", round)):
			p.report(deleteIfRace, "a write landed on %q, a delete of what was before said %v, and a reader then: %v", key, del, err)
		case del == nil && err == nil:
			p.report(deleteIfRace, "a delete landed on %q, a write over what was before said %v, and the object is there", key, put)
		}
		if put == nil {
			wrote++
		}
		if del == nil {
			deleted++
		}
	}
	if wrote+deleted == 0 {
		p.report(deleteIfRemoves, "in none of %d rounds was the writer or the deleter told that it had landed", raceRounds)
	}
}
