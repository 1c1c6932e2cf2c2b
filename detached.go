package leasehold

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// Detached is a lease that no process holds. [Lease.Detach] returns it, and [Lock.Attach],
// [Lock.RenewDetached] and [Lock.ReleaseDetached] use it. Store it as JSON, in a file that only
// its owner can read: anyone with write access to the store can use the lease with it.
//
// A Detached identifies one record of the lock, and each use of the lease replaces that record.
// So you can use a Detached once. If two processes have copies, one succeeds and the other gets
// an error that matches [ErrLost].
//
// A detached lease is not renewed in the background, and nothing stops the work under it. The
// work must have stopped by ExpiresAt; a [Token] protects a resource from work that has not.
type Detached struct {
	// Store is the store's name for itself. Only a lock in a store with this name takes the
	// lease; if Store is empty, any store will do.
	Store string
	// URL says how to open the store again. It is for your use: Detach leaves it empty, and
	// this package ignores it.
	URL    string
	Key    string
	Layout Layout
	Token  Token
	Holder string
	TTL    time.Duration

	// AcquiredAt and ExpiresAt are times by the wall clock of the process that last wrote the
	// record. The lease is valid before ExpiresAt, which is TTL − margin after that write was
	// sent. If the store does not tell how old the record is, ExpiresAt decides whether the
	// lease can still be attached and renewed. Mutual exclusion does not depend on either time.
	AcquiredAt, ExpiresAt time.Time

	// Released reports that the lease was released and cannot be used. You may set it, so that
	// a second release fails without a request.
	Released bool

	writeID string   // of the record
	pending []string // incarnations that may have renewed the lease since
}

// detachedFormat is the JSON format of a Detached. Increase it for a field that older versions
// must not ignore.
const detachedFormat = 1

// maxPending bounds how many renewals with an unknown result a Detached remembers. If an
// earlier one lands after all, it is taken for another copy's.
const maxPending = 8

// ErrForeignLease is returned for anything but a detached lease that this version understands.
var ErrForeignLease = errors.New("not a detached lease that this version understands")

// UnsettledError is returned if the store did not say whether a write of a detached lease has
// landed. Continue with the Detached in it, which covers both cases. The Detached you passed
// covers only the case without the write.
type UnsettledError struct {
	Detached Detached
	Cause    error
}

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("it is not known whether the detached lease was renewed: %v", e.Cause)
}

// Unwrap returns Cause.
func (e *UnsettledError) Unwrap() error { return e.Cause }

// detachedOf returns a Detached for the lock's current record.
func (d *driver) detachedOf(r record.Record) Detached {
	return Detached{
		Store: d.st.String(), Key: d.key, Layout: d.opts.Layout, Token: Token(r.Token), Holder: r.Holder, TTL: r.TTL,
		AcquiredAt: r.AcquiredAt, ExpiresAt: r.RenewedAt.Add(protocol.Validity(r.TTL)), writeID: r.WriteID,
	}
}

// proof returns the part that the protocol needs.
func (d *Detached) proof() candidate.Proof {
	return candidate.Proof{Token: int64(d.Token), WriteID: d.writeID, Marks: d.pending, Expires: d.ExpiresAt}
}

// with returns the Detached to use once a renewal by this incarnation may have landed.
func (d *Detached) with(incarnation string) Detached {
	next := *d
	if next.pending = slices.Clone(d.pending); !slices.Contains(next.pending, incarnation) {
		next.pending = append(next.pending, incarnation)
	}
	next.pending = next.pending[max(len(next.pending)-maxPending, 0):]
	return next
}

// suits returns why this lock cannot take the detached lease.
func (d *driver) suits(of *Detached) error {
	switch {
	case of.writeID == "" || of.Token == NoToken:
		return fmt.Errorf("%w: it was made neither by Detach nor from its JSON", ErrForeignLease)
	case d.opts.Session != nil:
		return errors.New("a lock under a session cannot take a detached lease: nobody renews that session for it")
	case of.Key != d.key:
		return fmt.Errorf("%w here: it is of the lock %q, not of %q", ErrForeignLease, of.Key, d.key)
	case of.Layout != d.opts.Layout:
		return fmt.Errorf("%w here: it has the layout %s, not %s", ErrForeignLease, of.Layout, d.opts.Layout)
	case of.Store != "" && of.Store != d.st.String():
		return fmt.Errorf("%w here: it is of a lock in %s, not in %s", ErrForeignLease, of.Store, d.st)
	case of.Released:
		return fmt.Errorf("%w: it was released already", ErrLost)
	}
	return nil
}

// detachedJSON is the JSON form of a Detached, with the fields in the order for people to read.
type detachedJSON struct {
	Format     int       `json:"format"`
	Key        string    `json:"key"`
	Holder     string    `json:"holder"`
	Token      int64     `json:"token"`
	TTL        int64     `json:"ttl_ms"`
	AcquiredAt time.Time `json:"acquired_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	Released   bool      `json:"released,omitempty"`
	Store      string    `json:"store"`
	URL        string    `json:"url,omitempty"`
	Layout     string    `json:"layout"`
	WriteID    string    `json:"write_id"`
	Pending    []string  `json:"pending,omitempty"`
}

var detachedNames = []string{
	"format", "key", "holder", "token", "ttl_ms", "acquired_at", "expires_at", "released", "store", "url", "layout", "write_id", "pending",
}

// MarshalJSON returns d as one JSON object.
func (d Detached) MarshalJSON() ([]byte, error) {
	return json.Marshal(detachedJSON{
		Format: detachedFormat, Key: d.Key, Holder: d.Holder, Token: int64(d.Token), TTL: d.TTL.Milliseconds(),
		AcquiredAt: d.AcquiredAt.UTC(), ExpiresAt: d.ExpiresAt.UTC(), Released: d.Released,
		Store: d.Store, URL: d.URL, Layout: string(d.Layout), WriteID: d.writeID, Pending: d.pending,
	})
}

// UnmarshalJSON reads the output of MarshalJSON. Every error matches [ErrForeignLease]. Unknown
// fields are ignored and not kept.
func (d *Detached) UnmarshalJSON(text []byte) error {
	read, err := parseDetached(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeignLease, err)
	}
	*d = read
	return nil
}

// ParseDetached is UnmarshalJSON for any bytes, such as a file's.
func ParseDetached(text []byte) (d Detached, err error) {
	err = d.UnmarshalJSON(text)
	return d, err
}

func parseDetached(text []byte) (Detached, error) {
	// The format comes first because the other fields may mean anything in another format.
	members, err := record.Members(text)
	if err != nil {
		return Detached{}, err
	}
	format := 0
	err = json.Unmarshal(members["format"], &format)
	switch {
	case members["format"] == nil:
		return Detached{}, errors.New("it has no format")
	case err != nil || format < 1:
		return Detached{}, fmt.Errorf("its format is %.40s, which does not exist", members["format"])
	case format > detachedFormat:
		return Detached{}, fmt.Errorf("it has format %d, made by a later version, and this one knows formats up to %d: upgrade leasehold", format, detachedFormat)
	}
	for _, name := range []string{"key", "token", "ttl_ms", "expires_at", "layout", "write_id"} {
		if members[name] == nil {
			return Detached{}, fmt.Errorf("it has no %s", name)
		}
	}
	// Package json would take "Token" for "token".
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool { return !slices.Contains(detachedNames, name) })
	known, err := json.Marshal(members)
	if err != nil {
		return Detached{}, err
	}
	var j detachedJSON
	if err = json.Unmarshal(known, &j); err != nil {
		return Detached{}, err
	}
	d := Detached{
		Store: j.Store, URL: j.URL, Key: j.Key, Layout: Layout(j.Layout), Token: Token(j.Token), Holder: j.Holder,
		TTL: time.Duration(j.TTL) * time.Millisecond, AcquiredAt: j.AcquiredAt, ExpiresAt: j.ExpiresAt,
		Released: j.Released, writeID: j.WriteID, pending: j.Pending,
	}
	return d, d.check()
}

// check returns what is invalid in any Detached.
func (d *Detached) check() error {
	switch {
	case d.Key == "":
		return errors.New("its key is empty")
	case d.Token < 1:
		return fmt.Errorf("its token %d is not a token", int64(d.Token))
	case d.TTL < MinTTL || d.TTL > MaxTTL:
		return fmt.Errorf("its TTL %v is not between %v and %v", d.TTL, MinTTL, MaxTTL)
	case !slices.Contains(Layouts, d.Layout) || !d.Layout.Tokens():
		return fmt.Errorf("its layout is %q, and none whose leases can be detached", d.Layout)
	case d.writeID == "" || slices.Contains(d.pending, ""):
		return errors.New("it has an empty write ID")
	case d.ExpiresAt.IsZero():
		return errors.New("its expires_at is no time")
	case len(d.pending) > maxPending:
		return fmt.Errorf("it has %d pending renewals, more than %d", len(d.pending), maxPending)
	}
	return nil
}
