package layout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// Marker keeps a lock in one object that exists while the lock is held: it is created if
// absent, and deleted to release the lock. It is for use beside other tools with such locks,
// and weaker than the other layouts: there is no token, and stores honour no condition on a
// delete, so a late one removes the next holder's marker.
//
// With IfMatch, a holder renews its marker, and a marker not renewed for its TTL and margin is
// overwritten. Without, a lease ends with its TTL, and its marker stays until somebody deletes
// it, or a claim if it is old enough by the store's own clock.
//
// An unrecognized object in the marker's place is another tool's marker. Candidates wait for
// its end, and neither overwrite nor delete it. Our markers at KEY.tflock also name their holder in
// Terraform's format, so Terraform and leasehold can share locks in a bucket.
type Marker struct {
	Store   store.Store
	Key     string
	TTL     time.Duration // the candidate's, for markers without one
	IfMatch bool
}

// marker is the layout of its records, which do not say whether they are used with If-Match.
var marker = record.Layout{Name: record.LayoutMarker}

func (m Marker) String() string { return Object{m.Store, m.Key}.String() }

// Look costs one Get.
func (m Marker) Look(ctx context.Context, unless protocol.Version) (Snapshot, error) {
	obj, err := m.Store.Get(ctx, m.Key, store.Version(unless))
	switch {
	case errors.Is(err, store.ErrNotExist):
		return Snapshot{Exists: true, Record: record.Record{Layout: marker, TTL: m.TTL}, Date: store.DateOf(err)}, nil
	case errors.Is(err, store.ErrTooLarge):
		obj = &store.Object{Version: "too large"}
	case err != nil:
		return Snapshot{}, err
	}
	r, err := record.DecodeIn(marker, obj.Body)
	if err == nil {
		return snapshot(r, obj), nil
	}
	switch _, other := record.DecodeIn(record.AnyLayout, obj.Body); { // waiting for these would be in vain
	case other == nil:
		return Snapshot{}, fmt.Errorf("the object %v is %w", m, err)
	case errors.Is(other, record.ErrMoved):
		return Snapshot{}, fmt.Errorf("the object %v is %w", m, other)
	}
	return snapshot(record.Record{
		Layout: marker, Held: true, Opaque: true, Holder: otherHolder(obj.Body), TTL: m.TTL, WriteID: "?" + string(obj.Version),
	}, obj), nil
}

// Write costs one Put or one Delete. Without IfMatch, a claim over a marker costs one more Get
// and Delete.
func (m Marker) Write(ctx context.Context, w candidate.Write) (Snapshot, error) {
	switch {
	case w.Op == candidate.Free:
		if err := m.Store.Delete(ctx, m.Key); err != nil {
			return Snapshot{}, err
		}
		return Snapshot{Exists: true, Record: w.Record}, nil
	case w.Op == candidate.Claim && w.Expect != "" && !m.IfMatch:
		if _, err := m.sweep(ctx, w.Expect, false); err != nil {
			return Snapshot{}, err
		}
		w.Expect = ""
	}
	return put(ctx, m.Store, m.Key, marker, withTFLock(w.Record, m.Key), expected(w.Expect))
}

// ErrNotExpired: the marker is too young to be swept, or another tool's.
var ErrNotExpired = errors.New("the marker has not expired")

// Expire deletes the marker, unless dry, if it is one of ours and has expired by the store's
// own clock, and returns its age. It costs one Get and one Delete.
func (m Marker) Expire(ctx context.Context, dry bool) (time.Duration, error) {
	return m.sweep(ctx, "", dry)
}

func (m Marker) sweep(ctx context.Context, expect protocol.Version, dry bool) (time.Duration, error) {
	began := time.Now()
	s, err := m.Look(ctx, "")
	if err == nil && s.Record.Held {
		err = dated(ctx, m.Store, m.Key+".clock", &s)
	}
	if err != nil {
		return 0, err
	}
	age, told := s.Age()
	why := ""
	switch {
	case !s.Record.Held:
		why = "there is none"
	case expect != "" && s.Version != expect:
		why = "it is another one than was seen"
	case s.Record.Opaque:
		why = "it is another tool's"
	case !told:
		why = "the store does not tell the time"
	case time.Since(began) > protocol.Margin(s.Record.TTL):
		why = "the store is slow, and by now it may be another one"
	case age < protocol.Stale(s.Record.TTL):
		why = fmt.Sprintf("it is %v old, and its TTL and margin are %v", age, protocol.Stale(s.Record.TTL))
	}
	if why != "" {
		return 0, &store.Error{Op: "delete", Key: m.Key, Kind: store.ErrPrecondition, Cause: fmt.Errorf("%w: %s", ErrNotExpired, why)}
	}
	if !dry {
		err = m.Store.Delete(ctx, m.Key)
	}
	return age, err
}
