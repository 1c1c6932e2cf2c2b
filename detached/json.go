package detached

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/record"
)

// jsonFormat is the JSON format of a Lease. Increase it for a field that older versions must not
// ignore.
const jsonFormat = 1

// leaseJSON is the JSON form of a Lease, with the fields in the order for people to read.
type leaseJSON struct {
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
	NoIfMatch  bool      `json:"no_if_match,omitempty"`
	WriteID    string    `json:"write_id"`
	Pending    []string  `json:"pending,omitempty"`
}

var names = []string{
	"format", "key", "holder", "token", "ttl_ms", "acquired_at", "expires_at", "released", "store", "url", "layout", "no_if_match", "write_id", "pending",
}

// MarshalJSON returns d as one JSON object.
func (d Lease) MarshalJSON() ([]byte, error) {
	return json.Marshal(leaseJSON{
		Format: jsonFormat, Key: d.Key, Holder: d.Holder, Token: int64(d.Token), TTL: d.TTL.Milliseconds(),
		AcquiredAt: d.AcquiredAt.UTC(), ExpiresAt: d.ExpiresAt.UTC(), Released: d.Released,
		Store: d.Store, URL: d.URL, Layout: string(d.Layout), NoIfMatch: d.NoIfMatch, WriteID: d.writeID, Pending: d.pending,
	})
}

// UnmarshalJSON reads the output of MarshalJSON. Every error matches [ErrForeign]. Unknown
// fields are ignored and not kept.
func (d *Lease) UnmarshalJSON(text []byte) error {
	read, err := parse(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	*d = read
	return nil
}

// Parse is UnmarshalJSON for any bytes, such as a file's.
func Parse(text []byte) (d Lease, err error) {
	err = d.UnmarshalJSON(text)
	return d, err
}

func parse(text []byte) (Lease, error) {
	// The format comes first because the other fields may mean anything in another format.
	members, err := record.Members(text)
	if err != nil {
		return Lease{}, err
	}
	format := 0
	err = json.Unmarshal(members["format"], &format)
	switch {
	case members["format"] == nil:
		return Lease{}, errors.New("it has no format")
	case err != nil || format < 1:
		return Lease{}, fmt.Errorf("its format is %.40s, which does not exist", members["format"])
	case format > jsonFormat:
		return Lease{}, fmt.Errorf("it has format %d, made by a later version, and this one knows formats up to %d: upgrade leasehold", format, jsonFormat)
	}
	for _, name := range []string{"key", "token", "ttl_ms", "expires_at", "layout", "write_id"} {
		if members[name] == nil {
			return Lease{}, fmt.Errorf("it has no %s", name)
		}
	}
	// Package json would take "Token" for "token".
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool { return !slices.Contains(names, name) })
	known, err := json.Marshal(members)
	if err != nil {
		return Lease{}, err
	}
	var j leaseJSON
	if err = json.Unmarshal(known, &j); err != nil {
		return Lease{}, err
	}
	d := Lease{
		Store: j.Store, URL: j.URL, Key: j.Key, Layout: leasehold.Layout(j.Layout), NoIfMatch: j.NoIfMatch, Token: leasehold.Token(j.Token), Holder: j.Holder,
		TTL: time.Duration(j.TTL) * time.Millisecond, AcquiredAt: j.AcquiredAt, ExpiresAt: j.ExpiresAt,
		Released: j.Released, writeID: j.WriteID, pending: j.Pending,
	}
	return d, d.check()
}

// check returns what is invalid in any Lease.
func (d *Lease) check() error {
	switch {
	case d.Key == "":
		return errors.New("its key is empty")
	case d.Token < 1:
		return fmt.Errorf("its token %d is not a token", int64(d.Token))
	case d.TTL < leasehold.MinTTL || d.TTL > leasehold.MaxTTL:
		return fmt.Errorf("its TTL %v is not between %v and %v", d.TTL, leasehold.MinTTL, leasehold.MaxTTL)
	case d.Layout != leasehold.LayoutObject && d.Layout != leasehold.LayoutEpochs:
		return fmt.Errorf("its layout is %q, and none whose leases can be detached", d.Layout)
	case d.NoIfMatch && d.Layout == leasehold.LayoutObject:
		return fmt.Errorf("its layout is %q, which needs If-Match", d.Layout)
	case d.writeID == "" || slices.Contains(d.pending, ""):
		return errors.New("it has an empty write ID")
	case d.ExpiresAt.IsZero():
		return errors.New("its expires_at is no time")
	case len(d.pending) > maxPending:
		return fmt.Errorf("it has %d pending renewals, more than %d", len(d.pending), maxPending)
	}
	return nil
}
