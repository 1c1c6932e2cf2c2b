package leasehold

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A Layout says how a lock lies in its store. All candidates of a lock must use the
// same one. A record names its own, and no other layout takes it over; but one object
// and epochs under the same key are two locks, which do not notice each other.
type Layout string

const (
	// LayoutObject is the default: one object that is written over. It needs
	// If-None-Match and If-Match.
	// Choose it unless the store has no If-Match.
	LayoutObject Layout = "object"

	// LayoutEpochs is a new object, KEY/0000000042.json, for each acquisition and
	// each renewal; the highest number counts, and tokens are numbers. It needs
	// If-None-Match and listings that show what was just written, and no If-Match.
	// Each write costs a listing more, and a look is a listing too.
	LayoutEpochs Layout = "epochs"

	// LayoutEpochsIfMatch is a new object for each acquisition, which renewals write
	// over. It needs If-Match too, and costs a listing more than LayoutObject for an
	// acquisition, and nothing more for a renewal. See admin.History.
	LayoutEpochsIfMatch Layout = layout.EpochsIfMatchName

	// LayoutMarker is one object that is there while the lock is held, for living
	// beside other tools that lock like that. It needs If-None-Match. It is the
	// weakest: there are no tokens, so nothing can refuse a former holder; a lease is
	// not renewed and ends with its TTL; a holder that is gone keeps the lock until
	// its marker is deleted, see LockOptions.Sweep; and a release is a delete without
	// a condition, which removes the next holder's marker if it comes very late. It is
	// not sent when less than a quarter of the TTL is left.
	LayoutMarker Layout = record.LayoutMarker

	// LayoutMarkerIfMatch is LayoutMarker with renewals, and takeovers from a holder
	// that is gone, by If-Match. There are no tokens either, and the delete is the
	// same.
	LayoutMarkerIfMatch Layout = "marker+if-match"
)

// Layouts are all that there are.
// It is for iterating over; do not change it.
var Layouts = []Layout{LayoutObject, LayoutEpochs, LayoutEpochsIfMatch, LayoutMarker, LayoutMarkerIfMatch}

// Tokens reports whether leases have tokens in this layout.
// Where they have none, nothing can refuse a former holder, and a lock of that layout cannot be
// under a [Session].
func (l Layout) Tokens() bool { return l != LayoutMarker && l != LayoutMarkerIfMatch }

// configure tells the protocol what it must know of the layout.
// It knows properties and no names, so a layout that has the same properties needs no rule of
// its own there.
func (l Layout) configure(cfg *protocol.Config, sweep bool) {
	switch l {
	case LayoutObject:
	case LayoutEpochs, LayoutEpochsIfMatch:
		cfg.Numbered, cfg.Layout = true, string(l)
	case LayoutMarker, LayoutMarkerIfMatch:
		cfg.Layout = record.LayoutMarker
		cfg.Tokenless, cfg.WriteOnce, cfg.Sweep = true, l == LayoutMarker, sweep
	}
}

// at gives the layout of a lock.
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

// NoToken is the token of a lease in a layout that has none.
const NoToken Token = 0

// String is the number, or "none".
func (t Token) String() string {
	if t == NoToken {
		return "none"
	}
	return strconv.FormatInt(int64(t), 10)
}
