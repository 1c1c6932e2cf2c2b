package leasehold

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/session"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
)

// Limits and default of a lock's TTL. A shorter TTL makes failover faster, costs more writes,
// and loses more leases to a slow store.
const (
	DefaultTTL = protocol.DefaultTTL // 15 s
	MinTTL     = protocol.MinTTL     // 1 s
	MaxTTL     = protocol.MaxTTL     // 24 h
)

// LockOptions are the options of [NewLock]. The zero value and nil mean the defaults. They are
// copied, except for Meta: do not change it afterwards.
type LockOptions struct {
	// TTL is how long a lease lasts without renewal. After the holder died, others take
	// over between TTL + TTL/12 and TTL + TTL/5 after its last renewal. A holder renews
	// every TTL/3, with one write each. Candidates may have different TTLs. Default 15 s.
	TTL time.Duration

	// Holder is this candidate's name, for people to read. Names need not be unique, and a
	// name that survives a restart does not bring the old lease back. Default "HOST/PID".
	Holder string

	// Address is where others can reach the holder: see [ElectionOptions.Peers].
	Address string

	// Meta is stored in the record for others to read, which it may make too large. For one
	// lease, use [WithMeta] and [Lease.SetMeta].
	Meta map[string]string

	// Layout is how the lock is stored. Default LayoutObject.
	Layout Layout

	// NoIfMatch means that the store has no If-Match, or ignores it: see LayoutEpochs and
	// LayoutMarker. All candidates for a lock must agree on it. By default, If-Match is used
	// unless the Proof says that the layout is safe only without.
	NoIfMatch bool

	// Existing keeps the candidate from creating the lock's object: an acquisition fails
	// with store.ErrNotExist instead. So tokens keep growing even if someone deletes the
	// object. Create it once, with admin.Init or `leasehold init`.
	Existing bool

	// Sweep, with LayoutMarker and NoIfMatch, deletes a dead holder's marker once it is
	// older than its TTL and margin by the store's clock. Of two processes that sweep at
	// the same moment, one may delete the other's marker.
	Sweep bool

	// FastStart lets a candidate take over without watching the record first, if it is older
	// than its TTL, margin and 3 s by the store's clock. Valid leases then also rest on that
	// clock, tokens do not. `leasehold doctor` measures it, and a Proof must confirm it. It
	// does not affect holders under a session.
	FastStart bool

	// PollInterval is how often a waiting acquisition polls the lock, ± 25 %, and sooner
	// after a change of holder and when the lock could be taken over. By default it grows
	// from 0.6 s with the time waited, up to TTL/3 or 1.5 s, and never above 10 s. Waiters
	// for a lock under a session poll the session instead. From 20 ms to 24 h.
	PollInterval time.Duration

	// Session puts the lock's leases under a session in the same store. A lease is then
	// valid as long as the session is, and has no renewals of its own. The record is written
	// only when the lock changes hands and for [Lease.SetMeta], so the holder does not notice
	// if someone force-releases the lock. If the store does not say for a TTL what became of
	// a write that may leave the lock held, the session ends.
	Session *Session

	// Proof, if set, must confirm that the store is safe for this use; otherwise NewLock
	// fails with its error. By default the store is trusted, unless it is a Proof itself.
	Proof store.Proof

	// Trace receives events: waits, renewals, lost leases, a failing store, requests.
	Trace *locktrace.Trace

	// Logger receives what no error reports, such as store errors while Acquire waits.
	// Default: slog.Default().
	Logger *slog.Logger

	kind locktrace.Kind // for the Trace
}

// proven returns why the store must not be used for the key, according to the store or the Proof. If
// they refuse the layout, but not without If-Match, it sets NoIfMatch.
func (o *LockOptions) proven(st store.Store, key string) error {
	err := o.proves(st, key, layout.Way(string(o.Layout), o.NoIfMatch))
	if err != nil && !o.NoIfMatch && o.Layout != LayoutObject && o.proves(st, key, layout.Way(string(o.Layout), true)) == nil {
		o.NoIfMatch, err = true, nil
	}
	if err == nil && o.FastStart { // rests on the store's clock, which needs its own proof
		err = o.proves(st, key, "fast start")
	}
	return err
}

// proves returns why the store must not be used in this way, according to the store or the Proof.
func (o *LockOptions) proves(st store.Store, key, use string) error {
	err := store.Proves(st, st.String(), use)
	if err != nil || o.Proof == nil {
		return err
	}
	err = o.Proof.Proves(st.String(), use)
	if err != nil && o.Proof.Proves(layout.Object{Store: st, Key: key}.String(), use) == nil {
		return nil
	}
	return err
}

// withDefaults returns a copy of o, which may be nil, with its defaults, or why an option is invalid.
func (o *LockOptions) withDefaults() (*LockOptions, error) {
	opts := new(LockOptions)
	if o != nil {
		*opts = *o
	}
	if opts.TTL == 0 {
		opts.TTL = DefaultTTL
	}
	if opts.TTL < MinTTL || opts.TTL > MaxTTL {
		return opts, fmt.Errorf("the TTL %v is not between %v and %v", opts.TTL, MinTTL, MaxTTL)
	}
	// The record keeps whole milliseconds, and both sides must count the same.
	opts.TTL = opts.TTL.Truncate(time.Millisecond)
	if opts.Holder == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "unknown"
		}
		opts.Holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if opts.Layout == "" {
		name, noIfMatch := layout.SplitWay(layout.Default)
		opts.Layout, opts.NoIfMatch = Layout(name), opts.NoIfMatch || noIfMatch
	}
	if !slices.Contains(layouts, opts.Layout) {
		return opts, fmt.Errorf("there is no layout %q: use one of %v", opts.Layout, layouts)
	}
	if opts.NoIfMatch && opts.Layout == LayoutObject {
		return opts, fmt.Errorf("the option NoIfMatch says that the store has no If-Match, which the layout %s needs: use the layout %s", opts.Layout, LayoutEpochs)
	}
	if opts.Sweep && opts.Layout != LayoutMarker {
		return opts, fmt.Errorf("the option Sweep is for the layout %s, and this is %s", LayoutMarker, opts.Layout)
	}
	if p := opts.PollInterval; p != 0 && (p < candidate.MinPollInterval || p > MaxTTL) {
		return opts, fmt.Errorf("the option PollInterval %v is not between %v and %v", p, candidate.MinPollInterval, MaxTTL)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts, nil
}

// config returns a candidate's configuration of the protocol.
func (o *LockOptions) config(incarnation string) candidate.Config {
	cfg := candidate.Config{
		Incarnation: incarnation,
		TTL:         o.TTL, Holder: o.Holder, Address: o.Address, Meta: o.Meta,
	}
	// The protocol knows no layouts, only their properties. So a layout with the same properties needs
	// no rule of its own there.
	switch o.Layout {
	case LayoutObject:
	case LayoutEpochs:
		cfg.Numbered, cfg.Layout = true, layout.Epochs{IfMatch: !o.NoIfMatch}.Layout()
	case LayoutMarker:
		cfg.Tokenless, cfg.Layout = true, record.Layout{Name: record.LayoutMarker}
		cfg.WriteOnce, cfg.Sweep = o.NoIfMatch, o.Sweep
	}
	if w := (candidate.Waiter{Taking: o.taking(), PollInterval: o.PollInterval}); w != (candidate.Waiter{}) {
		cfg.Role = w // most have no such options, and allocate nothing
	}
	return cfg
}

func (o *LockOptions) taking() candidate.Taking {
	return candidate.Taking{Existing: o.Existing, FastStart: o.FastStart}
}

// watching returns the configuration of a candidate that watches a session on behalf of one with
// these options. A session is one object: a candidate for a plain marker only creates and sweeps, so
// it could not end the session.
func (o *LockOptions) watching() candidate.Config {
	w := *o
	w.Layout = LayoutObject
	return w.config("")
}

// roomForOurs is more than a record needs for everything that is not in the options: a session's
// name or its heartbeat's last releases, the history, and less than 500 bytes.
const roomForOurs = 2*store.MaxKey + 16*session.MaxFreed + record.MaxHistory + 500

// encodable checks that records with these options can be written. At the first claim, the failure
// would look like a store that refuses writes.
func (o *LockOptions) encodable() error {
	trial := record.Record{Holder: o.Holder, Address: o.Address, Meta: o.Meta}
	b, err := trial.Encode()
	if err != nil || len(b) < record.MaxSize-2*roomForOurs { // most are far below it
		return err
	}
	trial.WriteID = strings.Repeat("x", roomForOurs)
	_, err = trial.Encode()
	return err
}

// newIncarnation returns 128 random bits that identify one candidate from one start on (rule A9).
// They are random because two processes of one image may share names and times.
func newIncarnation() string { return engine.Process{}.Incarnation() }

// Token numbers the leases of one lock, and grows with each. A resource that a former holder
// must not overwrite rejects a smaller token after a larger one: see package fence. Chubby
// calls it a sequencer, and Kleppmann a fencing token.
type Token int64

// Info is a snapshot of a lock's record, for people to read. It is out of date at once: make
// decisions with a [Lease]. Do not change Meta, which may be shared.
type Info struct {
	Key       string
	Layout    Layout
	NoIfMatch bool // the lock's option; always true for a marker
	Exists    bool // if false, the other fields are zero
	Held      bool // according to the record; the holder may have died
	Holder    string
	Address   string            // as the holder wrote it, like Meta
	Session   string            // the key of the holder's session
	Meta      map[string]string // see LockOptions
	Token     Token
	TTL       time.Duration
	Term      int64 // counts the lock's leases from 1, in small numbers; 0: not counted

	// By the holder's wall clock.
	AcquiredAt, RenewedAt, ExpiresAt time.Time

	// Age is the time since the record was written, by the store's clock; -1: unknown.
	Age time.Duration

	// Abandoned is a hint that the holder died: the record, or its session's if that was
	// read, is older than its TTL and margin. No takeover relies on it.
	Abandoned bool

	// Rest is how long the cooldown of a free lock will last: see [WithHoldAtLeast].
	Rest time.Duration

	Version store.Version

	// Of a semaphore: Held means that a slot is taken, Token is of the last grant, and the
	// fields about one holder are empty. Only package admin sets Age and Abandoned.
	Size             int     // the number of slots; 0: it is a lock
	Holders, Waiters []Entry // in order: the first waiter is the next
}

// An Entry is the slots of a semaphore that one caller holds or waits for.
type Entry struct {
	ID        string // of this caller and this acquisition
	Holder    string
	Session   string    // the key of its session
	Weight    int       // the number of slots
	Token     Token     // of a holder
	Since     time.Time // of the grant or, for a waiter, of the request, by its wall clock
	Abandoned bool      // as in Info, so only package admin sets it
}

// Taken returns how many slots of a semaphore are taken.
func (i Info) Taken() (sum int) {
	for _, h := range i.Holders {
		sum += h.Weight
	}
	return sum
}

// layoutOf returns a record's layout.
func layoutOf(r record.Record) Layout {
	if r.Layout.Name == "" {
		return LayoutObject
	}
	return Layout(r.Layout.Name)
}

// describe returns a snapshot's record as an Info.
func describe(key string, s layout.Snapshot) Info {
	r := s.Record
	i := Info{
		Key: key, Layout: layoutOf(r), Exists: true, Held: r.Held, Holder: r.Holder, Address: r.Address, Session: r.Session,
		Meta: r.Meta, Token: Token(r.Token), TTL: r.TTL, Term: r.CountedTerm(),
		AcquiredAt: r.AcquiredAt, RenewedAt: r.RenewedAt, ExpiresAt: r.ExpiresAt,
		Age: -1, Version: store.Version(s.Version),
	}
	if age, told := s.Age(); told {
		i.Age = age
	}
	if r.Opaque {
		i.TTL = 0 // unknown
	}
	i.NoIfMatch = !r.Layout.IfMatch && (i.Layout == LayoutEpochs || i.Layout == LayoutMarker)
	i.Abandoned = s.Abandoned(time.Now()) // under a session: see judged
	i.Rest = s.Rest(time.Now())
	if t := s.Table; t != nil {
		i.Size, i.Holders, i.Waiters = int(t.Size), entriesOf(t.Holders), entriesOf(t.Waiters)
	}
	return i
}

func entriesOf(all []record.Entry) (entries []Entry) {
	for _, e := range all {
		entries = append(entries, Entry{ID: e.ID, Holder: e.Holder, Session: e.Session, Weight: int(e.Weight), Token: Token(e.Token), Since: e.Since})
	}
	return entries
}

// A Layout is the way a lock is stored. All candidates for a lock must use the same one: see
// docs/choosing.md.
type Layout string

const (
	// LayoutObject is one object that is overwritten, with If-None-Match and If-Match. Use it
	// unless the store has no If-Match.
	LayoutObject Layout = "object"

	// LayoutEpochs creates an object, KEY/0000000042.json, for each lease, with If-None-Match,
	// and finds the latest one in a listing. Renewals overwrite it with If-Match or, with
	// LockOptions.NoIfMatch, create an object too. The objects are the lock's history: see
	// admin.History.
	LayoutEpochs Layout = record.LayoutEpochs

	// LayoutMarker is one object that exists while the lock is held, as in other tools that you
	// may have to work with. There are no tokens, and a release that arrives very late deletes
	// the next holder's marker. With LockOptions.NoIfMatch, a lease is not renewed, and a dead
	// holder keeps the lock until its marker is deleted: see LockOptions.Sweep.
	LayoutMarker Layout = record.LayoutMarker
)

var layouts = []Layout{LayoutObject, LayoutEpochs, LayoutMarker}

// Tokens reports whether leases have tokens in this layout. Without tokens, a resource cannot
// reject a former holder, and the lock cannot be under a [Session].
func (l Layout) Tokens() bool { return l != LayoutMarker }

// at returns the layout of the lock under key.
func (o *LockOptions) at(st store.Store, key string) (layout.Layout, error) {
	switch o.Layout {
	case LayoutEpochs:
		e := layout.Epochs{Store: st, Key: key, IfMatch: !o.NoIfMatch}
		return e, e.Check()
	case LayoutMarker:
		switch {
		case o.Existing:
			return nil, errors.New("a marker cannot exist already: one that exists is held")
		case o.Sweep && !o.NoIfMatch:
			return nil, errors.New("the option Sweep is for markers without If-Match: with it, a lock is taken over from a dead holder without Sweep")
		}
		m := layout.Marker{Store: st, Key: key, TTL: o.TTL, IfMatch: !o.NoIfMatch}
		warning := "the layout marker has no tokens, so nothing can refuse what a former holder still sends; and a delete that comes late can free another's lock"
		if o.NoIfMatch {
			warning += "; and without If-Match, a lease is not renewed"
		}
		o.Logger.Warn(warning, "lock", m.String())
		return m, nil
	default:
		return layout.Object{Store: st, Key: key}, nil
	}
}

// NoToken is the token of leases in layouts without tokens.
const NoToken Token = 0

// String returns the number, or "none".
func (t Token) String() string {
	if t == NoToken {
		return "none"
	}
	return strconv.FormatInt(int64(t), 10)
}
