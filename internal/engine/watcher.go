package engine

import (
	"context"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// A watcher is the owner of an engine that watches another process's session. It reports nothing: those
// who wait for the end of the session do.
type watcher struct {
	place Place
	cfg   candidate.Config
}

// Watcher returns an owner for an engine that watches a session in a place's store, on behalf of a
// candidate there.
func Watcher(at Place, session string, cfg candidate.Config) Owner {
	at.Key, at.Layout = session, layout.Heartbeat{Store: at.Store, Key: session}
	return &watcher{at, cfg}
}

// Place returns that of the session's object.
func (w *watcher) Place() Place { return w.place }

// Config returns the configuration of the candidate that waits.
func (w *watcher) Config() candidate.Config { return w.cfg }

// Session returns nil: no session is under another.
func (*watcher) Session(string) *Session { return nil }

// Context returns one without values.
func (*watcher) Context() context.Context { return context.Background() }

// Watcher is not called: no session is under another.
func (w *watcher) Watcher(string, *Engine) Owner { return w }

// Nobody is told about these.

func (*watcher) Rest(bool)                                                {}
func (*watcher) EndLease(error)                                           {}
func (*watcher) Stepped(protocol.Event, []protocol.Action) protocol.Event { return nil }

// initReaper starts the engine of a candidate that waits until a session has ended, and ends it when it
// has been waited out. It polls once soon after each heartbeat, or seldom.
func (e *Engine) initReaper(by Owner, seldom bool) {
	cfg, role := by.Config(), candidate.Reaper{}
	if seldom {
		role.Infrequent = protocol.SeldomWatch(cfg.TTL)
	}
	cfg.Incarnation, cfg.Role = by.Place().Runtime.Incarnation(), role
	e.Init(by, cfg)
}

// A lone reaper ends a session for which no candidate waits.
type lone struct {
	Owner
	engine Engine
	done   func()
}

// Reap waits until a session in a place's store has ended, and ends it when it has been waited out. It
// calls done, apart, when the session has ended, when waiting is hopeless, or when the wait was given up.
// Requests get the values of ctx, but not its end. With it, package admin ends the sessions of dead
// holders before it collects them (rule D8).
func Reap(ctx context.Context, at Place, session string, cfg candidate.Config, done func()) (giveUp func()) {
	l := &lone{Owner: Watcher(at, session, cfg), done: done}
	l.engine.initReaper(l, false)
	_ = l.engine.Acquire(ctx, candidate.Acquire{Wait: true}, nil, func() {}) // there is no session that could have ended
	return l.engine.Cancel
}

// Stepped calls done when the wait has ended.
func (l *lone) Stepped(_ protocol.Event, actions []protocol.Action) protocol.Event {
	for _, action := range actions {
		switch action.(type) {
		case candidate.Reaped, candidate.Failed:
			l.engine.runtime().Apart(l.done)
		}
	}
	return nil
}
