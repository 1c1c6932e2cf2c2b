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
		Long: `Make the object of a lock, free, if there is none, and the directory of a file://
URL, which other commands do not make unless they are told --mkdir.

With the object made once and "run --existing" everywhere, nobody makes it again
when it was deleted by mistake: without it, tokens might begin anew.`,
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
