package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/store"
)

// tokenFlag has no variable: LEASEHOLD_TOKEN tells a command its own token, which
// is none to break.
const tokenFlag = "token"

func (a *app) breakLock() *cobra.Command {
	var (
		token int64
		opts  leasehold.LockOptions
	)
	cmd := &cobra.Command{
		Use:   "break LOCK --token N",
		Short: "Force-release a lock",
		Long: `Free a lock by hand, if its token is still N: the one that leasehold status shows.

A lock whose holder is gone needs none of this: a waiter takes it over after a little
more than its TTL.

The former holder, if it is alive after all, does not know before its next renewal,
up to a third of the TTL later, and may work on until then WHILE ANOTHER ALREADY
HOLDS THE LOCK. Only a resource that refuses a smaller token after a larger one is
protected from that. So make sure first that the holder is gone.

Of a semaphore the token is that of one holder, whose session is ended, with all that
is under it; its seats go to those that wait.

A lock that rests, because leasehold run --hold-at-least has asked for it, is free to be
taken at once then.

Without --layout the layout is found out. Where that cannot be certain, because locks
of two layouts lie under the name or the store lists nothing for you, the lock is left
as it is, with exit code 65 or 77, until --layout says which is meant.

The exit code is 0 when the lock is free, also if it was before, 66 if there is no
such lock, and 75 if it is held with another token.`,
		Example: "  leasehold break jobs/backup --token 1763625000123",
		Args:    one,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed(tokenFlag) {
				return usage("no --%s given: take the one that leasehold status shows, once you are sure that its holder is gone", tokenFlag)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			if !chosen(cmd) {
				p, e, err := a.choose(ctx, args[0], &opts)
				if err != nil {
					return err
				}
				if e.Semaphore != nil {
					return a.freeSeats(ctx, p, e, leasehold.Token(token))
				}
			}
			if !opts.Layout.Tokens() {
				return usage("with --layout %s there is no token to break a lock by: if its holder is gone, delete its marker, or see leasehold gc", opts.Layout)
			}
			p, lock, err := a.open(ctx, args[0], &opts)
			if err != nil {
				return err
			}
			return a.free(ctx, p, lock, leasehold.Token(token))
		},
	}
	cmd.Flags().Int64Var(&token, tokenFlag, 0, "the `token` that the lock must still have")
	layoutFlag(cmd.Flags(), &opts.Layout)
	return cmd
}

// choose finds out the layout of a lock that is to be written, and guesses nothing: where
// there may be another lock under the name, that is an error.
func (a *app) choose(ctx context.Context, name string, opts *leasehold.LockOptions) (target, admin.Entry, error) {
	p, err := a.locate(ctx, name, "")
	if err != nil {
		return target{}, admin.Entry{}, err
	}
	p.store = a.withTimeout(p.store)
	e, err := a.findOut(ctx, &p, opts)
	switch {
	case err != nil && e.Semaphore != nil && unlisted(err): // with epochs beside it, it would be this one all the same
		err = nil
	case err != nil && e.Exists && unlisted(err):
		err = fmt.Errorf("%w; the lock is left as it is, because another may lie under the same name: give --layout", err)
	case err == nil && !e.Exists:
		err = fmt.Errorf("the lock %s: %w", a.objectAt(p.key), store.ErrNotExist)
	}
	if err != nil {
		return target{}, admin.Entry{}, failed(err)
	}
	return p, e, nil
}

// freeSeats frees the seats of the holder with a token, and says what it did.
func (a *app) freeSeats(ctx context.Context, p target, before admin.Entry, token leasehold.Token) error {
	after, err := admin.BreakSeat(ctx, p.store, p.key, token)
	if err != nil {
		return failed(err)
	}
	r := describeEntry(p, after)
	text, freed := fmt.Sprintf("%s was free already\n", r.Lock), false
	for _, h := range before.Semaphore.Holders {
		if h.Token == token {
			freed = true
			text = fmt.Sprintf("%s freed: %s had %s, token %d\n", r.Lock, plain.Word(h.Holder), plural(h.Weight, "seat"), token)
			a.console.warn("%s may work on until the next heartbeat of its session, a third of its TTL from now at most", plain.Word(h.Holder))
		}
	}
	return a.print(text, struct {
		Freed bool `json:"freed"`
		report
	}{freed, r})
}

// free breaks a lock, and says what it did.
func (a *app) free(ctx context.Context, p target, lock *leasehold.Lock, token leasehold.Token) error {
	before, err := inspect(ctx, p, lock)
	if err != nil {
		return err
	}
	after := before
	if before.Held || before.Rest > 0 || !before.Exists {
		if after, err = breakThrough(ctx, lock, token); errors.Is(err, admin.ErrTokenChanged) && !after.Held {
			err = nil // it was freed meanwhile, and perhaps more than once
		}
	}
	if err != nil {
		return failed(err)
	}
	freed := before.Held && after.Token == before.Token
	r := describe(p, after)
	text := fmt.Sprintf("%s was free already: token %d\n", r.Lock, after.Token)
	switch {
	case before.Rest > 0 && after.Rest == 0 && after.Token == before.Token:
		text = fmt.Sprintf("%s rests no more: token %d\n", r.Lock, after.Token)
	case freed:
		text = fmt.Sprintf("%s freed: it was held by %s, token %d\n", r.Lock, plain.Word(before.Holder), after.Token)
		a.console.warn("%s may work on until its next renewal, up to %v from now", plain.Word(before.Holder), (before.TTL / 3).Round(time.Millisecond))
	}
	return a.print(text, struct {
		Freed bool `json:"freed"`
		report
	}{freed, r})
}

// breakThrough tries again where a renewal was faster.
func breakThrough(ctx context.Context, lock *leasehold.Lock, token leasehold.Token) (info leasehold.Info, err error) {
	for range 3 {
		info, err = admin.Break(ctx, lock, token)
		if !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	return info, err
}
