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
		Long: `Force-release a lock, if its token is still N. leasehold status shows the token.

Make sure first that the holder has died. A holder that is alive notices only at
its next renewal, up to TTL/3 later, and may work until then WHILE ANOTHER
ALREADY HOLDS THE LOCK. Only a resource that rejects a smaller token after a
larger one is protected from that. If the holder has died, a waiter takes the
lock over a little after its TTL, without this command.

Semaphores: the token is that of one holder. Its session is ended, with
everything under it, and its slots go to the waiters.

Cooldown: a lock that leasehold run --hold-at-least still keeps becomes free at
once.

Layout: without --layout, the layout is detected. If it is uncertain, because
locks of two layouts have the same name or you may not list the store, the lock
is not changed, and the exit code is 65 or 77: give --layout.

Exit codes:
  0   the lock is free, or was free before
  66  the lock does not exist
  75  the lock is held with another token
  others as for leasehold run`,
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
				if e.Size > 0 {
					return a.freeSlots(ctx, p, e, leasehold.Token(token))
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
	cmd.Flags().Int64Var(&token, tokenFlag, 0, "`token` that the lock must still have")
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
	case e.Size > 0 && unlisted(err): // with epochs beside it, it would be this one all the same
		err = nil
	case e.Exists && unlisted(err):
		err = fmt.Errorf("%w; the lock is left as it is, because another may lie under the same name: give --layout", err)
	case err == nil && !e.Exists:
		err = fmt.Errorf("the lock %s: %w", a.objectAt(p.key), store.ErrNotExist)
	}
	if err != nil {
		return target{}, admin.Entry{}, failed(err)
	}
	return p, e, nil
}

// freeSlots frees the slots of the holder with a token, and says what it did.
func (a *app) freeSlots(ctx context.Context, p target, before admin.Entry, token leasehold.Token) error {
	after, err := admin.BreakHolder(ctx, p.store, p.key, token)
	if err != nil {
		return failed(err)
	}
	r := describe(p, after.Info)
	text, freed := fmt.Sprintf("%s was free already\n", r.Lock), false
	for _, h := range before.Holders {
		if h.Token == token {
			freed = true
			text = fmt.Sprintf("%s freed: %s had %s, token %d\n", r.Lock, plain.Word(h.Holder), plural(h.Weight, "slot"), token)
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
	case after.Rest > 0: // with another token
		text = fmt.Sprintf("%s was free already, and rests: token %d\n", r.Lock, after.Token)
	case before.Rest > 0 && after.Token == before.Token:
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
