package leasehold

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

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
	LayoutObject Layout = "object"

	// LayoutEpochs is a new object, KEY/0000000042.json, for each acquisition and
	// each renewal; the highest number counts, and tokens are numbers. It needs
	// If-None-Match and listings that show what was just written, and no If-Match.
	// Each write costs a listing more, and a look is a listing too.
	LayoutEpochs Layout = "epochs"

	// LayoutEpochsIfMatch is a new object for each acquisition, which renewals write
	// over. It needs If-Match too, and costs a listing more than LayoutObject for an
	// acquisition, and nothing more for a renewal. See [Lock.History].
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

// layoutSession is what the record of a session's heartbeat says, which is no lock.
const layoutSession Layout = record.LayoutSession

// defaultLayout is a variable so that all tests can be run over another one:
// go test -ldflags "-X github.com/leasehold/leasehold.defaultLayout=epochs".
var defaultLayout = "object"

// Layouts are all that there are.
var Layouts = []Layout{LayoutObject, LayoutEpochs, LayoutEpochsIfMatch, LayoutMarker, LayoutMarkerIfMatch}

// Tokens reports whether leases have tokens in this layout.
func (l Layout) Tokens() bool { return l != LayoutMarker && l != LayoutMarkerIfMatch }

// ErrNoTokens: the layout of the lock has no tokens.
var ErrNoTokens = errors.New("the layout marker has no tokens")

// configure tells the protocol what it must know of the layout.
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

// A Term is one lease of a lock.
type Term struct {
	Info // its last record

	// Ended is when it was released or the next one began, by the wall clock of
	// whoever did that; zero if it goes on.
	Ended time.Time
	// Why is "released", "taken over" from a holder that was gone, or "broken" by
	// hand; empty if it goes on.
	Why string
}

// ErrNoHistory: the layout of the lock keeps nothing of the past.
var ErrNoHistory = errors.New("only the layouts with epochs keep a history")

// History yields the leases of a lock with epochs, the present one first, as long as
// they are kept: see [Collect]. It costs one look, and one read for each. Any error is
// the last.
func (l *Lock) History(ctx context.Context) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		epochs, ok := l.d.at.(layout.Epochs)
		if !ok {
			yield(Term{}, fmt.Errorf("the lock %v: %w", l.d.at, ErrNoHistory))
			return
		}
		for t, err := range epochs.Terms(ctx) {
			if err != nil {
				yield(Term{}, l.d.explain(err))
				return
			}
			if !yield(Term{describe(l.d.key, layout.Snapshot{Record: t.Record}), t.Ended, t.Why}, nil) {
				return
			}
		}
	}
}

// CollectOptions are the options of [Collect].
type CollectOptions struct {
	Keep   int           // terms of the past that stay; default 100
	Age    time.Duration // what is younger stays, by the store's clock; default and least 24 h
	DryRun bool          // delete nothing
}

// A Collected is an object that was deleted, or with DryRun would be.
type Collected struct {
	Key string
	Age time.Duration // by the store's clock
	Why string        // "past epoch", "expired marker", "session that is over"
}

// Collect deletes what is left of the past of the locks under a prefix: epochs that
// are older than the kept ones, never the highest of a lock, markers of leasehold
// that have expired by the store's own clock, and sessions that have been over for the
// age. A session whose holder has been gone for so long, and that nobody has ended because
// nobody wanted its locks, is watched for its TTL and margin and ended; another Collect
// deletes it, when it is old enough. Where a read does not tell the store's time, as in a
// directory, a session costs two reads more. Holders collect the epochs of their own
// lock now and then, so nobody has to call it for those. It yields each object that
// it deletes. An error about one lock is yielded, and the next lock follows; one of
// the listing is the last.
//
// To delete a marker is not safe in the way in which the other layouts are: one that
// is made at the same moment may be hit.
func Collect(ctx context.Context, st store.Store, prefix string, opts *CollectOptions) iter.Seq2[Collected, error] {
	var o CollectOptions
	if opts != nil {
		o = *opts
	}
	if o.Keep == 0 {
		o.Keep = layout.DefaultCollection.Keep
	}
	past := layout.Collection{Keep: o.Keep, Age: max(o.Age, layout.DefaultCollection.Age), Limit: -1, Dry: o.DryRun}
	return func(yield func(Collected, error) bool) {
		var silent []string // sessions
		for info, err := range listAll(ctx, st, prefix, asListed) {
			more := true
			switch {
			case errors.Is(err, ErrForeignObject):
			case err != nil:
				yield(Collected{}, err)
				return
			case info.Layout == LayoutEpochs, info.Layout == LayoutEpochsIfMatch:
				more = collectEpochs(ctx, st, info, past, yield)
			case info.Layout == LayoutMarker:
				more = sweepMarker(ctx, st, info, o.DryRun, yield)
			case info.Layout == layoutSession:
				info, err = dated(ctx, st, info)
				switch {
				case err != nil:
					more = yield(Collected{info.Key, -1, "session that is over"}, err)
				case info.Age < past.Age:
				case info.Held:
					silent = append(silent, info.Key)
				default:
					more = deleteSession(ctx, st, info, o.DryRun, yield)
				}
			}
			if !more {
				return
			}
		}
		if !o.DryRun {
			reap(ctx, st, silent)
		}
	}
}

// dated completes what is known of a session by its age, if the store tells it in any way.
func dated(ctx context.Context, st store.Store, info Info) (Info, error) {
	if info.Age >= 0 {
		return info, nil
	}
	s, err := layout.Heartbeat{Store: st, Key: info.Key}.Dated(ctx)
	if err != nil {
		return info, err
	}
	return describe(info.Key, s), nil // of one that has gone meanwhile: nothing, and no age
}

// deleteSession deletes the object of a session that is over, which nobody writes any more.
// A lock may still name it: that it is not there means that it is over (rule D2). Its name
// is not used again, and a request of its beginning is not on its way any more (rule D8).
func deleteSession(ctx context.Context, st store.Store, info Info, dry bool, yield func(Collected, error) bool) (more bool) {
	var err error
	if !dry {
		err = st.Delete(ctx, info.Key)
	}
	return yield(Collected{info.Key, info.Age, "session that is over"}, err)
}

func collectEpochs(ctx context.Context, st store.Store, info Info, past layout.Collection, yield func(Collected, error) bool) (more bool) {
	epochs := layout.Epochs{Store: st, Key: info.Key, IfMatch: info.Layout == LayoutEpochsIfMatch}
	for c, err := range epochs.Collect(ctx, past) {
		if !yield(Collected{c.Key, c.Age, "past epoch"}, err) {
			return false
		}
	}
	return true
}

func sweepMarker(ctx context.Context, st store.Store, info Info, dry bool, yield func(Collected, error) bool) (more bool) {
	age, err := layout.Marker{Store: st, Key: info.Key}.Expire(ctx, dry)
	if errors.Is(err, layout.ErrNotExpired) {
		return true
	}
	return yield(Collected{info.Key, age, "expired marker"}, err)
}
