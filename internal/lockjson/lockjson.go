// Package lockjson has what is known of a lock, a semaphore and their past, as JSON: one form, which the
// command prints with --output json and package serve answers over HTTP. The names are for programs: they
// stay.
package lockjson

import (
	"errors"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
)

// A Report is what is known of a lock, or of a semaphore.
type Report struct {
	Lock  string `json:"lock"`  // its URL
	State string `json:"state"` // absent, free, held
	Party
	Details
}

// A Party is the holder of a lock that is held, and the last one of a lock that is free: by
// another name, so that a script does not take a holder of the past for one of the present.
type Party struct {
	Holder      string          `json:"holder,omitempty"`
	LastHolder  string          `json:"last_holder,omitempty"`
	Address     string          `json:"address,omitempty"`
	LastAddress string          `json:"last_address,omitempty"`
	Token       leasehold.Token `json:"token,omitempty"`
	LastToken   leasehold.Token `json:"last_token,omitempty"`
}

// PartyOf is who holds a lock, or held it last.
func PartyOf(i leasehold.Info) Party {
	if i.Held {
		return Party{Holder: i.Holder, Address: i.Address, Token: i.Token}
	}
	return Party{LastHolder: i.Holder, LastAddress: i.Address, LastToken: i.Token}
}

// Details are the rest of a record.
type Details struct {
	Layout     leasehold.Layout  `json:"layout,omitempty"`      // unless it is object
	NoIfMatch  bool              `json:"no_if_match,omitempty"` // of epochs that are used without If-Match
	TTL        int64             `json:"ttl_ms,omitempty"`
	Age        *int64            `json:"age_ms,omitempty"` // not there if the store does not tell
	Abandoned  bool              `json:"abandoned"`
	Term       int64             `json:"term,omitempty"` // not there if it was not counted
	AcquiredAt *time.Time        `json:"acquired_at,omitempty"`
	RenewedAt  *time.Time        `json:"renewed_at,omitempty"`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty"` // not there under a session
	Rest       int64             `json:"rest_ms,omitempty"`    // of a free lock: others leave it alone for so much longer
	Session    string            `json:"session,omitempty"`
	Meta       map[string]string `json:"meta,omitempty"`
	Version    string            `json:"version,omitempty"`
	Semaphore  *Semaphore        `json:"semaphore,omitempty"` // of a semaphore only
}

// A Semaphore is the part of a report that only a semaphore has.
type Semaphore struct {
	Size    int     `json:"size"`
	Taken   int     `json:"taken"`
	Holders []Entry `json:"holders"`
	Waiters []Entry `json:"waiters"` // in order: the first is the next
}

// An Entry is the slots that one caller holds in a semaphore, or waits for.
type Entry struct {
	Holder    string          `json:"holder"`
	Weight    int             `json:"weight"`
	Token     leasehold.Token `json:"token,omitempty"` // of a holder
	Since     *time.Time      `json:"since,omitempty"` // when it was granted, or asked for
	Session   string          `json:"session"`
	Abandoned bool            `json:"abandoned"`
}

// Describe is what is known of the lock or semaphore at a URL. The layout is the one that was asked for; empty: any.
func Describe(url string, asked leasehold.Layout, i leasehold.Info) Report {
	if asked == "" {
		asked = i.Layout
	}
	r := Report{
		Lock: url, State: "absent", Party: PartyOf(i),
		Details: Details{
			TTL: i.TTL.Milliseconds(), Abandoned: i.Abandoned,
			AcquiredAt: Known(i.AcquiredAt), RenewedAt: Known(i.RenewedAt), ExpiresAt: Known(i.ExpiresAt),
			Session: i.Session, Meta: i.Meta, Version: string(i.Version), Rest: i.Rest.Milliseconds(), Term: i.Term,
		},
	}
	if asked != leasehold.LayoutObject {
		r.Layout = asked
	}
	r.NoIfMatch = i.NoIfMatch && i.Layout == leasehold.LayoutEpochs // markers do not say
	if i.Held && i.Session != "" {
		r.ExpiresAt = nil // the record is not renewed: the session is
	}
	if !i.Held && !asked.Tokens() {
		r.TTL = 0 // there is no marker that would have one
	}
	switch {
	case i.Held:
		r.State = "held"
	case i.Exists:
		r.State = "free"
	}
	if i.Exists && i.Age >= 0 {
		age := i.Age.Milliseconds()
		r.Age = &age
	}
	if i.Size > 0 {
		r.Semaphore = &Semaphore{i.Size, i.Taken(), entries(i.Holders), entries(i.Waiters)}
	}
	return r
}

// LayoutText is the layout, for people; "" if it is object.
func (d *Details) LayoutText() string {
	if d.NoIfMatch {
		return string(d.Layout) + " without If-Match"
	}
	return string(d.Layout)
}

func entries(of []leasehold.Entry) []Entry {
	all := []Entry{} // [] in JSON, and not null
	for _, s := range of {
		all = append(all, Entry{s.Holder, s.Weight, s.Token, Known(s.Since), s.Session, s.Abandoned})
	}
	return all
}

// Known is a time, or nil if it is the zero time.
func Known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// NotLock is the state of an object that lies among the locks and is none.
const NotLock = "not a lock"

// StateOfForeign is the state of what is no lock here.
func StateOfForeign(err error) string {
	if errors.Is(err, leasehold.ErrMoved) {
		return "moved"
	}
	return NotLock
}

// A Term is one lease of a lock, or several in a row of one candidate: see [admin.Term].
type Term struct {
	Lock    string            `json:"lock"`
	Term    int64             `json:"term,omitempty"` // not there if it was not counted
	Token   leasehold.Token   `json:"token"`
	Holder  string            `json:"holder"`
	Address string            `json:"address,omitempty"`
	Meta    map[string]string `json:"meta,omitempty"`
	Began   *time.Time        `json:"began,omitempty"`
	Ended   *time.Time        `json:"ended,omitempty"` // not there if it goes on
	Why     string            `json:"why,omitempty"`
	Leases  int64             `json:"leases"`      // in a row, of which token is the last one's
	First   leasehold.Token   `json:"first_token"` // the first one's
}

// DescribeTerm is what is known of a lease of the lock at a URL.
func DescribeTerm(url string, t admin.Term) Term {
	return Term{url, t.Term, t.Token, t.Holder, t.Address, t.Meta, Known(t.AcquiredAt), Known(t.Ended), t.Why, t.Leases, t.First}
}

// A Leader is what the sidecar of Kubernetes for leader election answers, and more.
type Leader struct {
	Name    string          `json:"name"` // "" while no leader is known
	Leading bool            `json:"leading"`
	Lock    string          `json:"lock"`
	Token   leasehold.Token `json:"token,omitempty"`
	Address string          `json:"address,omitempty"`
}
