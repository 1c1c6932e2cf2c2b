package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// read sends a read. The time is kept, because a heartbeat that announced a release since then may have
// announced this lock's: see session.Watch.
func (e *Engine) read(a candidate.Read) {
	p := e.active.place
	var s layout.Snapshot
	var err error
	e.active.looked = p.Runtime.Now().Clock
	e.active.giveUp = p.Runtime.Ask(Request{
		For: a, Context: e.active.ctx, Timeout: a.Timeout,
		Do: func(ctx context.Context) { s, err = p.Layout.Look(ctx, a.Unless) },
		Done: func() {
			e.Enter()
			defer e.Leave()
			e.active.giveUp = nil
			if !errors.Is(err, store.ErrNotModified) {
				e.active.shown, e.active.showed = s, p.Runtime.Now().Clock
			}
			e.Step(layout.ReadDone(s, err))
		},
	})
}

// check reads whether the holder's session goes on. One read is enough to answer a user that does not wait.
// To find out that a silent session has ended takes a reaper, and a TTL.
func (e *Engine) check(a candidate.Check) {
	p := e.active.place
	var s layout.Snapshot
	var err error
	e.active.giveUp = p.Runtime.Ask(Request{
		For: a, Context: e.active.ctx, Timeout: a.Timeout,
		Do: func(ctx context.Context) { s, err = layout.Heartbeat{Store: p.Store, Key: a.Session}.Look(ctx, "") },
		Done: func() {
			e.Enter()
			defer e.Leave()
			e.active.giveUp = nil
			checked := layout.Checked(a.Session, s, err)
			checked.Abandoned = s.Abandoned(p.Runtime.Now().Wall)
			e.Step(checked)
		},
	})
}

// write keeps the action as it came, and puts what its two closures share in one struct: each variable and
// each copy would be an allocation at every renewal.
//
// A write cannot be given up as a read can. It may land whether or not anybody waits for its answer, so
// the answer is always worth having (rule A6).
func (e *Engine) write(action protocol.Action, timeout time.Duration) {
	p := e.active.place
	var wrote struct {
		s   layout.Snapshot
		err error
	}
	p.Runtime.Ask(Request{
		For: action, Context: e.active.ctx, Timeout: timeout,
		Do: func(ctx context.Context) {
			a, _ := action.(candidate.Write)
			wrote.s, wrote.err = p.Layout.Write(ctx, a)
			if p.Logger.Enabled(ctx, slog.LevelDebug) { // the arguments cost more than the call
				p.Logger.DebugContext(ctx, "write", "lock", p.Layout.String(), "op", a.Op.String(), "token", a.Record.Token, "error", wrote.err)
			}
		},
		Done: func() {
			e.Enter()
			defer e.Leave()
			e.Step(layout.WriteDone(wrote.s, wrote.err))
			a, _ := action.(candidate.Write)
			epochs, ok := p.Layout.(layout.Epochs) // if the write failed, none was written
			if ok && epochs.Due(a.Op, wrote.s.Record.Epoch) && e.active.past == nil && e.active.candidate.Valid(p.Runtime.Now().Clock) {
				e.collect(p, epochs)
			}
		},
	})
}

// collect deletes old epochs for as long as the lease lasts. Only a valid lease collects, one collection at
// a time: its holder has just written the highest number, so the others are certainly old. A failure
// matters little, because the next holder tries again.
func (e *Engine) collect(p Place, epochs layout.Epochs) {
	e.active.past = make(chan struct{})
	e.active.leave = p.Runtime.Ask(Request{
		Context: e.active.ctx, Timeout: time.Minute,
		Do: func(ctx context.Context) {
			deleted, err := collect(ctx, epochs)
			if err != nil {
				p.Logger.DebugContext(ctx, "epochs of the past were not collected", "lock", p.Layout.String(), "error", err)
				return
			}
			p.Logger.DebugContext(ctx, "epochs of the past were collected", "lock", p.Layout.String(), "deleted", deleted)
		},
		Done: func() {
			e.Enter()
			defer e.Leave()
			close(e.active.past)
			e.active.past, e.active.leave = nil, nil
			e.active.settle(e)
		},
	})
}

// collect skips objects that are not records, which somebody may want back. It stops at any other error, so
// that a failing store gets no more requests.
func collect(ctx context.Context, epochs layout.Epochs) (deleted int, err error) {
	for _, err := range epochs.Collect(ctx, layout.DefaultCollection) {
		switch {
		case errors.Is(err, record.ErrForeign): // it stays where it is
		case err != nil:
			return deleted, err
		default:
			deleted++
		}
	}
	return deleted, nil
}
