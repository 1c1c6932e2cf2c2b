package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// The states of an Answer.
const (
	StateHeld   = "held"   // the candidate leads and its lease is valid
	StateFree   = "free"   // it no longer leads, and its release is confirmed
	StateUnsure = "unsure" // it may not lead: a renewal is late, the lease is lost, a release is in progress
	StateNone   = "none"   // it has not led yet
)

// An Answer is a candidate's own report of its leadership, as JSON. Its names are those of the
// record in the store. Except for the remaining time of the lease, it says no more than the
// record.
type Answer struct {
	Lock        string            `json:"lock"`
	Token       leasehold.Token   `json:"token,omitempty"`
	State       string            `json:"state"` // StateHeld, StateFree, StateUnsure or StateNone
	Holder      string            `json:"holder"`
	Address     string            `json:"address"`
	TTL         int64             `json:"ttl_ms"`
	Valid       int64             `json:"valid_ms"` // remaining time of the lease when this was written; 0 unless StateHeld
	Incarnation string            `json:"incarnation"`
	Version     string            `json:"version"`
	Meta        map[string]string `json:"meta,omitempty"`
	Successor   string            `json:"successor,omitempty"`

	// With StateFree: the exact record the release wrote, and its version.
	Record string        `json:"record,omitempty"`
	Object store.Version `json:"object_version,omitempty"`

	// By the candidate's wall clock, RFC 3339 with milliseconds: when the lease was acquired,
	// and when the last successful renewal was sent.
	AcquiredAt string `json:"acquired_at,omitempty"`
	RenewedAt  string `json:"renewed_at,omitempty"`
}

// AnswerOf returns the Answer for said. A lease with less than a millisecond left does not
// count as held.
func AnswerOf(said Leadership) Answer {
	a := Answer{
		Lock: said.Lock, Token: leasehold.Token(said.Token), State: StateUnsure, Holder: said.Holder, Address: said.Address,
		TTL: said.TTL.Milliseconds(), Incarnation: said.Incarnation, Version: said.Version,
		Meta: said.Meta, Successor: said.Successor,
		AcquiredAt: formatTime(said.AcquiredAt), RenewedAt: formatTime(said.RenewedAt),
	}
	switch {
	case said.Incarnation == "":
		a.State = StateNone
	case said.Leading && said.Remaining >= time.Millisecond:
		a.State, a.Valid = StateHeld, said.Remaining.Milliseconds()
	case said.Free:
		a.State = StateFree
		if len(said.Record) <= maxProof {
			a.Record, a.Object = string(said.Record), said.Object
		}
	}
	return a
}

// decode parses an answer. It accepts unknown fields.
func decode(body []byte) (Leadership, error) {
	if !utf8.Valid(body) {
		return Leadership{}, errors.New("it is not UTF-8 text")
	}
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Leadership{}, fmt.Errorf("it is not the JSON of an answer: %w", err)
	}
	if err := a.check(); err != nil {
		return Leadership{}, err
	}
	said := Leadership{
		Lock: a.Lock, Version: a.Version, Leading: a.State == StateHeld, Free: a.State == StateFree,
		Token: int64(a.Token), Holder: a.Holder, Address: a.Address, Meta: a.Meta, Incarnation: a.Incarnation,
		TTL: time.Duration(a.TTL) * time.Millisecond, Successor: a.Successor,
		Remaining: time.Duration(a.Valid) * time.Millisecond,
		Object:    a.Object,
	}
	if a.Record != "" {
		said.Record = []byte(a.Record)
	}
	var err error
	if said.AcquiredAt, err = parseTime("acquired_at", a.AcquiredAt); err != nil {
		return Leadership{}, err
	}
	if said.RenewedAt, err = parseTime("renewed_at", a.RenewedAt); err != nil {
		return Leadership{}, err
	}
	return said, nil
}

// maxProof bounds the record in an answer. Without the record, a follower reads the store.
const maxProof = 16 << 10

// maxVersion bounds the version a follower sends back with each question.
const maxVersion = 256

// check returns an error if a field is out of range.
func (a *Answer) check() error {
	switch {
	case a.Lock == "":
		return errors.New("it names no lock")
	case a.Version == "" || len(a.Version) > maxVersion:
		return fmt.Errorf("its version has %d bytes, not 1 to %d", len(a.Version), maxVersion)
	case a.State == StateNone && (a.Token != 0 || a.TTL != 0 || a.Valid != 0 || a.Holder+a.Incarnation+a.Successor != ""):
		return fmt.Errorf("it tells of a lease in the state %q", a.State)
	case a.State == StateNone:
		return nil
	case a.State != StateHeld && a.State != StateFree && a.State != StateUnsure:
		return fmt.Errorf("its state %.40q does not exist", a.State)
	case a.Token < 0 || a.Token == math.MaxInt64: // 0: its layout has none
		return fmt.Errorf("its token %d is not between 0 and %d", a.Token, int64(math.MaxInt64-1))
	case a.Holder == "" || a.Incarnation == "":
		return errors.New("it does not say who answers: holder or incarnation is missing")
	case a.TTL < 1 || a.TTL > leasehold.MaxTTL.Milliseconds():
		return fmt.Errorf("its ttl_ms %d is not between 1 and %d", a.TTL, leasehold.MaxTTL.Milliseconds())
	case a.Valid < 0 || a.Valid > a.TTL:
		return fmt.Errorf("its valid_ms %d is not between 0 and its ttl_ms %d", a.Valid, a.TTL)
	case a.State == StateHeld && a.Valid == 0, a.State != StateHeld && a.Valid != 0:
		return fmt.Errorf("its valid_ms is %d in the state %q", a.Valid, a.State)
	case a.State != StateFree && (a.Successor != "" || a.Record != "" || a.Object != ""):
		return fmt.Errorf("it tells of a release in the state %q", a.State)
	case len(a.Record) > maxProof || len(a.Object) > maxVersion:
		return fmt.Errorf("its record has %d bytes and its object_version %d, more than %d and %d", len(a.Record), len(a.Object), maxProof, maxVersion)
	}
	return nil
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func parseTime(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("its %s %.40q is not a time", name, text)
	}
	return t, nil
}
