package layout

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// Epochs keeps a lock in numbered objects, KEY/0000000042.json, each of which is only created
// if absent. The highest number counts. A token is the number of the object that its
// acquisition created.
//
// Each write creates the object with the next number, even a renewal or a release. It counts
// only if a listing, sent after the store has confirmed the create, shows nothing higher.
// Otherwise, the number may be a collected object's.
//
// With IfMatch, renewals and releases overwrite the object, and only an acquisition creates the
// next one. To take over from a dead holder, a candidate overwrites that holder's object first,
// so that none of its renewals can land any more. The two ways must not meet in one lock, so
// records say which one they are of.
//
// Both are modelled in spec.
type Epochs struct {
	Store   store.Store
	Key     string
	IfMatch bool
}

func (e Epochs) String() string { return Object{e.Store, e.Key}.String() }

// Layout returns the layout of its records.
func (e Epochs) Layout() record.Layout {
	return record.Layout{Name: record.LayoutEpochs, IfMatch: e.IfMatch}
}

// MaxEpoch is the last number: one more digit would come before it in byte order, and a listing
// from a known number on would not show it. At ten epochs a second, that takes thirty years.
const MaxEpoch = 9_999_999_999

// LastClaim is the last number that an acquisition may follow. It leaves room for the last
// lease's renewals and release.
const LastClaim = MaxEpoch - 100_000_000

// EpochKey returns the key of the n-th epoch. Padding makes the byte order numerical.
func EpochKey(lock string, n int64) string { return fmt.Sprintf("%s/%010d.json", lock, n) }

// Check reports whether the lock's name leaves room for the keys under it.
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

// number returns the number of the epoch with this key, or 0 if it is not one of this lock.
func (e Epochs) number(key string) int64 {
	if lock, n, ok := Epoch(key); ok && lock == e.Key {
		return n
	}
	return 0
}

// A listing is the content of a Version: the highest number, whether its record was held, and
// its object's version.
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

// seen parses a Version. An empty one gives the zero listing.
func seen(v protocol.Version) (s listing) {
	number, rest, _ := strings.Cut(string(v), " ")
	state, of, _ := strings.Cut(rest, " ")
	s.n, _ = strconv.ParseInt(number, 10, 64)
	s.held, s.of = state == "held", store.Version(of)
	return s
}

// Look costs one List and one Get, or one Get if nothing has changed since unless: the next
// number does not exist. With IfMatch and a held lock, that is a conditional Get of the known
// number, because it is overwritten before the next one is created. During a cooldown, Look
// costs one more Get if the store did not tell its time.
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
			// If it existed and was collected, a claim will create it again, and the listing
			// after that will tell.
			return Snapshot{}, &store.Error{Op: "get", Key: e.Key, Kind: store.ErrNotModified}
		}
	}
	if err != nil && !errors.Is(err, store.ErrNotExist) && !errors.Is(err, record.ErrForeign) {
		return Snapshot{}, err
	}
	if err != nil {
		guess = Snapshot{} // its error does not matter: latest reads it again
	}
	return e.latest(ctx, known, guess)
}

// latest returns the highest epoch, unless it is the known one. It may be guess.
func (e Epochs) latest(ctx context.Context, known listing, guess Snapshot) (Snapshot, error) {
	// A higher number may be listed by now. If the known one has disappeared, somebody deleted
	// it by hand, and the whole list must tell.
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
		// It must be the very object that was listed: that one may have been collected, and its
		// number created again by a late request.
		if errors.Is(err, store.ErrNotExist) || err == nil && seen(s.Version).of != top.Version {
			continue
		}
		return s, err
	}
	return Snapshot{}, &store.Error{Op: "list", Key: e.Key, Kind: store.ErrUnavailable, Cause: errMoved}
}

// errMoved: the object is not what the listing showed.
var errMoved = errors.New("the epochs change faster than they can be read")

func (e Epochs) read(ctx context.Context, n int64, unless store.Version) (Snapshot, error) {
	s, err := get(ctx, e.Store, EpochKey(e.Key, n), e.Layout(), unless)
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

// highest lists the epochs from one on, inclusive, and returns the last, if any. The whole list
// begins with the signposts. If there are any, it lists again from the newest, so old epochs
// cost nothing.
func (e Epochs) highest(ctx context.Context, from int64) (top store.Entry, err error) {
	most := int64(0)
	for entry, err := range e.list(ctx, from) {
		if err != nil {
			return store.Entry{}, err
		}
		if n := e.signpost(entry.Key); n > 0 {
			if top, err = e.highest(ctx, n); err == nil && top.Key == "" {
				// It is useless: somebody deleted what it pointed to.
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

// list yields the keys beside the epochs from a number on, up to the last possible epoch: a
// longer lock name with this one as its prefix may have very many objects.
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

// Write costs one Put, plus one List if it creates an epoch. With IfMatch, a takeover from a
// dead holder costs one more Put.
func (e Epochs) Write(ctx context.Context, w candidate.Write) (Snapshot, error) {
	known := seen(w.Expect)
	switch {
	case e.IfMatch && w.Op != candidate.Claim && w.Expect != "":
		return e.over(ctx, known, w.Record)
	case known.n >= MaxEpoch, w.Op == candidate.Claim && known.n >= LastClaim:
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

var errNumbers = errors.New("the lock has used all of its numbers: give it another name")

func (e Epochs) over(ctx context.Context, known listing, r record.Record) (Snapshot, error) {
	return e.put(ctx, known.n, r, store.IfMatch(known.of))
}

// errLater means that the epoch was created, but is not the highest one. Its record may become the lock's
// if the later ones are removed.
var errLater = errors.New("there is a later epoch")

// create creates the next epoch, and finds out whether it is the highest one.
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
		return Snapshot{}, &store.Error{Op: "put", Key: EpochKey(e.Key, n), Kind: store.ErrPrecondition, Cause: errLater}
	}
	return s, nil
}

func (e Epochs) put(ctx context.Context, n int64, r record.Record, only store.Condition) (Snapshot, error) {
	s, err := put(ctx, e.Store, EpochKey(e.Key, n), e.Layout(), r, only)
	if err != nil {
		return Snapshot{}, err
	}
	return e.at(n, s), nil
}
