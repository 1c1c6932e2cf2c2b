package leasehold

import (
	"context"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/inside"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
)

// Package admin works on locks by hand, and needs of a Lock what users must not build on: its
// store, its layout and the protocol's configuration. An exported method would be a promise to
// them; this is none, and a program that only holds locks does not link package admin.
func init() {
	inside.Show(inside.View[*Lock, Info, Detached]{
		Parts: func(l *Lock) inside.Parts {
			return inside.Parts{Store: l.d.st, Layout: l.d.at, Config: l.d.opts.config("")}
		},
		Look:     func(ctx context.Context, l *Lock) (layout.Snapshot, Info, error) { return l.look(ctx) },
		Explain:  func(l *Lock, err error) error { return l.d.explain(err) },
		Describe: describe,
		Proof:    func(d Detached) protocol.Proof { return d.proof() },
		Watching: func() protocol.Config {
			defaults, _ := (*LockOptions)(nil).withDefaults() // which are in order
			return defaults.watching()
		},
	})
	inside.ShowSession[*Session](func(s *Session) (*engine.Session, string) { return s.inner, s.heartbeat.d.st.String() })
}
