// Package layout maps locks to objects. The protocol asks for reads and conditional writes of
// one record, a register. A layout turns them into requests for objects: [Object] overwrites
// one, [Epochs] creates numbered ones, and [Marker] creates and deletes one.
package layout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A Layout keeps one lock in a store. Its methods are safe for concurrent use.
type Layout interface {
	// Look reads the state of the lock. If it is still unless, the error matches
	// store.ErrNotModified. If the object is not a record, the error matches record.ErrForeign
	// and names the object. An error that matches record.ErrMoved comes with the Snapshot, for
	// programs that move locks.
	Look(ctx context.Context, unless protocol.Version) (Snapshot, error)

	// Write carries out a claim, a renewal or a release, and returns what it wrote. Every error
	// leaves the outcome open.
	Write(ctx context.Context, w candidate.Write) (Snapshot, error)

	// String returns the location of the lock, for messages.
	String() string
}

// Default is the way in which a lock is stored whose options name no layout: see Way. It is a variable
// so that whole suites can run over another one:
//
//	go test -ldflags "-X 'github.com/leasehold/leasehold/internal/layout.Default=epochs without If-Match'"
var Default = "object"

// Way returns the name of a layout that is used with If-Match, or without. Proofs have it for what a
// store is good for.
func Way(layout string, noIfMatch bool) string {
	if noIfMatch {
		layout += withoutIfMatch
	}
	return layout
}

// SplitWay undoes Way.
func SplitWay(way string) (layout string, noIfMatch bool) {
	return strings.CutSuffix(way, withoutIfMatch)
}

const withoutIfMatch = " without If-Match"

// A Snapshot is the result of a Look.
type Snapshot struct {
	Exists       bool
	Record       record.Record
	Version      protocol.Version
	LastModified time.Time // by the store's clock; zero if unknown
	Date         time.Time // by the store's clock, when it answered; zero if unknown

	// Table is set for a semaphore, if the read was of any layout. Then Record has only Layout,
	// Held and Token.
	Table *record.Table
}

// Object keeps a lock in one object, which holds its record and is overwritten.
type Object struct {
	Store store.Store
	Key   string
}

func (o Object) String() string {
	place, query, found := strings.Cut(o.Store.String(), "?")
	if found {
		query = "?" + query
	}
	if strings.HasSuffix(place, ":///") { // the slash is the path's
		place = place[:len(place)-1]
	}
	return place + "/" + o.Key + query
}

// Look costs one Get. During a cooldown, it costs one more if the store did not tell its time.
func (o Object) Look(ctx context.Context, unless protocol.Version) (Snapshot, error) {
	s, err := look(ctx, o.Store, o.Key, record.Layout{}, unless)
	return restDated(ctx, o.Store, o.Key+".clock", s, err)
}

// Write costs one Put.
func (o Object) Write(ctx context.Context, w candidate.Write) (Snapshot, error) {
	return put(ctx, o.Store, o.Key, record.Layout{}, w.Record, expected(w.Expect))
}

// Proven returns what Look would have shown when the object had this body and version, if they
// prove each other.
func (o Object) Proven(body []byte, v protocol.Version) (Snapshot, bool) {
	h, ok := o.Store.(store.Hashed)
	if !ok || v == "" || h.VersionOf(body) != store.Version(v) {
		return Snapshot{}, false
	}
	r, err := record.Decode(body)
	r.Session = follow(r.Session, o.Key)
	return Snapshot{Exists: true, Record: r, Version: v}, err == nil
}

// expected returns the condition that an object still has the version seen.
func expected(v protocol.Version) store.Condition {
	if v == "" {
		return store.IfAbsent()
	}
	return store.IfMatch(store.Version(v))
}

// get reads a record of a layout.
func get(ctx context.Context, st store.Store, key string, layout record.Layout, unless store.Version) (Snapshot, error) {
	obj, err := st.Get(ctx, key, unless)
	return decoded(st, key, layout, obj, err)
}

// decoded returns what the answer to a Get shows of a layout's record.
func decoded(st store.Store, key string, layout record.Layout, obj *store.Object, err error) (Snapshot, error) {
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return Snapshot{}, fmt.Errorf("the object %v is %w: %w", Object{st, key}, record.ErrForeign, err)
	case err != nil:
		return Snapshot{}, err
	}
	r, err := record.DecodeIn(layout, obj.Body)
	if err != nil {
		err = fmt.Errorf("the object %v is %w", Object{st, key}, err)
	}
	if err != nil && !errors.Is(err, record.ErrMoved) {
		return Snapshot{}, err
	}
	r.Session = follow(r.Session, key)
	return snapshot(r, obj), err
}

// put writes a record of a layout.
func put(ctx context.Context, st store.Store, key string, layout record.Layout, r record.Record, only store.Condition) (Snapshot, error) {
	r.Layout = layout
	text := r
	text.Session = wayTo(r.Session, key)
	body, err := text.Encode()
	if err != nil {
		return Snapshot{}, &store.Error{Op: "put", Key: key, Kind: store.ErrInvalid, Cause: err}
	}
	obj, err := st.Put(ctx, key, body, only)
	if err != nil {
		return Snapshot{}, err
	}
	return snapshot(r, obj), nil
}

func snapshot(r record.Record, obj *store.Object) Snapshot {
	return Snapshot{Exists: true, Record: r, Version: protocol.Version(obj.Version), LastModified: obj.LastModified, Date: obj.Date}
}

// Age returns the record's age by the store's own clock, if the store tells both of its times.
// If they contradict each other, it is 0.
func (s Snapshot) Age() (time.Duration, bool) {
	if s.Date.IsZero() || s.LastModified.IsZero() {
		return 0, false
	}
	return max(s.Date.Sub(s.LastModified), 0), true
}

// Abandoned returns a hint that the holder is dead: its record is older than its TTL and margin
// by the store's clock or, if that is unknown, by the wall clocks. It is false under a session
// and for a table, because their records are not renewed.
func (s Snapshot) Abandoned(wall time.Time) bool {
	r := s.Record
	age, told := s.Age()
	if !told && !r.RenewedAt.IsZero() {
		age = wall.Sub(r.RenewedAt)
	}
	// A store shows both its times in whole seconds, and in some stores one lags. Nothing is
	// known about an opaque record.
	const resolution = 3 * time.Second
	return s.Table == nil && !r.Opaque && r.Held && r.Session == "" && age > protocol.Patience(r.TTL)+resolution
}

// dated adds the store's time to a Snapshot. A store in a directory tells it only for a missing
// object, so nothing may have the key absent.
func dated(ctx context.Context, st store.Store, absent string, s *Snapshot) error {
	if !s.Date.IsZero() {
		return nil
	}
	_, err := st.Get(ctx, absent, "")
	if s.Date = store.DateOf(err); errors.Is(err, store.ErrNotExist) {
		return nil
	}
	return err
}

// restDated adds the store's time to a Look's result during a cooldown. Otherwise, each new
// candidate would wait out a whole cooldown from its first read.
func restDated(ctx context.Context, st store.Store, absent string, s Snapshot, err error) (Snapshot, error) {
	if err == nil && s.Record.Resting() > 0 {
		_ = dated(ctx, st, absent, &s) // if it fails the age is unknown, and that is safe
	}
	return s, err
}

// Rest returns how long the lock's cooldown still lasts, by the store's clock or, if that is
// unknown, by the wall clocks. It is for people.
func (s Snapshot) Rest(wall time.Time) time.Duration {
	rest := s.Record.Resting()
	age, told := s.Age()
	switch {
	case told:
		age = candidate.Rested(age)
	case !s.Record.RenewedAt.IsZero():
		age = max(wall.Sub(s.Record.RenewedAt), 0)
	}
	return max(rest-age, 0)
}

// ReadDone turns a Look's result into the candidate's event.
func ReadDone(s Snapshot, err error) candidate.ReadDone {
	switch {
	case errors.Is(err, store.ErrNotModified):
		return candidate.ReadDone{Shown: protocol.Same}
	case errors.Is(err, record.ErrForeign):
		return candidate.ReadDone{Shown: protocol.Foreign, Err: err}
	case err != nil:
		return candidate.ReadDone{Err: err, Fatal: store.Final(err)}
	case !s.Exists:
		return candidate.ReadDone{Shown: protocol.Absent, Date: s.Date}
	}
	age, told := s.Age()
	return candidate.ReadDone{Shown: protocol.Found, Version: s.Version, Record: s.Record, Age: age, Aged: told}
}

// Checked turns the result of a Look at a session's heartbeat into the candidate's event.
func Checked(session string, s Snapshot, err error) candidate.Checked {
	return candidate.Checked{Session: session, Held: s.Exists && s.Record.Held, Err: err}
}

// WriteDone turns a Write's result into the candidate's event.
func WriteDone(s Snapshot, err error) candidate.WriteDone {
	void := err != nil && !errors.Is(err, store.ErrUnknownOutcome) && !errors.Is(err, store.ErrPrecondition)
	return candidate.WriteDone{
		Version: s.Version, Epoch: s.Record.Epoch, Err: err, Void: void, Fatal: void && store.Final(err),
		Refused: refused(err) && !errors.Is(err, errLater),
	}
}
