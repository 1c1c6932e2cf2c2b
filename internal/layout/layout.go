// Package layout says how a lock lies in a store. The protocol asks for reads and
// conditional writes of a record, one register; a layout makes requests for objects of
// them: [Object] for one that is written over, [Epochs] for many that are numbered, and
// [Marker] for one that is there or not.
package layout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A Layout keeps one lock in one place of a store. Its methods may be called by
// multiple goroutines.
type Layout interface {
	// Look reads the state of the lock. If it is still unless, Look returns an
	// error that matches store.ErrNotModified; an object that is not a record
	// gives one that matches record.ErrForeign, and names the object. One that matches
	// record.ErrMoved comes with the Snapshot, for whoever moves the lock.
	Look(ctx context.Context, unless protocol.Version) (Snapshot, error)

	// Write carries out a claim, a renewal or a release, and returns what it wrote.
	// Every error leaves the outcome open.
	Write(ctx context.Context, w protocol.Write) (Snapshot, error)

	// String names the place of the lock, for messages.
	String() string
}

// A Snapshot is what a Look showed.
type Snapshot struct {
	Exists       bool
	Record       record.Record
	Version      protocol.Version
	LastModified time.Time // by the store's clock; zero if unknown
	Date         time.Time // by the store's clock, when it answered; zero if unknown

	// Table is there if it is no lock, but a semaphore. Only a look that asks for no layout shows one;
	// of the Record there are then Layout, Held and Token.
	Table *record.Table
}

// Object keeps a lock in one object that holds its record and is written over.
type Object struct {
	Store store.Store
	Key   string
}

func (o Object) String() string {
	place, query, found := strings.Cut(o.Store.String(), "?")
	if found {
		query = "?" + query
	}
	if strings.HasSuffix(place, ":///") { // the slash is that of the path
		place = place[:len(place)-1]
	}
	return place + "/" + o.Key + query
}

// Look costs one Get, and one more for a lock at rest in a store that does not tell its time with
// the first.
func (o Object) Look(ctx context.Context, unless protocol.Version) (Snapshot, error) {
	s, err := look(ctx, o.Store, o.Key, "", unless)
	return restDated(ctx, o.Store, o.Key+".clock", s, err)
}

// Write costs one Put.
func (o Object) Write(ctx context.Context, w protocol.Write) (Snapshot, error) {
	return put(ctx, o.Store, o.Key, "", w.Record, expected(w.Expect))
}

// Proven is what a Look would have shown when the object had this body and version, if
// the two prove each other.
func (o Object) Proven(body []byte, v protocol.Version) (Snapshot, bool) {
	h, ok := o.Store.(store.Hashed)
	if !ok || v == "" || h.VersionOf(body) != store.Version(v) {
		return Snapshot{}, false
	}
	r, err := record.Decode(body)
	r.Session = follow(r.Session, o.Key)
	return Snapshot{Exists: true, Record: r, Version: v}, err == nil
}

// expected is the condition that an object is what was seen.
func expected(v protocol.Version) store.Condition {
	if v == "" {
		return store.IfAbsent()
	}
	return store.IfMatch(store.Version(v))
}

// get reads a record that belongs to a layout.
func get(ctx context.Context, st store.Store, key, layout string, unless store.Version) (Snapshot, error) {
	obj, err := st.Get(ctx, key, unless)
	return decoded(st, key, layout, obj, err)
}

// decoded makes of the answer to a Get what it shows of a record that belongs to a layout.
func decoded(st store.Store, key, layout string, obj *store.Object, err error) (Snapshot, error) {
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

// put writes a record that is to belong to a layout.
func put(ctx context.Context, st store.Store, key, layout string, r record.Record, only store.Condition) (Snapshot, error) {
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

// Age is the time since the record was written, by the store's own clock, if the
// store tells both of its times. They may contradict each other: then it is 0.
func (s Snapshot) Age() (time.Duration, bool) {
	if s.Date.IsZero() || s.LastModified.IsZero() {
		return 0, false
	}
	return max(s.Date.Sub(s.LastModified), 0), true
}

// Abandoned is a hint that the holder is gone: its record is older than its TTL and margin by
// the store's clock, or, where that does not tell, by the wall clocks. Nobody renews a record
// under a session, nor a table, so the age of that says nothing.
func (s Snapshot) Abandoned(wall time.Time) bool {
	r := s.Record
	age, told := s.Age()
	if !told && !r.RenewedAt.IsZero() {
		age = wall.Sub(r.RenewedAt)
	}
	// A store shows both its times in whole seconds, and some let one lag. Of a record that is
	// not understood nothing is known.
	const resolution = 3 * time.Second
	return s.Table == nil && !r.Opaque && r.Held && r.Session == "" && age > protocol.Patience(r.TTL)+resolution
}

// dated adds the store's time to a Snapshot. A store in a directory tells it only of a
// missing object, so there must be none with this key.
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

// restDated is what a Look showed, with the store's time where there is a rest to count by it. Without
// it a candidate that has just come would wait the whole of it out from now, and so would the next one.
func restDated(ctx context.Context, st store.Store, absent string, s Snapshot, err error) (Snapshot, error) {
	if err == nil && s.Record.Resting() > 0 {
		_ = dated(ctx, st, absent, &s) // if it fails its age is not known, and that is safe
	}
	return s, err
}

// Rest is for how much longer the lock is at rest, by the store's clock, or, where that does not
// tell, by the wall clocks. It is for people.
func (s Snapshot) Rest(wall time.Time) time.Duration {
	rest := s.Record.Resting()
	age, told := s.Age()
	switch {
	case told:
		age = protocol.Rested(age)
	case !s.Record.RenewedAt.IsZero():
		age = max(wall.Sub(s.Record.RenewedAt), 0)
	}
	return max(rest-age, 0)
}

// ReadDone makes of the answer of a Look what the candidate wants to know.
func ReadDone(s Snapshot, err error) protocol.ReadDone {
	switch {
	case errors.Is(err, store.ErrNotModified):
		return protocol.ReadDone{Shown: protocol.Same}
	case errors.Is(err, record.ErrForeign):
		return protocol.ReadDone{Shown: protocol.Foreign, Err: err}
	case err != nil:
		return protocol.ReadDone{Err: err, Fatal: store.Final(err)}
	case !s.Exists:
		return protocol.ReadDone{Shown: protocol.Absent, Date: s.Date}
	}
	age, told := s.Age()
	return protocol.ReadDone{Shown: protocol.Found, Version: s.Version, Record: s.Record, Age: age, Aged: told}
}

// Checked makes of the answer of a Look at a session's heartbeat what the candidate wants to
// know.
func Checked(session string, s Snapshot, err error) protocol.Checked {
	return protocol.Checked{Session: session, Held: s.Exists && s.Record.Held, Err: err}
}

// WriteDone makes of the answer of a Write what the candidate wants to know.
func WriteDone(s Snapshot, err error) protocol.WriteDone {
	void := err != nil && !errors.Is(err, store.ErrUnknownOutcome) && !errors.Is(err, store.ErrPrecondition)
	return protocol.WriteDone{Version: s.Version, Epoch: s.Record.Epoch, Err: err, Void: void, Refused: refused(err), Fatal: void && store.Final(err)}
}
