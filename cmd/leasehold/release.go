package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/detached"
)

func (a *app) release() *cobra.Command {
	var storeURL string
	cmd := &cobra.Command{
		Use:   "release [flags] [FILE|-]",
		Short: "Release a lease from leasehold acquire",
		Long: `Release a lease from leasehold acquire, so that the next holder need not wait.

The lease is in FILE, on stdin with -, or by default in LEASEHOLD_LEASE. End the
work under it first. FILE is marked as released.

An expired lease is released, too, if no one has taken the lock since. The exit
code is still 76, because the lease did not protect the work until its end.

Exit codes:
  0   this lease no longer holds the lock
  64  usage
  65  this version does not understand FILE, or its store or lock is invalid, or
      it is for another store than --store-url
  66  FILE does not exist or cannot be read, or the directory of its file://
      store does not exist
  69  the store failed three times in a row, or permanently refused: try again,
      or wait until the lease expires
  76  the lease was lost before: it had expired; another holds the lock; it was
      released or broken; or another copy of it was used
  77  the store denied access`,
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
	cmd.Flags().StringVar(&storeURL, "store-url", "", "`URL` of the store instead of the one in the lease, for\nother credentials")
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
	err = detached.Release(ctx, lock, d)
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
