package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/store/quorumstore"
)

func (a *app) quorumCollect() *cobra.Command {
	var opts quorumstore.CollectOptions
	cmd := &cobra.Command{
		Use:   "collect STORE",
		Short: "Garbage-collect deleted objects",
		Long: `Garbage-collect the deletion markers that deleted objects leave in the members.

Shards and fences delete objects all the time, so run this once a day. You can
use the locks meanwhile. If it is interrupted, run it again.

A marker is removed once every member has had it for a day, by its own clock. A
member that missed the deletion gets the marker now, and the next day's run
removes it. Each key that is completely removed is shown.

Requirements: all members must respond, vote, report their times and support
conditional deletes, which is tested first. If a member's server deletes an
object that has changed meanwhile, the exit code is 64, and nothing is removed.
MinIO, versitygw and Ceph are such servers.

If there is anything to remove, this creates a new configuration with the same
members. With --dry-run, the members are tested, and the quorum is not changed.`,
		Example: `  leasehold quorum collect quorum://main`,
		Args:    one,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			st, err := a.openQuorum(ctx, args[0])
			if err != nil {
				return err
			}
			var failure error
			opts.OnKey = func(key string) {
				if failed := a.quorumCollected(key, !opts.DryRun); failure == nil {
					failure = failed
				}
			}
			did, err := st.Collect(ctx, &opts)
			if err = a.quorumCollects(args[0], did, opts.DryRun, err); err != nil {
				return err
			}
			return failure
		},
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "show what would be removed, and remove nothing")
	return cmd
}

// quorumCollects reports what was done, even if the run then failed.
func (a *app) quorumCollects(name string, did quorumstore.Collected, dry bool, err error) error {
	result := "%d deleted objects are gone; %d were settled, and can go in a day; %d were touched meanwhile"
	if dry {
		result = "%d deleted objects would be gone; %d would be settled, and could go a day later; %d were touched meanwhile"
	}
	if err == nil || did.Gone+did.Settled > 0 {
		a.console.tell(result, did.Gone, did.Settled, did.Left)
	}
	if err != nil {
		return a.quorumFailed(name, err)
	}
	return nil
}

// quorumCollected shows one key.
func (a *app) quorumCollected(key string, deleted bool) error {
	if a.output != "json" {
		return a.write(fmt.Sprintf("%s\n", plain.Word(key)))
	}
	return a.writeLine(struct {
		Object  string `json:"object"`
		Deleted bool   `json:"deleted"`
	}{key, deleted})
}
