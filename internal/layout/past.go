package layout

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A signpost names an epoch that was the highest once. Its key comes before those of
// all epochs, and before those of older signposts.
func (e Epochs) signpostKey(n int64) string {
	return fmt.Sprintf("%s/!%019d", e.Key, math.MaxInt64-n)
}

// signpost is the number that a signpost names, and 0 if the key is not one.
func (e Epochs) signpost(key string) int64 {
	digits, ok := strings.CutPrefix(key, e.Key+"/!")
	if !ok || len(digits) != 19 || strings.Trim(digits, "0123456789") != "" {
		return 0
	}
	back, _ := strconv.ParseInt(digits, 10, 64)
	if n := math.MaxInt64 - back; n <= MaxEpoch {
		return n
	}
	return 0
}

// Collection says what Collect may delete.
type Collection struct {
	Keep  int           // so many leases of the past stay, by their last object
	Age   time.Duration // and all that is younger, by the store's clock
	Limit int           // so many at a time; negative: all
	Dry   bool          // only tell
}

// Past is an object of the past that was deleted, or would be.
type Past struct {
	Key string
	Age time.Duration
}

// DefaultCollection is what holders collect, now and then. The age is far longer than
// a request can be under way: a number that is collected is never created again.
var DefaultCollection = Collection{Keep: 100, Age: 24 * time.Hour, Limit: 300}

// Collect deletes epochs of the past, from the oldest on, and yields them. The highest
// is never deleted, nor is anything if the store does not tell its time. A foreign
// object in an epoch's place stays, and is yielded as an error that matches
// record.ErrForeign and names it; the next object follows. Any other error is the last.
// It costs a Look and two Lists; if there is anything to delete, a Get for each lease
// that is kept, and a Get and a Delete for each object; at times a Put, of a signpost.
func (e Epochs) Collect(ctx context.Context, c Collection) iter.Seq2[Past, error] {
	return func(yield func(Past, error) bool) {
		top, err := e.Look(ctx, "")
		if err == nil && top.Exists {
			err = dated(ctx, e.Store, e.Key+"/clock", &top)
		}
		if err == nil && !top.Date.IsZero() && !c.Dry {
			err = e.signposts(ctx, top.Record.Epoch)
		}
		if err != nil {
			yield(Past{}, err)
			return
		}
		var keep map[int64]bool
		left := c.Limit
		for entry, err := range e.old(ctx, top, c.Age) {
			if err == nil && keep == nil {
				keep, err = e.kept(ctx, top, c.Keep)
			}
			switch n := e.number(entry.Key); {
			case err != nil:
				yield(Past{}, err)
				return
			case keep[n]:
				continue
			case left == 0:
				return
			}
			err = e.discard(ctx, entry.Key, c.Dry)
			if errors.Is(err, store.ErrNotExist) {
				continue // another collects too
			}
			left--
			if !yield(Past{entry.Key, top.Date.Sub(entry.LastModified)}, err) || err != nil && !errors.Is(err, record.ErrForeign) {
				return
			}
		}
	}
}

// old yields the epochs below the highest one that are older than age, in order, up to
// the first that is not: the rest is younger still.
func (e Epochs) old(ctx context.Context, top Snapshot, age time.Duration) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if top.Date.IsZero() {
			return
		}
		for entry, err := range e.list(ctx, 1) {
			n := e.number(entry.Key)
			switch {
			case err == nil && n == 0:
				continue
			case err == nil && (n >= top.Record.Epoch || entry.LastModified.IsZero() || top.Date.Sub(entry.LastModified) < age):
				return
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

// discard deletes an epoch, or would, if it is a record of ours.
func (e Epochs) discard(ctx context.Context, key string, dry bool) error {
	if _, err := get(ctx, e.Store, key, record.AnyLayout, ""); err != nil || dry {
		return err
	}
	return e.Store.Delete(ctx, key)
}

// kept is the numbers that stay: the last one of each of so many leases of the past.
func (e Epochs) kept(ctx context.Context, top Snapshot, past int) (map[int64]bool, error) {
	keep := map[int64]bool{}
	for t, err := range e.terms(ctx, top) {
		if err != nil {
			return nil, err
		}
		if keep[t.Last] = true; len(keep) > past {
			break
		}
	}
	return keep, nil
}

// Due reports that the writer of the n-th epoch is to collect. Where each write makes
// one, the hundredth may be a release, after which its process ends; then the claim that
// follows is due.
func (e Epochs) Due(op protocol.Op, n int64) bool {
	switch {
	case n < collectEvery:
		return false
	case op == protocol.Claim:
		return n%collectEvery == 0 || n%collectEvery == 1 && !e.IfMatch
	}
	return op == protocol.Renew && n%collectEvery == 0 && !e.IfMatch
}

// collectEvery is how many epochs there are from one collection to the next.
const collectEvery = 100

// signposts makes a new one where the last one is far behind, and removes the others.
func (e Epochs) signposts(ctx context.Context, top int64) error {
	newest := int64(0)
	for entry, err := range e.Store.List(ctx, e.Key+"/!", "") {
		if err != nil {
			return err
		}
		switch n := e.signpost(entry.Key); {
		case n == 0:
		case newest == 0 && n <= top:
			newest = n
		default:
			if err := e.Store.Delete(ctx, entry.Key); err != nil {
				return err
			}
		}
	}
	if top < newest+signpostEvery {
		return nil
	}
	_, err := e.Store.Put(ctx, e.signpostKey(top), []byte("{}\n"), store.IfAbsent())
	if errors.Is(err, store.ErrPrecondition) {
		return nil // another collects too
	}
	return err
}

// signpostEvery is how many epochs there are from one signpost to the next: half a
// page of a listing.
const signpostEvery = 500
