package semaphore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/inside"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// Options are the options of [New], [NewLock] and [NewRWLock]. The zero value, like nil, gives the
// defaults. They are copied.
type Options struct {
	// TTL, Holder, Address, Meta and Proof are as in [leasehold.SessionOptions], for the session that
	// is begun if none is given. The TTL is how long a seat outlives a holder that is gone.
	// Default 15 s.
	TTL     time.Duration
	Holder  string // also with a session given
	Address string
	Meta    map[string]string
	Proof   leasehold.Proof

	// Peers tell other processes what this one has changed: those that wait when it has given them seats, and
	// the only holder when others come or go, so that these need not find out by looking in their turn; package
	// peer does so over HTTPS. If there is an Address too, the others tell this process there: its server calls
	// Changed. Nothing rests on such a word. Default: none.
	Peers Peers

	// Session is what the leases are under. It must be in the same store. Default: one is begun when it is
	// needed, and closed a TTL after the last use.
	Session *leasehold.Session

	// Existing makes the semaphore never create its object, and fail with store.ErrNotExist where
	// there is none: see [leasehold.LockOptions.Existing].
	Existing bool

	// OnWait is called while an acquisition waits: when it begins to, and when its place in the
	// line has changed.
	OnWait func(Place)
	// OnRenew is called after each heartbeat of the session that is begun if none is given, when
	// the deadlines of the leases have moved. It runs beside the other callbacks.
	OnRenew func()
	// OnLost is called once for a lease that ends before it is released, with an error that
	// matches [leasehold.ErrLost], after its context has ended.
	//
	// The callbacks of one semaphore run one after the other, on a goroutine of their own.
	OnLost func(*Lease, error)
	// OnTrouble is called when the store has failed three times in a row, or others have been faster than
	// all writes of this process for ten seconds, and then once a minute while that goes on. Default: the
	// Logger gets it.
	OnTrouble func(error)

	// Trace is told of acquisitions, leases and requests, and of the session that is begun if none is given:
	// see [leasehold.Trace]. Default: none.
	Trace *leasehold.Trace

	// Logger receives events that no error or callback reports. Default: slog.Default().
	Logger *slog.Logger
}

// An AcquireOption is what one acquisition asks for its own lease. One that cannot be had is an error of the
// call, which then sends nothing.
type AcquireOption func(*acquisition) error

// maxHolder bounds a name in bytes: it is written for each that holds or waits.
const maxHolder = 1024

// acquisition is what all the options of one make.
type acquisition struct{ holder string }

// WithHolder names the holder of this lease to people, in place of [Options.Holder]: the caller, for one, where
// one process takes seats for many. It has 1 to 1024 bytes of UTF-8, of which others see the first 96 at most.
func WithHolder(name string) AcquireOption {
	return func(a *acquisition) error {
		a.holder = name
		switch {
		case name == "" || len(name) > maxHolder:
			return fmt.Errorf("WithHolder: the name has %d bytes, and may have 1 to %d", len(name), maxHolder)
		case !utf8.ValidString(name): // all callers share the next write, and it would be the end of each of them
			return fmt.Errorf("WithHolder: the name %q is not valid UTF-8", name)
		}
		return nil
	}
}

// Peers bring another process the word that a semaphore has changed. What it says is a courtesy: a word that is lost,
// late or false costs time, or one look.
type Peers interface {
	// Changed tells the process at an address that the semaphore under a key has changed to this version: that gives
	// it seats, or others have come or gone behind it. It returns soon after ctx has ended. It is called by several
	// goroutines at a time.
	Changed(ctx context.Context, address, key string, version store.Version) error
}

// MaxSize is the largest size of a semaphore: 2^30.
const MaxSize = record.MaxSeats

// A Semaphore is one process's part in a semaphore: an object in a store that leases of at most a
// certain weight hold at a time. Goroutines share it, and what several of them want at one moment is
// one write. It sends nothing unless it is being acquired or released, but for the heartbeat of its
// session. It is safe for concurrent use.
//
// The idea is Dijkstra's; that of a line in which a lease stands by its session is that of ZooKeeper's
// recipes and of etcd's election, with one object in place of one for each that waits.
type Semaphore struct{ d driver }

// New makes this process's part in the semaphore that lies in st under key. It sends nothing. It fails if
// the key, the size or an option cannot be used, and says which.
//
// All that share the semaphore must say the same size: the first who acquires it writes it down, and
// whoever expects another one is refused with [ErrSize].
func New(st store.Store, key string, size int, opts *Options) (*Semaphore, error) {
	return newSemaphore(st, key, int64(size), opts)
}

func newSemaphore(st store.Store, key string, size int64, opts *Options) (*Semaphore, error) {
	if st == nil {
		return nil, errors.New("the store of a semaphore is nil")
	}
	if err := store.CheckKey("semaphore", key); err != nil {
		return nil, err
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if size < 1 || size > MaxSize {
		return nil, fmt.Errorf("semaphore %q: the size %d is not between 1 and %d", key, size, MaxSize)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Semaphore{driver{st: st, key: key, size: size, opts: o, callers: map[protocol.Caller]*caller{}, sessions: map[string]*engine.Session{}}}
	if err := s.d.start(); err != nil {
		return nil, fmt.Errorf("semaphore %q: %w", key, err)
	}
	return s, nil
}

// Key is the name of the semaphore in its store.
func (s *Semaphore) Key() string { return s.d.key }

// Size is how much weight its leases can have together.
func (s *Semaphore) Size() int { return int(s.d.size) }

// Acquire waits in line until it holds seats of that weight, and returns the lease, which lasts until
// it is released. Every lease must be released. Nobody who came later is served first: one that needs
// more than is free keeps all behind it waiting.
//
// Where nobody waits and there is room it costs one write, and a read if this process has not seen the
// object lately. While it waits it looks at the object, the more often the nearer it is to the head.
//
// If ctx ends first, Acquire returns an error that matches ctx.Err() and, where that is known, says who
// holds the seats; its place in the line is given up in the background. It fails at once if trying again
// is pointless: if access is denied, or the semaphore has another size ([ErrSize]); and where there is no
// room for more that wait ([ErrFull]), as soon as it has seen that they are not all gone. While the store fails
// for now, it goes on: if its own session is lost meanwhile it begins another, at the end of the line.
//
// The options are for this one lease: see [AcquireOption].
func (s *Semaphore) Acquire(ctx context.Context, weight int, opts ...AcquireOption) (*Lease, error) {
	return s.d.acquire(ctx, int64(weight), true, opts)
}

// TryAcquire acquires seats of that weight if they are free and nobody waits, and otherwise fails with
// a [*HeldError], which matches [leasehold.ErrHeld]. If that is so and there is no session yet it costs one
// read, and none is begun. If the store fails three times in a row, or does not answer for a TTL, it fails
// with the last reason.
//
// It does not watch those that hold seats. The seats of one that is gone are freed by those that wait, so
// where everybody only tries nobody frees them.
func (s *Semaphore) TryAcquire(ctx context.Context, weight int, opts ...AcquireOption) (*Lease, error) {
	return s.d.acquire(ctx, int64(weight), false, opts)
}

// Do acquires seats of that weight, calls f, and releases them when f has returned or panicked. The
// context that f gets ends with ctx and with the lease, whichever ends first; then f must return.
//
// Do returns f's error, joined with one that matches [leasehold.ErrLost] if the lease was lost
// before f returned. f may release the lease itself. Do returns an error of Acquire without calling f.
func (s *Semaphore) Do(ctx context.Context, weight int, f func(ctx context.Context, lease *Lease) error, opts ...AcquireOption) error {
	lease, err := s.Acquire(ctx, weight, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// Inspect reads the semaphore without taking part in it, by one read. One that does not exist is an
// Info that says so, not an error.
func (s *Semaphore) Inspect(ctx context.Context) (Info, error) {
	shown, err := s.d.at().Look(ctx, "")
	switch {
	case errors.Is(err, store.ErrNotExist):
		return Info{Key: s.d.key}, nil
	case err != nil:
		return Info{}, s.d.explain(err)
	}
	s.d.Tell(protocol.TokenSighted{Token: shown.Table.Token})
	info := infoOf(s.d.key, shown.Table)
	info.Version = store.Version(shown.Version)
	return info, nil
}

// Changed takes in the word of another process that the object has changed to this version. If callers of this one
// wait, that brings their next look forward, and the look decides. If one holds a seat and nobody else does, it looks
// soon, so that its release need not: once a second at most after the first time. Until the object has changed one
// word is heeded. It sends nothing itself, and returns at once.
func (s *Semaphore) Changed(version store.Version) {
	s.d.Tell(protocol.Told{Version: protocol.Version(version)})
}

// Close waits until the semaphore's leases have been released and nothing is under way of acquisitions that were
// given up, ends the session that it has begun, if there is one, and then waits until others have heard of the
// seats that they got. It releases nothing itself: work in the seats goes on until they are released. Under a
// session that was given it waits for no lease.
//
// Where a release or an acquisition that was given up is not settled in half of the time that ctx leaves, because many
// leave at once or the store does not answer, Close ends the session without it: nothing else is under it then, and
// its end frees the seats. Those who wait see that at their next look at it, within a third of a TTL.
//
// If ctx ends first, Close returns an error that matches ctx.Err(), and may be called again; if ctx has ended
// before the call, it waits up to 5 s all the same. If the session was lost, the error matches
// [leasehold.ErrLost]. A semaphore that is not closed ends that session by itself a TTL after the last use. It
// can be used again after Close.
func (s *Semaphore) Close(ctx context.Context) error { return s.d.close(ctx) }

// Info is what the object of a semaphore said when it was read.
// It is a snapshot, and old as soon as it is there: decide by a [Lease].
type Info struct {
	Key     string
	Exists  bool // if not, the rest is zero
	Size    int
	Token   leasehold.Token // of the last grant
	Holders []Seat
	Waiters []Seat // in order: the first is the next
	Version store.Version
}

// A Seat is what one caller has in a semaphore, or waits for.
type Seat struct {
	ID      string // of this caller and this acquisition
	Holder  string
	Session string // the key of its session's object
	Weight  int
	Token   leasehold.Token // of a holder
	// Since is when the seat was granted, or, of one that waits, asked for: by the wall clock of
	// whoever wrote that.
	Since time.Time
	// Abandoned is a hint that its holder is gone: that its session is over, or silent. It takes a read of
	// the session to know, so only admin.Inspect and admin.List say it.
	Abandoned bool
}

// Taken is how much weight the holders have together.
func (i Info) Taken() (sum int) {
	for _, h := range i.Holders {
		sum += h.Weight
	}
	return sum
}

func infoOf(key string, t record.Table) Info {
	seats := func(of []record.Seat) (all []Seat) {
		for _, s := range of {
			all = append(all, Seat{
				ID: s.ID, Holder: s.Holder, Session: s.Session, Weight: int(s.Weight),
				Token: leasehold.Token(s.Token), Since: s.Since,
			})
		}
		return all
	}
	return Info{Key: key, Exists: true, Size: int(t.Size), Token: leasehold.Token(t.Token), Holders: seats(t.Holders), Waiters: seats(t.Waiters)}
}

// Place is where an acquisition stands that waits.
type Place struct {
	Ahead int // how many wait before it
	Info  Info
}

// Errors that a caller can decide by, besides those of package leasehold.
var (
	// ErrSize: the object has another size than this process expects. Somebody has been configured
	// differently.
	ErrSize = protocol.ErrSize
	// ErrFull: so many wait that the object has no room for more: some thousand.
	ErrFull = record.ErrTableFull
)

// HeldError says who holds the seats. It matches [leasehold.ErrHeld]. Its Info is as old as the last look.
type HeldError struct{ Info Info }

func (e *HeldError) Error() string {
	i := e.Info
	text := fmt.Sprintf("the semaphore %s has %d of %d seats taken", i.Key, i.Taken(), i.Size)
	if len(i.Holders) > 0 {
		text += fmt.Sprintf(", by %s", i.Holders[0].Holder)
	}
	if n := len(i.Holders); n > 1 {
		text += fmt.Sprintf(" and %d more", n-1)
	}
	if n := len(i.Waiters); n > 0 {
		text += fmt.Sprintf(", and %d wait", n)
	}
	return text
}

// Is reports whether target is leasehold.ErrHeld.
func (e *HeldError) Is(target error) bool { return target == leasehold.ErrHeld }

func init() { inside.ShowTable(infoOf) }

var (
	lockView    = inside.Seen[*leasehold.Lock, leasehold.Info, leasehold.Detached]
	sessionView = inside.SeenSession[*leasehold.Session]
)

func (d *driver) at() layout.Table { return layout.Table{Store: d.st, Key: d.key} }
