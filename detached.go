package leasehold

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// Detached is a lease that no process holds: what [Lease.Detach] returns, and what
// [Lock.Attach], [Lock.RenewDetached] and [Lock.ReleaseDetached] go on with. Keep it as JSON,
// in a file that only its owner can read: with it, anybody who may write to the store
// can use the lease.
//
// It names one record of the lock, and each use of the lease replaces that. So a Detached
// can be used once. Of two processes with copies of it one succeeds, and the other
// gets an error that matches [ErrLost].
//
// Nobody renews a detached lease, and nothing stops the work under it. That must have stopped by
// ExpiresAt; a [Token] is what protects a resource from work that has not.
type Detached struct {
	// Store is what the store calls itself. Only a lock in a store of that name takes the lease;
	// empty: in any.
	Store string
	// URL says how to open the store again, to whoever has to. Nothing here looks at it, and
	// Detach leaves it empty.
	URL    string
	Key    string
	Layout Layout
	Token  Token
	Holder string
	TTL    time.Duration

	// AcquiredAt and ExpiresAt are by the wall clock of the process that wrote the record last. The
	// lease is valid before ExpiresAt, which is TTL − margin after that write was sent.
	// Where the store does not tell how old the record is, ExpiresAt decides whether the
	// lease can still be attached and renewed. No exclusion rests on either.
	AcquiredAt, ExpiresAt time.Time

	// Released: it was released, and there is nothing to go on with. The keeper of a Detached may set
	// it, so that a second release says so without a request.
	Released bool

	writeID string   // of the record
	pending []string // incarnations that may have renewed it since
}

// detachedFormat is the format of a Detached as JSON. A field that an older version must not ignore
// takes another format; one that it may ignore does not.
const detachedFormat = 1

// maxPending bounds how many renewals of which it is not known what became a Detached remembers: the
// last ones. An earlier one that lands after so many others is taken for another copy's.
const maxPending = 8

// ErrForeignLease: it is not a detached lease that this version understands.
var ErrForeignLease = errors.New("not a detached lease that this version understands")

// UnsettledError says that the store did not say whether a write of a detached lease has
// landed. Go on with Detached, which covers both; the one that was used covers only that it has not.
type UnsettledError struct {
	Detached Detached
	Cause    error
}

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("it is not known whether the detached lease was renewed: %v", e.Cause)
}

// Unwrap is the last reason.
func (e *UnsettledError) Unwrap() error { return e.Cause }

// detachedOf makes a Detached of the record that stands.
func (d *driver) detachedOf(r record.Record) Detached {
	return Detached{
		Store: d.st.String(), Key: d.key, Layout: d.opts.Layout, Token: Token(r.Token), Holder: r.Holder, TTL: r.TTL,
		AcquiredAt: r.AcquiredAt, ExpiresAt: r.RenewedAt.Add(protocol.Validity(r.TTL)), writeID: r.WriteID,
	}
}

// proof is what the protocol needs of it.
func (d *Detached) proof() protocol.Proof {
	return protocol.Proof{Token: int64(d.Token), WriteID: d.writeID, Marks: d.pending, Expires: d.ExpiresAt}
}

// with is the Detached once a renewal by this incarnation may land.
func (d *Detached) with(incarnation string) Detached {
	next := *d
	if next.pending = slices.Clone(d.pending); !slices.Contains(next.pending, incarnation) {
		next.pending = append(next.pending, incarnation)
	}
	next.pending = next.pending[max(len(next.pending)-maxPending, 0):]
	return next
}

// suits says why a lock cannot take a detached lease.
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

// detachedJSON is the form of a Detached outside. The order of its fields is that in which people
// read them.
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

// MarshalJSON gives one JSON object.
func (d Detached) MarshalJSON() ([]byte, error) {
	return json.Marshal(detachedJSON{
		Format: detachedFormat, Key: d.Key, Holder: d.Holder, Token: int64(d.Token), TTL: d.TTL.Milliseconds(),
		AcquiredAt: d.AcquiredAt.UTC(), ExpiresAt: d.ExpiresAt.UTC(), Released: d.Released,
		Store: d.Store, URL: d.URL, Layout: string(d.Layout), WriteID: d.writeID, Pending: d.pending,
	})
}

// UnmarshalJSON reads what MarshalJSON gives. Every error matches [ErrForeignLease]. Fields
// that this version does not know are ignored, and not kept.
func (d *Detached) UnmarshalJSON(text []byte) error {
	read, err := parseDetached(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeignLease, err)
	}
	*d = read
	return nil
}

// ParseDetached is UnmarshalJSON for the bytes of a file, which may be anything.
func ParseDetached(text []byte) (d Detached, err error) {
	err = d.UnmarshalJSON(text)
	return d, err
}

func parseDetached(text []byte) (Detached, error) {
	// The format comes first: in another one the other fields may be anything.
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
	// Names are compared as they are, where package json lets "Token" stand for "token".
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

// check says what cannot be in any Detached.
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
