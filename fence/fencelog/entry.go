package fencelog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold"
)

// header is the first line of an entry, which people can read with head -1. The concatenated
// records follow it.
type header struct {
	Format   int             `json:"format"`
	Kind     string          `json:"kind"` // "fence" or "data"
	Token    leasehold.Token `json:"token"`
	Claim    string          `json:"claim"`             // random ID of the claim that appended it
	ID       string          `json:"id"`                // random ID of this entry
	Previous string          `json:"previous"`          // ID of the entry before; empty: not known when this was written
	Records  []int           `json:"records,omitempty"` // their lengths
}

const (
	entryFormat = 1
	kindFence   = "fence"
	kindData    = "data"
)

// maxRecords bounds the header of an entry, and roomForHeader is its maximum size: 512 bytes
// plus the lengths of the records.
const (
	maxRecords    = 4096
	roomForHeader = 512 + 8*maxRecords
)

// encode returns an entry's bytes.
func (h header) encode(records [][]byte) []byte {
	h.Format = entryFormat
	for _, r := range records {
		h.Records = append(h.Records, len(r))
	}
	line, err := json.Marshal(h)
	if err != nil {
		panic(err) // numbers and hexadecimal digits can always be encoded
	}
	return bytes.Join([][]byte{line, bytes.Join(records, nil)}, []byte("\n"))
}

// decode parses an entry's bytes.
func decode(body []byte) (h header, records [][]byte, err error) {
	line, rest, _ := bytes.Cut(body, []byte("\n"))
	if err := json.Unmarshal(line, &h); err != nil {
		return h, nil, fmt.Errorf("its first line is no header: %w", err)
	}
	switch {
	case h.Format > entryFormat:
		return h, nil, fmt.Errorf("its format %d is newer than this version of leasehold", h.Format)
	case h.Format != entryFormat, h.Kind != kindFence && h.Kind != kindData, h.Token <= 0, h.ID == "", h.Claim == "":
		return h, nil, fmt.Errorf("its header %q says nothing of an entry", line)
	}
	for _, n := range h.Records {
		if n < 0 || n > len(rest) {
			return h, nil, errors.New("it is shorter than its header says")
		}
		records = append(records, rest[:n:n])
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return h, nil, errors.New("it is longer than its header says")
	}
	return h, records, nil
}
