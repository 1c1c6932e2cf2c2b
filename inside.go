package leasehold

import (
	"context"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/inside"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// Package admin needs parts of a Lock that users must not rely on: its store, its layout and
// the protocol's configuration. Exported methods would be a promise to users. This way,
// programs that only hold locks do not link package admin.
func init() {
	inside.Show(inside.View[*Lock, Info, Detached]{
		Parts: func(l *Lock) inside.Parts {
			return inside.Parts{Store: l.d.st, Layout: l.d.at, Config: l.d.opts.config("")}
		},
		Look:     func(ctx context.Context, l *Lock) (layout.Snapshot, Info, error) { return l.look(ctx) },
		Explain:  func(l *Lock, err error) error { return l.d.explain(err) },
		Describe: describe,
		Proof:    func(d Detached) candidate.Proof { return d.proof() },
		Watching: func() candidate.Config {
			defaults, _ := (*LockOptions)(nil).withDefaults() // the defaults are valid
			return defaults.watching()
		},
	})
	inside.ShowSession[*Session](func(s *Session) (*engine.Session, string) { return s.inner, s.heartbeat.d.st.String() })
}
