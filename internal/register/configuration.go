package register

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// A Configuration lists the members that vote (rule Q6).
type Configuration struct {
	Quorum  string   `json:"quorum"` // a random name that never changes
	Number  int      `json:"number"` // starts at 0, and grows by one with each change
	Members []Member `json:"members"`
}

// A Member is one store of a configuration.
type Member struct {
	Place  string `json:"place"`  // the store's URL
	Marker string `json:"marker"` // the member's random name, which is also in its marker
	Since  int    `json:"since"`  // the number of its first configuration
}

// Majority returns the number of members that decide.
func (c Configuration) Majority() int { return len(c.Members)/2 + 1 }

// Check returns what is wrong with the configuration.
func (c Configuration) Check() error {
	if c.Quorum == "" || c.Number < 0 {
		return fmt.Errorf("%w: a configuration without a name or with the number %d", ErrForeign, c.Number)
	}
	if n := len(c.Members); n != 3 && n != 5 {
		return fmt.Errorf("%w: %d members, and a quorum has 3 or 5", ErrForeign, n)
	}
	for i, m := range c.Members {
		if m.Place == "" || m.Marker == "" || m.Since < 0 || m.Since > c.Number {
			return fmt.Errorf("%w: member %d of configuration %d has no place, no marker or no time: %+v", ErrForeign, i+1, c.Number, m)
		}
		for _, o := range c.Members[:i] {
			if o.Place == m.Place || o.Marker == m.Marker {
				return fmt.Errorf("%w: %s is a member of configuration %d twice", ErrForeign, m.Place, c.Number)
			}
		}
	}
	return nil
}

// A Marker is stored in each member. If a member has lost its objects, it has lost its marker too (rule Q5).
type Marker struct {
	Name   string // the Member's Marker
	Number int    // of the last configuration that the member has taken
	// Whole says that no object is missing. A new member is whole once it has been filled.
	Whole bool
	// Known is the last configuration the member was told about.
	Known Configuration
}

type marker struct {
	Format int           `json:"leasehold_quorum_member"`
	Name   string        `json:"marker"`
	Number int           `json:"number"`
	Whole  bool          `json:"whole"`
	Known  Configuration `json:"configuration"`
}

// Encode returns the marker's object.
func (m Marker) Encode() ([]byte, error) {
	return json.MarshalIndent(marker{Format, m.Name, m.Number, m.Whole, m.Known}, "", "  ")
}

// DecodeMarker reads a marker. Every error matches [ErrForeign].
func DecodeMarker(object []byte) (Marker, error) {
	var m marker
	d := json.NewDecoder(bytes.NewReader(object))
	if err := d.Decode(&m); err != nil {
		return Marker{}, fmt.Errorf("%w: a marker: %w", ErrForeign, err)
	}
	switch {
	case m.Format != Format:
		return Marker{}, fmt.Errorf("%w: a marker of format %d, and this version understands %d", ErrForeign, m.Format, Format)
	case m.Name == "" || m.Number < 0:
		return Marker{}, fmt.Errorf("%w: a marker without a name, or with the number %d", ErrForeign, m.Number)
	}
	if err := m.Known.Check(); err != nil {
		return Marker{}, err
	}
	return Marker{m.Name, m.Number, m.Whole, m.Known}, nil
}
