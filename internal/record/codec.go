package record

import (
	"bytes"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// wire is the record's form in the store, in all kinds of objects. Its fields are in the order in
// which people read them.
//
// Readers know all of these names in every kind of object: a field of the wrong type makes the object
// foreign, and an acquisition drops what it does not set. Both are promised in docs/format.md. So a
// form for each kind could only be one for writing.
type wire struct {
	Format     int               `json:"format"`
	Token      int64             `json:"token,omitempty"`
	State      string            `json:"state"`
	Holder     string            `json:"holder"`
	Address    string            `json:"address"`
	TTL        int64             `json:"ttl_ms"`
	WriteID    string            `json:"write_id"`
	Session    string            `json:"session"`
	Meta       map[string]string `json:"meta,omitempty"`
	Successor  string            `json:"successor,omitempty"`
	Layout     string            `json:"layout,omitempty"`
	IfMatch    bool              `json:"if_match,omitempty"`
	Previous   int64             `json:"previous,omitempty"`
	MovedTo    string            `json:"moved_to,omitempty"`
	MovesFrom  string            `json:"moves_from,omitempty"`
	Ended      string            `json:"ended,omitempty"`
	Freed      *Freed            `json:"freed,omitempty"`
	Rest       *Rest             `json:"rest,omitempty"`
	AcquiredAt string            `json:"acquired_at,omitempty"`
	RenewedAt  string            `json:"renewed_at,omitempty"`
	ExpiresAt  string            `json:"expires_at,omitempty"`
	Term       int64             `json:"term,omitempty"`
	TermToken  int64             `json:"term_token,omitempty"`
}

const (
	stateHeld   = "held"
	stateFree   = "free"
	stateSealed = "sealed" // versions without moves understand neither of these two
	stateClosed = "closed"
)

// Encode returns the record's bytes. It fails if they would be more than MaxSize, or if a text
// in the record is not UTF-8.
func (r Record) Encode() ([]byte, error) {
	for _, s := range r.texts() {
		if !utf8.ValidString(s) {
			return nil, fmt.Errorf("the text %q is not valid UTF-8", s)
		}
	}
	w := wire{
		Format: Format, Token: r.Token, State: stateFree, Holder: r.Holder, Address: r.Address,
		TTL: r.TTL.Milliseconds(), WriteID: r.WriteID, Session: r.Session, Meta: r.Meta, Successor: r.Successor,
		Layout: r.Layout.Name, IfMatch: r.Layout.IfMatch, Previous: r.Previous, MovedTo: r.Move.To, MovesFrom: r.Move.From, Ended: r.Ended, Freed: r.Freed, Rest: r.Rest,
		AcquiredAt: formatTime(r.AcquiredAt), RenewedAt: formatTime(r.RenewedAt), ExpiresAt: formatTime(r.ExpiresAt),
		Term: r.Term, TermToken: r.TermToken,
	}
	switch {
	case r.Move.To != "":
		w.State = stateSealed
	case r.Move.From != "":
		w.State = stateClosed
	case r.Held:
		w.State = stateHeld
	}
	var b bytes.Buffer
	b.Grow(512 + len(r.History)) // most records fit
	open(&b, w)
	if r.History != nil {
		b.WriteString(`,"history":`) // unchanged: each renewal writes it
		b.Write(r.History)
	}
	appendUnknown(&b, r.Unknown)
	b.WriteString("}\n")
	if b.Len() > MaxSize && r.History != nil {
		// The history gives way to unknown fields and to what the lock needs.
		r.History = nil
		return r.Encode()
	}
	if b.Len() > MaxSize {
		return nil, fmt.Errorf("the record has %d bytes, more than %d: shorten the holder, the address or the meta data", b.Len(), MaxSize)
	}
	return b.Bytes(), nil
}

func (r Record) texts() []string {
	texts := []string{r.Holder, r.Address, r.Session, r.Successor, r.WriteID, r.Ended, r.Layout.Name, r.Move.To, r.Move.From}
	if r.Rest != nil {
		texts = append(texts, r.Rest.WriteID)
	}
	for k, v := range r.Meta {
		texts = append(texts, k, v)
	}
	return texts
}

// Decode reads a record of the default layout. Every error matches ErrForeign. An error that
// matches ErrMoved comes with the record: it is not a lock's, but describes a move.
func Decode(body []byte) (Record, error) { return DecodeIn(Layout{}, body) }

// AnyLayout makes DecodeIn read records of all layouts.
var AnyLayout = Layout{Name: "*"}

// DecodeIn reads a record of this layout, and of no other.
func DecodeIn(layout Layout, body []byte) (Record, error) {
	r, err := decode(layout, body)
	switch {
	case err != nil:
		return Record{}, fmt.Errorf("%w: %w", ErrForeign, err)
	case r.Move != Move{}:
		return r, &MovedError{r.Move}
	}
	return r, nil
}

func decode(layout Layout, body []byte) (Record, error) {
	f, err := readObject(body, MaxSize)
	if err != nil {
		return Record{}, err
	}
	var r Record
	if r.Layout, err = f.layout(); err != nil {
		return Record{}, err
	}
	if layout == AnyLayout {
		layout = r.Layout
	}
	if err = r.Layout.isNot(layout); err != nil {
		return Record{}, err
	}
	if r.Token, err = f.token(layout.Name != LayoutMarker); err != nil {
		return Record{}, err
	}
	ttl, err := f.integer("ttl_ms")
	if err != nil {
		return Record{}, err
	}
	if ttl < 1 || ttl > MaxTTL.Milliseconds() {
		return Record{}, fmt.Errorf("its ttl_ms %d is not between 1 and %d", ttl, MaxTTL.Milliseconds())
	}
	r.TTL = time.Duration(ttl) * time.Millisecond
	if err := f.texts(&r); err != nil {
		return Record{}, err
	}
	r.Term, r.TermToken, r.History = f.count("term"), f.count("term_token"), f["history"]
	delete(f, "history")
	r.Unknown = f.rest()
	return r, nil
}

// layout moves the record's layout out of f.
func (f fields) layout() (l Layout, err error) {
	if err = f.take("layout", &l.Name); err == nil && l.Name == LayoutEpochs {
		err = f.take("if_match", &l.IfMatch)
	}
	return l, err
}

// isNot returns why a record of the layout l must be left alone by a candidate of another one.
func (l Layout) isNot(other Layout) error {
	switch {
	case l.Name != other.Name:
		return fmt.Errorf("it belongs to the layout %q, not %q", named(l.Name), named(other.Name))
	case l.IfMatch && !other.IfMatch:
		return ErrIfMatch
	case l != other:
		return ErrNoIfMatch
	}
	return nil
}

// Why a record of the same layout is of no use: its lock is used in the other way.
var (
	ErrIfMatch   = errors.New("its lock is used with If-Match, which NoIfMatch, if_match=false in the store's URL or a Proof forbids here")
	ErrNoIfMatch = errors.New("its lock is used without If-Match: set NoIfMatch, or if_match=false in the store's URL")
)

// named returns a layout's name, for people.
func named(layout string) string {
	if layout == "" {
		return "object"
	}
	return layout
}

// token moves the token out of f, if there should be one.
func (f fields) token(expected bool) (int64, error) {
	if !expected {
		if _, found := f["token"]; found {
			return 0, errors.New("it has a token, and its layout has none")
		}
		return 0, nil
	}
	token, err := f.integer("token")
	if err == nil && token < 1 {
		err = fmt.Errorf("its token %d is not between 1 and %d", token, int64(MaxToken))
	}
	return token, err
}

// texts moves the record's text fields out of f.
func (f fields) texts(r *Record) error {
	var state, acquired, renewed, expires string
	for _, t := range []struct {
		name string
		to   *string
	}{
		{"state", &state},
		{"holder", &r.Holder},
		{"address", &r.Address},
		{"write_id", &r.WriteID},
		{"session", &r.Session},
		{"successor", &r.Successor},
		{"acquired_at", &acquired},
		{"renewed_at", &renewed},
		{"expires_at", &expires},
	} {
		if err := f.take(t.name, t.to); err != nil {
			return err
		}
	}
	if err := f.take("meta", &r.Meta); err != nil {
		return err
	}
	if err := f.take("previous", &r.Previous); err != nil {
		return err
	}
	if err := f.take("ended", &r.Ended); err != nil {
		return err
	}
	if err := f.take("freed", &r.Freed); err != nil {
		return err
	}
	if err := f.take("rest", &r.Rest); err != nil {
		return err
	}
	if err := f.state(state, r); err != nil {
		return err
	}
	if r.WriteID == "" {
		return errors.New("it has no write_id")
	}
	r.AcquiredAt, r.RenewedAt, r.ExpiresAt = parseTime(acquired), parseTime(renewed), parseTime(expires)
	return nil
}

// state stores the record's state, and moves the fields that go with it out of f.
func (f fields) state(state string, r *Record) error {
	switch state {
	case stateHeld:
		r.Held = true
	case stateFree:
	case stateSealed:
		return f.place("moved_to", &r.Move.To)
	case stateClosed:
		return f.place("moves_from", &r.Move.From)
	default:
		return fmt.Errorf("its state is %q, neither %q nor %q", state, stateHeld, stateFree)
	}
	return nil
}

// place moves the member name out of f: where a lock has gone, or will come from.
func (f fields) place(name string, to *string) error {
	if err := f.take(name, to); err != nil {
		return err
	}
	if *to == "" {
		return fmt.Errorf("it has no %s", name)
	}
	return nil
}
