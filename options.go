package leasehold

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/inside"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// The TTL of a lock.
//
// Fifteen seconds are the usual length of a lease in Kubernetes too. A shorter TTL makes failover
// faster, and costs more writes and more leases lost to a slow store. Below a second one slow
// answer is enough; above a day a crash costs a day.
const (
	DefaultTTL = protocol.DefaultTTL // 15 s
	MinTTL     = protocol.MinTTL     // 1 s
	MaxTTL     = protocol.MaxTTL     // 24 h
)

// LockOptions are the options of [NewLock]. The zero value, like nil, gives the
// defaults.
//
// NewLock copies them; Meta must not be changed afterwards, since each write encodes it anew.
type LockOptions struct {
	// TTL is how long the lock outlives a holder that is gone: the others take
	// over between TTL + TTL/12 and TTL + TTL/5 after its last renewal. A holder
	// renews every TTL/3, one write each. Candidates of one lock may have
	// different TTLs. Default 15 s; from 1 s to 24 h.
	TTL time.Duration

	// Holder names this candidate to people. Two candidates may have the same
	// name: no decision rests on it. Only a successor is named by it, and where
	// several have that name they all go first. A name that is the same after a restart
	// is easier to read, and does not bring the old lease back: a candidate that starts
	// anew is another one (rule A9). Default "HOST/PID".
	Holder string

	// Address is where the holder can be reached, for whoever reads the record. Nothing
	// here connects to it but [ElectionOptions.Peers]. Default: none.
	Address string

	// Meta is kept in the record, for whoever reads it; [WithMeta] and [Lease.SetMeta] are for
	// that of one lease. NewLock fails if it makes the record too large.
	Meta map[string]string

	// Existing makes the candidate never create the lock's object, and fail
	// with store.ErrNotExist where there is none. Then tokens grow even if
	// somebody deletes the object, because nobody starts it anew: make it once,
	// with admin.Init or `leasehold init`.
	Existing bool

	// Layout is how the lock lies in the store. Default LayoutObject.
	Layout Layout

	// Sweep, with LayoutMarker, deletes the marker of a holder that is gone, when it
	// is older than its TTL and margin by the store's own clock, and takes the lock.
	// If two processes sweep at the same moment, one may delete the other's marker.
	Sweep bool

	// FastStart lets a candidate take over from a holder whose record is older than its
	// TTL and margin and 3 s by the store's own clock, without watching it first. So a
	// new Lock that does not wait can take over too. The guarantee for valid leases
	// then rests on that clock as well; the one for tokens does not. Only for stores
	// whose times are known to be right: `leasehold doctor` measures that, and a Proof
	// must say so. A holder under a session is not affected.
	FastStart bool

	kind TraceKind // of the lock, for its Trace

	// PollInterval is how long an acquisition that waits pauses between two looks at the lock, give
	// or take a quarter; the first pauses after a change of holder are shorter, and grow from 20 ms by
	// half. The shorter it is, the less time a lock stands idle that was released, and the more requests a
	// waiter sends. No pause outlasts the holder's TTL and margin, when the lock could be taken over.
	// From 20 ms to 24 h. Default 0.6 s and a 600th of the time that it has waited for this
	// holder, which is one look a second in the first ten minutes; at most TTL/3, or 1.5 s if that
	// is longer, and at most 10 s. It says nothing about a lock that is held under a session, whose
	// waiters look at the session, and it is refused for an election, which has
	// [ElectionOptions.Frequent] and Infrequent.
	PollInterval time.Duration

	// Session puts the lock's leases under a session, which must be in the same store: a lease
	// is valid as long as both are, and is not renewed by itself. The lock's record is written
	// when it changes hands and for [Lease.SetMeta] only, so its holder does not notice when
	// somebody breaks the lock by hand or deletes its object. Layouts without tokens cannot be under a session.
	//
	// Should an acquisition be given up, or a lease released, and the store not say for a TTL
	// what became of the write, the session is ended, because nobody would ever free that lock
	// otherwise. Default: none, the lease is renewed by itself.
	Session *Session

	// Proof, if set, must say that the store is safe for this layout: else NewLock
	// fails with its error and sends nothing. A report of probe.Run is one, as
	// `leasehold doctor` prints it. A store that is a Proof itself, since it knows what it
	// cannot carry, is asked too. Default: the store is trusted.
	Proof Proof

	// OnWait is called while an acquisition waits: when it begins to, and when
	// the lock has got another holder.
	OnWait func(Info)
	// OnRenew is called after each renewal, when the lease's deadline has moved.
	OnRenew func(*Lease)
	// OnLost is called once for a lease that ends before it is released, with
	// an error that matches ErrLost, after its context has ended.
	//
	// The callbacks of one lock run one after the other on a goroutine of their
	// own: one that hangs delays the others, but never a renewal or the end of
	// a lease.
	OnLost func(*Lease, error)
	// OnTrouble is called when the store has failed three times in a row, whatever was
	// asked of it, and then once a minute while that goes on, with the last error. The
	// lock is tried for all the same, with pauses that grow from 100 ms to 4 s. Default:
	// the Logger gets it.
	OnTrouble func(error)

	// Trace is told of acquisitions, leases and requests, for metrics and spans. Default: none.
	Trace *Trace

	// Logger receives events that no error or callback reports: that the store fails, for one, for
	// which Acquire waits until its context ends. Default: slog.Default().
	Logger *slog.Logger
}

// Proof is what was found out about a store.
// An interface, so that the root need not import the package that tests stores.
type Proof interface {
	// Proves returns nil if the store that calls itself storeName is safe for the use:
	// the name of a layout, or "fast start". It is called by NewLock, NewElection and NewSession, with the
	// store's name, and if that is not safe with the lock's, which lies in it: the proof may be about a part of the
	// store alone.
	Proves(storeName, use string) error
}

// proven says why the store may not be used for a key, by its own word or by a proof that is asked for.
func (o *LockOptions) proven(st store.Store, key string) error {
	uses := []string{string(o.Layout)}
	if o.FastStart { // a promise of its own, about the store's clock, so it takes a proof of its own
		uses = append(uses, "fast start")
	}
	own, _ := st.(Proof)
	for _, use := range uses {
		if own != nil {
			if err := own.Proves(st.String(), use); err != nil {
				return err
			}
		}
		if o.Proof == nil {
			continue
		}
		if err := o.Proof.Proves(st.String(), use); err != nil && o.Proof.Proves(layout.Object{Store: st, Key: key}.String(), use) != nil {
			return err
		}
	}
	return nil
}

// withDefaults returns o, which may be nil, with its defaults, or why it cannot
// be used.
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
		opts.Layout = Layout(inside.DefaultLayout)
	}
	if opts.Sweep && opts.Layout != LayoutMarker {
		return opts, fmt.Errorf("the option Sweep is for the layout %s, and this is %s", LayoutMarker, opts.Layout)
	}
	if p := opts.PollInterval; p != 0 && (p < protocol.MinPollInterval || p > MaxTTL) {
		return opts, fmt.Errorf("the option PollInterval %v is not between %v and %v", p, protocol.MinPollInterval, MaxTTL)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts, nil
}

// config makes the protocol's configuration of a candidate.
func (o *LockOptions) config(incarnation string) protocol.Config {
	cfg := protocol.Config{
		Incarnation: incarnation,
		TTL:         o.TTL, Holder: o.Holder, Address: o.Address, Meta: o.Meta, Existing: o.Existing,
		FastStart: o.FastStart, PollInterval: o.PollInterval,
	}
	o.Layout.configure(&cfg, o.Sweep)
	return cfg
}

// watching is the configuration of a candidate that watches a session for one with these
// options: the session lies in one object, and is watched for its TTL and margin whatever the
// store's clock says (rule D3). A candidate of a plain marker only creates and sweeps, so it could
// not end the session.
func (o *LockOptions) watching() protocol.Config {
	w := *o
	w.Layout, w.FastStart = LayoutObject, false
	return w.config("")
}

// roomForOurs is more than what a record needs for all that the options do not say: the name of
// a session, or what its heartbeat tells of the last releases, the history, and less than 500 bytes.
const roomForOurs = 2*store.MaxKey + 16*protocol.MaxFreed + record.MaxHistory + 500

// encodable finds out now whether records with these options can be written.
// Found out at the first claim, it would look like a store that refuses writes.
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

// newIncarnation makes 128 random bits: the mark of one candidate and one start
// (rule A9).
// It is drawn, not derived from a name or a time: two processes of one image may share those.
func newIncarnation() string { return engine.Process{}.Incarnation() }

// Token numbers the acquisitions of one lock: it grows with each, and each lease
// has its own. Whatever must not be overwritten by a former holder refuses a
// smaller token after a larger one. In the layouts without tokens every lease has
// NoToken, which nothing can be refused by.
//
// The idea is Chubby's sequencer and Kleppmann's fencing token; in ZooKeeper a zxid serves for it,
// in etcd a revision. A token is worth only as much as the resource that checks it: see package
// fence.
type Token int64

// Info is what the record of a lock said when it was read.
// It is a snapshot, and old as soon as it is there: decide by a [Lease], and show an Info to
// people. Its Meta may be shared, so do not change it.
type Info struct {
	Key    string
	Layout Layout
	Exists bool // there is an object, or need be none; if not, the rest is zero
	Held   bool // its record says so: the holder may be gone
	Holder string
	// Address, Session and Meta are as the holder wrote them.
	Address string
	Session string
	Meta    map[string]string
	Token   Token
	TTL     time.Duration

	// Term is the number of the lease among those of its lock, from 1: a small number beside a
	// token that need not be. It is for people, and nothing may be decided by it. 0 if it was not
	// counted: by a marker, or by a version that does not count.
	Term int64

	// For people, by the holder's wall clock.
	AcquiredAt, RenewedAt, ExpiresAt time.Time

	// Age is the time since the record was written, by the store's own clock;
	// -1 if the store does not tell.
	Age time.Duration

	// Abandoned is a hint that the holder is gone: the record is older than its
	// TTL and margin by the store's clock, or, where that does not tell, by the
	// wall clocks. Under a session it is the session's heartbeat that counts, and
	// the record's age says nothing; where nobody has looked at that, as for a
	// Change that was seen, it is false. No decision of the protocol rests on it. A
	// waiting Acquire finds out by watching, in a little over one TTL.
	Abandoned bool

	// Rest is for how much longer a lock that is free is to be left alone, since its last holder has
	// asked for that ([WithHoldAtLeast]); 0: it can be acquired at once. It is by the store's clock,
	// or, where that does not tell, by the wall clocks, and then it is a hint.
	Rest time.Duration

	Version store.Version
}

// layoutOf is the layout of a record.
func layoutOf(r record.Record) Layout {
	if r.Layout == "" {
		return LayoutObject
	}
	return Layout(r.Layout)
}

// describe makes an Info of the record that a snapshot shows.
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
		i.TTL = 0 // nothing is known of it
	}
	i.Abandoned = s.Abandoned(time.Now()) // under a session: see judged
	i.Rest = s.Rest(time.Now())
	return i
}
