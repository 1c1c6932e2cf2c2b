package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
)

func (a *app) init() *cobra.Command {
	var opts leasehold.LockOptions
	cmd := &cobra.Command{
		Use:   "init LOCK",
		Short: "Create a lock",
		Long: `Create a lock, free, if it does not exist.

The directory of a file:// URL is created, too. Other commands create it only
with --mkdir.

Create each lock once, and use run --existing everywhere. Then a lock that was
deleted by mistake is not created again, which could make its tokens start over.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !opts.Layout.Tokens() {
				return usage("with --layout %s there is an object only while the lock is held: there is nothing to make", opts.Layout)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			a.mkdir = true
			p, lock, err := a.open(ctx, args[0], &opts)
			if err != nil {
				return err
			}
			made := false
			info, err := inspect(ctx, p, lock)
			if err == nil && !info.Exists {
				info, made, err = admin.Init(ctx, lock)
			}
			if err != nil {
				return failed(err)
			}
			r := describe(p, info)
			text := fmt.Sprintf("%s was there already: %s, token %d\n", r.Lock, r.State, info.Token)
			if made {
				text = fmt.Sprintf("%s made: %s, token %d\n", r.Lock, r.State, info.Token)
			}
			return a.print(text, struct {
				Made bool `json:"made"`
				report
			}{made, r})
		},
	}
	layoutFlag(cmd.Flags(), &opts.Layout)
	return cmd
}
