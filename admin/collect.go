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
	Keep   int           // number of previous epochs to keep; default 100
	Age    time.Duration // younger objects are kept, by the store's clock; default and minimum 24 h
	DryRun bool          // delete nothing
}

// A Collected is an object that was deleted, or with DryRun would be.
type Collected struct {
	Key string
	Age time.Duration // by the store's clock
	Why string        // "past epoch", "expired marker", "session that is over"
}

// Collect deletes leftovers of the locks under a prefix, and yields each object it deletes:
//
//   - Epochs older than those to keep, but never a lock's highest one. Holders do this for
//     their own lock from time to time.
//   - Markers of leasehold that have expired by the store's own clock.
//   - Sessions that ended longer ago than the age. Collect watches a session whose holder has
//     been silent for that long, for its TTL and margin, and ends it. A later Collect deletes
//     it. In stores whose reads do not return the store's time, such as a directory, a session
//     costs two more reads.
//
// If a lock causes an error, Collect yields it and continues with the next lock. An error of
// the listing is the last.
//
// Unlike in other layouts, deleting a marker is not safe: Collect may delete one that is
// created at the same moment.
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
			case info.Layout == leasehold.LayoutEpochs:
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

// dated adds a session's age, if the store can tell it.
func dated(ctx context.Context, st store.Store, info leasehold.Info) (leasehold.Info, error) {
	if info.Age >= 0 {
		return info, nil
	}
	s, err := layout.Heartbeat{Store: st, Key: info.Key}.Dated(ctx)
	if err != nil {
		return info, err
	}
	return leasehold.Internal.Describe(info.Key, s), nil // if the session was deleted meanwhile: nothing, and no age
}

// deleteSession deletes the object of an ended session, which has no writers any more. A lock
// may still name the session: a missing session counts as ended (rule D2). Its name is not used
// again, and no request from its beginning is still in flight (rule D8).
func deleteSession(ctx context.Context, st store.Store, info leasehold.Info, dry bool, yield func(Collected, error) bool) (more bool) {
	var err error
	if !dry {
		err = st.Delete(ctx, info.Key)
	}
	return yield(Collected{info.Key, info.Age, "session that is over"}, err)
}

func collectEpochs(ctx context.Context, st store.Store, info leasehold.Info, past layout.Collection, yield func(Collected, error) bool) (more bool) {
	epochs := layout.Epochs{Store: st, Key: info.Key, IfMatch: !info.NoIfMatch}
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

// reap ends the sessions of dead holders. It leaves objects alone that it cannot read.
func reap(ctx context.Context, st store.Store, sessions []string) {
	at := engine.Place{Runtime: engine.Process{}, Store: st, Logger: slog.New(slog.DiscardHandler)}
	cfg := leasehold.Internal.Watching()
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

// maxWatched is how many sessions are watched at a time. It is larger than
// engine.Process.Parallel, which bounds requests in flight: a watch sends few requests but
// lasts a TTL and a margin, so with 32 at a time, a thousand would take ten minutes.
const maxWatched = 1000
