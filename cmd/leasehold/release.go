package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
)

func (a *app) release() *cobra.Command {
	var storeURL string
	cmd := &cobra.Command{
		Use:   "release [flags] [FILE|-]",
		Short: "Release a lease from leasehold acquire",
		Long: `Release a lease of leasehold acquire, so that the next holder need not wait. The lease is in
FILE, on stdin with -, or without either in the variable LEASEHOLD_LEASE. The work under it
must have ended. FILE says afterwards that there is nothing to go on with.

A lease that is over is released too if nobody has taken the lock since; the exit code is 76
all the same, because the work under it was not protected until its end.

Exit codes:
  0      the lock is not held by this lease any more
  64     usage
  65     FILE is not a lease that this version understands, says of its store or lock what cannot
         be, or is of another store than --store-url
  66     there is no such FILE, or it cannot be read; or the directory of its file:// store is
         not there
  69     the store failed three times in a row, or refused for good: try again, or let others wait
         until the lease is over
  76     the lease was lost before: it was over; another has the lock; it was released already or
         broken; or another copy of it was used
  77     the store denied access`,
		Example: `  leasehold release lease.json
  leasehold release   # the lease in LEASEHOLD_LEASE`,
		Args: atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := leaseFrom(args)
			if err != nil {
				return err
			}
			return untilSignal(cmd.Context(), func(ctx context.Context) error { return a.releaseLease(ctx, in, storeURL) })
		},
	}
	cmd.Flags().StringVar(&storeURL, "store-url", "", "`URL` of the store, and not the one in the lease: for other credentials")
	return cmd
}

func (a *app) releaseLease(ctx context.Context, in keptLease, storeURL string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d, lock, unlock, err := a.useKept(ctx, in, storeURL, 0)
	if err != nil {
		return err
	}
	defer unlock()
	over := d.Released
	err = lock.ReleaseDetached(ctx, d)
	// A lease that was lost is over for good as well: nothing that has its name can stand again.
	if ended := err == nil || errors.Is(err, leasehold.ErrLost); ended && !over && in.file != "" {
		told := d
		told.Released = true
		if e := in.file.write(told); e != nil { // the lock is free, which is what was asked for
			a.console.warn("the lease is over, and %s could not be told so: %v", string(in.file), e)
		}
	}
	if err != nil {
		return lostLease(&d, err)
	}
	a.console.note("released %s%s", d.Key, withToken(d.Token))
	return nil
}
