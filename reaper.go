package leasehold

import (
	"context"
	"sync"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// A sessionWatcher is what an engine works for that watches a session of others. It tells
// nobody anything: the engines that wait for the end of the session report what concerns them.
type sessionWatcher struct {
	place engine.Place
	cfg   protocol.Config
}

// Watcher is for a session that the lock waits for.
func (d *driver) Watcher(session string, _ *engine.Engine) engine.Owner {
	p := d.Place()
	p.Key, p.Layout = session, layout.Heartbeat{Store: p.Store, Key: session}
	return &sessionWatcher{p, d.opts.watching()}
}

// Place is that of the session's object.
func (w *sessionWatcher) Place() engine.Place { return w.place }

// Config is that of the candidate on whose behalf it watches.
func (w *sessionWatcher) Config() protocol.Config { return w.cfg }

// Session is none: a session is under no other.
func (*sessionWatcher) Session(string) *engine.Session { return nil }

// Context gives requests no values.
func (*sessionWatcher) Context() context.Context { return context.Background() }

// Watcher is not asked for: a session is under no other.
func (w *sessionWatcher) Watcher(string, *engine.Engine) engine.Owner { return w }

// Nobody is told of these.

func (*sessionWatcher) Rest(bool)              {}
func (*sessionWatcher) Taken(protocol.Event)   {}
func (*sessionWatcher) Report(protocol.Action) {}
func (*sessionWatcher) Stepped(protocol.Event) {}
func (*sessionWatcher) EndLease(error)         {}

// reap ends the sessions whose holders are gone. An object that cannot be read stays as it is.
func reap(ctx context.Context, st store.Store, sessions []string) {
	none, _ := (*LockOptions)(nil).withDefaults() // which are in order
	var all sync.WaitGroup
	gate := make(chan struct{}, maxReaped)
	for _, session := range sessions {
		cfg := none.watching()
		cfg.Incarnation, cfg.Reaper, cfg.Follow = newIncarnation(), true, true
		l := makeLock(st, session, layout.Heartbeat{Store: st, Key: session}, cfg, none)
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			l.d.acquire(ctx, true, nil)
		})
	}
	all.Wait()
}

// maxReaped is how many sessions are watched at a time when they are collected.
const maxReaped = 1000

// maxParallel is how many requests at a time are sent for something that concerns many locks.
const maxParallel = 32
