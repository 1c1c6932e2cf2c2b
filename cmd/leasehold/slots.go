package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/watchview"
	"github.com/leasehold/leasehold/semaphore"
)

// layoutTable is how a semaphore lies in its store, which is no layout of a lock.
const layoutTable leasehold.Layout = record.LayoutTable

// slotFlags are the flags of run that take slots in a semaphore instead of a lock.
type slotFlags struct {
	size, weight            int
	fair, shared, exclusive bool
}

// kindFlags are those that say what kind it is.
var kindFlags = []string{"slots", "fair", "shared", "exclusive"}

func (s *slotFlags) flags(f *pflag.FlagSet) {
	f.IntVar(&s.size, "slots", 0, "run at most `N` at a time, first come, first served")
	f.IntVar(&s.weight, "weight", 1, "with --slots: number of `slots` to take")
	f.BoolVar(&s.fair, "fair", false, "use a fair lock: first come, first served")
	f.BoolVar(&s.shared, "shared", false, "take a reader/writer lock for reading, beside other readers")
	f.BoolVar(&s.exclusive, "exclusive", false, "take a reader/writer lock for writing, alone")
}

// kind is the flag that says which kind it is; "": none, it is a lock.
func (s *slotFlags) kind(cmd *cobra.Command) (kind string, err error) {
	given := map[string]bool{"slots": cmd.Flags().Changed("slots"), "fair": s.fair, "shared": s.shared, "exclusive": s.exclusive}
	for _, flag := range kindFlags {
		switch {
		case !given[flag]:
		case kind != "":
			return "", usage("--%s and --%s exclude each other", kind, flag)
		default:
			kind = flag
		}
	}
	return kind, nil
}

// check makes sure of the flags, and of those that have no meaning beside them.
func (s *slotFlags) check(cmd *cobra.Command, h *runCmd) (kind string, err error) {
	kind, err = s.kind(cmd)
	if err == nil {
		err = s.suits(kind, cmd.Flags().Changed, h)
	}
	return kind, err
}

// suits says what cannot be together with a kind.
func (s *slotFlags) suits(kind string, changed func(flag string) bool, h *runCmd) error {
	switch {
	case changed("weight") && kind != "slots":
		return usage("--weight is for --slots, and there is none")
	case kind == "":
		return nil
	case kind == "slots" && (s.size < 1 || s.size > semaphore.MaxSize):
		return usage("--slots %d is not between 1 and %d", s.size, semaphore.MaxSize)
	case kind == "slots" && (s.weight < 1 || s.weight > s.size):
		return usage("--weight %d is not between 1 and --slots %d", s.weight, s.size)
	case h.opts.Layout != leasehold.LayoutObject:
		return usage("--%s and --layout %s exclude each other: a semaphore is one object", kind, h.opts.Layout)
	case h.atLeast > 0:
		return usage("--%s and --hold-at-least exclude each other: whoever waits gets a slot as soon as it is free", kind)
	case changed("max-hold"):
		return usage("--%s and --max-hold exclude each other: a slot is held for as long as the command takes; end the command with timeout(1)", kind)
	case len(h.claims.names) > 0 && (kind == "slots" || kind == "shared"):
		return usage("--%s and --claim exclude each other: several work at one time, so the newest token must not keep the others out", kind)
	}
	return nil
}

// A semaphoreContest acquires a semaphore, a fair lock or a reader/writer lock.
type semaphoreContest struct {
	at            target
	take, tryTake func(context.Context) (*leasehold.Lease, error)
	close         func(context.Context) error
}

// enroll returns the contest for the kind that the flags choose.
func (s *slotFlags) enroll(kind string, p target, opts *semaphore.Options) (contest, error) {
	switch kind {
	case "slots":
		sem, err := semaphore.New(p.store, p.key, s.size, opts)
		if err != nil {
			return nil, err
		}
		weighted := func(take func(context.Context, int, ...leasehold.AcquireOption) (*leasehold.Lease, error)) func(context.Context) (*leasehold.Lease, error) {
			return func(ctx context.Context) (*leasehold.Lease, error) { return take(ctx, s.weight) }
		}
		return &semaphoreContest{p, weighted(sem.Acquire), weighted(sem.TryAcquire), sem.Close}, nil
	case "fair":
		lock, err := semaphore.NewLock(p.store, p.key, opts)
		if err != nil {
			return nil, err
		}
		return &semaphoreContest{p, lock.Acquire, lock.TryAcquire, lock.Close}, nil
	}
	lock, err := semaphore.NewRWLock(p.store, p.key, opts)
	switch {
	case err != nil:
		return nil, err
	case kind == "shared":
		return &semaphoreContest{p, lock.RLock, lock.TryRLock, lock.Close}, nil
	}
	return &semaphoreContest{p, lock.Lock, lock.TryLock, lock.Close}, nil
}

// semaphoreOptions returns the lock's options for a semaphore.
func (h *runCmd) semaphoreOptions() *semaphore.Options {
	o := &h.opts
	return &semaphore.Options{
		TTL: o.TTL, Holder: o.Holder, Address: o.Address, Meta: o.Meta, Proof: o.Proof, Existing: o.Existing,
		Trace: o.Trace, Logger: o.Logger,
	}
}

func (c *semaphoreContest) acquire(ctx context.Context) (held, error) { return c.taken(ctx, c.take) }

func (c *semaphoreContest) try(ctx context.Context) (held, error) { return c.taken(ctx, c.tryTake) }

func (c *semaphoreContest) taken(ctx context.Context, take func(context.Context) (*leasehold.Lease, error)) (held, error) {
	return leased(func(ctx context.Context) (*slotLease, error) {
		lease, err := take(ctx)
		return &slotLease{lease, c.close}, err
	})(ctx)
}

// mostAsked bounds how many sessions are looked at to find one that is over.
const mostAsked = 32

// gone looks at the sessions of those who hold slots or wait, from one that is drawn by lot, until one
// looks to be over. That they cannot be read says nothing.
func (c *semaphoreContest) gone(ctx context.Context, err error) *gone {
	held, ok := errors.AsType[*leasehold.HeldError](err)
	if !ok {
		return nil
	}
	entries := slices.Concat(held.Info.Holders, held.Info.Waiters)
	for i := range min(len(entries), mostAsked) {
		if i == 0 {
			n := rand.N(len(entries))
			entries = slices.Concat(entries[n:], entries[:n])
		}
		e := entries[i]
		s, err := layout.Heartbeat{Store: c.at.store, Key: e.Session}.Look(ctx, "")
		if err == nil && (!s.Record.Held || s.Abandoned(time.Now())) {
			return &gone{party{Holder: e.Holder, Token: e.Token}, e.Holder, s.Record.TTL}
		}
	}
	return nil
}

// Settle ends the session too, which nothing is under then.
func (c *semaphoreContest) Settle(ctx context.Context) error { return c.close(ctx) }

// A slotLease is a lease of slots whose session ends with it.
type slotLease struct {
	*leasehold.Lease
	close func(context.Context) error
}

// Release gives the slots back, and ends the session. The end of the session frees them too, where the
// release is not done in half of the time.
func (s *slotLease) Release(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- s.close(ctx) }()
	err := s.Lease.Release(ctx)
	if <-closed != nil || errors.Is(err, leasehold.ErrLost) {
		return err
	}
	return nil
}

// semaphoreBlocker returns the holders that an acquisition waits for, and its place in the queue.
func semaphoreBlocker(i leasehold.Info, ahead int) *blocker {
	b := &blocker{ahead: &ahead}
	if len(i.Holders) == 0 {
		return b
	}
	b.party = firstOf(i)
	by := watchview.HoldersOf(i)
	b.who = fmt.Sprintf("where %d of %d slots are taken, by %s", i.Taken(), i.Size, by)
	if how := lockHeld(i); how != "" {
		b.who = how + " by " + by
	}
	b.token = alone(i)
	b.place = ", next in the queue"
	if ahead > 0 {
		b.place = fmt.Sprintf(", %d before it", ahead)
	}
	return b
}

// lockHeld says how a fair lock or a reader/writer lock is held; "": it is neither.
func lockHeld(i leasehold.Info) string {
	switch {
	case i.Size == 1:
		return "held"
	case i.Size == semaphore.RWSize && i.Taken() == semaphore.RWSize:
		return "held for writing"
	case i.Size == semaphore.RWSize:
		return "held for reading"
	}
	return ""
}

// alone is the token of a holder beside whom nobody can work: others name a lease, and fence nothing.
func alone(i leasehold.Info) leasehold.Token {
	if len(i.Holders) == 1 && i.Taken() == i.Size {
		return i.Holders[0].Token
	}
	return leasehold.NoToken
}

// howToTake says what a semaphore of a size is, and by which flag run takes it.
func howToTake(size int) string {
	switch size {
	case 1:
		return "a fair lock: leasehold run takes it with --fair"
	case semaphore.RWSize:
		return "a reader/writer lock: leasehold run takes it with --shared or --exclusive"
	}
	return fmt.Sprintf("a semaphore with %s: leasehold run takes them with --slots %d", plural(size, "slot"), size)
}

// slotsTaken says who holds a semaphore.
func slotsTaken(name string, i leasehold.Info) string {
	by := watchview.HoldersOf(i)
	if by == "" {
		return name + " is taken"
	}
	if how := lockHeld(i); how != "" {
		return name + " is " + how + " by " + by
	}
	return fmt.Sprintf("%d of %d slots of %s are taken, by %s", i.Taken(), i.Size, name, by)
}
