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

	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A signpost names a formerly highest epoch. Its key comes before those of all epochs and of
// older signposts.
func (e Epochs) signpostKey(n int64) string {
	return fmt.Sprintf("%s/!%019d", e.Key, math.MaxInt64-n)
}

// signpost returns the number in a signpost's key, or 0 if the key is not a signpost's.
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

// Collection configures Collect.
type Collection struct {
	Keep  int           // past leases to keep, by their last object
	Age   time.Duration // everything younger stays, by the store's clock
	Limit int           // objects to delete at a time; negative: all
	Dry   bool          // delete nothing
}

// Past is an old object that was deleted, or would be.
type Past struct {
	Key string
	Age time.Duration
}

// DefaultCollection is what holders collect, now and then. The age is far longer than any
// request takes, so no collected number is created again.
var DefaultCollection = Collection{Keep: 100, Age: 24 * time.Hour, Limit: 300}

// Collect deletes old epochs, oldest first, and yields them. It never deletes the highest one,
// and deletes nothing if the store does not tell its time. An unrecognized object in an epoch's
// place stays: Collect yields an error that matches record.ErrForeign and names it, and goes
// on. Any other error is the last.
//
// It costs a Look and two Lists. If there is anything to delete, it also costs a Get for each
// lease kept, and a Get and a Delete for each object. Sometimes it Puts a signpost.
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
				continue // another one collects too
			}
			left--
			if !yield(Past{entry.Key, top.Date.Sub(entry.LastModified)}, err) || err != nil && !errors.Is(err, record.ErrForeign) {
				return
			}
		}
	}
}

// old yields the epochs below the highest one and older than age, in order, up to the first
// younger one: the rest is younger still.
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

// discard deletes an epoch if it is one of our records, unless dry.
func (e Epochs) discard(ctx context.Context, key string, dry bool) error {
	if _, err := get(ctx, e.Store, key, record.AnyLayout, ""); err != nil || dry {
		return err
	}
	return e.Store.Delete(ctx, key)
}

// kept returns the numbers to keep: the last one of each of these past leases.
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

// Due reports whether the writer of the n-th epoch should collect. If each write creates an
// epoch, the hundredth may be a release whose process then exits. Then the next claim is due.
func (e Epochs) Due(op candidate.Op, n int64) bool {
	switch {
	case n < collectEvery:
		return false
	case op == candidate.Claim:
		return n%collectEvery == 0 || n%collectEvery == 1 && !e.IfMatch
	}
	return op == candidate.Renew && n%collectEvery == 0 && !e.IfMatch
}

// collectEvery is the number of epochs between collections.
const collectEvery = 100

// signposts creates a new one if the last one is far behind, and removes the others.
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
		return nil // another one collects too
	}
	return err
}

// signpostEvery is the number of epochs between signposts: half a page of a listing.
const signpostEvery = 500
