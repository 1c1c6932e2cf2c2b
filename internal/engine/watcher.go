package engine

import (
	"context"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
)

// A watcher is what an engine works for that watches a session of others. It tells nobody
// anything: whoever waits for the end of the session reports what concerns him.
type watcher struct {
	place Place
	cfg   protocol.Config
}

// Watcher is for a session that lies in the store of a place, on behalf of a candidate there.
func Watcher(at Place, session string, cfg protocol.Config) Owner {
	at.Key, at.Layout = session, layout.Heartbeat{Store: at.Store, Key: session}
	return &watcher{at, cfg}
}

// Place is that of the session's object.
func (w *watcher) Place() Place { return w.place }

// Config is that of the candidate on whose behalf it watches.
func (w *watcher) Config() protocol.Config { return w.cfg }

// Session is none: a session is under no other.
func (*watcher) Session(string) *Session { return nil }

// Context gives requests no values.
func (*watcher) Context() context.Context { return context.Background() }

// Watcher is not asked for: a session is under no other.
func (w *watcher) Watcher(string, *Engine) Owner { return w }

// Nobody is told of these.

func (*watcher) Rest(bool)                                                {}
func (*watcher) EndLease(error)                                           {}
func (*watcher) Stepped(protocol.Event, []protocol.Action) protocol.Event { return nil }

// initReaper makes the engine of a candidate that waits until a session is over, and ends it
// when it was waited out. It looks once soon after each heartbeat, or seldom.
func (e *Engine) initReaper(by Owner, seldom bool) {
	cfg := by.Config()
	cfg.Incarnation, cfg.Reaper, cfg.Follow = by.Place().Runtime.Incarnation(), true, true
	if seldom {
		cfg.Infrequent = protocol.SeldomWatch(cfg.TTL)
	}
	e.Init(by, cfg)
}

// A lone reaper ends a session that no candidate waits for.
type lone struct {
	Owner
	engine Engine
	ctx    context.Context // gives requests their values
	done   func()
}

// Reap waits until a session is over that lies in the store of a place, and ends it when it was
// waited out. It calls done, apart, when the session is over, when it is hopeless to wait, or
// when the wait was given up. Requests get the values of ctx, and not its end.
// Package admin ends the sessions of holders that are gone by it, before it collects them (rule D8).
func Reap(ctx context.Context, at Place, session string, cfg protocol.Config, done func()) (giveUp func()) {
	l := &lone{Owner: Watcher(at, session, cfg), ctx: context.WithoutCancel(ctx), done: done}
	l.engine.initReaper(l, false)
	_ = l.engine.Acquire(true, nil, protocol.Terms{}) // no session can be over
	return l.engine.Cancel
}

// Context is that of the caller.
func (l *lone) Context() context.Context { return l.ctx }

// Stepped calls done when the wait has ended.
func (l *lone) Stepped(_ protocol.Event, actions []protocol.Action) protocol.Event {
	for _, action := range actions {
		switch action.(type) {
		case protocol.Reaped, protocol.Failed:
			l.engine.runtime().Apart(l.done)
		}
	}
	return nil
}
