package s3lect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/store"
)

// A lockfile has the fields of the original package, for its instances, and the record
// of leasehold, which is all that we go by where it is there.
//
// Nothing here may guess: what is taken for a lockfile is written over.
type contents struct {
	LeaderRecord
	Leasehold json.RawMessage `json:"leasehold"` // nil: an instance of the original package wrote it
}

// free reports that a lockfile of the original package has no leader.
func (c contents) free() bool { return c.LeaderID == "" || c.LastUpdated.IsZero() }

// parse reads a lockfile. Its error says why it is none.
func parse(body []byte) (contents, error) {
	var c contents
	f, err := fieldsOf(body)
	if err != nil {
		return c, err
	}
	if record, ours := f["leasehold"]; ours {
		c.Leasehold = record
		return c, nil
	}
	// encoding/json takes null for "leave it as it is".
	if at, ok := f["lastUpdated"]; !ok || bytes.Equal(at, []byte("null")) {
		return c, errors.New("it has neither of the fields leasehold and lastUpdated")
	}
	if err := errors.Join(f.take("leaderID", &c.LeaderID), f.take("leaderAddr", &c.LeaderAddr), f.take("lastUpdated", &c.LastUpdated)); err != nil {
		return contents{}, err
	}
	// Of a field that is there twice each reader takes another, and the original stops at
	// the first that is not what it should be.
	var original LeaderRecord
	if err := json.Unmarshal(body, &original); err != nil || !original.LastUpdated.Equal(c.LastUpdated) || original.LeaderID != c.LeaderID {
		return contents{}, errors.New("instances of the original package read something else, or nothing")
	}
	if c.LeaderID == "" && len(f) > 0 {
		// Much that has a time of its last update is no lockfile.
		return contents{}, errors.New("it has other fields, and no leaderID")
	}
	return c, nil
}

// encode makes the lockfile of a record of leasehold. A free one shows no leader and
// no time, so that instances of the original package take over at once.
func encode(record []byte) ([]byte, error) {
	f, err := fieldsOf(record)
	if err != nil {
		return nil, err
	}
	c := contents{Leasehold: record}
	var state string
	if err := f.take("state", &state); err != nil {
		return nil, err
	}
	if state == "held" {
		err := errors.Join(f.take("holder", &c.LeaderID), f.take("address", &c.LeaderAddr), f.take("renewed_at", &c.LastUpdated))
		if err != nil {
			return nil, err
		}
		if c.free() {
			return nil, errors.New("a record that is held has no holder or no renewed_at")
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// adapt makes of a lockfile of the original package the record that an election
// understands: with the token that it is given, since it has none, and a write ID that
// is the same for the same version only.
func adapt(r LeaderRecord, token int64, ttl time.Duration, version store.Version) ([]byte, error) {
	const layout = "2006-01-02T15:04:05.000Z"
	state := "held"
	if (contents{LeaderRecord: r}).free() {
		state = "free"
	}
	return json.Marshal(map[string]any{
		"format": 1, "token": token, "state": state, "holder": r.LeaderID, "address": r.LeaderAddr,
		"ttl_ms": ttl.Milliseconds(), "write_id": fmt.Sprintf("s3lect-%d.%s", token, version),
		"renewed_at": r.LastUpdated.UTC().Format(layout), "expires_at": r.LastUpdated.Add(ttl).UTC().Format(layout),
	})
}

// tokenOf is the token of a record, or 0 if it has none. Whether it may be believed
// is the election's to say.
func tokenOf(record []byte) int64 {
	var token int64
	f, err := fieldsOf(record)
	if err != nil || f.take("token", &token) != nil {
		return 0
	}
	return token
}

// fields are the members of a JSON object by their exact names. Into a struct,
// encoding/json would also read "LEADERID".
type fields map[string]json.RawMessage

func fieldsOf(body []byte) (fields, error) {
	var f fields
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("it is not a JSON object: %w", err)
	}
	if f == nil {
		return nil, errors.New("it is not a JSON object but null")
	}
	return f, nil
}

// take moves a field out of f, if it is there.
func (f fields) take(name string, to any) error {
	raw, ok := f[name]
	if !ok {
		return nil
	}
	delete(f, name)
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("its %s is not what it should be: %w", name, err)
	}
	return nil
}
