package register

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A Ballot numbers a proposal (rule Q2). It is unique because no two Registers ever have the same name. The
// zero Ballot is below all others.
type Ballot struct {
	Counter uint64
	By      string
}

// Compare orders ballots by counter, then by name.
func (b Ballot) Compare(o Ballot) int {
	return cmp.Or(cmp.Compare(b.Counter, o.Counter), strings.Compare(b.By, o.By))
}

// Below reports whether b is smaller than o.
func (b Ballot) Below(o Ballot) bool { return b.Compare(o) < 0 }

// IsZero reports whether b is the zero Ballot.
func (b Ballot) IsZero() bool { return b == Ballot{} }

// String returns text such as "7.kq2…", or "" for the zero Ballot.
func (b Ballot) String() string {
	if b.IsZero() {
		return ""
	}
	return strconv.FormatUint(b.Counter, 10) + "." + b.By
}

// MarshalText returns the text of String.
func (b Ballot) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText accepts only text that MarshalText returns.
func (b *Ballot) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*b = Ballot{}
		return nil
	}
	counter, by, _ := strings.Cut(string(text), ".")
	n, err := strconv.ParseUint(counter, 10, 64)
	if err != nil || n == 0 || by == "" || strconv.FormatUint(n, 10) != counter {
		return fmt.Errorf("%q is no ballot", text)
	}
	*b = Ballot{n, by}
	return nil
}
