package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// LayoutTable is the layout of a [Table], which is not a lock.
const LayoutTable = "table"

const (
	// MaxTable is the largest table's size in bytes. Joining callers leave half of it free: see
	// MaxJoined.
	MaxTable = 512 << 10
	// MaxSlots is the largest size of a table: more than any use needs, and small enough that
	// no sum of weights overflows.
	MaxSlots = 1 << 30
)

// A Table is the state of a semaphore in the store: the holders of its slots, and the waiters,
// in order. Like a Record, it never changes, so copies may share its slices.
type Table struct {
	Size    int64  // the holders' weights add up to at most this
	Token   int64  // the last one granted
	WriteID string // unique to the attempt that wrote this (rule A2)
	Holders []Entry
	Waiters []Entry // in order of arrival

	// Turn is how long slots were held lately, on average, as their holders reported. It helps
	// waiters to time their polls, and decides nothing. 0: unknown.
	Turn time.Duration

	// Unknown holds the fields unknown to this version, by name. They are written back
	// unchanged.
	Unknown map[string]json.RawMessage
}

// An Entry is one caller's entry in a table.
type Entry struct {
	ID      string // of one caller and one acquisition; never used again
	Session string // the entry counts as long as this goes on (rule T2)
	Weight  int64
	Token   int64  // of a holder's grant; 0: it waits
	Holder  string // for people; identifies nobody in the protocol
	Address string // where its process is notified of the grant; empty: nowhere
	// For people too, by the writer's clock: when the slots were granted or, for a waiter,
	// asked for.
	Since time.Time

	Unknown map[string]json.RawMessage // as in a Table
}

// entryForm is the JSON form of an entry.
type entryForm struct {
	ID      string `json:"id"`
	Session string `json:"session"`
	Weight  int64  `json:"weight"`
	Token   int64  `json:"token,omitempty"`
	Holder  string `json:"holder"`
	Address string `json:"address,omitempty"`
	Since   string `json:"since,omitempty"`
}

// Taken returns the weight of all holders together.
func (t Table) Taken() (sum int64) {
	for _, s := range t.Holders {
		sum += s.Weight
	}
	return sum
}

// Entries returns all entries, the holders' first.
func (t Table) Entries() []Entry { return slices.Concat(t.Holders, t.Waiters) }

// Encode returns the table's bytes, one line for each entry. It fails with ErrTableFull if they
// would be more than MaxTable.
func (t Table) Encode() ([]byte, error) {
	var b bytes.Buffer
	open(&b, struct {
		Format  int    `json:"format"`
		Layout  string `json:"layout"`
		Size    int64  `json:"size"`
		Token   int64  `json:"token"`
		WriteID string `json:"write_id"`
		Turn    int64  `json:"turn_ms,omitempty"`
	}{Format, LayoutTable, t.Size, t.Token, t.WriteID, t.Turn.Milliseconds()})
	for _, list := range []struct {
		name    string
		entries []Entry
	}{{"holders", t.Holders}, {"waiters", t.Waiters}} {
		fmt.Fprintf(&b, ",\n%q:[", list.name)
		for i, s := range list.entries {
			for _, text := range []string{s.ID, s.Session, s.Holder, s.Address} {
				if !utf8.ValidString(text) {
					return nil, fmt.Errorf("the text %q is not valid UTF-8", text)
				}
			}
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n ")
			s.append(&b)
		}
		b.WriteByte(']')
	}
	appendUnknown(&b, t.Unknown)
	b.WriteString("}\n")
	if b.Len() > MaxTable {
		return nil, fmt.Errorf("%w: it would have %d bytes, more than %d", ErrTableFull, b.Len(), MaxTable)
	}
	return b.Bytes(), nil
}

// maxTurn bounds a turn, which only times polls.
const maxTurn = 24 * time.Hour

// MaxJoined is how many bytes of entries a table may have when a caller joins: half of
// MaxTable, some thousand entries. The other half lets entries grow, so that a leaving caller
// can always write the table: each grant adds a token, and paths to sessions are longer in an
// object deep in a store.
const MaxJoined = MaxTable / 2

// Room returns how many bytes of entries may be added to the table, if it may have most in all.
func (t Table) Room(most int) int {
	room := most
	for _, s := range t.Entries() {
		room -= s.Len()
	}
	return room
}

// Len returns how many bytes the entry has in a table.
func (s Entry) Len() int {
	var b bytes.Buffer
	s.append(&b)
	return b.Len() + len(",\n ")
}

func (s Entry) append(b *bytes.Buffer) {
	open(b, entryForm{s.ID, s.Session, s.Weight, s.Token, short(s.Holder), s.Address, formatTime(s.Since)})
	appendUnknown(b, s.Unknown)
	b.WriteByte('}')
}

// ErrTableFull: no more entries fit in a table.
var ErrTableFull = errors.New("the table is full")

// DecodeTable reads a table. Every error matches ErrForeign.
//
// It refuses impossible tables: holders with more weight than the size, a token or an entry
// that occurs twice, and an entry without a session.
func DecodeTable(body []byte) (Table, error) {
	t, err := decodeTable(body)
	if err != nil {
		return Table{}, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return t, nil
}

func decodeTable(body []byte) (t Table, err error) {
	f, err := readObject(body, MaxTable)
	if err != nil {
		return t, err
	}
	var layout string
	if err = f.take("layout", &layout); err != nil {
		return t, err
	}
	if layout != LayoutTable {
		return t, fmt.Errorf("it belongs to the layout %q, not %q", named(layout), LayoutTable)
	}
	if t.Size, err = f.integer("size"); err != nil {
		return t, err
	}
	if t.Size < 1 || t.Size > MaxSlots {
		return t, fmt.Errorf("its size %d is not between 1 and %d", t.Size, MaxSlots)
	}
	if t.Token, err = f.integer("token"); err != nil {
		return t, err
	}
	if t.Token < 0 {
		return t, fmt.Errorf("its token %d is negative", t.Token)
	}
	if err = f.take("write_id", &t.WriteID); err != nil {
		return t, err
	}
	if t.WriteID == "" {
		return t, errors.New("it has no write_id")
	}
	if t.Holders, err = f.entries("holders"); err != nil {
		return t, err
	}
	if t.Waiters, err = f.entries("waiters"); err != nil {
		return t, err
	}
	t.Turn = time.Duration(min(f.count("turn_ms"), maxTurn.Milliseconds())) * time.Millisecond
	t.Unknown = f.rest()
	return t, t.check()
}

// entries moves a list of entries out of f.
func (f fields) entries(name string) (all []Entry, err error) {
	var raw []json.RawMessage
	if err := f.take(name, &raw); err != nil {
		return nil, err
	}
	for i, r := range raw {
		s, err := decodeEntry(r)
		if err != nil {
			return nil, fmt.Errorf("of its %s number %d: %w", name, i+1, err)
		}
		all = append(all, s)
	}
	return all, nil
}

func decodeEntry(raw []byte) (s Entry, err error) {
	f, err := splitObject(raw)
	if err != nil {
		return s, err
	}
	var since string
	for _, t := range []struct {
		name string
		to   *string
	}{{"id", &s.ID}, {"session", &s.Session}, {"holder", &s.Holder}, {"address", &s.Address}, {"since", &since}} {
		if err = f.take(t.name, t.to); err != nil {
			return s, err
		}
	}
	if s.ID == "" || s.Session == "" {
		return s, errors.New("it has no id, or no session")
	}
	if s.Weight, err = f.integer("weight"); err != nil {
		return s, err
	}
	if _, found := f["token"]; found {
		if s.Token, err = f.integer("token"); err != nil {
			return s, err
		}
	}
	s.Since = parseTime(since)
	s.Unknown = f.rest()
	return s, nil
}

// check returns what is impossible in a table, or nil.
func (t Table) check() error {
	ids, tokens := map[string]bool{}, map[int64]bool{}
	for i, s := range t.Entries() {
		switch holds := i < len(t.Holders); {
		case s.Weight < 1 || s.Weight > t.Size:
			return fmt.Errorf("the weight %d of %s is not between 1 and its size %d", s.Weight, s.ID, t.Size)
		case ids[s.ID]:
			return fmt.Errorf("the entry %s is there twice", s.ID)
		case holds && (s.Token < 1 || s.Token > t.Token || tokens[s.Token]):
			return fmt.Errorf("the token %d of %s is another's too, or was never granted", s.Token, s.ID)
		case !holds && s.Token != 0:
			return fmt.Errorf("%s waits, and has a token", s.ID)
		}
		ids[s.ID], tokens[s.Token] = true, true
	}
	if taken := t.Taken(); taken > t.Size {
		return fmt.Errorf("its holders have the weight %d, and its size is %d", taken, t.Size)
	}
	return nil
}
