package layout

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// The names of the layouts with epochs, in their records.
const (
	EpochsName        = "epochs"
	EpochsIfMatchName = "epochs+if-match"
)

// Epochs keeps a lock in numbered objects, KEY/0000000042.json, that are created only
// if absent. The one with the highest number counts, and a token is the number of the
// object that its acquisition created.
//
// Each write creates the object with the next number: a renewal and a release too.
// A created object counts only if a listing, sent after the store has confirmed the
// create, shows nothing higher: otherwise its number may be that of an object that
// was collected.
//
// With IfMatch, an object is written over for a renewal and a release, and only an
// acquisition creates the next one. A candidate that takes over from a holder that is
// gone writes that holder's object over first, so that none of its renewals can land
// any more. The two ways must not meet in one lock, so records name their way.
//
// Both are modelled in spec.
type Epochs struct {
	Store   store.Store
	Key     string
	IfMatch bool
}

func (e Epochs) String() string { return Object{e.Store, e.Key}.String() }

// Name is the layout's name in its records.
func (e Epochs) Name() string {
	if e.IfMatch {
		return EpochsIfMatchName
	}
	return EpochsName
}

// MaxEpoch is the last number: one more digit would come before it in the order of
// bytes, and a listing from a known number on would not show it. Ten epochs a second
// reach it in thirty years.
const MaxEpoch = 9_999_999_999

// LastClaim is the last number that an acquisition may follow: it leaves room for the
// renewals and the release of the last lease.
const LastClaim = MaxEpoch - 100_000_000

// EpochKey is the key of the n-th epoch. Padding makes the order of bytes that of
// numbers.
func EpochKey(lock string, n int64) string { return fmt.Sprintf("%s/%010d.json", lock, n) }

// Check reports whether the lock's name leaves room for what lies under it.
func (e Epochs) Check() error { return store.CheckKey("lock", e.signpostKey(1)) }

// Epoch splits the key of an epoch's object.
func Epoch(key string) (lock string, n int64, ok bool) {
	i := strings.LastIndexByte(key, '/')
	digits, found := strings.CutSuffix(key[i+1:], ".json")
	if i < 1 || !found || len(digits) != 10 || strings.Trim(digits, "0123456789") != "" {
		return "", 0, false
	}
	n, _ = strconv.ParseInt(digits, 10, 64)
	return key[:i], n, n > 0
}

// number is the number of the epoch that has the key, and 0 if it is none of this lock.
func (e Epochs) number(key string) int64 {
	if lock, n, ok := Epoch(key); ok && lock == e.Key {
		return n
	}
	return 0
}

// A listing is what a Version of this layout says: the highest number, whether its
// record was held, and the version of its object.
type listing struct {
	n    int64
	held bool
	of   store.Version
}

func (s listing) version() protocol.Version {
	state := "free"
	if s.held {
		state = "held"
	}
	return protocol.Version(fmt.Sprintf("%d %s %s", s.n, state, s.of))
}

// seen reads a Version; the zero listing of an empty one.
func seen(v protocol.Version) (s listing) {
	number, rest, _ := strings.Cut(string(v), " ")
	state, of, _ := strings.Cut(rest, " ")
	s.n, _ = strconv.ParseInt(number, 10, 64)
	s.held, s.of = state == "held", store.Version(of)
	return s
}

// Look costs one List and one Get, and one Get as long as nothing has changed that a
// candidate knew: the next number is not there yet. With IfMatch that is a conditional
// Get of the known one, if it is held: nobody creates the next before it is written
// over.
// A lock at rest costs one more in a store that does not tell its time with the first.
func (e Epochs) Look(ctx context.Context, unless protocol.Version) (Snapshot, error) {
	s, err := e.look(ctx, unless)
	return restDated(ctx, e.Store, e.Key+"/clock", s, err)
}

func (e Epochs) look(ctx context.Context, unless protocol.Version) (Snapshot, error) {
	known := seen(unless)
	var guess Snapshot
	var err error
	switch {
	case e.IfMatch && known.held:
		guess, err = e.read(ctx, known.n, known.of)
		if err == nil && guess.Record.Held || errors.Is(err, store.ErrNotModified) {
			return guess, err
		}
	case !e.IfMatch && known.n > 0:
		guess, err = e.read(ctx, known.n+1, "")
		if errors.Is(err, store.ErrNotExist) {
			// Should it have been there and have been collected since, a claim will
			// create it anew, and the listing after that tell.
			return Snapshot{}, &store.Error{Op: "get", Key: e.Key, Kind: store.ErrNotModified}
		}
	}
	if err != nil && !errors.Is(err, store.ErrNotExist) && !errors.Is(err, record.ErrForeign) {
		return Snapshot{}, err
	}
	if err != nil {
		guess = Snapshot{} // the error goes with it, and latest reads it again
	}
	return e.latest(ctx, known, guess)
}

// latest shows the highest epoch, unless it is the known one. The guess may be it.
func (e Epochs) latest(ctx context.Context, known listing, guess Snapshot) (Snapshot, error) {
	// A number that is higher may be listed by now. Should the known one be gone,
	// somebody deleted it by hand, and the whole list must tell.
	for range mostLooks {
		top, err := e.highest(ctx, known.n)
		switch {
		case err != nil:
			return Snapshot{}, err
		case top.Key == "" && known.n == 0:
			return Snapshot{}, nil
		case top.Key == "":
			known.n = 0
			continue
		}
		n := e.number(top.Key)
		if (listing{n, known.held, top.Version}) == known {
			return Snapshot{}, &store.Error{Op: "list", Key: e.Key, Kind: store.ErrNotModified}
		}
		if guess.Exists && seen(guess.Version) == (listing{n, guess.Record.Held, top.Version}) {
			return guess, nil
		}
		s, err := e.read(ctx, n, "")
		// It must be the very object that was listed: since then that one may have
		// been collected, and its number been created anew by a request that was
		// late.
		if errors.Is(err, store.ErrNotExist) || err == nil && seen(s.Version).of != top.Version {
			continue
		}
		return s, err
	}
	return Snapshot{}, &store.Error{Op: "list", Key: e.Key, Kind: store.ErrUnavailable, Cause: errMoved}
}

// errMoved: the object is not what the listing showed.
var errMoved = errors.New("the epochs change faster than they can be read")

// read reads the n-th epoch.
func (e Epochs) read(ctx context.Context, n int64, unless store.Version) (Snapshot, error) {
	s, err := get(ctx, e.Store, EpochKey(e.Key, n), e.Name(), unless)
	if err != nil && !errors.Is(err, record.ErrMoved) {
		return Snapshot{}, err
	}
	return e.at(n, s), err
}

// at completes what was read from, or written to, the n-th epoch.
func (e Epochs) at(n int64, s Snapshot) Snapshot {
	s.Record.Epoch = n
	s.Version = listing{n, s.Record.Held, store.Version(s.Version)}.version()
	return s
}

// highest lists from an epoch on, that one included, and gives the last, or none. The
// whole list begins with signposts, if there are any: then it begins anew at the newest,
// so that its cost does not grow with the past.
func (e Epochs) highest(ctx context.Context, from int64) (top store.Entry, err error) {
	most := int64(0)
	for entry, err := range e.list(ctx, from) {
		if err != nil {
			return store.Entry{}, err
		}
		if n := e.signpost(entry.Key); n > 0 {
			if top, err = e.highest(ctx, n); err == nil && top.Key == "" {
				// It says nothing: somebody deleted what it pointed to.
				return e.highest(ctx, 1)
			}
			return top, err
		}
		if n := e.number(entry.Key); n > most {
			most, top = n, entry
		}
	}
	return top, nil
}

// list yields what lies beside the epochs from a number on, and past those nothing: a
// lock whose name begins with this one's and goes on may have very many.
func (e Epochs) list(ctx context.Context, from int64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		after := ""
		if from > 0 {
			after = EpochKey(e.Key, from-1)
		}
		for entry, err := range e.Store.List(ctx, e.Key+"/", after) {
			if err == nil && entry.Key > EpochKey(e.Key, MaxEpoch) || !yield(entry, err) {
				return
			}
		}
	}
}

// Write costs one Put and, if it creates an epoch, one List; with IfMatch one more Put
// if it takes over from a holder that is gone.
func (e Epochs) Write(ctx context.Context, w protocol.Write) (Snapshot, error) {
	known := seen(w.Expect)
	switch {
	case e.IfMatch && w.Op != protocol.Claim && w.Expect != "":
		return e.over(ctx, known, w.Record)
	case known.n >= MaxEpoch, w.Op == protocol.Claim && known.n >= LastClaim:
		return Snapshot{}, &store.Error{Op: "put", Key: e.Key, Kind: store.ErrInvalid, Cause: errNumbers}
	case e.IfMatch && known.held:
		gone := w.Over
		gone.Held, gone.WriteID, gone.Ended = false, w.Record.WriteID, record.EndedByTakeover
		if w.Over.Incarnation() == w.Record.Incarnation() {
			gone.Ended, gone.RenewedAt = "", w.Record.RenewedAt // its holder goes on with another lease
		}
		if _, err := e.over(ctx, known, gone); err != nil {
			return Snapshot{}, err
		}
	}
	return e.create(ctx, known.n+1, w.Record)
}

// errNumbers: there is no next epoch.
var errNumbers = errors.New("the lock has used all of its numbers: give it another name")

// over writes an epoch's object over.
func (e Epochs) over(ctx context.Context, known listing, r record.Record) (Snapshot, error) {
	return e.put(ctx, known.n, r, store.IfMatch(known.of))
}

// create makes the next epoch, and finds out whether it is the highest one.
func (e Epochs) create(ctx context.Context, n int64, r record.Record) (Snapshot, error) {
	s, err := e.put(ctx, n, r, store.IfAbsent())
	if err != nil {
		return s, err
	}
	top, err := e.highest(ctx, n)
	switch {
	case err != nil:
		return Snapshot{}, &store.Error{Op: "put", Key: EpochKey(e.Key, n), Kind: store.ErrUnknownOutcome, Cause: err}
	case top.Key != EpochKey(e.Key, n) || top.Version != seen(s.Version).of:
		return Snapshot{}, &store.Error{Op: "put", Key: EpochKey(e.Key, n), Kind: store.ErrPrecondition, Cause: errors.New("there is a later epoch")}
	}
	return s, nil
}

func (e Epochs) put(ctx context.Context, n int64, r record.Record, only store.Condition) (Snapshot, error) {
	s, err := put(ctx, e.Store, EpochKey(e.Key, n), e.Name(), r, only)
	if err != nil {
		return Snapshot{}, err
	}
	return e.at(n, s), nil
}
