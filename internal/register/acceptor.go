package register

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Format is the format of the objects that this version writes and understands.
const Format = 1

// ErrForeign matches every error about an object that does not belong to this quorum. Such an object
// is never overwritten.
var ErrForeign = errors.New("not an object of this quorum")

// A Value is a register's content. The zero Value is never written.
type Value struct {
	Version string // unique among all values ever written
	Deleted bool   // the object was deleted
	Body    []byte
	Beside  int64 // size of a body that is stored as its own object; 0: it is in Body
}

// Exists reports whether a reader finds an object.
func (v Value) Exists() bool { return v.Version != "" && !v.Deleted }

// An Acceptor is one member's state of one key.
type Acceptor struct {
	Quorum   string // its name
	Number   int    // of the configuration of the last write
	Promised Ballot // nothing below it is promised or accepted
	Accepted Ballot // the ballot of Value; zero: nothing accepted yet
	Value    Value
}

// MaxHeader is the maximum size of an object without the body of its value, in bytes.
const MaxHeader = 1 << 10

// maxCounter is far above any counter that a ballot can reach.
const maxCounter = 1 << 62

// header is the first line of an object.
type header struct {
	Format   int    `json:"leasehold_quorum"`
	Quorum   string `json:"quorum"`
	Number   int    `json:"configuration"`
	Promised Ballot `json:"promised"`
	Accepted Ballot `json:"accepted"`
	Version  string `json:"version,omitempty"`
	Deleted  bool   `json:"deleted,omitempty"`
	Beside   int64  `json:"beside,omitempty"`
}

// Encode returns the object: a line of JSON, followed by the unchanged body, so that any tool for the store
// can show it.
func (a Acceptor) Encode() ([]byte, error) {
	line, err := json.Marshal(header{Format, a.Quorum, a.Number, a.Promised, a.Accepted, a.Value.Version, a.Value.Deleted, a.Value.Beside})
	if err != nil {
		return nil, err
	}
	if len(line) >= MaxHeader {
		return nil, fmt.Errorf("the first line of an object has %d bytes, more than %d", len(line), MaxHeader-1)
	}
	return append(append(line, '\n'), a.Value.Body...), nil
}

// Decode reads an object of the quorum with that name. Every error matches [ErrForeign].
func Decode(quorum string, object []byte) (Acceptor, error) {
	line, _, ok := bytes.Cut(object[:min(len(object), MaxHeader)], []byte("\n"))
	if !ok {
		return Acceptor{}, fmt.Errorf("%w: it does not begin with a line of JSON", ErrForeign)
	}
	body := object[len(line)+1:]
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return Acceptor{}, fmt.Errorf("%w: its first line: %w", ErrForeign, err)
	}
	a := Acceptor{h.Quorum, h.Number, h.Promised, h.Accepted, Value{h.Version, h.Deleted, body, h.Beside}}
	switch {
	case h.Format == 0:
		return Acceptor{}, fmt.Errorf("%w: its first line has no %q", ErrForeign, "leasehold_quorum")
	case h.Format != Format:
		return Acceptor{}, fmt.Errorf("%w: format %d, and this version understands %d", ErrForeign, h.Format, Format)
	case h.Quorum != quorum:
		return Acceptor{}, fmt.Errorf("%w: it is one of the quorum %q, not of %q", ErrForeign, h.Quorum, quorum)
	case h.Number < 0, h.Promised.Below(h.Accepted), h.Promised.IsZero(), h.Promised.Counter > maxCounter, h.Accepted.IsZero() != (h.Version == ""),
		h.Beside < 0, (len(body) > 0 || h.Beside > 0) && (h.Deleted || h.Version == ""), len(body) > 0 && h.Beside > 0:
		return Acceptor{}, fmt.Errorf("%w: its first line contradicts itself: %s", ErrForeign, line)
	}
	if len(body) == 0 {
		a.Value.Body = nil
	}
	return a, nil
}
