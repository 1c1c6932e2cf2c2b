// Package layout says how a lock lies in a store. The protocol asks for reads and
// writes of a record; a layout makes requests for objects of them.
//
// There is one layout so far, [Object]: one object, written over.
package layout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// A Layout keeps one lock in one place of a store. Its methods may be called by
// multiple goroutines.
type Layout interface {
	// Look reads the state of the lock. If it is still unless, Look returns an
	// error that matches store.ErrNotModified; an object that is not a record
	// gives one that matches protocol.ErrForeign, and names the object.
	Look(ctx context.Context, unless protocol.Version) (Snapshot, error)

	// Write carries out a claim, a renewal or a release. Every error leaves the
	// outcome open.
	Write(ctx context.Context, w protocol.Write) (protocol.Version, error)

	// String names the place of the lock, for messages.
	String() string
}

// A Snapshot is what a Look showed.
type Snapshot struct {
	Exists       bool
	Record       protocol.Record
	Version      protocol.Version
	LastModified time.Time // by the store's clock; zero if unknown
	Date         time.Time // by the store's clock, when it answered; zero if unknown
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
	return place + "/" + o.Key + query
}

// Look costs one Get.
func (o Object) Look(ctx context.Context, unless protocol.Version) (Snapshot, error) {
	obj, err := o.Store.Get(ctx, o.Key, store.Version(unless))
	switch {
	case errors.Is(err, store.ErrNotExist):
		return Snapshot{Date: store.DateOf(err)}, nil
	case errors.Is(err, store.ErrTooLarge):
		return Snapshot{}, fmt.Errorf("the object %v is %w: %w", o, protocol.ErrForeign, err)
	case err != nil:
		return Snapshot{}, err
	}
	record, err := protocol.Decode(obj.Body)
	if err != nil {
		return Snapshot{}, fmt.Errorf("the object %v is %w", o, err)
	}
	return Snapshot{
		Exists: true, Record: record, Version: protocol.Version(obj.Version),
		LastModified: obj.LastModified, Date: obj.Date,
	}, nil
}

// Write costs one Put.
func (o Object) Write(ctx context.Context, w protocol.Write) (protocol.Version, error) {
	body, err := w.Record.Encode()
	if err != nil {
		return "", &store.Error{Op: "put", Key: o.Key, Kind: store.ErrInvalid, Cause: err}
	}
	only := store.IfAbsent()
	if w.Expect != "" {
		only = store.IfMatch(store.Version(w.Expect))
	}
	obj, err := o.Store.Put(ctx, o.Key, body, only)
	if err != nil {
		return "", err
	}
	return protocol.Version(obj.Version), nil
}

// Final reports that an error will be the same next time: who may not, or asks
// what no store does, need not try again.
func Final(err error) bool {
	return errors.Is(err, store.ErrDenied) || errors.Is(err, store.ErrNoBucket) || errors.Is(err, store.ErrInvalid)
}

// Age is the time since the record was written, by the store's own clock, if the
// store tells both of its times. They may contradict each other: then it is 0.
func (s Snapshot) Age() (time.Duration, bool) {
	if s.Date.IsZero() || s.LastModified.IsZero() {
		return 0, false
	}
	return max(s.Date.Sub(s.LastModified), 0), true
}

// ReadDone makes of the answer of a Look what the candidate wants to know.
func ReadDone(s Snapshot, err error) protocol.ReadDone {
	switch {
	case errors.Is(err, store.ErrNotModified):
		return protocol.ReadDone{Shown: protocol.Same}
	case errors.Is(err, protocol.ErrForeign):
		return protocol.ReadDone{Shown: protocol.Foreign, Err: err}
	case err != nil:
		return protocol.ReadDone{Err: err, Fatal: Final(err)}
	case !s.Exists:
		return protocol.ReadDone{Shown: protocol.Absent, Date: s.Date}
	}
	age, _ := s.Age()
	return protocol.ReadDone{Shown: protocol.Found, Version: s.Version, Record: s.Record, Age: age}
}

// WriteDone makes of the answer of a Write what the candidate wants to know.
func WriteDone(v protocol.Version, err error) protocol.WriteDone {
	return protocol.WriteDone{Version: v, Err: err, Fatal: Final(err) && !errors.Is(err, store.ErrUnknownOutcome)}
}
