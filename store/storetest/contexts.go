package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/store"
)

func contextEnded(p *trial) {
	cancelled, cancel := context.WithCancel(p.ctx)
	cancel()
	late, cancel := context.WithDeadline(p.ctx, time.Unix(0, 0))
	defer cancel()

	was := p.create(key, []byte("body"))
	for _, ctx := range []context.Context{cancelled, late} {
		_, err := p.put(ctx, "jobs/absent", []byte("body"), store.IfAbsent())
		p.endedBy(ctx, "a put in a context that had ended", err)
		if errors.Is(err, store.ErrUnknownOutcome) {
			p.report(putEnded, "a put in a context that had ended said: %v", err)
		}
		p.absent("jobs/absent", putEnded, "a put in a context that had ended")
		_, err = p.put(ctx, key, []byte("more"), store.IfMatch(was.Version))
		p.endedBy(ctx, "an update in a context that had ended", err)
		p.unchanged(was, []byte("body"), putEnded, "an update in a context that had ended")

		// A read that finished before the end was noticed is valid.
		if _, err := p.read(ctx, key, ""); err != nil {
			p.endedBy(ctx, "a get in a context that had ended", err)
		}
		if err := p.delete(ctx, "jobs/absent"); err != nil {
			p.endedBy(ctx, "a delete in a context that had ended", err)
		}
		var errs []error
		for _, err := range p.st.List(ctx, "jobs/", "") {
			errs = append(errs, err)
		}
		for i, err := range errs {
			p.typed("list", "jobs/", err)
			switch {
			case err != nil && i < len(errs)-1:
				p.report(listErrorLast, "a list in a context that had ended gave %d elements after: %v", len(errs)-1-i, err)
			case err != nil:
				p.endedBy(ctx, "a list in a context that had ended", err)
			}
		}
	}
}

func (p *trial) endedBy(ctx context.Context, what string, err error) {
	switch {
	case err == nil:
		p.report(putEnded, "%s succeeded", what)
	case !errors.Is(err, ctx.Err()):
		p.report(errorsTyped, "%s, by %v, said: %v", what, ctx.Err(), err)
	}
}

// contextEndsInFlight ends the context at moments spread over the time that a
// put takes. It judges only what was answered, whenever the end came.
func contextEndsInFlight(p *trial) {
	const rounds = 50
	begun := time.Now()
	p.create(key, []byte("body"))
	took := time.Since(begun)
	for i := range rounds {
		key := fmt.Sprint("flight/", i)
		body := []byte("the body of " + key)
		ctx, cancel := context.WithTimeout(p.ctx, took*time.Duration(i)/rounds)
		_, err := p.put(ctx, key, body, store.IfAbsent())
		cancel()
		switch {
		case err == nil:
			if o := p.mustRead(key); string(o.Body) != string(body) {
				p.report(readsLatest, "after a create, %q is %s", key, brief(o.Body))
			}
			continue
		case !errors.Is(err, context.DeadlineExceeded):
			p.report(errorsTyped, "a put whose context ended in flight said: %v", err)
		}
		if !errors.Is(err, store.ErrUnknownOutcome) {
			p.absent(key, putUnknown, fmt.Sprintf("a put that said %q", err))
		}
	}
}
