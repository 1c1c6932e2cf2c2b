package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// read sends a look. When it was sent is kept, since a heartbeat that told of a release after that
// may have told of this lock: see session.Watch.
func (e *Engine) read(a protocol.Read) {
	p := e.owner.Place()
	var s layout.Snapshot
	var err error
	e.active.looked = p.Runtime.Now().Clock
	e.active.giveUp = p.Runtime.Ask(Request{
		For: a, Context: e.owner.Context(), Timeout: a.Timeout,
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

// check finds out whether the session of the holder goes on.
// One look is enough to answer a user who does not wait. To find out that a session is over that
// has merely stopped its heartbeat takes a reaper, and a TTL.
func (e *Engine) check(a protocol.Check) {
	p := e.owner.Place()
	var s layout.Snapshot
	var err error
	e.active.giveUp = p.Runtime.Ask(Request{
		For: a, Context: e.owner.Context(), Timeout: a.Timeout,
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

// write keeps the action as it came, and what its two halves share in one place: each variable
// of theirs, and each copy, would be memory of its own, at every renewal.
//
// A write cannot be given up as a look can: it may land whoever waits for its answer, so the
// answer is always worth having (rule A6).
func (e *Engine) write(action protocol.Action, timeout time.Duration) {
	p := e.owner.Place()
	var wrote struct {
		s   layout.Snapshot
		err error
	}
	p.Runtime.Ask(Request{
		For: action, Context: e.owner.Context(), Timeout: timeout,
		Do: func(ctx context.Context) {
			a, _ := action.(protocol.Write)
			wrote.s, wrote.err = p.Layout.Write(ctx, a)
			if p.Logger.Enabled(ctx, slog.LevelDebug) { // the arguments cost more than the rest
				p.Logger.DebugContext(ctx, "write", "lock", p.Layout.String(), "op", a.Op.String(), "token", a.Record.Token, "error", wrote.err)
			}
		},
		Done: func() {
			e.Enter()
			defer e.Leave()
			e.Step(layout.WriteDone(wrote.s, wrote.err))
			a, _ := action.(protocol.Write)
			epochs, ok := p.Layout.(layout.Epochs) // of which none was written if it failed
			if ok && epochs.Due(a.Op, wrote.s.Record.Epoch) && e.active.past == nil && e.active.candidate.Valid(p.Runtime.Now().Clock) {
				e.collect(p, epochs)
			}
		},
	})
}

// collect deletes epochs of the past, as long as the lease lasts. Whether it succeeds matters
// little: another holder will try.
// Only a valid lease collects, and one collection goes on at a time. It is the holder's to do,
// because it has just written the highest number, so the past is certainly past.
func (e *Engine) collect(p Place, epochs layout.Epochs) {
	e.active.past = make(chan struct{})
	e.active.leave = p.Runtime.Ask(Request{
		Context: e.owner.Context(), Timeout: time.Minute,
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
			e.settle()
		},
	})
}

// collect goes on after an object that is not a record, which a person may want back, and stops
// at any other error: a store that fails is not to be asked for more.
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
