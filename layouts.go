package leasehold

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A Layout is the way a lock is stored. All candidates for a lock must use the same one. A
// record names its layout, and candidates with another layout do not take it over. But an
// object and epochs under the same key are two locks that do not notice each other.
type Layout string

const (
	// LayoutObject is the default: one object that is overwritten. It needs If-None-Match and
	// If-Match. Use it unless the store has no If-Match.
	LayoutObject Layout = "object"

	// LayoutEpochs creates a new object, KEY/0000000042.json, for each acquisition and each
	// renewal. The highest number counts, and tokens are numbers. It needs If-None-Match and
	// listings that include the latest writes, but no If-Match. Each write costs an additional
	// listing, and each poll is a listing too.
	LayoutEpochs Layout = "epochs"

	// LayoutEpochsIfMatch creates a new object for each acquisition, which renewals overwrite.
	// It also needs If-Match. Compared with LayoutObject, an acquisition costs an additional
	// listing, and a renewal costs the same. See admin.History.
	LayoutEpochsIfMatch Layout = layout.EpochsIfMatchName

	// LayoutMarker is one object that exists while the lock is held, as in other tools that you
	// may have to work with. It needs If-None-Match. It is the weakest layout:
	//
	//   - There are no tokens, so a resource cannot reject a former holder.
	//   - A lease is not renewed and ends with its TTL.
	//   - A dead holder keeps the lock until its marker is deleted: see LockOptions.Sweep.
	//   - A release is an unconditional delete. If it arrives very late, it removes the
	//     next holder's marker. It is not sent if less than a quarter of the TTL is left.
	LayoutMarker Layout = record.LayoutMarker

	// LayoutMarkerIfMatch is LayoutMarker with renewals and with takeovers from dead holders,
	// by If-Match. It has no tokens either, and its delete is the same.
	LayoutMarkerIfMatch Layout = "marker+if-match"
)

// Layouts are all layouts, for iterating over; do not change it.
var Layouts = []Layout{LayoutObject, LayoutEpochs, LayoutEpochsIfMatch, LayoutMarker, LayoutMarkerIfMatch}

// Tokens reports whether leases have tokens in this layout. Without tokens, a resource cannot
// reject a former holder, and the lock cannot be under a [Session].
func (l Layout) Tokens() bool { return l != LayoutMarker && l != LayoutMarkerIfMatch }

// configure sets the layout's properties for the protocol, which knows no names. So a layout
// with the same properties needs no rule of its own there.
func (l Layout) configure(cfg *candidate.Config, sweep bool) {
	switch l {
	case LayoutObject:
	case LayoutEpochs, LayoutEpochsIfMatch:
		cfg.Numbered, cfg.Layout = true, string(l)
	case LayoutMarker, LayoutMarkerIfMatch:
		cfg.Layout = record.LayoutMarker
		cfg.Tokenless, cfg.WriteOnce, cfg.Sweep = true, l == LayoutMarker, sweep
	}
}

// at returns the layout of the lock under key.
func (o *LockOptions) at(st store.Store, key string) (layout.Layout, error) {
	switch o.Layout {
	case LayoutObject:
		return layout.Object{Store: st, Key: key}, nil
	case LayoutEpochs, LayoutEpochsIfMatch:
		e := layout.Epochs{Store: st, Key: key, IfMatch: o.Layout == LayoutEpochsIfMatch}
		return e, e.Check()
	case LayoutMarker, LayoutMarkerIfMatch:
		if o.Existing {
			return nil, errors.New("a marker cannot exist already: one that exists is held")
		}
		m := layout.Marker{Store: st, Key: key, TTL: o.TTL, IfMatch: o.Layout == LayoutMarkerIfMatch}
		o.Logger.Warn("the layout marker has no tokens, so nothing can refuse what a former holder still sends; and a delete that comes late can free another's lock",
			"lock", m.String())
		return m, nil
	}
	var names []string
	for _, l := range Layouts {
		names = append(names, string(l))
	}
	return nil, fmt.Errorf("there is no layout %q: use one of %s", o.Layout, strings.Join(names, ", "))
}

// NoToken is the token of leases in layouts without tokens.
const NoToken Token = 0

// String returns the number, or "none".
func (t Token) String() string {
	if t == NoToken {
		return "none"
	}
	return strconv.FormatInt(int64(t), 10)
}
