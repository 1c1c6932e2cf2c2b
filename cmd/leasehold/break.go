package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
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
		Short: "Free a lock by hand",
		Long: `Free a lock by hand, if its token is still N: the one that leasehold status shows.

A lock whose holder is gone needs none of this: a waiter takes it over after a little
more than its TTL.

The former holder, if it is alive after all, does not know before its next renewal,
up to a third of the TTL later, and may work on until then WHILE ANOTHER ALREADY
HOLDS THE LOCK. Only a resource that refuses a smaller token after a larger one is
protected from that. So make sure first that the holder is gone.

The exit code is 0 when the lock is free, also if it was before, 66 if there is no
such lock, and 75 if it is held with another token.`,
		Example: "  leasehold break jobs/backup --token 1763625000123",
		Args:    one,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed(tokenFlag) {
				return usage("no --%s given: take the one that leasehold status shows, once you are sure that its holder is gone", tokenFlag)
			}
			if !opts.Layout.Tokens() {
				return usage("with --layout %s there is no token to break a lock by: if its holder is gone, delete its marker, or see leasehold gc", opts.Layout)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
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

// free breaks a lock, and says what it did.
func (a *app) free(ctx context.Context, p target, lock *leasehold.Lock, token leasehold.Token) error {
	before, err := inspect(ctx, p, lock)
	if err != nil {
		return err
	}
	after := before
	if before.Held || !before.Exists {
		if after, err = breakThrough(ctx, lock, token); errors.Is(err, admin.ErrTokenChanged) && !after.Held {
			err = nil // it was freed meanwhile, and perhaps more than once
		}
	}
	if err != nil {
		return failed(err)
	}
	freed := before.Held && after.Token == before.Token
	r := describe(p, after)
	text := fmt.Sprintf("%s was free already: token %d\n", r.Lock, r.Token)
	if freed {
		text = fmt.Sprintf("%s freed: it was held by %s, token %d\n", r.Lock, printable(before.Holder), r.Token)
		a.console.warn("%s may work on until its next renewal, up to %v from now", printable(before.Holder), before.TTL/3)
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
