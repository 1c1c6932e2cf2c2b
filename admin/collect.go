package admin

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/store"
)

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
		for e, err := range listAll(ctx, st, prefix, asListed) {
			info, more := e.Info, true
			switch {
			case errors.Is(err, leasehold.ErrForeignObject):
			case err != nil:
				yield(Collected{}, err)
				return
			case info.Layout == leasehold.LayoutEpochs, info.Layout == leasehold.LayoutEpochsIfMatch:
				more = collectEpochs(ctx, st, info, past, yield)
			case info.Layout == leasehold.LayoutMarker:
				more = sweepMarker(ctx, st, info, o.DryRun, yield)
			case info.Layout == LayoutSession:
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
func dated(ctx context.Context, st store.Store, info leasehold.Info) (leasehold.Info, error) {
	if info.Age >= 0 {
		return info, nil
	}
	s, err := layout.Heartbeat{Store: st, Key: info.Key}.Dated(ctx)
	if err != nil {
		return info, err
	}
	return root.Describe(info.Key, s), nil // of one that has gone meanwhile: nothing, and no age
}

// deleteSession deletes the object of a session that is over, which nobody writes any more.
// A lock may still name it: that it is not there means that it is over (rule D2). Its name
// is not used again, and a request of its beginning is not on its way any more (rule D8).
func deleteSession(ctx context.Context, st store.Store, info leasehold.Info, dry bool, yield func(Collected, error) bool) (more bool) {
	var err error
	if !dry {
		err = st.Delete(ctx, info.Key)
	}
	return yield(Collected{info.Key, info.Age, "session that is over"}, err)
}

func collectEpochs(ctx context.Context, st store.Store, info leasehold.Info, past layout.Collection, yield func(Collected, error) bool) (more bool) {
	epochs := layout.Epochs{Store: st, Key: info.Key, IfMatch: info.Layout == leasehold.LayoutEpochsIfMatch}
	for c, err := range epochs.Collect(ctx, past) {
		if !yield(Collected{c.Key, c.Age, "past epoch"}, err) {
			return false
		}
	}
	return true
}

func sweepMarker(ctx context.Context, st store.Store, info leasehold.Info, dry bool, yield func(Collected, error) bool) (more bool) {
	age, err := layout.Marker{Store: st, Key: info.Key}.Expire(ctx, dry)
	if errors.Is(err, layout.ErrNotExpired) {
		return true
	}
	return yield(Collected{info.Key, age, "expired marker"}, err)
}

// reap ends the sessions whose holders are gone. An object that cannot be read stays as it is.
func reap(ctx context.Context, st store.Store, sessions []string) {
	at := engine.Place{Runtime: engine.Process{}, Store: st, Logger: slog.New(slog.DiscardHandler)}
	cfg := root.Watching()
	var all sync.WaitGroup
	gate := make(chan struct{}, maxWatched)
	for _, session := range sessions {
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			done := make(chan struct{})
			giveUp := engine.Reap(ctx, at, session, cfg, func() { close(done) })
			select {
			case <-done:
			case <-ctx.Done():
				giveUp()
			}
		})
	}
	all.Wait()
}

// maxWatched is how many sessions are watched at a time. It is no bound of requests under way,
// as engine.Process.Parallel is, so it is not that one: a watch lasts for a TTL and a margin
// and sends a request now and then, and 32 at a time would need ten minutes for a thousand.
const maxWatched = 1000
